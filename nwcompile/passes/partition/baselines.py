"""Baselines: partitioners of papers, kept for comparison. None wins on a net of the benchmarks.

`hypergraph`: Mt-KaHyPar's parts. `kernighan-lin`: SpiNeMap's SpiNeCluster. `neumap`: adjacent layers together.
`streaming`: EdgeMap's single pass. All return cores int32[n] of every layer, made to fit exactly by `graph_partition`.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from nwcompile.cost.traffic.wiring import connection_wiring, synapse_count
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_lines, csr_entries, layer_numbers
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import grouped
from nwcompile.kernels.mapping import kernighan_lin as kernighan_lin_kernels
from nwcompile.kernels.mapping import streaming
from nwcompile.passes.partition.graph_partition import metis_parts, partition_graph
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.synapse_graph import FINE, LARGEST_WEIGHT_SUM, SynapseGraph, group_vertices

LARGEST_IMBALANCE = 0.05  # hypergraph: of the parts' neurons, if cores have as much to spare
MOST_PINS = 20_000_000  # hypergraph: some 50 bytes each while they are passed on
MOST_SWEEPS = 4  # kernighan-lin: sweeps over all pairs of parts
LAYERS_TOGETHER = 2  # neumap: the fewest layers that are adjacent; more would be cut by the same algorithm as SNEAP's


def partition_hypergraph(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition with Mt-KaHyPar for the fewest messages between parts, one per spike and part.

    Mt-KaHyPar (Gottesbüren et al., ACM Trans. Algorithms 20(1), 2024) minimizes connectivity, the sum over hyperedges
    of weight times parts touched less one. A hyperedge is a neuron with all neurons that read it, weighted by its
    spikes. On a chip with one message per spike and core, that is the traffic between cores (Ronzani and Silvano, arXiv
    2601.16118). Its deterministic preset is used, so threads do not change the result. Input lines are vertices without
    weight. Raises OptionError if Mt-KaHyPar is not installed, and for too many pins.
    """
    load_library()
    n_lines = count_lines(network)

    def cut(graph: Hypergraph, room: np.ndarray) -> np.ndarray:
        size = np.bincount(graph.vertex_of[n_lines:], minlength=len(graph.weight))
        return _cut_hypergraph(graph.pins, graph.weight, size, room, options.seed)

    return partition_graph(network, chip, activity, options, "hypergraph", cut, build_hypergraph)


class Hypergraph(NamedTuple):
    """A hypergraph with one hyperedge for every vertex."""

    pins: list[np.ndarray]  # int64[...]: the vertices of each hyperedge, including its own
    weight: np.ndarray  # int64[vertex]: spikes, 1 or more
    vertex_of: np.ndarray  # int32[source], as in `nwcompile.passes.partition.synapse_graph.group_vertices`


@cache
def load_library():
    """Return the module `mtkahypar` and its initializer. Raises OptionError if it is not installed."""
    try:
        import mtkahypar
    except ImportError:
        raise OptionError(
            "partitioner 'hypergraph' needs Mt-KaHyPar, which is not installed: pip install 'nwcompile[hypergraph]' "
            "(package mtkahypar)",
            code="NW1102",
        ) from None
    return mtkahypar, mtkahypar.initialize(1, print_warnings=False)


