"""Minimal traffic: the fewest routed hops, then messages, by annealing clusters between cores at known sites.

This method is ours. Partition and placement are found together: cores have sites from the beginning, so a message costs
its own route, and clusters that exchange messages move to near cores. After each annealing the cores are placed again,
and the search continues with finer clusters, down to single neurons. The initial temperature of an annealing is found
by heating until the cost rises by a tenth: a good start is preserved, and one no better than chance melts. Multicast
traffic is counted as in M-HySMap (arXiv 2608.26223), one message per spike and core, over the routes of single
messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.route_cost import route_cost
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_groups, layer_numbers, neuron_places, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import cluster_state, core_usage, traffic_anneal
from nwcompile.kernels.mapping.cluster_state import CoreState, Demand
from nwcompile.kernels.mapping.traffic import compact_router
from nwcompile.passes.analyze import capacity
from nwcompile.passes.partition.floorline.clusters import fitting_clusters
from nwcompile.passes.partition.floorline.demand import cluster_demand, filled_cores
from nwcompile.passes.partition.floorline.objective import step_cycles
from nwcompile.passes.partition.floorline.search import Partition, Search, kept_partition
from nwcompile.passes.place.anneal import anneal_sites, cool, uphill_mean
from nwcompile.passes.place.direct import z_rank
from nwcompile.passes.place.problem import placement_problem

# Cost of a hop, if a message to another core costs 1 in addition to its route: hops come first, messages break ties.
HOP_COST = 16


class Annealing(NamedTuple):
    """Parameters of one annealing of clusters of one size."""

    clusters_per_core: int
    rise: float  # share by which heating lets the cost rise; infinite: until it melts, 0: no heating
    work_share: float  # of `HopMoves.max_looks`
    n_drawn: int  # moves drawn at a time; the best of them is tried


@dataclass(frozen=True)
class HopMoves:
    """The number of moves that an annealing tries, by their cost."""

    moves_per_cluster: int = 4000  # Moves per cluster of an annealing.
    min_moves: int = 4000  # The fewest moves in total.
    max_looks: int = 2_000_000_000  # Maximum looks at one source class of an annealing, some seconds of work.
    move_looks: int = 30  # Looks of a move by itself.
    group_looks: int = 3  # Looks of a move for each group of its cluster.
    many_reads: int = 100  # Classes read by a cluster at which applying a move takes as long as evaluating it.

    def moves_at_each(self, annealing: Annealing, n_clusters: int, n_reads: float, n_groups: int) -> int:
        """Return the moves at each temperature of an annealing."""
        looks = (
            self.move_looks + int(n_reads * (1 + n_reads / self.many_reads)) + self.group_looks * n_groups // n_clusters
        )
        n_moves = min(self.moves_per_cluster * n_clusters, int(annealing.work_share * self.max_looks) // looks)
        return max(self.min_moves, n_moves) // (HEATING.n_coolings + HEATING.n_heats)


@dataclass(frozen=True)
class Heating:
    """Temperatures of an annealing, which heats until the cost rises, then cools."""

    # The first heat as a share of the mean rise, the factor to the next heat, and the most heats.
    coolest_share: float = 0.004
    warmer_factor: float = 2.0
    n_heats: int = 8
    n_coolings: int = 24  # Number of temperatures from the last heat down to `cooled_share` of it.
    cooled_share: float = 0.04
    sampled_moves: int = 2000  # Random moves that estimate the mean rise well enough.


@dataclass(frozen=True)
class TrafficSearch:
    """Parameters of annealing clusters for little traffic, from coarse ones to single neurons."""

    # Coarse clusters melt first, then are heated less and less; fine ones only settle, and take most of the work.
    annealings: tuple[Annealing, ...] = (
        Annealing(clusters_per_core=16, rise=np.inf, work_share=0.1, n_drawn=1),
        Annealing(clusters_per_core=16, rise=0.3, work_share=0.1, n_drawn=1),
        Annealing(clusters_per_core=16, rise=0.1, work_share=0.1, n_drawn=1),
        Annealing(clusters_per_core=64, rise=0.1, work_share=0.2, n_drawn=1),
        Annealing(clusters_per_core=1024, rise=0.05, work_share=0.7, n_drawn=3),
    )
    # A good start is repaired by moves of fine clusters that only improve.
    repair: Annealing = Annealing(clusters_per_core=1024, rise=0.0, work_share=0.1, n_drawn=3)
    repairable_factor: float = 1.02  # A start that takes more than this times the time limit is not repaired.
    # Finer clusters that read more than this share of what the coarser ones read would not gain freedom.
    same_reads_share: float = 0.8
    max_clusters: int = 40_000  # With more clusters, moving each of them often enough takes too long.
    # With less free room than this share of the neurons, a quarter of a coarse cluster per core, clusters do not move.
    full_share: float = 1 / 64
    # Maximum steps on which moves are evaluated, evenly spaced; the result is checked on all steps.
    kept_steps: int = 128
    # After a missed time limit, the next annealing aims at this share of it; at most `max_late` more are tried.
    closer_share: float = 0.99
    max_late: int = 3
    max_bytes: int = 4 << 30  # Maximum memory of the tables by class, row or cluster, and core.


HOP_MOVES = HopMoves()
HEATING = Heating()
TRAFFIC = TrafficSearch()


class Level(NamedTuple):
    """Clusters of one size on cores at sites, ready to be moved."""

    cluster_of: np.ndarray  # int64[neuron]
    demand: Demand
    state: CoreState
    flow: traffic_anneal.Flow
    max_time: int  # cycles that all steps of the demand may take together; 0: no limit

    @property
    def n_reads(self) -> float:
        """The average number of source classes that a cluster reads."""
        return len(self.flow.readers.source_class) / len(self.demand.sends.n_neurons)

    @property
    def partition(self) -> Partition:
        """The current clusters and cores; `cost` is that of all messages, hops first."""
        held, busy = self.state.held, self.state.busy
        excess = traffic_anneal.refresh_excess(self.demand.rules, held, busy, self.max_time)
        return Partition(
            cluster_of=self.cluster_of,
            core_of=held.core_of.copy(),
            n_cores=len(held.n_clusters),
            excess=int(excess),
            cost=float(self.flow.costs.total[0]),
        )


def anneal_hops(
    search: Search, starts: list[np.ndarray], cluster_of: np.ndarray | None, n_cores: int, max_time: int | None = None
) -> Iterator[tuple[Partition, np.ndarray]]:
    """Yield the best partition so far and its cores' sites, int64[core], after every annealing.

    It starts from the best of `starts`, each int[neuron], on `n_cores` cores. Clusters are cut out of `cluster_of` or
    of whole layers, but no finer if the parts would read what the whole reads, or if tables would exceed
    `TRAFFIC.max_bytes`. With `max_time`, cycles that all steps together may take, only partitions within it at their
    sites, links included, are yielded. With a deadline it never ends by itself. Raises OptionError if the tables of the
    coarsest clusters are too large.
    """
    sites = compact_sites(search.chip, n_cores)
    n_reads, margin = np.inf, 1.0
    annealings = [*TRAFFIC.annealings]
    coarsest = annealings[0].clusters_per_core
    n_late, late = 0, 0.0
    while annealings:
        annealing = annealings.pop(0)
        is_coarsest = annealing.clusters_per_core == coarsest
        cluster_of = _cut_clusters(search, annealing.clusters_per_core * n_cores, cluster_of)
        limit = None if max_time is None else margin * max_time
        demand, kept_limit = _traffic_demand(search, cluster_of, n_cores, limit)
        n_bytes = _table_bytes(demand)
        if n_bytes > TRAFFIC.max_bytes and is_coarsest:
            raise OptionError(
                f"optimize='traffic' would keep {n_bytes >> 30} GB of tables for {n_cores} cores, more than "
                f"{TRAFFIC.max_bytes >> 30}; ask for fewer cores, or for optimize='time'"
            )
        if n_bytes > TRAFFIC.max_bytes:
            return
        levels = (_build_level(search.chip, cluster_of, demand, sites, cores, kept_limit) for cores in starts)
        level = min(levels, key=lambda candidate: candidate.partition.rank)
        if not is_coarsest and level.n_reads > TRAFFIC.same_reads_share * n_reads and late <= 1:
            return
        n_reads, best = level.n_reads, level.partition
        if n_cores > 1:
            best = _load_or_anneal(search, level, annealing)
            sites = place_cores(search, best.neuron_core, sites)
        starts = [best.neuron_core]
        late = 0.0 if max_time is None else step_cycles(search, best.neuron_core, sites) / max_time
        if late > 1:
            margin *= TRAFFIC.closer_share / late
            n_late += 1
            annealings = annealings or [annealing._replace(rise=0.0)] * (n_late <= TRAFFIC.max_late)
        else:
            yield best, sites
        if n_cores == 1 or search.is_late:
            return
        if search.deadline is not None and not annealings:
            annealings = [annealing]


def repair_start(
    search: Search, cores: np.ndarray, cluster_of: np.ndarray, max_time: int
) -> tuple[Partition, np.ndarray] | None:
    """Place the given cores int[neuron], then move clusters cut out of `cluster_of` while that costs less.

    Returns the partition and its sites, int64[core]. If only the given cores are within `max_time` (see
    `anneal_hops`), they are returned. Returns None if neither result is, if the cores are far from it, or if tables
    would be too large.
    """
    n_cores = int(cores.max()) + 1
    sites = place_cores(search, cores, compact_sites(search.chip, n_cores))
    if step_cycles(search, cores, sites) > TRAFFIC.repairable_factor * max_time:
        return None
    cluster_of = _cut_clusters(search, TRAFFIC.repair.clusters_per_core * n_cores, cluster_of)
    demand, kept_limit = _traffic_demand(search, cluster_of, n_cores, max_time)
    if _table_bytes(demand) > TRAFFIC.max_bytes:
        return None
    level = _build_level(search.chip, cluster_of, demand, sites, cores, kept_limit)
    start = level.partition
    start = start._replace(excess=int(level.state.busy.total[cluster_state.EXCESS]))  # time is checked on all steps
    candidates = (_load_or_anneal(search, level, TRAFFIC.repair), start)
    kept = [candidate for candidate in candidates if step_cycles(search, candidate.neuron_core, sites) <= max_time]
    return (min(kept, key=lambda candidate: candidate.rank), sites) if kept else None


def are_full(search: Search, n_cores: int) -> bool:
    """Return whether the cores are nearly full with all neurons, so that clusters can only swap with equal ones."""
    return int(_core_room(search, n_cores).sum()) < (1 + TRAFFIC.full_share) * len(search.load)


def fill_tiles(search: Search, n_cores: int) -> np.ndarray | None:
    """Fill cores one by one with the initial clusters of `anneal_hops`: int32[neuron]; None if they do not fit.

    Layers come in order, with the tiles of each along a Z-order curve. Only neurons are counted.
    """
    network, cluster_of = search.network, _cut_clusters(search, TRAFFIC.annealings[0].clusters_per_core * n_cores, None)
    size, first = np.bincount(cluster_of), np.unique(cluster_of, return_index=True)[1]
    layer = layer_numbers(network)
    channel, row, column = neuron_places(network)[first].T
    room = _core_room(search, n_cores)
    core_of, core, held = np.zeros(len(size), np.int32), 0, 0
    for cluster in np.lexsort((channel, z_rank(column, row), layer[first])):
        if held + size[cluster] > room[core]:
            core, held = core + 1, 0
            if core == n_cores or size[cluster] > room[core]:
                return None
        core_of[cluster] = core
        held += size[cluster]
    return core_of[cluster_of]


def _core_room(search: Search, n_cores: int) -> np.ndarray:
    """Return int64[core]: neurons that each of the largest cores holds."""
    return np.sort(capacity.site_limits(search.chip)[:, core_usage.NEURONS])[::-1][:n_cores]


def _cut_clusters(search: Search, n_clusters: int, cluster_of: np.ndarray | None) -> np.ndarray:
    """Return int64[neuron]: about `n_clusters` clusters, at most `TRAFFIC.max_clusters`, of even load and size."""
    share_of = np.maximum(search.load / search.load.sum(), 1 / len(search.load))
    weight = np.ceil(share_of * (1 << 40)).astype(np.int64)
    return fitting_clusters(search.network, search.chip, weight, min(n_clusters, TRAFFIC.max_clusters), cluster_of)


def are_alike(chip: Chip, options: Options) -> bool:
    """Return whether any core may be at any usable site."""
    limits = capacity.site_limits(chip)
    usable = limits[limits[:, core_usage.NEURONS] > 0]
    return options.fixed_sites is None and bool((usable == usable[0]).all())


def compact_sites(chip: Chip, n_cores: int) -> np.ndarray:
    """Return int64[core]: usable sites close to one another, router by router, around the most central router."""
    usable = np.flatnonzero(capacity.site_limits(chip)[:, core_usage.NEURONS] > 0)
    router = usable // chip.noc.cores_per_router
    way, (routers, n_cores_at) = route_cost(chip, "traffic"), np.unique(router, return_counts=True)
    center = compact_router(way.xy[routers], way.along_x, way.along_y, n_cores_at, min(n_cores, len(usable)))
    return usable[np.argsort(way.between_routers(routers[center], router), kind="stable")[:n_cores]]


def place_cores(search: Search, cores: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Return int64[core]: better sites for the partition int[neuron]; `sites` themselves if sites are not alike."""
    network, chip, used = search.network, search.chip, np.unique(cores)
    if not are_alike(chip, search.options):
        return sites
    mapping = Mapping(split_layers(network, np.searchsorted(used, cores).astype(np.int32)), chip.sites[sites[used]])
    problem = placement_problem(mapping, network, chip, search.activity, search.options)
    better = sites.copy()
    better[used] = anneal_sites(problem, sites[used], replace(search.options, time_budget_s=None))
    unused = np.setdiff1d(np.arange(len(sites)), used)
    better[unused] = np.setdiff1d(np.concatenate([sites, np.arange(chip.n_cores)]), better[used])[: len(unused)]
    return better


