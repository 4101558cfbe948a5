"""Place: assign logical cores to sites with short routes. `place.py:place` is the stage; it calls a method.

step                                             function                         file
choose a method, check its sites                 place                            place.py
messages, route costs, allowed sites             placement_problem                problem.py
method `anneal`, the default                     anneal                           anneal.py
temperatures and chunks of any annealing         cool                             anneal.py
method `routed`: also relieves the hottest link  place_by_routes                  congestion.py
methods `row-major`, `random`                    row_major, place_randomly        direct.py
method `hilbert`: along the Hilbert curve        place_by_hilbert                 direct.py
method `spectral`: slowest eigenvectors          place_by_spectrum                direct.py
cores of each chip, on a board                   region_sizes                     chip_regions.py
the fewest chips of a board                      take_fewest_chips                chip_regions.py
methods `force`, `hill-climb`, `pso`             place_by_force, ...              baselines.py
method `neumap`: annealing in a sub-mesh         place_by_neumap                  baselines.py

Nothing here imports `passes/partition`.
"""

ERROR_CODE = "NW5004"
