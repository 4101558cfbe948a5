"""Write the output of several verbs: progress of compiling (progress.py), a timeline (trace.py), the results of a
stream (stream.py); tables, JSON and the cores of a program (text.py); text, wrapped at 80 columns (terminal.py)."""
