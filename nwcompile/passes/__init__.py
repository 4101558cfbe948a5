"""The stages of the compiler, in the order in which `nwcompile/flow.py` calls them: frozen values in, a new one out.

    room         what it does                                              main function
    prepare/     a network the chip can run: folded, pruned, scheduled     normalize.py:normalize, schedule.py:schedule
    quantize/    float numbers -> the chip's integers                      quantize.py:quantize
    fit/         what a core holds, and every limit that is exceeded       check.py:check, capacity.py:account
    partition/   neurons -> cores                                          partition.py:partition
    place/       cores -> sites                                            place.py:place
    emit/        the tables that the chip is loaded with                   emit.py:emit

`partition/` and `place/` choose among methods by name; those of other papers are in their `baselines/`.
"""
