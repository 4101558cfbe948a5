"""The stages of the compiler, in the order in which `nwcompile/flow.py` calls them: frozen values in, a new one out.

    room         what it does                                              main function
    prepare/     a network the chip can run: legal, folded, scheduled      legalize.py:legalize, normalize.py:normalize
    quantize/    float numbers -> the chip's integers                      quantize.py:quantize
    fit/         what a core holds, and every limit that is exceeded       check.py:check
    partition/   neurons -> cores                                          partition.py:partition
    place/       cores -> sites                                            place.py:place
    emit/        visiting order; the tables a chip is loaded with          emit.py:emit, visit_order.py

`partition/` and `place/` choose among methods by name; those of other papers are in their `baselines/`.
"""
