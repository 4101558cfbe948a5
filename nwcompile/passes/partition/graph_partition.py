"""Graph partition: turn the parts of a graph algorithm into cores that hold them, exactly.

An algorithm that balances neurons ignores axons and synapse memory. So it is asked for more and more parts until they
can be made to fit: neurons without room on their core move to the first core that has room. If no number of parts fits,
fewer parts are made and neurons without room go to cores that are left over. METIS and stripes make such parts.
"""

from collections.abc import Callable
from functools import cache, partial
from math import ceil

import numpy as np

from nwcompile.cost.traffic.memory import synapse_bits
from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import FitError, OptionError, Violation
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Sparse
from nwcompile.ir.flat import count_lines, count_neurons, csr_groups
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import DENSE, SPARSE
from nwcompile.ir.resources import RESOURCES
from nwcompile.ir.shown import grouped
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.passes.analyze import capacity
from nwcompile.passes.partition.logical_cores import LogicalCores, logical_cores
from nwcompile.passes.partition.sequential import cut_slices, halve_heaviest, number_in_order, site_orders
from nwcompile.passes.partition.synapse_graph import SynapseGraph, n_twins, synapse_graph
from nwcompile.threads import raise_if_canceled

GROWTH = 1.25
BISECTION_SYNAPSES = 20_000_000  # synapses visited by all attempts together to save single cores
# Per mille by which a part may be too large: METIS's own default for k-way cuts.
LARGEST_IMBALANCE = 30


def fit_parts(
    network: Network, chip: Chip, activity: Activity, options: Options, method: str, parts_for: Callable
) -> LogicalCores:
    """Return the cores of every layer, on `options.n_cores` cores or on the fewest for which parts can be made to fit.

    `parts_for(limits int64[part, resource])` returns the part of every neuron, int32[neuron], one part per core with
    these limits; the largest cores come first. `method`: name in errors. Core rules (`passes.analyze.core_rules`)
    are not considered: `partition` refuses these methods for a chip with any. The result may exceed the chip:
    `partition` checks it.
    """
    fan, load = capacity.fan_in(network, chip), capacity.synaptic_load(network, activity)
    limits = capacity.site_limits(chip)
    limits = limits[site_orders(limits)[-1]][: capacity.n_usable(chip)]
    least_bits = _least_bits(fan.kernels)
    parts = {1: np.zeros(len(load), np.int32)}
    too_few: set[int] = set()  # numbers of cores that failed; out-axons only increase

    def attempt(k: int, demand: np.ndarray, kind: np.ndarray, n_spare: int = 0) -> tuple[np.ndarray, bool]:
        if k not in parts:
            parts[k] = parts_for(limits[:k])
        if k in too_few and not n_spare:
            return parts[k], False
        core_of, fits = _repair(fan, least_bits, demand, kind, parts[k], limits[: k + n_spare])
        if not fits:
            too_few.add(k)
        return core_of, fits

    def build(out_axons):
        demand, kind = np.stack([out_axons, load], 1), _neuron_kinds(fan, out_axons)
        if options.n_cores is not None:
            core_of, fits = attempt(options.n_cores, demand, kind)
            return halve_heaviest(core_of, load, options.n_cores) if fits else core_of
        return _find_fewest(network, chip, fan, method, lambda k, n_spare=0: attempt(k, demand, kind, n_spare))

    core_of = number_in_order(capacity.settle_out_axons(network, chip, build))
    return logical_cores(network, core_of)


def partition_graph(
    network: Network,
    chip: Chip,
    activity: Activity,
    options: Options,
    method: str,
    cut: Callable,
    build: Callable | None = None,
) -> LogicalCores:
    """Return the cores of every layer for an algorithm that cuts a graph, made to fit by `fit_parts`.

    `build(network, activity, n)` builds the graph with up to n twins per vertex, once for every n. It has `vertex_of`,
    as in `SynapseGraph`; without `build` it is one. `cut(graph, room int64[part])` returns the part of every vertex,
    int32[vertex].
    """
    build = build or partial(synapse_graph, method=method)
    n_lines, kept_graph = count_lines(network), cache(partial(build, network, activity))

    def parts_for(limits: np.ndarray) -> np.ndarray:
        graph = kept_graph(n_twins(network, len(limits)))
        return cut(graph, limits[:, kernels.NEURONS])[graph.vertex_of[n_lines:]]

    return fit_parts(network, chip, activity, options, method, parts_for)


