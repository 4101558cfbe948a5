"""Synapse graph: vertices are sources, edges their synapses weighted by spikes, to be cut by METIS.

In a large net, neurons that read, and are read by, the same neurons (twins: the channels of a pixel, the neurons of a
dense layer) form one vertex, a few at a time. The edges between two vertices add up.
"""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.traffic.wiring import Wiring, connection_wiring, synapse_count
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Connection
from nwcompile.ir.flat import count_lines, count_neurons, csr_offset, csr_sums
from nwcompile.ir.network import Network
from nwcompile.ir.shown import grouped
from nwcompile.kernels.mapping import core_usage as kernels

VERTICES_PER_CORE = 32  # fine enough to balance parts
FINE = 2_000_000  # synapses up to which every source is a vertex
LARGEST = 50_000_000  # edges: 16 bytes each here, and about as much again inside METIS
LARGEST_WEIGHT_SUM = 1 << 30  # METIS adds edge weights in 32 bits


@dataclass(frozen=True, eq=False)
class SynapseGraph:
    """CSR as METIS takes it: `other[start[v]:start[v + 1]]` are the ends of v's edges, with `weight`."""

    start: np.ndarray  # int32[vertex + 1]
    other: np.ndarray  # int32[end]
    weight: np.ndarray  # int32[end]
    vertex_of: np.ndarray  # int32[source], in the order `network.offsets`
    n_neurons: np.ndarray  # int32[vertex]; 0 for input lines


def n_twins(network: Network, n_cores: int) -> int:
    """Return how many twins may form one vertex of a graph that is cut for `n_cores` cores: a power of two."""
    n_neurons = count_neurons(network)
    return 1 << (max(1, n_neurons // (VERTICES_PER_CORE * n_cores)).bit_length() - 1)


def synapse_graph(network: Network, activity: Activity, max_twins: int, method: str = "metis") -> SynapseGraph:
    """Build the synapse graph, with up to `max_twins` twins per vertex if the net has more than `FINE` synapses.

    An edge weighs the spikes of its sources, at least 1 per synapse. `method` names the caller in errors. Raises
    OptionError for more than `LARGEST` edges.
    """
    counts = [synapse_count(network, c) for c in network.connections]
    wires = [connection_wiring(network, c) for c in network.connections]
    vertex_of = group_vertices(network, wires, max_twins if sum(counts) > FINE else 1)
    size = np.bincount(vertex_of).astype(np.int64)
    tables = [_as_table(network, c, w, vertex_of) for c, w in zip(network.connections, wires, strict=True)]
    degree, n_edges = np.zeros(len(size) + 1, np.int64), 0
    for table in tables:
        starts, _, _, target_class, offset, taps = table
        n_edges += int(csr_sums(offset, np.diff(starts)[taps])[target_class].sum())  # also of a vertex to itself
        if n_edges > LARGEST:
            raise OptionError(
                f"partitioner {method!r} makes {grouped(n_edges)} edges of the synapses, at most {grouped(LARGEST)}; "
                "use partitioner='sequential'"
            )
        kernels.count_edges(*table, degree[1:])
    spikes = {name: activity.counts[name].sum(0, dtype=np.int64) for name in network.offsets}
    total = sum(2 * n * int(spikes[c.source].max(initial=1)) for c, n in zip(network.connections, counts, strict=True))
    scaled = np.concatenate([np.maximum(1, s // (1 + total // LARGEST_WEIGHT_SUM)) for s in spikes.values()])
    weight = np.bincount(vertex_of, scaled, len(size)).astype(np.int64)
    start = np.cumsum(degree)
    edges, cursor = np.empty((start[-1], 2), np.int32), start[:-1].copy()
    for table in tables:
        kernels.write_edges(*table, weight, size, cursor, edges)
    start = kernels.merge_edges(start, edges)
    other, weight = (np.ascontiguousarray(edges[: start[-1], i]) for i in (0, 1))
    n_lines = count_lines(network)
    n_neurons = np.bincount(vertex_of[n_lines:], minlength=len(size)).astype(np.int32)
    return SynapseGraph(start.astype(np.int32), other, weight, vertex_of, n_neurons)


def group_vertices(network: Network, wires: list[Wiring], max_twins: int) -> np.ndarray:
    """Return int32[source]: the vertex of every source, in runs of at most `max_twins` twins of one node."""
    parts, n_vertices = [], 0
    for name in network.offsets:
        n = network.node(name).n_neurons
        twins = np.arange(n) if max_twins == 1 else np.zeros(n, np.int64)
        for c, w in zip(network.connections, wires, strict=True) if max_twins > 1 else ():
            for end, classes in ((c.source, w.source_class), (c.target, w.target_class)):
                if end == name:
                    key = twins * (int(classes.max(initial=0)) + 1) + classes
                    twins = np.unique(key, return_inverse=True)[1].reshape(-1)
        vertex = _cut_groups(twins, max_twins)
        parts.append(vertex + n_vertices)
        n_vertices += int(vertex.max(initial=-1)) + 1
    return np.concatenate(parts).astype(np.int32)


def _cut_groups(groups: np.ndarray, max_twins: int) -> np.ndarray:
    """Split groups int64[n] into even runs of at most `max_twins`, numbered by group: int64[n]."""
    size = np.bincount(groups)
    n_runs = -(-size // max_twins)
    length = -(-size // np.maximum(n_runs, 1))
    order = np.argsort(groups, kind="stable")
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - np.repeat(np.cumsum(size) - size, size)
    return np.cumsum(n_runs)[groups] - n_runs[groups] + rank // length[groups]


def _as_table(network: Network, connection: Connection, wires: Wiring, vertex_of: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return one connection between vertices, as the kernels take it: members of source classes, and their readers."""

    def ends(name: str, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = network.offsets[name]
        vertex, at = np.unique(vertex_of[first : first + len(classes)], return_index=True)
        return vertex.astype(np.int64), classes[at]

    source, source_class = ends(connection.source, wires.source_class)
    target, target_class = ends(connection.target, wires.target_class)
    members = source[np.argsort(source_class, kind="stable")]
    starts = csr_offset(np.bincount(source_class, minlength=wires.n_source_classes))
    return starts, members, target, target_class, wires.offset, wires.taps
