"""Sweeps: one network at many points of chips, options and inputs; kept point by point, searched, shown on a page.

what                                                          function                    file
the sweep: rows of all points                                 sweep, Sweep                sweep.py
keys and values; what a point stands for                      read_grid, Space, Point     points.py
a point compiled, run and measured                            measure                     measure.py
processes, or a dask cluster; what happens to a killed one    Workers                     workers.py
the table on disk, locked                                     Store                       store.py
which points are asked for next, by Optuna                    searched, Search            search.py
the rows that no other row beats                              front                       front.py
a TOML plan read                                              read_plan                   plan.py
the page: front, parallel coordinates, points                 page                        page.py
"""

ERROR_CODE = "NW7005"