def message_costs(chip: Chip, sites: np.ndarray) -> np.ndarray:
    """Return int64[core, core]: the cost of a message between two cores at their sites int64[core]."""
    router = sites // chip.noc.cores_per_router
    hops = route_cost(chip, "traffic").between_routers(router[:, None], router)
    return HOP_COST * hops + 1 - np.eye(len(sites), dtype=np.int64)


def _traffic_demand(search: Search, cluster_of: np.ndarray, n_cores: int, max_time: float | None) -> tuple[Demand, int]:
    """Return the Demand of the clusters, and the cycles that its steps may take together; 0: no limit."""
    network, chip, activity, timing = search.network, search.chip, search.activity, search.timing
    counts = {name: n.sum(0, dtype=np.int64)[None] for name, n in activity.counts.items()}
    demand = cluster_demand(network, chip, Activity(counts, 1), timing, cluster_of, n_cores)
    if max_time is None:
        return demand, 0
    timed = cluster_demand(network, chip, activity, timing, cluster_of, n_cores, TRAFFIC.kept_steps)
    n_steps = timing.n_hardware_steps(activity.n_steps, "aligned")
    limit = max(1, int(max_time * timed.sends.send.shape[1] / n_steps))
    return timed._replace(sends=timed.sends._replace(group_spikes=demand.sends.group_spikes)), limit