def _find_fewest(network: Network, chip: Chip, fan, method: str, attempt: Callable) -> np.ndarray:
    """Find the fewest cores: increase their number until the parts fit, then bisect while that is cheap."""
    n_neurons = count_neurons(network)
    n_synapses = sum(synapse_count(network, c) for c in network.connections)
    k = _least_cores(network, chip)
    too_few, n_calls, highest, tried = k - 1, 1, min(capacity.n_usable(chip), n_neurons), [k]
    core_of, fits = attempt(k)
    largest = capacity.count_alone(fan, np.arange(n_neurons)).max(0)
    if (largest > capacity.site_limits(chip).max(0)).any():
        return core_of  # some neuron fits no core at all
    while not fits and k < highest:
        too_few, k = k, min(highest, max(k + 1, ceil(GROWTH * k)))
        core_of, fits = attempt(k)
        tried.append(k)
        n_calls += 1
    for fewer in () if fits else tried[:-1]:
        core_of, fits = attempt(fewer, highest - fewer)
        if fits:
            return core_of
    if not fits:
        return _slices_instead(network, chip, method)
    while fits and k - too_few > 1 and n_calls * n_synapses < BISECTION_SYNAPSES:
        middle = (too_few + k) // 2
        fewer_cores, fits_fewer = attempt(middle)
        n_calls += 1
        if fits_fewer:
            core_of, k = fewer_cores, middle
        else:
            too_few = middle
    return core_of


def _slices_instead(network: Network, chip: Chip, method: str) -> np.ndarray:
    """Return contiguous slices, int32[neuron], which show best what is missing. Raises FitError if slices fit.

    The activity does not matter, so a uniform one is used.
    """
    core_of = cut_slices(network, chip, Activity.uniform(network, 1), Options()).by_neuron(network)
    n_cores = 1 + int(core_of.max())
    held = capacity.count_usage(network, chip, core_of, n_cores).held
    limits = capacity.site_limits(chip)
    fits = all((held[r.key] <= limits[:, i].max()).all() for i, r in enumerate(RESOURCES))
    n_most = capacity.n_usable(chip)
    if fits and n_cores <= n_most:
        advice = f"use partitioner='sequential', which needs {n_cores}"
        raise FitError(chip.name, [Violation("cores", f"network -> {method}", f"more than {n_most}", n_most, advice)])
    return core_of


def _least_cores(network: Network, chip: Chip) -> int:
    """Return a lower bound of the number of cores: by neurons and by synapse memory without overhead."""
    n_neurons = count_neurons(network)
    bits = 0
    for c in network.connections:
        if not (isinstance(c, Conv2d) and chip.weights.sharing):
            bits += synapse_count(network, c) * synapse_bits(c, SPARSE if isinstance(c, Sparse) else DENSE, chip)
    least = 1
    for used, limit in ((n_neurons, chip.max_neurons), (bits, chip.limit("synapse_bits"))):
        if limit is not None:
            room = np.cumsum(np.sort(limit)[::-1])
            least = max(least, 1 + int(np.searchsorted(room, used)))
    return min(least, capacity.n_usable(chip), n_neurons)


def _neuron_kinds(fan: kernels.SynapseTable, out_axons: np.ndarray) -> np.ndarray:
    """Return int64[neuron]: the kinds of `kernels.Tried`."""
    n_slots, n_groups = np.diff(fan.slot_offset), len(fan.kernels.bits) + 1
    group = np.append(fan.kernels.group, -1)[fan.slot_kernel]
    kind = np.unique(out_axons, return_inverse=True)[1].reshape(-1)
    for i in range(n_slots.max(initial=0)):
        has = n_slots > i
        slot = fan.slot_offset[:-1][has] + i
        read = np.zeros(len(kind), np.int64)
        read[has] = 1 + fan.slot_class[slot] * n_groups + group[slot] + 1
        kind = np.unique(kind * (int(read.max()) + 1) + read, return_inverse=True)[1].reshape(-1)
    return kind


