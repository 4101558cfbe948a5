"""Placers of papers, kept for comparison.

method                                          function                    file
`force`: springs between cores                  force                       local_search.py
`hill-climb`: each core to its best site        hill_climb                  local_search.py
`pso`: a swarm of placements                    pso                         local_search.py
`neumap`: annealing in a sub-mesh               neumap                      sub_mesh.py
"""