def build_hypergraph(network: Network, activity: Activity, max_twins: int) -> Hypergraph:
    """Build one hyperedge for every vertex, itself and all its readers, with up to `max_twins` twins per vertex."""
    wires = [connection_wiring(network, c) for c in network.connections]
    n_synapses = sum(synapse_count(network, c) for c in network.connections)
    vertex_of = group_vertices(network, wires, max_twins if n_synapses > FINE else 1)
    n_vertices = int(vertex_of.max()) + 1
    keys = [np.arange(n_vertices, dtype=np.int64) * (n_vertices + 1)]
    n_pins = n_vertices
    for c, w in zip(network.connections, wires, strict=True):
        first, n = network.offsets[c.target], network.node(c.target).n_neurons
        offset, target, _ = w.core_rows(vertex_of[first : first + n])
        first, n = network.offsets[c.source], network.node(c.source).n_neurons
        source, at = np.unique(vertex_of[first : first + n], return_index=True)
        row = w.source_class[at]
        length = np.diff(offset)[row]
        n_pins += int(length.sum())
        if n_pins > MOST_PINS:
            raise OptionError(
                f"partitioner 'hypergraph' makes over {grouped(MOST_PINS)} pins of the synapses; "
                "use partitioner='sequential'"
            )
        keys.append(np.repeat(source.astype(np.int64), length) * n_vertices + target[csr_entries(offset, row)])
    key = np.unique(np.concatenate(keys))
    ends = np.cumsum(np.bincount(key // n_vertices, minlength=n_vertices))[:-1]
    spikes = np.concatenate([activity.counts[name].sum(0, dtype=np.int64) for name in network.offsets])
    weight = np.zeros(n_vertices, np.int64)
    np.add.at(weight, vertex_of, spikes)
    weight = np.maximum(1, weight // (1 + int(weight.sum()) // LARGEST_WEIGHT_SUM))
    return Hypergraph(np.split(key % n_vertices, ends), weight, vertex_of)


def _cut_hypergraph(pins, weight: np.ndarray, size: np.ndarray, room: np.ndarray, seed: int) -> np.ndarray:
    """Return int32[vertex]: the part that Mt-KaHyPar gives each vertex; `size` int64[vertex] is its neurons."""
    mtkahypar, started = load_library()
    context = started.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.logging = False
    mtkahypar.set_seed(seed % (1 << 31))
    spare = min(LARGEST_IMBALANCE, int(room.sum()) / int(size.sum()) - 1)
    context.set_partitioning_parameters(len(room), max(spare, 0.0), mtkahypar.Objective.KM1)
    if (room != room[0]).any():
        share = np.ceil(room * (size.sum() * (1 + spare) / room.sum())).astype(np.int64)
        context.set_individual_target_block_weights(np.maximum(np.minimum(room, share), 1).tolist())
    nets = [row.tolist() for row in pins]
    made = started.create_hypergraph(context, len(size), len(nets), nets, size.tolist(), weight.tolist())
    return np.asarray(made.partition(context).get_partition(), np.int32)


def kernighan_lin(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition by Kernighan-Lin refinement: swap neurons between parts while fewer spikes cross between parts.

    After SpiNeCluster of SpiNeMap (Balaji et al., IEEE TVLSI 28(1), 2020, arXiv 1909.01843), which partitions greedily
    in the manner of Kernighan and Lin (Bell System Technical Journal 49(2), 1970) for the fewest spikes on synapses
    between clusters. Assumed, because the paper's start and order were not accessible: parts begin as slices of the
    neurons in order; sweeps refine pairs of parts, heaviest traffic first, until nothing is saved, at most
    `MOST_SWEEPS` times. Input lines are on no core and do not count. The seed chooses among equal pairs. Raises
    OptionError for more edges than the graph may have.
    """

    def cut(graph: SynapseGraph, room: np.ndarray) -> np.ndarray:
        part = _initial_slices(graph.n_neurons, room)
        _refine_parts(graph, part, len(room), np.random.default_rng(options.seed))
        return part

    return partition_graph(network, chip, activity, options, "kernighan-lin", cut)


def _initial_slices(n_neurons: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return int32[vertex]: contiguous parts in proportion to `room` int64[part]; vertices without neurons: -1."""
    share = np.cumsum(room) / room.sum()
    middle = (np.cumsum(n_neurons) - n_neurons / 2) / n_neurons.sum()
    part = np.minimum(np.searchsorted(share, middle, side="right"), len(room) - 1)
    return np.where(n_neurons > 0, part, -1).astype(np.int32)


def _refine_parts(graph: SynapseGraph, part: np.ndarray, n_parts: int, rng: np.random.Generator) -> None:
    """Swap vertices between parts, in place, for one pair after another of parts that exchange spikes."""
    edges = graph.start, graph.other, graph.weight
    scratch = np.zeros(len(part), np.int64), np.zeros(len(part), bool), np.zeros(len(part), np.int64)
    for _ in range(MOST_SWEEPS):
        crossing = np.triu(kernighan_lin_kernels.traffic_between(*edges, part, n_parts), 1)
        first, second = np.nonzero(crossing)
        order = np.lexsort((rng.permutation(len(first)), -crossing[first, second]))
        saved = 0
        for a, b in zip(first[order], second[order], strict=True):
            members = [np.flatnonzero(part == p) for p in (a, b)]
            both = np.concatenate(members)
            saved += kernighan_lin_kernels.refine_pair(*edges, graph.n_neurons, part, both, len(members[0]), *scratch)
        if saved == 0:
            return


def partition_by_neumap(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition with NeuMap's method: join adjacent layers into sub-networks and cut each of them into clusters.

    After NeuMap (Xiao et al., "Optimal Mapping of Spiking Neural Network to Neuromorphic Hardware for Edge-AI", Sensors
    22(19):7248, 2022), of which only the abstract was accessible: communication is computed, not simulated on a chip;
    adjacent layers are divided into sub-networks, and each is partitioned into clusters within the limits of the
    hardware. Assumed: two layers per sub-network, `LAYERS_TOGETHER`; spikes are those of `activity`; METIS cuts
    clusters, for the fewest spikes between them; each sub-network gets cores in proportion to its neurons.
    Layers are adjacent in the network's order; input lines belong to the first sub-network. With fewer cores than
    sub-networks, neighboring sub-networks are joined. Raises OptionError for more edges than METIS can take.
    """
    lines = np.zeros(count_lines(network), np.int64)
    sub_network = np.concatenate([lines, layer_numbers(network) // LAYERS_TOGETHER])

    def cut(graph: SynapseGraph, room: np.ndarray) -> np.ndarray:
        of_vertex = np.zeros(len(graph.n_neurons), np.int64)
        of_vertex[graph.vertex_of] = sub_network
        return _cut_clusters(graph, of_vertex, room, options.seed)

    return partition_graph(network, chip, activity, options, "neumap", cut)


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


def partition_by_streaming(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition in one pass: put every neuron into the part with which it exchanges most spikes.

    After EdgeMap (Xue et al., Sensors 23(14):6548, 2023), which partitions by streaming with the fan-in and fan-out
    limits of cores. Assumed, because its score was not accessible: linear deterministic greedy (Stanton and Kliot, KDD
    2012), spikes to a part times the part's free share, neurons in layer order. Limits of axons and memory are enforced
    afterwards, as for every method that uses `graph_partition`. Input lines come first, take no room, and attract their
    targets to one part. The seed has no effect. Raises OptionError for more edges than the graph may have.
    """

    def cut(graph: SynapseGraph, room: np.ndarray) -> np.ndarray:
        size, order = graph.n_neurons.astype(np.int64), np.arange(len(graph.n_neurons))
        return streaming.stream(graph.start, graph.other, graph.weight, size, room, order)

    return partition_graph(network, chip, activity, options, "streaming", cut)
