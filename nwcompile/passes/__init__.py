"""The compiler: stages that bring a network to a chip, and the functions that they call.

    room         what it does                                                   main function
    stages/      the stages, in order; each calls functions of the rooms below  run.py:run
    prepare/     how input comes to the chip; scales and norms folded           input_layer.py, normalize.py:normalize
    legalize/    what the chip's neurons cannot do, rewritten                   legalize.py:legalize
    quantize/    float numbers -> the chip's integers                           quantize.py:quantize
    fit/         what a core holds, and every limit that is exceeded            check.py:check
    partition/   neurons -> cores                                               partition.py:partition
    place/       cores -> sites                                                 place.py:place
    emit/        visiting order; the tables a chip is loaded with               emit.py:emit, visit_order.py

`partition/` and `place/` choose among methods by name; those of other papers are in their `baselines/`.
"""
