"""Floorline partitioner: the least predicted step time under every limit of the chip, then traffic, then energy.

Ours. Units of neurons are dealt over the cores, then moved and exchanged: first by annealing a smooth time, in which
all loads of a step count by their p-norm, then where the exact floorline of every step (DESIGN 6: the barrier and the
busiest unit of that step, not of an average) becomes shorter; heavy units are cut in two and the search goes on with
the parts. After the floorline-informed partitioning of arXiv 2511.21549, whose algorithm we could not read. Messages
are those of hypergraphs, one for a spike and core, and moves are evaluated incrementally, as in M-HySMap (arXiv
2608.26223).
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np

from nwcompile.errors import FitError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import core_usage
from nwcompile.passes.fit import capacity
from nwcompile.passes.fit.core_rules import has_rules
from nwcompile.passes.partition.floorline.cluster_search import Partition, Search, improved
from nwcompile.passes.partition.floorline.clusters import fitting_units
from nwcompile.passes.partition.floorline.demand import neuron_load
from nwcompile.passes.partition.floorline.min_traffic import are_alike, are_full, filled, least_traffic, mended
from nwcompile.passes.partition.floorline.step_limit import most_cycles, step_cycles, step_us, too_slow
from nwcompile.passes.partition.metis import metis
from nwcompile.passes.partition.sequential import in_order, sequential
from nwcompile.passes.partition.striped import striped, units
from nwcompile.passes.place.chip_regions import twice_the_cores, unit_zones, whole_chips, zone_sizes
from nwcompile.passes.prepare.schedule import schedule

UNITS_PER_CORE = 16  # that the search begins with
N_LEVELS = 2  # of units, each half as heavy as those before
MOST_UNITS = 40_000  # that it begins with, unless the chip makes them smaller
FINE = 128  # neurons up to which every one is a unit from the beginning
EACH_TRIED = 4  # numbers of cores up to which all are tried; beyond, twice as many each time, then those between
WORTH = 0.5  # of the share of cores that are added: the share of the time that they must save, for `time`
PATIENCE = 2  # numbers of cores, one after another, that may be worth less than the best before
FINER_HEAT = 0.1  # of finer units, whose cores are good already
FIRST_EFFORT = 0.1  # for each number of cores
SAVE_CORES = ("cores", "traffic")  # objectives that more cores than needed do not serve


def floorline(network: Network, chip: Chip, activity: Activity, options: Options) -> dict[str, np.ndarray] | Mapping:
    """Cores int32[n] of every layer, on `options.n_cores` cores or on as many as `options.optimize` asks for.

    `time` makes the sum of the predicted step times least, then messages, on cores that are worth it: a share more of
    them must save half that share of the time (least is the time times the root of the cores in use). `energy` and
    `edp` make least what they say, `cores` the number of cores, then the time. `traffic` makes least the routed hops,
    then the messages, and gives a Mapping, sites included, where all sites are alike. With `options.time_budget_s` it
    goes on until the time is up or until an interrupt (Ctrl-C), and gives the best so far. For a chip with core rules
    (`nwcompile.passes.fit.core_rules`), and where nothing within the limits was found, these are the slices of
    `sequential`. The result may exceed the chip: `partition` judges it.
    """
    if has_rules(chip):
        return sequential(network, chip, activity, options)
    deadline = None if options.time_budget_s is None else time.monotonic() + options.time_budget_s
    search = Search(
        network, chip, activity, schedule(network, options.execution), options,
        neuron_load(network, chip, activity), np.array([options.seed], np.uint64), deadline,
    )  # fmt: skip
    best: Partition | None = None
    sites = None
    improvements = _least_traffic if options.optimize == "traffic" else _improvements
    try:
        for best, sites in improvements(search):  # noqa: B007
            if search.is_late:
                break
    except KeyboardInterrupt:
        if deadline is None or best is None:
            raise
    if best.excess:
        return sequential(network, chip, activity, options)
    if sites is None:
        return split_layers(network, _in_order(best).astype(np.int32))
    used, cores = np.unique(best.neuron_core, return_inverse=True)
    return Mapping(split_layers(network, cores.reshape(-1).astype(np.int32)), chip.sites[sites[used]])


def _in_order(found: Partition) -> np.ndarray:
    """int32[neuron]: the cores numbered zone by zone, those of one by their first neuron, without gaps."""
    core = found.neuron_core
    zones = np.array([found.n_cores]) if found.zones is None else found.zones
    order = np.argsort(np.repeat(np.arange(len(zones)), zones)[core], kind="stable")
    numbered = np.empty(len(core), np.int32)
    numbered[order] = in_order(core[order])
    return numbered


def _least_traffic(search: Search) -> Iterator[tuple[Partition, np.ndarray | None]]:
    """The best partition so far and the sites of its cores, None where they are not known: see `least_traffic`."""
    best, most = _in_time(search), most_cycles(*search[1:5])
    if best is None:
        for best in _coarse(search):
            yield best, None
        slices = _cores_by(sequential, search, best.n_cores)
        starts = [best.neuron_core, *([] if slices is None else [slices])]
        tried = [(starts, None), (starts, _cut(best.unit_of, best.neuron_core))]
    else:
        yield best, None
        tiles = filled(search, best.n_cores) if are_full(search, best.n_cores) else None
        tried = [*([] if tiles is None else [([tiles], None)]), ([best.neuron_core], best.unit_of)]
    is_placed, least = are_alike(search.chip, search.options), np.inf
    if most is not None and (given := _of_metis(search, best, most)) is not None:
        least = given[0].cost
        yield given[0], given[1] if is_placed else None
    for nth, (starts, unit_of) in enumerate(tried):
        found = None
        with suppress(OptionError) if nth else nullcontext():  # the coarsest units of a later one may take more memory
            for found, sites in least_traffic(search, starts, unit_of, best.n_cores, most):
                if found.excess <= best.excess and found.cost < least:
                    yield found, sites if is_placed else None
        if found is not None and found.excess <= best.excess:
            return


def _of_metis(search: Search, best: Partition, most: int) -> tuple[Partition, np.ndarray] | None:
    """METIS's partition on as many cores, and their sites, made to keep `most` cycles; None where that is not found.

    It draws from a copy of the random state: where it is not the best, what is found is as without it.
    """
    search = search._replace(state=search.state.copy())
    cores = None if best.n_cores == 1 else _cores_by(metis, search, best.n_cores)
    found = None if cores is None else mended(search, cores, _cut(best.unit_of, cores), most)
    return None if found is None or found[0].excess > best.excess else found


def _in_time(search: Search) -> Partition | None:
    """A partition that keeps `options.step_limit_us`, on few cores unless their number is given; None: no limit.

    One that exceeds the chip if none fits. Raises FitError with the shortest step that was found if none keeps it.
    """
    most, options = most_cycles(*search[1:5]), search.options
    if most is None:
        return None
    timed = search._replace(options=replace(options, optimize="time", step_limit_us=None))
    tried, shortest, n_cores = _more_and_more(timed) if options.n_cores is None else _improvements(timed), np.inf, 0
    for best, _ in tried:
        taken = np.inf if best.excess else step_cycles(*search[:4], best.neuron_core)
        if taken <= most:
            break
        shortest, n_cores = min((shortest, n_cores), (taken, best.n_cores))
        if search.is_late:
            break
    if shortest == np.inf and taken == np.inf:
        return best
    if taken > most:
        raise too_slow(search.chip, step_us(shortest, *search[1:4]), options.step_limit_us, n_cores)
    too_few = best.n_cores if options.n_cores is not None else best.n_cores // 2
    while best.n_cores - too_few > 1:
        fewer = _begun(timed, (best.n_cores + too_few) // 2)
        if not fewer.excess and step_cycles(*search[:4], fewer.neuron_core) <= most:
            best = fewer
        else:
            too_few = fewer.n_cores
    return best


def _more_and_more(search: Search) -> Iterator[tuple[Partition, None]]:
    """A short search on the cores that slices take, then on twice as many each time, up to all."""
    slices, most = _cores_by(sequential, search), _most_cores(search)
    n_cores = min(most, 1 if slices is None else int(slices.max()) + 1)
    yield _begun(search, n_cores), None
    while n_cores < most:
        n_cores = min(most, 2 * n_cores)
        yield _begun(search, n_cores), None


def _most_cores(search: Search) -> int:
    """Cores that hold neurons at all, and no more than there are neurons."""
    return min(len(search.load), capacity.n_usable(search.chip))


def _improvements(search: Search) -> Iterator[tuple[Partition, None]]:
    """The best partition so far, after every search: of several numbers of cores, then of finer and finer units."""
    begun = _in_time(search)
    best: Partition | None = None
    for best in _coarse(search) if begun is None else [begun]:
        yield best, None
    for level in range(N_LEVELS):
        best = min(_finer(search, best, level, 1.0), best, key=lambda p: p.rank)
        yield best, None
        if len(best.core_of) == len(search.load):
            break
    while search.deadline is not None:
        best = min(_finer(search, best, N_LEVELS - 1, 1.0), best, key=lambda p: p.rank)
        yield best, None


def _coarse(search: Search) -> Iterator[Partition]:
    """The best partition of coarse units so far, after every search of some number of cores.

    Where nothing else fits, it is the slices of `sequential` or the stripes of `striped` that are moved.
    """
    best: Partition | None = None
    slices = _cores_by(sequential, search)
    for best in _of_counts(search, 1 if slices is None else int(slices.max()) + 1):
        yield best
    if best.excess:
        stripes = _cores_by(striped, search)
        given = [c for c in (slices, stripes) if c is not None and c.max() < search.chip.n_cores]
        for cores in given:
            best = min(_of_given(search, cores, best), best, key=lambda p: _worth(search, p))
            yield best


def _of_counts(search: Search, n_slices: int) -> Iterator[Partition]:
    """The best partition so far, after a short search on every number of cores that is tried.

    As many as asked for; fewer that fit as well; or twice as many each time while that is better, or may become
    so, then numbers between the best and its neighbors. `n_slices`: cores that `sequential` takes.
    """
    options, limit = search.options, capacity.site_limits(search.chip)[:, core_usage.NEURONS]
    most = _most_cores(search)
    first = min(n_slices, most)
    if options.n_cores is not None:
        yield _begun(search, options.n_cores)
    elif options.optimize in SAVE_CORES:
        least = 1 + int(np.searchsorted(np.cumsum(np.sort(limit)[::-1]), len(search.load)))
        yield from _falling(search, first, least)
    else:
        yield from _rising(search, first, max(first, min(most, MOST_UNITS // UNITS_PER_CORE)))


def _falling(search: Search, first: int, least: int) -> Iterator[Partition]:
    """By bisection: where some number of cores fits, more of them are taken to fit as well."""
    best, n_cores = None, first
    while best is None or (least < first and not best.excess):
        found = _begun(search, n_cores)
        if found.excess:
            least = n_cores + 1
        else:
            first = n_cores
        best = found if best is None or not found.excess else best
        yield best
        n_cores = (least + first) // 2


def _rising(search: Search, first: int, most: int) -> Iterator[Partition]:
    n_cores, n_worse = min(most, whole_chips(search.chip, first)), 0
    found = {n_cores: _begun(search, n_cores)}
    best = found[n_cores]
    yield best
    while n_cores < most and (best.excess or n_worse < PATIENCE):
        n_cores = min(most, n_cores + 1 if n_cores < EACH_TRIED else twice_the_cores(search.chip, n_cores))
        found[n_cores] = _begun(search, n_cores)
        n_worse = 0 if _worth(search, found[n_cores]) < _worth(search, best) else n_worse + 1
        best = best if n_worse else found[n_cores]
        yield best
    at = [*found].index(best.n_cores)
    for near in ([*found][max(at - 1, 0)], [*found][min(at + 1, len(found) - 1)]):
        n_cores = min(most, whole_chips(search.chip, round((best.n_cores * near) ** 0.5)))
        if n_cores not in found:
            found[n_cores] = _begun(search, n_cores)
            yield min(found.values(), key=lambda p: _worth(search, p))


def _worth(search: Search, found: Partition) -> tuple[int, float]:
    """Smaller is better, among different numbers of cores too: for `time`, more of them must be worth it."""
    if search.options.optimize != "time":
        return found.rank
    return found.excess, found.cost * len(np.unique(found.core_of)) ** WORTH


def _begun(search: Search, n_cores: int) -> Partition:
    """A short search from coarse units, dealt out in turn, by pixels or in slices of equal load: the best of them."""
    n = len(search.load)
    unit_of = np.arange(n)
    if n > FINE:
        unit_of = fitting_units(search.network, search.chip, search.load, UNITS_PER_CORE * n_cores)
    zones = zone_sizes(search.chip, n_cores)
    if n <= FINE or len(zones) == 1:
        return improved(search, unit_of, _starts(search, unit_of, np.array([n_cores])), n_cores, FIRST_EFFORT)
    return improved(search, unit_of, _starts(search, unit_of, zones), n_cores, FIRST_EFFORT, zones=zones)


def _starts(search: Search, unit_of: np.ndarray, zones: np.ndarray) -> list[np.ndarray]:
    """Cores int64[unit] to begin with: the units of each zone dealt over its cores in turn, by pixels, or in slices."""
    zone = unit_zones(search.network, search.load, unit_of, zones)
    first = np.unique(unit_of, return_index=True)[1]
    heavy = np.bincount(unit_of, search.load)
    orders = [first, *(units(search.network, n)[first] for n in (1, 2))]
    starts = [np.zeros(len(first), np.int64) for _ in range(4)]
    for z, (begin, n_cores) in enumerate(zip(np.cumsum(zones) - zones, zones, strict=True)):
        own = np.flatnonzero(zone == z)
        for start, order in zip(starts, orders, strict=False):
            start[own] = begin + np.unique(order[own], return_inverse=True)[1].reshape(-1) % n_cores
        own = own[np.argsort(first[own])]
        upto = np.cumsum(heavy[own] if heavy[own].any() else np.ones(len(own)))
        part = (upto - upto[:1] / 2) * n_cores // upto[-1:]
        starts[-1][own] = begin + np.minimum(part, n_cores - 1).astype(np.int64)
    return starts


def _finer(search: Search, coarse: Partition, level: int, effort: float) -> Partition:
    """A search from the same cores with units of at most half the weight, and of half that on every further level."""
    n_units = (UNITS_PER_CORE << level) * coarse.n_cores
    unit_of = fitting_units(search.network, search.chip, search.load, n_units, coarse.unit_of)
    first = np.unique(unit_of, return_index=True)[1]
    return improved(search, unit_of, [coarse.neuron_core[first]], coarse.n_cores, effort,
                    FINER_HEAT if level else 1.0, coarse.zones)  # fmt: skip


def _cores_by(method, search: Search, n_cores: int | None = None) -> np.ndarray | None:
    """Cores int32[neuron] of another partitioner, on `n_cores` if given; None where it knows none of that number."""
    options = search.options if n_cores is None else replace(search.options, n_cores=n_cores)
    try:
        cores = np.concatenate([*method(search.network, search.chip, search.activity, options).values()])
    except (FitError, OptionError):
        return None
    return cores if n_cores is None or cores.max() < n_cores else None


def _cut(unit_of: np.ndarray, cores: np.ndarray) -> np.ndarray:
    """int64[neuron]: units int64[neuron] cut where cores int[neuron] meet."""
    return np.unique(unit_of * (int(cores.max()) + 1) + cores, return_inverse=True)[1].reshape(-1)


def _of_given(search: Search, cores: np.ndarray, other: Partition) -> Partition:
    """A search that begins with the given cores int32[neuron], whose borders cut the units of another partition."""
    n_cores, unit_of = int(cores.max()) + 1, _cut(other.unit_of, cores)
    first = np.unique(unit_of, return_index=True)[1]
    return improved(search, unit_of, [cores[first]], n_cores, FIRST_EFFORT)
