"""The stages of the compiler: functions from one Draft to the next, which call the functions of the other folders.

Draft and Stage, the data of the pipeline             Draft, Stage   draft.py
every stage, their order, the loop that runs them     STAGES, run    run.py
advice after an error, and chips that would fit       refuse         refusal.py
"""
