"""Floorline: a partitioner for the least predicted step time under every limit of the chip, then traffic, then energy.

This method is ours. Clusters of neurons are dealt over the cores, then moved and swapped. First a smooth time is
annealed, in which all loads of a step count by their p-norm. Then moves are accepted that shorten the exact floorline
of the steps (DESIGN 6: the barrier and the busiest unit of each step, not of an average). Heavy clusters are cut in
two, and the search continues with the halves. After the floorline-informed partitioning of arXiv 2511.21549, whose
algorithm was not accessible. Messages are those of hypergraphs, one per spike and core, and moves are evaluated
incrementally, as in M-HySMap (arXiv 2608.26223).
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import numpy as np

from nwcompile.errors import FitError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import CORES_WORTH, Options
from nwcompile.kernels.mapping import core_usage
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.core_rules import n_over, needs_slices, split_by_layers
from nwcompile.passes.partition.floorline.cluster_search import improve_clusters
from nwcompile.passes.partition.floorline.clusters import fitting_clusters
from nwcompile.passes.partition.floorline.demand import neuron_load
from nwcompile.passes.partition.floorline.min_traffic import anneal_hops, are_alike, are_full, fill_tiles, repair_start
from nwcompile.passes.partition.floorline.objective import max_cycles, step_cycles, step_us, too_slow
from nwcompile.passes.partition.floorline.search import MAX_LISTED_SOURCES, Partition, Search
from nwcompile.passes.partition.graph_partition import cut_stripes, partition_by_metis, striped_clusters
from nwcompile.passes.partition.logical_cores import LogicalCores, TriedCores, logical_cores
from nwcompile.passes.partition.sequential import cut_slices, number_in_order
from nwcompile.passes.place.chip_regions import cluster_regions, region_sizes, twice_the_cores, whole_chips
from nwcompile.passes.prepare.schedule import schedule, stagger_layers
from nwcompile.threads import raise_if_canceled

SAVE_CORES = ("cores", "traffic")  # Objectives that do not benefit from more cores than needed.


_RULES_KEPT = (
    "{chip} limits the layers or destinations of a core, which partitioner 'floorline' cannot keep: cores are cut as "
    "with partitioner='sequential'"
)
_SLICES_INSTEAD = (
    "partitioner 'floorline' found nothing better within the limits of {chip} than contiguous slices: cores are cut as "
    "with partitioner='sequential'"
)
_LARGE = (
    f"more than {MAX_LISTED_SOURCES:_} neurons send through lists of synapses: such networks are cut into even tiles, "
    "and no neurons are moved between cores"
).replace("_", " ")


@dataclass(frozen=True)
class FloorlineSearch:
    """Parameters of the search over numbers of cores and sizes of clusters."""

    clusters_per_core: int = 16  # Initial clusters per core: few enough to be moved often, enough to balance loads.
    # Number of later levels, each with clusters half as heavy; finer ones gained little on the benchmarks' nets.
    n_levels: int = 2
    # Maximum initial clusters, unless the chip needs smaller ones: with more, a search takes minutes.
    max_clusters: int = 40_000
    fine_neurons: int = 128  # Up to this number of neurons, every neuron is a cluster from the start.
    # Up to this number of cores every number is tried; beyond, it doubles each time, then numbers between are tried.
    all_tried_cores: int = 4
    patience_counts: int = 2  # Stop after this many core counts in a row without improvement.
    # Finer clusters start at this share of the usual temperatures, because their cores are already good.
    finer_heat_share: float = 0.1
    # If nothing fits, clusters are cut along slices or stripes, in networks of up to this number of neurons. In larger
    # ones the tables of so many pieces would take gigabytes; smaller clusters are tried there.
    max_cut_neurons: int = 1 << 20
    first_effort_share: float = 0.1  # Share of the usual moves with which each number of cores is tried.


FLOORLINE = FloorlineSearch()


def partition_by_floorline(
    network: Network, chip: Chip, activity: Activity, options: Options, n_levels: int = FLOORLINE.n_levels
) -> LogicalCores:
    """Return the cores of every layer, on `options.n_cores` cores or on as many as suit `options.optimize`.

    `time` minimizes the sum of the predicted step times, then messages, on the number of cores with the least time
    times the square root of their number; on a chip without times it takes the fewest cores that it finds. `energy` and
    `edp` minimize what they say, `cores` the number of cores, then the time. `traffic` minimizes the routed hops, then
    the messages, and returns a Mapping with sites if all sites are alike. With `options.time_budget_s` the search
    continues until the time is up or until an interrupt (Ctrl-C), and returns the best so far. The result is the slices
    of `sequential` for a chip whose core rules (`passes/analyze/core_rules.py`) only slices are sure to satisfy, and if
    what was found exceeds a limit or breaks a rule. The result may exceed the chip: `partition` checks it. Without
    `n_levels` of finer clusters, the search ends with those on which the number of cores was chosen (partitioner
    `coarse`): in a third of the time, with steps a few percent longer, or twice as long on hundreds of cores.
    """
    if needs_slices(chip):
        return cut_slices(network, chip, activity, options)._replace(warnings=(_RULES_KEPT.format(chip=chip.name),))
    deadline = None if options.time_budget_s is None else time.monotonic() + options.time_budget_s
    search = Search(
        network=network,
        chip=chip,
        activity=activity,
        timing=stagger_layers(network, schedule(network, options.execution), options.stagger),
        options=options,
        load=neuron_load(network, chip, activity),
        state=np.array([options.seed], np.uint64),
        deadline=deadline,
        n_levels=n_levels,
        tried={},
    )
    better: tuple[Partition, np.ndarray | None] | None = None
    improvements = _minimize_traffic if options.optimize == "traffic" else _improve_all
    try:
        for better in improvements(search):  # noqa: B007 - the last one is read after an interrupt too
            if search.is_late:
                break
    except KeyboardInterrupt:
        if deadline is None or better is None:
            raise
    assert better is not None, "each search begins with a partition"
    best, sites = better
    cores = best.neuron_core
    if not best.excess and sites is None:
        cores = _number_cores(best)
        cores = split_by_layers(network, chip, cores) if options.n_cores is None else cores
    if best.excess or cores.max() >= capacity.n_usable(chip) or n_over(network, chip, cores):
        slices = cut_slices(network, chip, activity, options)
        n_cores = len(np.unique(slices.by_neuron(network)))
        return slices if n_cores == 1 else slices._replace(warnings=(_SLICES_INSTEAD.format(chip=chip.name),))
    tried = tuple(search.tried.values())
    if sites is None:
        return logical_cores(network, cores)._replace(warnings=(_LARGE,) * search.is_large, tried=tried)
    used, cores = np.unique(best.neuron_core, return_inverse=True)
    in_order_of_sites = logical_cores(network, cores.reshape(-1))
    mapping = Mapping(in_order_of_sites.core_of, chip.sites[sites[used]])
    return in_order_of_sites._replace(mapping=mapping, tried=tried)


def _number_cores(partition: Partition) -> np.ndarray:
    """Return int32[neuron]: the cores numbered by region, within a region by their first neuron, without gaps."""
    core = partition.neuron_core
    regions = np.array([partition.n_cores]) if partition.regions is None else partition.regions
    order = np.argsort(np.repeat(np.arange(len(regions)), regions)[core], kind="stable")
    numbered = np.empty(len(core), np.int32)
    numbered[order] = number_in_order(core[order])
    return numbered


def _minimize_traffic(search: Search) -> Iterator[tuple[Partition, np.ndarray | None]]:
    """Yield the best partition so far and the sites of its cores, None if unknown; see `anneal_hops`."""
    if search.is_large:
        yield from _improve_all(search)
        return
    begun, limit_cycles = _search_within_limit(search), max_cycles(search)
    if begun is None:
        for best in _search_counts(search):
            yield best, None
        slices = _cores_of_method(cut_slices, search, best.n_cores)
        starts = [best.neuron_core, *([] if slices is None else [slices])]
        tried = [(starts, None), (starts, _split_clusters(best.cluster_of, best.neuron_core))]
    else:
        best = begun
        yield best, None
        tiles = fill_tiles(search, best.n_cores) if are_full(search, best.n_cores) else None
        tried = [*([] if tiles is None else [([tiles], None)]), ([best.neuron_core], best.cluster_of)]
    is_placed, least = are_alike(search.chip, search.options), np.inf
    given = None if limit_cycles is None else _search_from_metis(search, best, limit_cycles)
    if given is not None:
        least = given[0].cost
        yield given[0], given[1] if is_placed else None
    for nth, (starts, cluster_of) in enumerate(tried):
        partition = None
        with suppress(OptionError) if nth else nullcontext():  # the coarsest clusters of a later start take more memory
            for partition, sites in anneal_hops(search, starts, cluster_of, best.n_cores, limit_cycles):
                if partition.excess <= best.excess and partition.cost < least:
                    yield partition, sites if is_placed else None
        if partition is not None and partition.excess <= best.excess:
            return


def _search_from_metis(search: Search, best: Partition, limit_cycles: int) -> tuple[Partition, np.ndarray] | None:
    """Return METIS's partition on as many cores, repaired to keep `limit_cycles`, and its sites; None if not found.

    It uses a copy of the random state, so the other results do not depend on it.
    """
    search = search._replace(state=search.state.copy())
    cores = None if best.n_cores == 1 else _cores_of_method(partition_by_metis, search, best.n_cores)
    if cores is None:
        return None
    placed = repair_start(search, cores, _split_clusters(best.cluster_of, cores), limit_cycles)
    return None if placed is None or placed[0].excess > best.excess else placed


def _search_within_limit(search: Search) -> Partition | None:
    """Return a partition within `options.step_limit_us`, on few cores unless a number is given; None without limit.

    If none fits the chip, one that exceeds it is returned. Raises FitError with the shortest step found if none is
    within the limit.
    """
    limit_cycles, options = max_cycles(search), search.options
    if limit_cycles is None or options.step_limit_us is None:
        return None
    timed = search._replace(options=replace(options, optimize="time", step_limit_us=None))
    if search.is_large and options.n_cores is None:  # whose times are means: the shortest step is the safest
        made = [(step_cycles(search, p.neuron_core), p) for p, _ in _double_core_count(timed)]
        least_cycles, best = min(made, key=lambda pair: (pair[1].excess, pair[0]))
        if least_cycles > limit_cycles and not best.excess:
            raise too_slow(search.chip, step_us(least_cycles, search), options.step_limit_us, best.n_cores)
        return best
    tried, shortest, n_cores = _double_core_count(timed) if options.n_cores is None else _improve_all(timed), np.inf, 0
    for best, _ in tried:
        taken = np.inf if best.excess else step_cycles(search, best.neuron_core)
        if taken <= limit_cycles:
            break
        shortest, n_cores = min((shortest, n_cores), (taken, best.n_cores))
        if search.is_late:
            break
    if shortest == np.inf and taken == np.inf:
        return best
    if taken > limit_cycles:
        raise too_slow(search.chip, step_us(shortest, search), options.step_limit_us, n_cores)
    too_few = best.n_cores if options.n_cores is not None else best.n_cores // 2
    while best.n_cores - too_few > 1:
        fewer = _search_coarse(timed, (best.n_cores + too_few) // 2)
        if not fewer.excess and step_cycles(search, fewer.neuron_core) <= limit_cycles:
            best = fewer
        else:
            too_few = fewer.n_cores
    return best


def _double_core_count(search: Search) -> Iterator[tuple[Partition, None]]:
    """Search briefly on the number of cores that slices take, then on twice as many each time, up to all."""
    slices, max_cores = _cores_of_method(cut_slices, search), _max_cores(search)
    n_cores = min(max_cores, 1 if slices is None else int(slices.max()) + 1)
    yield _search_coarse(search, n_cores), None
    while n_cores < max_cores:
        n_cores = min(max_cores, 2 * n_cores)
        yield _search_coarse(search, n_cores), None


def _max_cores(search: Search) -> int:
    """Return the number of cores that can hold neurons, at most the number of neurons."""
    return min(len(search.load), capacity.n_usable(search.chip))


def _improve_all(search: Search) -> Iterator[tuple[Partition, None]]:
    """Yield the best partition so far after every search: core counts first, then finer and finer clusters."""
    begun = _search_within_limit(search)
    for best in _search_counts(search) if begun is None else [begun]:
        yield best, None
    for level in range(0 if search.is_large else search.n_levels):
        best = min(_refine_clusters(search, best, level), best, key=lambda p: p.rank)
        yield best, None
        if len(best.core_of) == len(search.load):
            break
    while search.deadline is not None and not search.is_large:
        best = min(_refine_clusters(search, best, FLOORLINE.n_levels - 1), best, key=lambda p: p.rank)
        yield best, None


def _search_counts(search: Search) -> Iterator[Partition]:
    """Yield the best partition of coarse clusters so far, after every search of a number of cores.

    If nothing else fits, the slices of `sequential` or the stripes of `striped` are improved; in large networks,
    clusters small enough to fill cores well.
    """
    slices = _cores_of_method(cut_slices, search)
    n_slices = 1 if slices is None else int(slices.max()) + 1
    for best in _try_core_counts(search, n_slices):
        yield best
    if best.excess and len(search.load) > FLOORLINE.max_cut_neurons:
        n_cores = search.options.n_cores or _largest_count_tried(search, n_slices)
        yield min(_search_coarse(search, n_cores, FLOORLINE.clusters_per_core), best, key=lambda p: _rank(search, p))
    elif best.excess:
        stripes = _cores_of_method(cut_stripes, search)
        given = [c for c in (slices, stripes) if c is not None and c.max() < search.chip.n_cores]
        for cores in given:
            best = min(_search_from(search, cores, best), best, key=lambda p: _rank(search, p))
            yield best


def _try_core_counts(search: Search, n_slices: int) -> Iterator[Partition]:
    """Yield the best partition so far, after a short search on every number of cores that is tried.

    These are the requested number; or fewer while they fit, if more do not help the objective; or twice as many each
    time while that is better, or may become so, then numbers between the best and its neighbors. `n_slices`: the cores
    of `sequential`.
    """
    options, limit = search.options, capacity.site_limits(search.chip)[:, core_usage.NEURONS]
    max_cores = _max_cores(search)
    first = min(n_slices, max_cores)
    if options.n_cores is not None:
        yield _search_coarse(search, options.n_cores)
    elif options.optimize in SAVE_CORES or (options.optimize == "time" and not search.chip.has_times):
        least = 1 + int(np.searchsorted(np.cumsum(np.sort(limit)[::-1]), len(search.load)))
        yield from _bisect_core_count(search, first, least)
    else:
        yield from _grow_core_count(search, first, _largest_count_tried(search, n_slices))


def _largest_count_tried(search: Search, n_slices: int) -> int:
    """Return the largest number of cores to try, if `sequential` takes `n_slices`."""
    max_cores = _max_cores(search)
    n_tried = max_cores if search.is_large else FLOORLINE.max_clusters // FLOORLINE.clusters_per_core
    return min(max_cores, max(n_slices, n_tried))


def _bisect_core_count(search: Search, first: int, least: int) -> Iterator[Partition]:
    """Bisect the number of cores, assuming that more cores than a fitting number fit too."""
    best, n_cores = None, first
    while best is None or (least < first and not best.excess):
        partition = _search_coarse(search, n_cores)
        if partition.excess:
            least = n_cores + 1
        else:
            first = n_cores
        best = partition if best is None or not partition.excess else best
        yield best
        n_cores = (least + first) // 2


def _grow_core_count(search: Search, first: int, max_cores: int) -> Iterator[Partition]:
    n_cores, n_worse = min(max_cores, whole_chips(search.chip, first)), 0
    by_count = {n_cores: _search_coarse(search, n_cores)}
    best = by_count[n_cores]
    yield best
    while n_cores < max_cores and (best.excess or n_worse < FLOORLINE.patience_counts):
        n_cores = min(
            max_cores, n_cores + 1 if n_cores < FLOORLINE.all_tried_cores else twice_the_cores(search.chip, n_cores)
        )
        by_count[n_cores] = _search_coarse(search, n_cores)
        n_worse = 0 if _rank(search, by_count[n_cores]) < _rank(search, best) else n_worse + 1
        best = best if n_worse else by_count[n_cores]
        yield best
    at = [*by_count].index(best.n_cores)
    for near in ([*by_count][max(at - 1, 0)], [*by_count][min(at + 1, len(by_count) - 1)]):
        n_cores = min(max_cores, whole_chips(search.chip, round((best.n_cores * near) ** 0.5)))
        if n_cores not in by_count:
            by_count[n_cores] = _search_coarse(search, n_cores)
            yield min(by_count.values(), key=lambda p: _rank(search, p))


def _rank(search: Search, partition: Partition) -> tuple[int, float, float]:
    """Return a rank, smaller is better, that compares different numbers of cores.

    For `cores`, fewer are better, whatever they cost; for `time`, more must be worth it.
    """
    n_cores = len(np.unique(partition.core_of))
    if search.options.optimize == "time":
        return partition.excess, 0, partition.cost * n_cores**CORES_WORTH
    return partition.excess, n_cores if search.options.optimize == "cores" else 0, partition.cost


def _search_coarse(search: Search, n_cores: int, per_core: int = 1) -> Partition:
    """Search briefly from coarse clusters, dealt out in turn, by pixels or in slices; return the best.

    A core holds the neurons of `per_core` clusters or more. Adds the result to `search.tried`.
    """
    raise_if_canceled()
    n = len(search.load)
    cluster_of = np.arange(n)
    if n > FLOORLINE.fine_neurons:
        n_clusters = FLOORLINE.clusters_per_core * n_cores
        cluster_of = fitting_clusters(
            search.network, search.chip, search.load, n_clusters, per_core=per_core, is_checked=not search.is_large
        )
    regions = np.array([n_cores]) if n <= FLOORLINE.fine_neurons else region_sizes(search.chip, n_cores)
    starts, kept = _initial_cores(search, cluster_of, regions), regions if len(regions) > 1 else None
    made = improve_clusters(search, cluster_of, starts, n_cores, FLOORLINE.first_effort_share, regions=kept)
    fits = not made.excess and not n_over(search.network, search.chip, made.neuron_core)
    us = step_us(step_cycles(search, made.neuron_core), search) if search.chip.has_times else None
    n_used = len(np.unique(made.core_of))
    search.tried[n_used] = TriedCores(n_used, fits, us, _rank(search, made)[-1])
    return made


def _initial_cores(search: Search, cluster_of: np.ndarray, regions: np.ndarray) -> list[np.ndarray]:
    """Return initial cores int64[cluster]: those of a region dealt over its cores in turn, by pixels, or in slices."""
    region = cluster_regions(search.network, search.load, cluster_of, regions)
    first = np.unique(cluster_of, return_index=True)[1]
    heavy = np.bincount(cluster_of, search.load)
    orders = [first, *(striped_clusters(search.network, n)[first] for n in (1, 2))]
    starts = [np.zeros(len(first), np.int64) for _ in range(4)]
    for z, (begin, n_cores) in enumerate(zip(np.cumsum(regions) - regions, regions, strict=True)):
        inside = np.flatnonzero(region == z)
        for start, order in zip(starts, orders, strict=False):
            start[inside] = begin + np.unique(order[inside], return_inverse=True)[1].reshape(-1) % n_cores
        inside = inside[np.argsort(first[inside])]
        upto = np.cumsum(heavy[inside] if heavy[inside].any() else np.ones(len(inside)))
        part = (upto - upto[:1] / 2) * n_cores // upto[-1:]
        starts[-1][inside] = begin + np.minimum(part, n_cores - 1).astype(np.int64)
    return starts


def _refine_clusters(search: Search, coarse: Partition, level: int) -> Partition:
    """Search from the same cores with clusters of at most half the weight, halved again on every level."""
    n_clusters = (FLOORLINE.clusters_per_core << level) * coarse.n_cores
    cluster_of = fitting_clusters(search.network, search.chip, search.load, n_clusters, coarse.cluster_of)
    starts = [coarse.neuron_core[np.unique(cluster_of, return_index=True)[1]]]
    heat = FLOORLINE.finer_heat_share if level else 1.0
    return improve_clusters(search, cluster_of, starts, coarse.n_cores, 1.0, heat, coarse.regions)


def _cores_of_method(method, search: Search, n_cores: int | None = None) -> np.ndarray | None:
    """Return cores int32[neuron] of another partitioner, on at most `n_cores` if given; None if it fails."""
    options = search.options if n_cores is None else replace(search.options, n_cores=n_cores)
    try:
        cores = method(search.network, search.chip, search.activity, options).by_neuron(search.network)
    except (FitError, OptionError):
        return None
    return cores if n_cores is None or cores.max() < n_cores else None


def _split_clusters(cluster_of: np.ndarray, cores: np.ndarray) -> np.ndarray:
    """Split clusters int64[neuron] at the borders of cores int[neuron]; return int64[neuron]."""
    return np.unique(cluster_of * (int(cores.max()) + 1) + cores, return_inverse=True)[1].reshape(-1)


def _search_from(search: Search, cores: np.ndarray, other: Partition) -> Partition:
    """Search from the given cores int32[neuron], whose borders split the clusters of another partition."""
    n_cores, cluster_of = int(cores.max()) + 1, _split_clusters(other.cluster_of, cores)
    first = np.unique(cluster_of, return_index=True)[1]
    return improve_clusters(search, cluster_of, [cores[first]], n_cores, FLOORLINE.first_effort_share)
