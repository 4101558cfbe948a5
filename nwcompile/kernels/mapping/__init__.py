"""Hot loops of partition and placement.

step                                            kernel                      file
random numbers, Metropolis rule                 random_below, is_taken      random.py
resource use of one core                        fill, fill_choosing         core_usage.py
rows and spikes of clusters                     cluster_rows, spikes_of     clusters.py
structures of cluster demand and core state     Demand, CoreState           cluster_state.py
moves of clusters between cores, exact cost     relocate, anneal_clusters   moves.py
annealing of the smooth step time               anneal_smoothly             smooth_anneal.py
annealing of routed hops                        minimize_hops               traffic_anneal.py
annealing of cores on sites                     anneal_cores                placement.py
relief of the hottest link                      cool_links                  link_load.py
published placers                               climb, fly, relax           local_search.py
published partitioners                          refine_pair, stream         kernighan_lin.py, streaming.py
multicast trees from routes                     merge_routes                trees.py
counts of messages, axons and events            core_messages, merge_rows   link_flits.py, traffic.py
compact regions of routers                      compact_router              traffic.py
"""