def _repair(fan, least_bits: np.ndarray, demand: np.ndarray, kind: np.ndarray, parts: np.ndarray, limits: np.ndarray):
    """Move every neuron without room on its core to the first core that has room; also return whether all fit.

    `kind` int64[neuron]: `_neuron_kinds`; `least_bits`: `_least_bits`.
    """
    raise_if_canceled()
    core, core_of = capacity.empty_core(fan), np.full(len(parts), -1, np.int32)
    tried = kernels.Tried(kind, np.full(int(kind.max()) + 1, -1), np.zeros(1, np.int64))
    bits, n_kernels = np.zeros(len(limits), np.int64), np.zeros((len(limits), len(core.n_kernels)), np.int64)

    def chosen(c: int, held: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        taken = np.zeros(len(candidates), bool)
        if len(held) < limits[c, kernels.NEURONS]:
            kernels.fill(fan, core, demand, held, limits[c])
            kernels.fill_choosing(fan, core, demand, tried, candidates, limits[c], taken)
            bits[c], n_kernels[c] = core.used[kernels.SYNAPSE_BITS], core.n_kernels
            kernels.clear(fan, core, demand, np.concatenate([held, candidates[taken]]))
            core_of[candidates[taken]] = c
        return taken

    by_part = np.argsort(parts, kind="stable")
    start = np.searchsorted(parts[by_part], np.arange(len(limits) + 1))
    held = [np.zeros(0, np.int64)] * len(limits)
    for c in np.flatnonzero(np.diff(start)):
        candidates = by_part[start[c] : start[c + 1]]
        held[c] = candidates[chosen(c, held[c], candidates)]
    homeless = np.flatnonzero(core_of < 0)
    if len(homeless) and _lacks_memory(fan, least_bits, core_of, bits, n_kernels, limits[:, kernels.SYNAPSE_BITS]):
        return parts, False
    for c in range(len(limits)):
        if len(homeless):
            homeless = homeless[~chosen(c, held[c], homeless)]
    return (parts if len(homeless) else core_of), not len(homeless)


def _least_bits(shared: kernels.SharedKernels) -> np.ndarray:
    """Return int64[group]: the least memory of a kernel, its share on a core with the optimal number of kernels."""
    n_all, n = np.bincount(shared.group, minlength=len(shared.bits)), np.arange(1, shared.bits.shape[1])
    share = np.where(n <= n_all[:, None], shared.bits[:, 1:] // n, capacity.NO_LIMIT)
    return share.min(1, initial=capacity.NO_LIMIT)


def _lacks_memory(fan, least_bits, core_of: np.ndarray, bits: np.ndarray, n_kernels: np.ndarray, limit: np.ndarray):
    """Return whether all cores together certainly lack room for the shared kernels that none of them holds yet.

    `least_bits`: of `_least_bits`; `core_of` int32[neuron], -1: on none; `bits` int64[core] in use, by `n_kernels`
    int64[core, group] kernels and others; `limit` int64[core].
    """
    group, table = fan.kernels
    if not len(group) or limit.max() == capacity.NO_LIMIT:
        return False
    is_shared = fan.slot_kernel >= 0
    is_there = np.zeros(len(group), bool)
    is_there[fan.slot_kernel[is_shared & (core_of[csr_groups(fan.slot_offset)] >= 0)]] = True
    n_least = n_kernels.sum(0) + np.bincount(group[~is_there], minlength=len(table))
    others = bits.sum() - table[np.arange(len(table)), n_kernels].sum()
    return bool(others + n_least @ least_bits > limit.sum())


def partition_by_metis(network: Network, chip: Chip, activity: Activity, options: Options) -> LogicalCores:
    """Cut neurons with METIS into parts with little spike traffic between them; return cores int32[n] of every layer.

    After SNEAP (Li et al., GLSVLSI'20, arXiv 2004.01639): METIS minimizes the edge cut; an edge is a synapse weighted
    by the spikes of its source. METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998) balances neurons only. The
    edge cut differs from the cost of a chip with one message per spike and core.
    Input lines are vertices without weight: they take no room, but attract their targets to one part. Raises
    OptionError for more edges than METIS can take.
    """
    cut = partial(metis_parts, seed=options.seed)
    return partition_graph(network, chip, activity, options, "metis", cut)


def metis_parts(graph: SynapseGraph, room: np.ndarray, seed: int) -> np.ndarray:
    """Return int32[vertex]: METIS's part of each vertex, in proportion to the cores' `room` int64[part]."""
    import pymetis

    spare = 1000 * int(room.sum()) // int(graph.n_neurons.sum()) - 1000
    share = None if (room == room[0]).all() else (room / room.sum()).tolist()
    options = pymetis.Options(seed=seed, ufactor=max(1, min(spare, LARGEST_IMBALANCE)))
    edges = pymetis.CSRAdjacency(graph.start, graph.other)
    try:
        _, part = pymetis.part_graph(
            len(room), edges, vweights=graph.n_neurons, eweights=graph.weight, tpwgts=share, options=options
        )
    except RuntimeError as error:  # out of memory, and other failures of METIS
        raise OptionError(
            f"METIS gave up on {grouped(len(graph.other) // 2)} edges and {len(room)} parts ({error}); "
            "use partitioner='sequential'"
        ) from None
    return np.asarray(part, np.int32)


def cut_stripes(network: Network, chip: Chip, activity: Activity, options: Options, n_bands: int = 1) -> LogicalCores:
    """Deal the pixels of a map, each with `n_bands` separate bands of its channels, over the cores in turn.

    It is the simplest way to balance the cores within each step (DESIGN 7), and not from a paper. Neighboring neurons
    of a map spike together; here they do so on different cores.

    With one band all channels of a pixel stay together; with two there are twice as many messages for better balance.
    """
    cluster = striped_clusters(network, n_bands)

    def parts_for(limits: np.ndarray) -> np.ndarray:
        return _take_turns(limits[:, kernels.NEURONS], int(cluster.max()) + 1)[cluster]

    method = "striped" if n_bands == 1 else "striped-halves"
    return fit_parts(network, chip, activity, options, method, parts_for)


def striped_clusters(network: Network, n_bands: int) -> np.ndarray:
    """Return int64[neuron]: the cluster of every neuron, numbered through all layers.

    A cluster of a map [C, ...] is one band of the channels of a pixel, pixel after pixel and the bands of each in
    order; in a layer of one axis every neuron is a cluster.
    """
    parts, n_clusters = [], 0
    for name in network.layers:
        shape = network.node(name).shape
        channels, pixels = (shape[0], int(np.prod(shape[1:]))) if len(shape) > 1 else (1, int(np.prod(shape)))
        bands = min(n_bands, channels)
        band = np.arange(channels) * bands // channels
        parts.append((np.arange(pixels)[None] * bands + band[:, None]).reshape(-1) + n_clusters)
        n_clusters += pixels * bands
    return np.concatenate(parts)


def _take_turns(room: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return int32[cluster]: the core of each turn, with turns in proportion to cores' `room` int64[core], evenly.

    Equal cores take turns. Turn j of a core of weight w comes at time (j + 1) / w.
    """
    if (room == room[0]).all():
        return (np.arange(n_clusters) % len(room)).astype(np.int32)
    share = room / room.sum()
    n_turns = np.ceil(share * n_clusters).astype(np.int64) + 1
    core = np.repeat(np.arange(len(room)), n_turns)
    turn = np.arange(len(core)) - np.repeat(np.cumsum(n_turns) - n_turns, n_turns) + 1
    order = np.lexsort((core, turn / np.maximum(share, 1e-12)[core]))
    return core[order][:n_clusters].astype(np.int32)
