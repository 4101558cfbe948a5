"""Logical cores to sites, so that messages take short routes. `place.py:place` is the stage; it calls a method.

    step                                            function                    file
    choose a method, judge its sites                place                       place.py
    messages, costs of routes, who may go where     placement_problem           problem.py
    method `anneal`, the default                    anneal                      anneal.py
    temperatures and chunks of any annealing        cool                        annealing.py
    method `routed`: then cool the hottest link     routed                      congestion.py
    methods `row-major`, `random`, `hilbert`        row_major, random, hilbert  space_filling.py
    method `spectral`: the slowest waves            spectral                    spectral.py
    which chip of several takes which cores         region_sizes                chip_regions.py
    the fewest chips of a board                     on_fewest_chips             chip_regions.py

`baselines/` holds methods of papers that are kept only for comparison. Nothing here imports `passes/partition`.
"""

ERROR_CODE = "NW5004"