def _table_bytes(demand: Demand) -> int:
    """Return the bytes of the tables of `empty_flow` and `empty_cores`: by class, row or cluster, for every core."""
    n_classes, n_rows, n_clusters = len(demand.classes.size), len(demand.rows.source_class), len(demand.sends.n_neurons)
    return (24 * n_classes + 4 * n_rows + 8 * n_clusters) * len(demand.rules.limit)


def _build_level(chip: Chip, cluster_of: np.ndarray, demand: Demand, sites, cores: np.ndarray, limit: int) -> Level:
    """Put each cluster on the core of its first neuron, cores: int[neuron]; sites: int64[core]."""
    flow = empty_flow(demand, message_costs(chip, sites))
    core_of = cores[np.unique(cluster_of, return_index=True)[1]].astype(np.int32)
    state = filled_cores(demand, chip, core_of)
    traffic_anneal.put_clusters(demand.sends, *flow, core_of)
    return Level(cluster_of, demand, state, flow, limit)


def empty_flow(demand: Demand, cost: np.ndarray) -> traffic_anneal.Flow:
    """Return empty tables for `traffic_anneal`; `cost` int64[core, core] is that of a message between cores."""
    n_clusters, n_classes, n_cores = len(demand.sends.n_neurons), len(demand.classes.size), len(cost)
    cluster = csr_groups(demand.reads.row_offset)
    key = np.unique(cluster * n_classes + demand.rows.source_class[demand.reads.row])
    cluster, source_class = np.divmod(key, max(1, n_classes))
    order = np.argsort(source_class, kind="stable")
    return traffic_anneal.Flow(
        readers=traffic_anneal.Readers(
            class_offset=np.searchsorted(cluster, np.arange(n_clusters + 1)),
            source_class=source_class.astype(np.int32),
            cluster_offset=np.searchsorted(source_class[order], np.arange(n_classes + 1)),
            cluster=cluster[order].astype(np.int32),
        ),
        costs=traffic_anneal.MessageCosts(
            cost=cost,
            n_readers=np.zeros((n_classes, n_cores), np.int32),
            inbound_cost=np.zeros((n_classes, n_cores), np.int64),
            outbound_cost=np.zeros((n_classes, n_cores), np.int64),
            exclusive_cost=np.zeros((n_clusters, n_cores), np.int64),
            total=np.zeros(1, np.int64),
        ),
        seats=traffic_anneal.Seats(
            core_of=np.full(n_clusters, -1, np.int32),
            order=np.zeros(n_clusters, np.int32),
            place=np.zeros(n_clusters, np.int32),
            first=np.zeros(n_cores + 1, np.int64),
        ),
    )


