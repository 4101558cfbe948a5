"""Sweeps: run one network at many points of chips, options and inputs; store, search and show the results.

what                                                          function                    file
the sweep: rows of all points                                 sweep, Sweep                sweep.py
keys and values; chip, options and input of a point           read_grid, Space, Point     points.py
a point compiled, run and measured                            measure_point               measure.py
processes, or a dask cluster; retries of killed ones          Workers                     workers.py
the table on disk, locked                                     Store                       store.py
which points to compute next, by Optuna                       search_points, Search       search.py
the rows that no other row beats                              pareto_front                sweep.py
a TOML plan read                                              read_plan                   plan.py
the page: front, parallel coordinates, points                 render_page                 page.py
"""

ERROR_CODE = "NW7005"
