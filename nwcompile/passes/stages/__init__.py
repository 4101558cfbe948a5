"""The stages of the compiler: functions from a Draft to the next one, which call what the other folders have.

what goes through the stages                          Draft, Stage   draft.py
all of them in order, and the loop over them          STAGES, run    run.py
what would help, and which chips take the network     refuse         refusal.py
how input comes to the chip; scales and norms folded  STAGES         prepare.py
what the chip cannot do, rewritten; the schedule      STAGES         legalize.py
integers, approximations, currents that are compared  STAGES         quantize.py
wide fan-ins, delays; how often neurons send          STAGES         fit.py
neurons -> cores; copies                              STAGES         partition.py
cores -> sites, checked; the order of visits          STAGES         place.py
the program                                           STAGES         emit.py
"""
