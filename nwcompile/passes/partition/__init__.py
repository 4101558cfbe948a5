"""Partition: assign neurons to logical cores within every limit of the chip. `partition.py:partition` is the stage.

step                                           function                 file
choose a method, put its cores at sites        partition                partition.py
the result of a method                         LogicalCores             logical_cores.py
method `floorline`, the default                partition_by_floorline   floorline/floorline.py
method `sequential`: slices of each layer      cut_slices               sequential.py
method `striped`: pixels dealt over the cores  cut_stripes              graph_partition.py
method `metis`: minimal cut of the graph       partition_by_metis       graph_partition.py
makes the parts of a graph fit cores exactly   fit_parts                graph_partition.py
the graph that is cut                          synapse_graph            synapse_graph.py
methods of papers, kept for comparison         partition_hypergraph...  baselines.py
changes with which a network would fit         smallest_change          suggest_fit.py
"""

ERROR_CODE = "NW5003"
