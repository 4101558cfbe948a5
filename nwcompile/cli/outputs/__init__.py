"""What several verbs tell: how far compiling is (progress.py), what lies on the cores of a program (cores.py), a
timeline (trace.py), what a stream gave (stream.py); tables and JSON on a terminal (text.py)."""
