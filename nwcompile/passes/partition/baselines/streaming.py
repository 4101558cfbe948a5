"""Streaming partitioner: every neuron is looked at once and given to the part it exchanges most spikes with.

After EdgeMap (Xue et al., Sensors 23(14):6548, 2023), which partitions by streaming with the fan-in and fan-out limits
of cores. Assumed, as its score could not be read: linear deterministic greedy (Stanton and Kliot, KDD 2012), spikes to
a part times the part's free share, neurons in the order of the layers. Limits of axons and memory are kept afterwards,
as for every method of `nwcompile.passes.partition.graph_partition`.
"""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_lines
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.kernels.mapping import streaming as one_look
from nwcompile.passes.partition.graph_partition import cores_of_parts
from nwcompile.passes.partition.synapse_graph import SynapseGraph, n_twins, synapse_graph


def streaming(network: Network, chip: Chip, activity: Activity, options: Options) -> dict[str, np.ndarray]:
    """Cores int32[n] of every layer, from the parts as `nwcompile.passes.partition.graph_partition` makes them fit.

    Input lines come first, take no room, and draw together what they feed. The seed changes nothing. Raises
    OptionError for more edges than the graph may have.
    """
    graphs: dict[int, SynapseGraph] = {}
    n_lines = count_lines(network)

    def parts_for(limits: np.ndarray) -> np.ndarray:
        twins = n_twins(network, len(limits))
        if twins not in graphs:
            graphs[twins] = synapse_graph(network, activity, twins, "streaming")
        graph = graphs[twins]
        size, order = graph.n_neurons.astype(np.int64), np.arange(len(graph.n_neurons))
        part = one_look.stream(graph.start, graph.other, graph.weight, size, limits[:, kernels.NEURONS], order)
        return part[graph.vertex_of[n_lines:]]

    return cores_of_parts(network, chip, activity, options, "streaming", parts_for)
