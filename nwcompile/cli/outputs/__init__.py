"""Write the output of several verbs: progress of compiling (progress.py), the cores of a program (cores.py), a
timeline (trace.py), the results of a stream (stream.py); tables and JSON on a terminal (text.py)."""
