"""The stages of the compiler: each takes a `Draft` (draft.py) and gives the next one; stages.py has them in order.

    room         what it does                                                  its stages and their functions
    prepare/     how input comes to the chip; a network without training parts  stages.py, normalize.py:normalize
    legalize/    what the chip's neurons cannot do, rewritten                   stages.py, legalize.py:legalize
    quantize/    float numbers -> the chip's integers                           stages.py, quantize.py:quantize
    fit/         what a core holds, and every limit that is exceeded            stages.py, check.py:check
    partition/   neurons -> cores                                               stages.py, partition.py:partition
    place/       cores -> sites                                                 stages.py, place.py:place
    emit/        visiting order; the tables a chip is loaded with               stages.py, emit.py:emit, visit_order.py

`partition/` and `place/` choose among methods by name; those of other papers are in their `baselines/`.
"""
