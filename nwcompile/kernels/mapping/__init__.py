"""Hot loops of partition and placement.

step                                            kernel                      file
random numbers, Metropolis's rule               below, is_taken             random.py
the running account of one core                 fill, fill_choosing         core_usage.py
what clusters read and send                     cluster_rows, spikes_of     clusters.py
structures of what clusters ask and cores hold  Demand, CoreState           cluster_state.py
clusters put on and taken off cores; the exact  relocate, anneal_clusters   moves.py
the smooth step time annealed                   anneal_smoothly             smooth_anneal.py
routed hops annealed                            minimize_hops               traffic_anneal.py
cores annealed between sites                    anneal_cores                placement.py
the hottest link cooled                         cool_links                  link_load.py
placers of papers                               climb, fly, relax           local_search.py
partitioners of papers                          refine_pair, stream         kernighan_lin.py, streaming.py
routes of a message merged into a tree          merge_routes                trees.py
messages, axons and events counted              core_messages, merge_rows   link_flits.py, traffic.py
cores near one another                          compact_router              traffic.py
"""
