"""NeuMap: a partitioner that joins adjacent layers into sub-networks and cuts each of them into clusters.

After NeuMap (Xiao et al., "Optimal Mapping of Spiking Neural Network to Neuromorphic Hardware for Edge-AI", Sensors
22(19):7248, 2022), of which only the abstract was accessible: communication is computed, not simulated on a chip;
adjacent layers are divided into sub-networks, and each is partitioned into clusters within the limits of the hardware.
Assumed: two layers per sub-network, `LAYERS_TOGETHER`; spikes are those of `activity`; METIS cuts clusters, for the
fewest spikes between them; each sub-network gets cores in proportion to its neurons.
"""

import numpy as np
from scipy.sparse import csr_array

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_lines, layer_numbers
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.partition.graph_partition import fit_parts, parts_of_graph
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.metis import metis_parts
from nwcompile.passes.partition.synapse_graph import SynapseGraph, synapse_graph

# The fewest layers that are adjacent; more would be cut by the same algorithm as SNEAP's.
LAYERS_TOGETHER = 2


def partition_by_neumap(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition with NeuMap's method and return cores int32[n] of every layer (see `graph_partition`).

    Layers are adjacent in the network's order; input lines belong to the first sub-network. With fewer cores than
    sub-networks, neighboring sub-networks are joined. Raises OptionError for more edges than METIS can take.
    """
    lines = np.zeros(count_lines(network), np.int64)
    sub_network = np.concatenate([lines, layer_numbers(network) // LAYERS_TOGETHER])

    def cut(graph: SynapseGraph, room: np.ndarray) -> np.ndarray:
        of_vertex = np.zeros(len(graph.n_neurons), np.int64)
        of_vertex[graph.vertex_of] = sub_network
        return _cut_clusters(graph, of_vertex, room, options.seed)

    parts_for = parts_of_graph(network, lambda twins: synapse_graph(network, activity, twins, "neumap"), cut)
    return fit_parts(network, chip, activity, options, "neumap", parts_for)


def _cut_clusters(graph: SynapseGraph, sub_network: np.ndarray, room: np.ndarray, seed: int) -> np.ndarray:
    """Return int32[vertex]: parts of `room` int64[part], in the order of sub-networks (int64[vertex])."""
    n_all = int(sub_network.max()) + 1
    sub_network = sub_network * min(len(room), n_all) // n_all
    edges = csr_array((graph.weight, graph.other, graph.start), shape=(len(sub_network), len(sub_network)))
    part, first = np.empty(len(sub_network), np.int32), 0
    for i, n_parts in enumerate(_share_parts(np.bincount(sub_network, graph.n_neurons), len(room))):
        members = np.flatnonzero(sub_network == i)
        inside = edges[members][:, members]
        start, other = inside.indptr.astype(np.int32), inside.indices.astype(np.int32)
        cut = SynapseGraph(start, other, inside.data, np.arange(len(members)), graph.n_neurons[members])
        part[members] = first + metis_parts(cut, room[first : first + n_parts], seed)
        first += n_parts
    return part


def _share_parts(n_neurons: np.ndarray, n_parts: int) -> np.ndarray:
    """Return int64[sub-network]: one part for each, and further parts where most neurons share one."""
    share = np.ones(len(n_neurons), np.int64)
    for _ in range(n_parts - len(share)):
        share[(n_neurons / share).argmax()] += 1
    return share
