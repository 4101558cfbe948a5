"""Kernighan-Lin: a partitioner that swaps neurons between parts while fewer spikes cross between parts.

After SpiNeCluster of SpiNeMap (Balaji et al., IEEE TVLSI 28(1), 2020, arXiv 1909.01843), which partitions greedily in
the manner of Kernighan and Lin (Bell System Technical Journal 49(2), 1970) for the fewest spikes on synapses between
clusters. Assumed, because the paper's start and order were not accessible: parts begin as slices of the neurons in
order; sweeps refine pairs of parts, heaviest traffic first, until nothing is saved, at most `MOST_SWEEPS` times.
"""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import kernighan_lin as refinement
from nwcompile.passes.partition.graph_partition import fit_parts, parts_of_graph
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.synapse_graph import SynapseGraph, synapse_graph

MOST_SWEEPS = 4


def kernighan_lin(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Partition by Kernighan-Lin refinement and return cores int32[n] of every layer (see `graph_partition`).

    Input lines are on no core and do not count. The seed chooses among equal pairs. Raises OptionError for more edges
    than the graph may have.
    """

    def cut(graph: SynapseGraph, room: np.ndarray) -> np.ndarray:
        part = _initial_slices(graph.n_neurons, room)
        _refine_parts(graph, part, len(room), np.random.default_rng(options.seed))
        return part

    parts_for = parts_of_graph(network, lambda twins: synapse_graph(network, activity, twins, "kernighan-lin"), cut)
    return fit_parts(network, chip, activity, options, "kernighan-lin", parts_for)


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
        crossing = np.triu(refinement.traffic_between(*edges, part, n_parts), 1)
        first, second = np.nonzero(crossing)
        order = np.lexsort((rng.permutation(len(first)), -crossing[first, second]))
        saved = 0
        for a, b in zip(first[order], second[order], strict=True):
            members = [np.flatnonzero(part == p) for p in (a, b)]
            both = np.concatenate(members)
            saved += refinement.refine_pair(*edges, graph.n_neurons, part, both, len(members[0]), *scratch)
        if saved == 0:
            return
