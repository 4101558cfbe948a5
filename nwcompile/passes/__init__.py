"""The compiler: stages that map a network to a chip, and the functions that they call.

    folder       what it does                                                       main function
    stages/      the stages, in order; each calls functions of the folders below    run.py:run
    prepare/     chooses how input reaches the chip; folds scales and norms         input_layer.py, normalize.py
    analyze/     what a chip holds and can do, and which limits a network exceeds   check.py:check
    legalize/    rewrites what the chip's neurons cannot do                         legalize.py:legalize
    quantize/    float numbers -> the chip's integers; approximations               quantize.py:quantize
    fit/         rewrites what cores and delays cannot hold                         split_fan_in.py, relay_delays.py
    place/       cores -> sites                                                     place.py:place
    partition/   neurons -> cores                                                   partition.py:partition
    emit.py      visiting order; the tables a chip is loaded with                   emit.py:interleave_visits, emit

A folder imports only folders above it in this list, and `stages/` imports them all. `partition/` is listed below
`place/` because it places clusters during its search. Both choose a method by name. Methods of other papers are in
their `baselines.py`.
"""
