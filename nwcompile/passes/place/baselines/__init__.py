"""Placers of papers, kept for comparison.

method                                    function            file
`force`: springs between cores            place_by_force      local_search.py
`hill-climb`: each core to its best site  hill_climb          local_search.py
`pso`: a swarm of placements              place_by_swarm      local_search.py
`neumap`: annealing in a sub-mesh         place_by_neumap     sub_mesh.py
"""
