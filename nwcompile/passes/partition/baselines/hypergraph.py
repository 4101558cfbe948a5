"""Hypergraph: a partitioner that minimizes messages between parts, one per spike and part, then makes them fit exactly.

Mt-KaHyPar (Gottesbüren et al., ACM Trans. Algorithms 20(1), 2024) minimizes connectivity, the sum over hyperedges of
weight times parts touched less one. A hyperedge is a neuron with all neurons that read it, weighted by its spikes. On a
chip with one message per spike and core, that is the traffic between cores (Ronzani and Silvano, arXiv 2601.16118).
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.wiring import connection_wiring, synapse_count
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_lines, csr_entries
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.partition.graph_partition import fit_parts, parts_of_graph
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.synapse_graph import FINE, LARGEST_WEIGHT_SUM, group_vertices

LARGEST_IMBALANCE = 0.05  # of the parts' neurons, if cores have as much to spare
LARGEST = 20_000_000  # pins: some 50 bytes each while they are passed on


def partition_hypergraph(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition with Mt-KaHyPar and return cores int32[n] of every layer (see `graph_partition`).

    Its deterministic preset is used, so threads do not change the result. Input lines are vertices without weight.
    Raises OptionError if Mt-KaHyPar is not installed, and for too many pins.
    """
    load_library()
    n_lines = count_lines(network)

    def cut(graph: Hypergraph, room: np.ndarray) -> np.ndarray:
        size = np.bincount(graph.vertex_of[n_lines:], minlength=len(graph.weight))
        return _cut_hypergraph(graph.pins, graph.weight, size, room, options.seed)

    parts_for = parts_of_graph(network, lambda twins: build_hypergraph(network, activity, twins), cut)
    return fit_parts(network, chip, activity, options, "hypergraph", parts_for)


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
        if n_pins > LARGEST:
            raise OptionError(
                f"partitioner 'hypergraph' makes over {LARGEST:,} pins of the synapses; use partitioner='sequential'"
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
