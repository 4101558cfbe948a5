"""Floorline: the default partitioner, which minimizes step time, energy, cores or traffic within the chip's limits.

step                                            function                          file
number of cores, then finer and finer clusters  partition_by_floorline            floorline.py
shared data and results of all searches         Search, Partition                 search.py
neurons that move together                      fitting_clusters, halve_clusters  clusters.py
demand of clusters on cores                     cluster_demand                    demand.py
annealing by the smooth, then the exact time    improve_clusters                  cluster_search.py
annealing by routed hops                        anneal_hops                       min_traffic.py
weights of the objective                        objective_weights                 objective.py
links in the step time, and its limit           step_cycles, max_cycles           objective.py

The hot loops are in `kernels/mapping`: moves.py, smooth_anneal.py and traffic_anneal.py, on cluster_state.py.
"""
