"""Cluster search: improve the cores of given clusters, move by move, under all limits of the chip."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.kernels.mapping import moves, smooth_anneal
from nwcompile.kernels.mapping.cluster_state import EXCESS, MESSAGE_OUT, MESSAGES, TIME, CoreState, Demand, Objective
from nwcompile.passes.partition.floorline.demand import cluster_demand, empty_cores, filled_cores
from nwcompile.passes.partition.floorline.objective import count_means, objective_weights, time_with_links
from nwcompile.passes.partition.floorline.search import Partition, Search, kept_partition
from nwcompile.passes.partition.sequential import number_in_order
from nwcompile.passes.place.anneal import cool
from nwcompile.passes.place.chip_regions import sites_by_region
from nwcompile.passes.place.direct import hilbert_rank


@dataclass(frozen=True)
class MoveWork:
    """The cost of trying one move, in looks at one step; fitted to times measured on the nets of the benchmarks."""

    move_looks: int = 1500  # A move by itself: drawing it, and saving and comparing the totals.
    core_looks: int = 2  # Per core: the largest load of a step is searched among all of them.
    row_looks: int = 30  # Per row that the cluster reads: its synapse memory, axons and messages.
    # Rows of a cluster beyond this number miss the processor's cache and cost `far_row_looks` more.
    cached_rows: int = 2000
    far_row_looks: int = 200

    def looks_of_move(self, demand: Demand) -> int:
        """Return the looks of one move of an average cluster."""
        n_clusters, n_steps = demand.sends.send.shape
        n_rows = len(demand.reads.row) // n_clusters
        rows = self.row_looks * n_rows + self.far_row_looks * max(0, n_rows - self.cached_rows)
        return self.move_looks + n_steps + self.core_looks * len(demand.rules.limit) + rows


@dataclass(frozen=True)
class SmoothSearch:
    """Parameters of annealing by the smooth time, for many clusters."""

    # Up to this number of clusters the exact time is annealed instead: a few moves can still explore it.
    few_clusters: int = 64
    max_looks: int = 1_200_000_000  # Maximum looks of an annealing, some seconds of work.
    moves_per_cluster: int = 600  # Maximum moves per cluster; more did not pay off on the nets of the benchmarks.
    heat_share: float = 0.15  # The first temperature as a share of the cost divided by the number of clusters.
    # The temperatures as shares of the first one; each has the same number of moves.
    cooling: tuple[float, ...] = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.0)
    # From this temperature on, the smooth time is closer to the exact one, because little is left to find.
    steep_from: int = 4
    chunk_moves: int = 5000  # Moves per chunk; between chunks the norms are updated and the clock is checked.
    # Sending messages is left out of the smooth time if it takes less than this share of senders' other work.
    quiet_share: float = 0.2


@dataclass(frozen=True)
class ExactSearch:
    """Parameters of annealing by the exact time, for few clusters; for many, it only descends after the smooth one."""

    max_looks: int = 1_800_000_000  # Maximum looks of an annealing, some seconds of work.
    min_moves: int = 300  # Moves that are tried anyway.
    moves_per_cluster: int = 300  # Maximum moves per cluster; more did not pay off on the nets of the benchmarks.
    descent_share: float = 0.1  # After a smooth annealing, this share of the usual moves suffices.
    heat_share: float = 0.3  # The first temperature as a share of the cost divided by the number of clusters.
    # The temperatures as shares of the first one; each has the same number of moves.
    cooling: tuple[float, ...] = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.01, 0.0)
    chunk_moves: int = 1000  # Moves between two checks of the clock.


MOVE_WORK = MoveWork()
SMOOTH = SmoothSearch()
EXACT = ExactSearch()


def improve_clusters(
    search: Search,
    cluster_of: np.ndarray,
    starts: list[np.ndarray],
    n_cores: int,
    effort: float,
    heat: float = 1.0,
    regions: np.ndarray | None = None,
) -> Partition:
    """Return the best partition found from the best of `starts`, each int[cluster].

    `effort`, `heat`: factors of the usual moves and temperatures, less heat for a good start. `regions`: see Partition.

    Few clusters are annealed by the exact time; many by a smooth one, followed by descent on the exact time. With
    regions, links count in the returned cost but not in the search. Limits come first; from a start within them, every
    partition is. No core is left empty if `options.n_cores` is given and some start has no empty core.
    """
    given: list[Any] = [cluster_of, starts, n_cores, effort, heat, regions]
    return kept_partition(search, "clusters", given, lambda: _search_clusters(search, *given))


def _search_clusters(
    search: Search,
    cluster_of: np.ndarray,
    starts: list[np.ndarray],
    n_cores: int,
    effort: float,
    heat: float,
    regions: np.ndarray | None,
) -> Partition:
    """Compute the result of `improve_clusters`."""
    network, chip, activity, timing = search.network, search.chip, search.activity, search.timing
    n_steps = timing.n_hardware_steps(activity.n_steps, "aligned")
    weight = objective_weights(network, chip, activity, n_steps, search.options.optimize)
    if search.options.n_cores is not None:
        starts = [start for start in starts if len(np.unique(start)) == n_cores] or starts
    if search.is_large:
        last = starts[-1]
        total, n_bad = count_means(search, number_in_order(last)[cluster_of])
        cost = moves.cost(total, weight)
        return Partition(cluster_of=cluster_of, core_of=last, n_cores=n_cores, excess=n_bad, cost=cost, regions=regions)
    demand = cluster_demand(network, chip, activity, timing, cluster_of, n_cores)
    if regions is not None:
        inside = np.stack([np.cumsum(regions) - regions, regions], 1)
        demand = demand._replace(rules=demand.rules._replace(region=np.repeat(inside, regions, axis=0)))
    state = empty_cores(demand, chip)
    best = min((_count_cost(demand, chip, cluster_of, start, weight, state) for start in starts), key=lambda p: p.rank)
    best = best._replace(regions=regions)
    if n_cores == 1 or len(best.core_of) == 1:
        return best
    if len(best.core_of) > SMOOTH.few_clusters:
        best = _anneal_smooth_time(search, demand, weight, best, effort, heat, state)
        best = _anneal_exact_time(search, demand, weight, best, 0.0, EXACT.descent_share * effort, state)
    else:
        for exact_heat in (EXACT.heat_share, 0.0):
            best = _anneal_exact_time(search, demand, weight, best, exact_heat, effort, state)
    if regions is None:
        return best
    state = filled_cores(demand, chip, best.core_of, state)
    sites = sites_by_region(chip, regions, hilbert_rank(chip))
    state.busy.total[TIME] = time_with_links(demand, state, chip, sites, is_even=True)  # chips share flits evenly
    return best._replace(cost=moves.cost(state.busy.total, weight))


def _count_cost(demand: Demand, chip: Chip, cluster_of, core_of, weight: Objective, state: CoreState) -> Partition:
    """Return the partition with its cost."""
    state = filled_cores(demand, chip, core_of, state)
    return Partition(
        cluster_of=cluster_of,
        core_of=state.held.core_of.copy(),
        n_cores=len(demand.rules.limit),
        excess=int(state.busy.total[EXCESS]),
        cost=moves.cost(state.busy.total, weight),
    )


def _anneal_smooth_time(
    search: Search, demand: Demand, weight: Objective, start: Partition, effort: float, heat: float, state: CoreState
) -> Partition:
    """Anneal `start` by the smooth time of `smooth_anneal`; return the better of result and start.

    If messages are a small part of the senders' work, sending them takes no time: a move then changes only two cores.
    Gives up like `_anneal_exact_time`.
    """
    cycles = demand.rules.cycles
    n_messages = filled_cores(demand, search.chip, start.core_of, state).busy.total[MESSAGES]
    is_quiet = n_messages * cycles[MESSAGE_OUT] < SMOOTH.quiet_share * demand.sends.send.sum()
    timed = demand._replace(rules=demand.rules._replace(cycles=cycles * [not is_quiet, 1, 1]))
    filled_cores(timed, search.chip, start.core_of, state)
    smooth = empty_norms(state)
    readers = find_readers(demand)
    keep_all = search.options.n_cores is not None
    n_clusters = len(start.core_of)
    hottest = heat * SMOOTH.heat_share * start.cost / n_clusters
    n_all = min(SMOOTH.moves_per_cluster * n_clusters, SMOOTH.max_looks // MOVE_WORK.looks_of_move(demand))
    n_moves = -(-int(effort * n_all) // len(SMOOTH.cooling))

    def attempt(i: int, temperature: float, n: int) -> bool:
        excess = state.busy.total[EXCESS]
        is_steep = i >= SMOOTH.steep_from
        smooth_anneal.take_norms(demand.rules, state.busy, smooth, is_steep)
        smooth_anneal.anneal_smoothly(
            timed, state, weight, readers, smooth, is_steep, temperature, n, keep_all, search.state
        )
        return not (search.is_late or (excess and excess == state.busy.total[EXCESS]))

    cool([hottest * share for share in SMOOTH.cooling], n_moves, SMOOTH.chunk_moves, attempt)
    annealed = _count_cost(demand, search.chip, start.cluster_of, state.held.core_of, weight, state)
    return min(start, annealed._replace(regions=start.regions), key=lambda p: p.rank)


def empty_norms(state: CoreState) -> smooth_anneal.Smooth:
    """Return the norms and columns in which `smooth_anneal.anneal_smoothly` works."""
    n_columns, n_steps = state.busy.load.shape
    return smooth_anneal.Smooth(
        norm=np.ones(n_steps),
        inverse=np.ones(n_steps),
        value=np.ones(n_columns),
        saved=np.ones(n_columns),
        changed=np.zeros(n_columns, np.int64),
    )


def find_readers(demand: Demand) -> smooth_anneal.Readers:
    """Return the clusters that read each source class, once for every row."""
    n_clusters, n_classes = len(demand.sends.n_neurons), len(demand.classes.size)
    cluster = np.repeat(np.arange(n_clusters, dtype=np.int32), np.diff(demand.reads.row_offset))
    source_class = demand.rows.source_class[demand.reads.row]
    order = np.argsort(source_class, kind="stable")
    offset = np.searchsorted(source_class[order], np.arange(n_classes + 1))
    return smooth_anneal.Readers(offset, cluster[order])


def _anneal_exact_time(
    search: Search, demand: Demand, weight: Objective, start: Partition, heat: float, effort: float, state: CoreState
) -> Partition:
    """Return the best of an annealing by the exact time from `start`; with `heat` 0 it only descends.

    Gives up if limits are exceeded and a whole chunk of moves has not reduced the excess.
    """
    n_clusters = len(start.core_of)
    n_all = min(EXACT.moves_per_cluster * n_clusters, EXACT.max_looks // MOVE_WORK.looks_of_move(demand))
    n_moves = int(effort * n_all) + EXACT.min_moves
    filled_cores(demand, search.chip, start.core_of, state)
    best = start
    keep_all = search.options.n_cores is not None

    def attempt(_: int, temperature: float, n: int) -> bool:
        nonlocal best
        excess = best.excess
        core_of = state.held.core_of.copy()
        rank = moves.anneal_clusters(demand, state, weight, temperature, n, keep_all, search.state, core_of)
        if rank < best.rank:
            best = best._replace(core_of=core_of, excess=int(rank[0]), cost=rank[1])
        return not (search.is_late or (excess and best.excess == excess))

    temperatures = [heat * start.cost / n_clusters * share for share in EXACT.cooling] if heat else [0.0]
    cool(temperatures, -(-n_moves // len(temperatures)), EXACT.chunk_moves, attempt)
    return best
