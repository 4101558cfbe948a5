"""Streaming: a partitioner that visits every neuron once and puts it into the part with which it exchanges most spikes.

After EdgeMap (Xue et al., Sensors 23(14):6548, 2023), which partitions by streaming with the fan-in and fan-out limits
of cores. Assumed, because its score was not accessible: linear deterministic greedy (Stanton and Kliot, KDD 2012),
spikes to a part times the part's free share, neurons in layer order. Limits of axons and memory are enforced
afterwards, as for every method that uses `graph_partition`.
"""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import streaming as one_look
from nwcompile.passes.partition.graph_partition import fit_parts, parts_of_graph
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.synapse_graph import SynapseGraph, synapse_graph


def partition_by_streaming(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition in one pass and return cores int32[n] of every layer (see `graph_partition`).

    Input lines come first, take no room, and attract their targets to one part. The seed has no effect. Raises
    OptionError for more edges than the graph may have.
    """

    def cut(graph: SynapseGraph, room: np.ndarray) -> np.ndarray:
        size, order = graph.n_neurons.astype(np.int64), np.arange(len(graph.n_neurons))
        return one_look.stream(graph.start, graph.other, graph.weight, size, room, order)

    parts_for = parts_of_graph(network, lambda twins: synapse_graph(network, activity, twins, "streaming"), cut)
    return fit_parts(network, chip, activity, options, "streaming", parts_for)
