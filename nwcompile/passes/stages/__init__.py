"""The stages of the compiler: functions from one Draft to the next, which call the functions of the other folders.

Draft and Stage, the data of the pipeline             Draft, Stage   draft.py
all stages in order, and the loop that runs them      STAGES, run    run.py
advice after an error, and chips that would fit       refuse         refusal.py
input mode; scales and norms folded                   STAGES         prepare.py
unsupported features rewritten; the schedule          STAGES         legalize.py
integers, approximations, comparisons of currents     STAGES         quantize.py
wide fan-ins, long delays; activity                   STAGES         fit.py
neurons -> cores; copies                              STAGES         partition.py
cores -> sites, checked; the order of visits          STAGES         place.py
the program                                           STAGES         emit.py
"""
