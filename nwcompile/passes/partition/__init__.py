"""Neurons to logical cores, within every limit of the chip. `partition.py:partition` is the stage; it calls a method.

    step                                            function                    file
    choose a method, put its cores at sites         partition                   partition.py
    what a method gives                             LogicalCores                logical_cores.py
    method `floorline`, the default                 floorline                   floorline/floorline.py
    method `sequential`: slices of each layer       sequential                  sequential.py
    method `striped`: pixels dealt over the cores   striped                     striped.py
    method `metis`: the cut of the synapse graph    metis                       metis.py
    parts of a graph made to fit cores exactly      fit_parts                   graph_partition.py
    the graph that is cut                           synapse_graph               synapse_graph.py
    what would make a network fit that does not     smallest_change             suggest_fit.py

`baselines/` holds methods of papers that are kept only for comparison.
"""

ERROR_CODE = "NW5003"
