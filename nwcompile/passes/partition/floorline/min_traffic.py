"""Objective `traffic`: the fewest routed hops, then messages, by annealing units between cores at known sites.

Ours. Partition and placement are found together: cores have sites from the beginning, so that a message costs its own
way, and units that talk come to lie on near cores. After each annealing the cores are placed anew, then it goes on with
finer units, down to single neurons. How hot an annealing starts is found by heating until the cost rises by a tenth: a
good start is kept, and one that is no better than chance melts. Multicast traffic is counted as in M-HySMap (arXiv
2608.26223), a message for a spike and core, at the ways of single messages.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.route_cost import route_cost
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_groups, layer_numbers, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import cluster_state, core_usage, moves, traffic_anneal
from nwcompile.kernels.mapping.cluster_state import Demand
from nwcompile.passes.fit import capacity
from nwcompile.passes.partition.floorline.cluster_search import Partition, Search
from nwcompile.passes.partition.floorline.clusters import fitting_units, places
from nwcompile.passes.partition.floorline.demand import empty_loads, unit_demand
from nwcompile.passes.partition.floorline.step_limit import step_cycles
from nwcompile.passes.place.anneal import annealed
from nwcompile.passes.place.problem import ground
from nwcompile.passes.place.space_filling import z_rank

ANNEALINGS: tuple[tuple[int, float, float, int], ...] = (
    # units for each core, rise of the cost when heated, of `WORK`, moves drawn of which the best is tried
    (16, np.inf, 0.1, 1), (16, 0.3, 0.1, 1), (16, 0.1, 0.1, 1), (64, 0.1, 0.2, 1), (1024, 0.05, 0.7, 3),
)  # fmt: skip
MENDED: tuple[int, float, float, int] = (1024, 0.0, 0.1, 3)  # the same, of a good start
NEARLY = 1.02  # of the limit, what such a start may take
SAME = 0.8  # of what units read, above which smaller ones would not be freer
MOST_UNITS = 40_000
FULL = 1 / 64  # of the neurons: less room beside them, a quarter of a first unit in a core, keeps units where they are
KEPT_STEPS = 128  # of which the time is looked at while units move
CLOSER, MOST_LATE = 0.99, 3  # than the limit, after it was missed; further annealings for that
HOP = 16  # what a hop costs, where a message to another core costs 1 beside its way
MOVES_PER_UNIT, FEWEST_MOVES = 4000, 4000  # of an annealing
WORK, EACH_MOVE, EACH_GROUP = 2_000_000_000, 30, 3  # looks at one atom that an annealing may do; of a move, of a group
MANY_READS = 100  # atoms that a unit reads, with which making a move takes as long as looking at the others
COOLEST, N_HEATS, WARMER = 0.004, 8, 2.0  # temperature of the first heat, of the mean uphill change; heats
N_COOLINGS, COOLED = 24, 0.04  # temperatures, and the last of them as a share of the first
DRAWN = 2000  # moves whose change is looked at first
MOST_BYTES = 4 << 30  # of the tables by atom, row or unit, and core


class Level(NamedTuple):
    """Units of one size on cores at sites, ready to be moved."""

    unit_of: np.ndarray  # int64[neuron]
    demand: Demand
    loads: cluster_state.Loads
    flow: traffic_anneal.Flow
    most_time: int  # cycles that all steps that the demand knows may take together; 0: no limit

    @property
    def reads(self) -> float:
        """Atoms that a unit reads, on average."""
        return len(self.flow.read_atom) / len(self.demand.size)

    @property
    def partition(self) -> Partition:
        """Units and cores as they are; `cost` is that of all messages, hops first."""
        excess, cost = traffic_anneal.settled(self.demand, self.loads, self.most_time), float(self.flow.total[0])
        return Partition(self.unit_of, self.loads.core_of.copy(), len(self.demand.limit), int(excess), cost)


def least_traffic(
    search: Search, starts: list[np.ndarray], unit_of: np.ndarray | None, n_cores: int, most_time: int | None = None
) -> Iterator[tuple[Partition, np.ndarray]]:
    """The best partition so far and its cores' sites, int64[core], after every annealing.

    It begins with the best of `starts`, each int[neuron], on `n_cores` cores, and cuts units out of `unit_of` or of
    whole layers, no finer where the parts would read what the whole reads, or where tables would take more than
    `MOST_BYTES`. With `most_time`, cycles that all steps together may take, only partitions that keep it at their
    sites, links included, are given. With a deadline it goes on for ever. Raises OptionError if the tables of the
    coarsest units are too large.
    """
    sites, reads, margin = compact_sites(search.chip, n_cores), np.inf, 1.0
    levels = [*ANNEALINGS]
    n_late, late = 0, 0.0
    while levels:
        each, rise, share, n_drawn = levels.pop(0)
        unit_of = _units(search, each * n_cores, unit_of)
        limit = None if most_time is None else margin * most_time
        demand, most = _demand(search, unit_of, n_cores, limit)
        n_bytes = _table_bytes(demand)
        if n_bytes > MOST_BYTES and each == ANNEALINGS[0][0]:
            raise OptionError(
                f"optimize='traffic' would keep {n_bytes >> 30} GB of tables for {n_cores} cores, more than "
                f"{MOST_BYTES >> 30}; ask for fewer cores, or for optimize='time'"
            )
        if n_bytes > MOST_BYTES:
            return
        tried = (_level(search.chip, unit_of, demand, sites, cores, most) for cores in starts)
        level = min(tried, key=lambda found: found.partition.rank)
        if each > ANNEALINGS[0][0] and level.reads > SAME * reads and late <= 1:
            return
        reads, best = level.reads, level.partition
        if n_cores > 1:
            best = _annealed(search, level, rise, share, n_drawn)
            sites = placed(search, best.neuron_core, sites)
        starts = [best.neuron_core]
        late = 0.0 if most_time is None else step_cycles(*search[:4], best.neuron_core, sites) / most_time
        if late > 1:
            margin *= CLOSER / late
            n_late += 1
            levels = levels or [(each, 0.0, share, n_drawn)] * (n_late <= MOST_LATE)
        else:
            yield best, sites
        if n_cores == 1 or search.is_late:
            return
        if search.deadline is not None and not levels:
            levels = [(each, rise, share, n_drawn)]


def mended(
    search: Search, cores: np.ndarray, unit_of: np.ndarray, most_time: int
) -> tuple[Partition, np.ndarray] | None:
    """The given cores int[neuron], placed, then moved by units cut out of `unit_of` while that costs less.

    And their sites, int64[core]. The cores stay as given where they keep `most_time`, as `least_traffic` has it, and
    what is found does not. None where neither does, where they are far from it, or where tables would be too large.
    """
    n_cores = int(cores.max()) + 1
    sites = placed(search, cores, compact_sites(search.chip, n_cores))
    if step_cycles(*search[:4], cores, sites) > NEARLY * most_time:
        return None
    each, rise, share, n_drawn = MENDED
    unit_of = _units(search, each * n_cores, unit_of)
    demand, most = _demand(search, unit_of, n_cores, most_time)
    if _table_bytes(demand) > MOST_BYTES:
        return None
    level = _level(search.chip, unit_of, demand, sites, cores, most)
    start = level.partition._replace(excess=int(level.loads.total[cluster_state.EXCESS]))  # time is judged by all steps
    tried = (_annealed(search, level, rise, share, n_drawn), start)
    kept = [found for found in tried if step_cycles(*search[:4], found.neuron_core, sites) <= most_time]
    return (min(kept, key=lambda found: found.rank), sites) if kept else None


def are_full(search: Search, n_cores: int) -> bool:
    """Whether so many cores hold hardly more than all neurons, so that units move only where equal ones come back."""
    return int(_room(search, n_cores).sum()) < (1 + FULL) * len(search.load)


def filled(search: Search, n_cores: int) -> np.ndarray | None:
    """int32[neuron]: cores filled one after another with the units that `least_traffic` begins with; None: too few.

    Layer after layer, the tiles of each along a Z-shaped curve. Only neurons are counted.
    """
    network, unit_of = search.network, _units(search, ANNEALINGS[0][0] * n_cores, None)
    size, first = np.bincount(unit_of), np.unique(unit_of, return_index=True)[1]
    layer = layer_numbers(network)
    channel, row, column = places(network)[first].T
    room = _room(search, n_cores)
    core_of, core, held = np.zeros(len(size), np.int32), 0, 0
    for unit in np.lexsort((channel, z_rank(column, row), layer[first])):
        if held + size[unit] > room[core]:
            core, held = core + 1, 0
            if core == n_cores or size[unit] > room[core]:
                return None
        core_of[unit] = core
        held += size[unit]
    return core_of[unit_of]


def _room(search: Search, n_cores: int) -> np.ndarray:
    """int64[core]: neurons that each of the largest cores holds."""
    return np.sort(capacity.site_limits(search.chip)[:, core_usage.NEURONS])[::-1][:n_cores]


def _units(search: Search, n_units: int, unit_of: np.ndarray | None) -> np.ndarray:
    """int64[neuron]: about as many units, or `MOST_UNITS`, of even load and, as far as that goes, size."""
    share_of = np.maximum(search.load / search.load.sum(), 1 / len(search.load))
    weight = np.ceil(share_of * (1 << 40)).astype(np.int64)
    return fitting_units(search.network, search.chip, weight, min(n_units, MOST_UNITS), unit_of)


def are_alike(chip: Chip, options: Options) -> bool:
    """Whether any core may be at any usable site."""
    limits = capacity.site_limits(chip)
    usable = limits[limits[:, core_usage.NEURONS] > 0]
    return options.fixed_sites is None and bool((usable == usable[0]).all())


def compact_sites(chip: Chip, n_cores: int) -> np.ndarray:
    """int64[core]: usable sites near one another, router by router, around the router where they are nearest."""
    usable = np.flatnonzero(capacity.site_limits(chip)[:, core_usage.NEURONS] > 0)
    router = usable // chip.noc.cores_per_router
    way, routers = route_cost(chip, "traffic"), np.unique(router)
    length = way.between(routers[:, None], routers)
    at = np.searchsorted(routers, router)
    kept = [np.argsort(length[i][at], kind="stable")[:n_cores] for i in range(len(routers))]
    cores_at = np.array([np.bincount(at[cores], minlength=len(routers)) for cores in kept], float)
    total = (cores_at @ length.astype(float) * cores_at).sum(1)  # whole numbers, so that no order of sums matters
    return usable[kept[int(total.argmin())]]


def placed(search: Search, cores: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """int64[core]: better sites for the partition int[neuron], from `sites` on; the same where sites are not alike."""
    network, chip, used = search.network, search.chip, np.unique(cores)
    if not are_alike(chip, search.options):
        return sites
    mapping = Mapping(split_layers(network, np.searchsorted(used, cores).astype(np.int32)), chip.sites[sites[used]])
    known = ground(mapping, network, chip, search.activity, search.options)
    found = sites.copy()
    found[used] = annealed(known, sites[used], replace(search.options, time_budget_s=None))
    unused = np.setdiff1d(np.arange(len(sites)), used)
    found[unused] = np.setdiff1d(np.concatenate([sites, np.arange(chip.n_cores)]), found[used])[: len(unused)]
    return found


def message_costs(chip: Chip, sites: np.ndarray) -> np.ndarray:
    """int64[core, core]: what a message from a core to a core costs, by their sites int64[core]."""
    router = sites // chip.noc.cores_per_router
    hops = route_cost(chip, "traffic").between(router[:, None], router)
    return HOP * hops + 1 - np.eye(len(sites), dtype=np.int64)


def _demand(search: Search, unit_of: np.ndarray, n_cores: int, most_time: float | None) -> tuple[Demand, int]:
    """The Demand of the units, and the cycles that the steps it knows may take together; 0: no limit."""
    network, chip, activity, timing = search[:4]
    counts = {name: n.sum(0, dtype=np.int64)[None] for name, n in activity.counts.items()}
    demand = unit_demand(network, chip, Activity(counts, 1), timing, unit_of, n_cores)
    if most_time is None:
        return demand, 0
    timed = unit_demand(network, chip, activity, timing, unit_of, n_cores, KEPT_STEPS)
    n_steps = timing.n_hardware_steps(activity.n_steps, "aligned")
    limit = max(1, int(most_time * timed.send.shape[1] / n_steps))
    return timed._replace(group_spikes=demand.group_spikes), limit


def _table_bytes(demand: Demand) -> int:
    """Bytes of the tables of `flow_of` and `empty_loads` by atom, by row and by unit, each for every core."""
    each_core = 24 * len(demand.atom_size) + 4 * len(demand.row_atom) + 8 * len(demand.size)
    return each_core * len(demand.limit)


def _level(chip: Chip, unit_of: np.ndarray, demand: Demand, sites, cores: np.ndarray, limit: int) -> Level:
    """The units, each on the core of `cores` int[neuron] where its first neuron is; sites: int64[core]."""
    loads, flow = empty_loads(demand, chip), flow_of(demand, message_costs(chip, sites))
    core_of = cores[np.unique(unit_of, return_index=True)[1]].astype(np.int32)
    moves.put_all(demand, loads, core_of)
    traffic_anneal.put_units(demand, flow, core_of)
    return Level(unit_of, demand, loads, flow, limit)


def flow_of(demand: Demand, cost: np.ndarray) -> traffic_anneal.Flow:
    """Empty tables for `traffic_anneal`; `cost` int64[core, core] is that of a message from a core to a core."""
    n_units, n_atoms, n_cores = len(demand.size), len(demand.atom_size), len(cost)
    unit = csr_groups(demand.in_offset)
    unit, atom = np.divmod(np.unique(unit * n_atoms + demand.row_atom[demand.in_row]), max(1, n_atoms))
    order = np.argsort(atom, kind="stable")
    return traffic_anneal.Flow(
        np.searchsorted(unit, np.arange(n_units + 1)), atom.astype(np.int32),
        np.searchsorted(atom[order], np.arange(n_atoms + 1)), unit[order].astype(np.int32), cost,
        np.zeros((n_atoms, n_cores), np.int32), np.zeros((n_atoms, n_cores), np.int64),
        np.zeros((n_atoms, n_cores), np.int64), np.zeros((n_units, n_cores), np.int64),
        np.full(n_units, -1, np.int32), np.zeros(n_units, np.int32), np.zeros(n_units, np.int32),
        np.zeros(n_cores + 1, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


def _annealed(search: Search, level: Level, rise: float, share: float, n_drawn: int) -> Partition:
    """The best of an annealing (Kirkpatrick et al., Science 220, 1983), heated until the cost rises by that share."""
    demand, loads, flow = level.demand, level.loads, level.flow
    keep_all, n_units, best = search.options.n_cores is not None, len(demand.size), level.partition
    each = (
        EACH_MOVE + int(level.reads * (1 + level.reads / MANY_READS)) + EACH_GROUP * len(demand.group_atom) // n_units
    )
    n_moves = max(FEWEST_MOVES, min(MOVES_PER_UNIT * n_units, int(share * WORK) // each)) // (N_COOLINGS + N_HEATS)
    uphill = traffic_anneal.uphill_mean(demand, loads, flow, DRAWN, search.state)

    def run(temperature: float) -> None:
        nonlocal best
        found = loads.core_of.copy()
        over, cost = traffic_anneal.anneal(
            demand, loads, flow, level.most_time, temperature, n_moves, n_drawn, keep_all, search.state, found
        )
        if (over, cost) < best.rank:
            best = best._replace(core_of=found, excess=int(over), cost=float(cost))

    temperature = COOLEST * uphill
    for _ in range(N_HEATS):
        run(temperature)
        if search.is_late or flow.total[0] > (1 + rise) * best.cost:
            break
        temperature *= WARMER
    for i in range(1, N_COOLINGS):
        if not search.is_late:
            run(temperature * COOLED ** (i / N_COOLINGS))
    run(0.0)
    return best
