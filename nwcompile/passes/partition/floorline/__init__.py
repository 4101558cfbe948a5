"""The default partitioner: least predicted step time, or energy, cores or traffic, under every limit of the chip.

    step                                            function                    file
    numbers of cores, then finer and finer clusters floorline                   floorline.py
    what all searches share and give                Search, Partition           search.py
    neurons that move together                      fitting_clusters, split     clusters.py
    what clusters ask of cores                      cluster_demand              demand.py
    weights of what is made small                   weights                     objective.py
    annealing by the smooth, then the exact time    improved                    cluster_search.py
    annealing by routed hops                        least_traffic               min_traffic.py
    links in the step time, and its limit           step_cycles, max_cycles     step_time.py

The hot loops are in `kernels/mapping`: moves.py, smooth_anneal.py and traffic_anneal.py, on cluster_state.py.
"""