def _load_or_anneal(search: Search, level: Level, annealing: Annealing) -> Partition:
    """Return the result of `_anneal_level`, from the checkpoint if there is one."""
    given = [level.cluster_of, level.state.held.core_of, level.max_time, tuple(annealing), level.flow.costs.cost]
    return kept_partition(search, "hops", given, lambda: _anneal_level(search, level, annealing))


def _anneal_level(search: Search, level: Level, annealing: Annealing) -> Partition:
    """Return the best of an annealing that heats until the cost rises by its share, then cools."""
    demand, state, flow = level.demand, level.state, level.flow
    keep_all, n_clusters, best = search.options.n_cores is not None, len(demand.sends.n_neurons), level.partition
    n_moves = HOP_MOVES.moves_at_each(annealing, n_clusters, level.n_reads, len(demand.sends.group_class))
    changes = np.zeros(HEATING.sampled_moves, np.int64)
    traffic_anneal.sample_changes(
        demand.sends, demand.classes, demand.rules, state.held.used, *flow, state.attempt, search.state, changes
    )
    uphill = uphill_mean(changes)

    def attempt(_: int, temperature: float, n: int) -> bool:
        nonlocal best
        core_of = state.held.core_of.copy()
        excess, cost = traffic_anneal.minimize_hops(
            demand, state, flow, level.max_time, temperature, n, annealing.n_drawn, keep_all, search.state, core_of
        )
        if (excess, cost) < best.rank:
            best = best._replace(core_of=core_of, excess=int(excess), cost=float(cost))
        return not search.is_late

    temperature = HEATING.coolest_share * uphill
    for heat in range(HEATING.n_heats):
        goes_on = attempt(heat, temperature, n_moves)
        if not goes_on or flow.costs.total[0] > (1 + annealing.rise) * best.cost:
            break
        temperature *= HEATING.warmer_factor
    if not search.is_late:
        coolings = (HEATING.cooled_share ** (i / HEATING.n_coolings) for i in range(1, HEATING.n_coolings))
        cool([temperature * share for share in coolings], n_moves, n_moves, attempt)
    attempt(0, 0.0, n_moves)
    return best
