"""Unit search: the cores of given units made better, move by move, under all limits of the chip."""

import itertools
import time
from typing import NamedTuple

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.kernels.mapping import cluster_state, moves, smooth_anneal
from nwcompile.passes.partition.floorline.demand import empty_loads, unit_demand
from nwcompile.passes.partition.floorline.link_time import time_with_links
from nwcompile.passes.partition.floorline.objective import weights
from nwcompile.passes.place.chip_regions import sites_by_zone
from nwcompile.passes.place.space_filling import hilbert_rank

FEW = 64  # units up to which the exact time is annealed, and a smooth one beyond
WORK = 1_200_000_000  # that an annealing may do, about: looks at one step
EACH_MOVE, EACH_CORE, EACH_ROW = 1500, 2, 30  # what a move counts for, by itself, for every core and for every row
MANY_ROWS, EACH_FAR_ROW = 2000, 200  # rows of a unit beyond so many are out of the cache, and count so much more
MOVES_PER_UNIT = 600  # of a smooth annealing, at most
HEAT = 0.15  # of the cost, and divided by the number of units: where its temperature starts
COOLING = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.0)  # of that temperature; as many moves at each
STEEP_FROM = 4  # of these temperatures on, the smooth time is nearer to the exact one
CHUNK = 5000  # moves between two looks at the norms and the clock
QUIET = 0.2  # of the other work of senders, below which sending messages is left out of the smooth time
DESCENT = 0.1  # of the usual moves of an exact search, where it follows a smooth one
EXACT_WORK, FEWEST_MOVES, EXACT_PER_UNIT = 1_800_000_000, 300, 300  # of an exact search: steps and rows, moves
EXACT_HEAT, EXACT_COOLING = 0.3, (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.01, 0.0)
EXACT_CHUNK = 1000


class Search(NamedTuple):
    """What the searches of one compilation share."""

    network: Network
    chip: Chip
    activity: Activity
    timing: Schedule
    options: Options
    load: np.ndarray  # int64[neuron]: how heavy it is
    state: np.ndarray  # uint64[1]: of the random numbers
    deadline: float | None

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline


class Partition(NamedTuple):
    """Units of neurons on cores, and how good that is: what exceeds limits first, then the objective."""

    unit_of: np.ndarray  # int64[neuron]
    core_of: np.ndarray  # int32[unit]
    n_cores: int
    excess: int
    cost: float
    zones: np.ndarray | None = None  # int64[zone]: how many cores, in order, are in each; units stay in theirs

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return self.excess, self.cost

    @property
    def neuron_core(self) -> np.ndarray:
        """int32[neuron]: the core of every neuron."""
        return self.core_of[self.unit_of]


def improved(
    search: Search,
    unit_of: np.ndarray,
    starts: list[np.ndarray],
    n_cores: int,
    effort: float,
    heat: float = 1.0,
    zones: np.ndarray | None = None,
) -> Partition:
    """The best partition found from the best of `starts`, each int[unit], with `effort` times the usual moves.

    `heat`: of the usual temperatures, less where the start is good already. `zones`: as `Partition` has them.

    Up to `FEW` units the exact time is annealed; beyond, a smooth one is, and the exact time then only goes down. In
    zones links count in the cost that is given, not in the search. Limits come first; from a start within them, every
    partition is. No core is left empty where `options.n_cores` asks for a number of cores and some start has none.
    """
    network, chip, activity, timing = search[:4]
    demand = unit_demand(network, chip, activity, timing, unit_of, n_cores)
    if zones is not None:
        inside = np.stack([np.cumsum(zones) - zones, zones], 1)
        demand = demand._replace(zone=np.repeat(inside, zones, axis=0))
    n_steps = timing.n_hardware_steps(activity.n_steps, "aligned")
    weight = weights(network, chip, activity, n_steps, search.options.optimize)
    if search.options.n_cores is not None:
        starts = [start for start in starts if len(np.unique(start)) == n_cores] or starts
    best = min((_counted(demand, chip, unit_of, start, weight) for start in starts), key=lambda p: p.rank)
    best = best._replace(zones=zones)
    if n_cores == 1 or len(best.core_of) == 1:
        return best
    if len(best.core_of) > FEW:
        best = _smoothed(search, demand, weight, best, effort, heat)
        best = _annealed(search, demand, weight, best, 0.0, DESCENT * effort)
    else:
        for exact_heat in (EXACT_HEAT, 0.0):
            best = _annealed(search, demand, weight, best, exact_heat, effort)
    return best if zones is None else best._replace(cost=_cost_with_links(demand, chip, best, weight))


def _cost_with_links(demand: cluster_state.Demand, chip: Chip, found: Partition, weight: np.ndarray) -> float:
    """The cost of a partition in zones with the time that links between chips take, their flits shared evenly."""
    loads = _filled(demand, chip, found.core_of)
    sites = sites_by_zone(chip, found.zones, hilbert_rank(chip))
    loads.total[cluster_state.TIME] = time_with_links(demand, loads, chip, sites, is_even=True)
    return moves.cost(loads.total, weight)


def _counted(demand: cluster_state.Demand, chip: Chip, unit_of, core_of, weight: np.ndarray) -> Partition:
    loads = _filled(demand, chip, core_of)
    cost = moves.cost(loads.total, weight)
    return Partition(unit_of, loads.core_of, len(demand.limit), int(loads.total[cluster_state.EXCESS]), cost)


def _filled(demand: cluster_state.Demand, chip: Chip, core_of) -> cluster_state.Loads:
    loads = empty_loads(demand, chip)
    moves.put_all(demand, loads, np.asarray(core_of, np.int32))
    return loads


def _smoothed(search: Search, demand, weight: np.ndarray, start: Partition, effort: float, heat: float) -> Partition:
    """What an annealing by the smooth time of `smooth_anneal` makes of `start`, if that is better.

    Where messages are a small part of what senders do, they take no time to send there: a move then changes two cores.
    Given up as `_annealed` is.
    """
    sent = _filled(demand, search.chip, start.core_of).total[cluster_state.MESSAGES] * demand.cycles[0]
    is_quiet = sent < QUIET * demand.send.sum()
    timed = demand._replace(cycles=demand.cycles * [not is_quiet, 1, 1])
    loads = _filled(timed, search.chip, start.core_of)
    smooth = work_arrays(loads)
    readers, keep_all = readers_of(demand), search.options.n_cores is not None
    n_units = len(start.core_of)
    hottest = heat * HEAT * start.cost / n_units
    each = _work_of_move(demand)
    n_moves = -(-int(effort * min(MOVES_PER_UNIT * n_units, WORK // each)) // len(COOLING))
    for i, left in itertools.product(range(len(COOLING)), range(n_moves, 0, -CHUNK)):
        over, is_steep = loads.total[cluster_state.EXCESS], i >= STEEP_FROM
        smooth_anneal.take_norms(loads, *smooth[:2], is_steep)
        smooth_anneal.anneal(timed, loads, weight, readers, smooth, is_steep, hottest * COOLING[i],
                          min(left, CHUNK), keep_all, search.state)  # fmt: skip
        if search.is_late or (over and over == loads.total[cluster_state.EXCESS]):
            break
    found = _counted(demand, search.chip, start.unit_of, loads.core_of, weight)
    return min(start, found._replace(zones=start.zones), key=lambda p: p.rank)


def _work_of_move(demand: cluster_state.Demand) -> int:
    """What a move costs, about, in looks at one step: rows have synapse memory, axons and messages."""
    n_units, n_steps = demand.send.shape
    n_rows = len(demand.in_row) // n_units
    rows = EACH_ROW * n_rows + EACH_FAR_ROW * max(0, n_rows - MANY_ROWS)
    return EACH_MOVE + n_steps + EACH_CORE * len(demand.limit) + rows


def work_arrays(loads: cluster_state.Loads) -> tuple[np.ndarray, ...]:
    """What `smooth_anneal.anneal` keeps its norms and columns in."""
    n_columns, n_steps = loads.load.shape
    return np.ones(n_steps), np.ones(n_steps), np.ones(n_columns), np.ones(n_columns), np.zeros(n_columns, np.int64)


def readers_of(demand: cluster_state.Demand) -> tuple[np.ndarray, np.ndarray]:
    """CSR by atom: the units that read it, once for every row."""
    unit = np.repeat(np.arange(len(demand.size), dtype=np.int32), np.diff(demand.in_offset))
    atom = demand.row_atom[demand.in_row]
    order = np.argsort(atom, kind="stable")
    return np.searchsorted(atom[order], np.arange(len(demand.atom_size) + 1)), unit[order]


def _annealed(search: Search, demand, weight: np.ndarray, start: Partition, heat: float, effort: float) -> Partition:
    """The best of an annealing (Kirkpatrick et al., Science 220, 1983) from `start`; with `heat` 0 only down.

    Given up where limits are exceeded and a whole `EXACT_CHUNK` of moves has not mended any of it.
    """
    n_units, n_steps = demand.send.shape
    each = _work_of_move(demand)
    n_moves = int(effort * min(EXACT_PER_UNIT * n_units, EXACT_WORK // each)) + FEWEST_MOVES
    loads, best = _filled(demand, search.chip, start.core_of), start
    keep_all = search.options.n_cores is not None
    temperatures = [heat * start.cost / n_units * step for step in EXACT_COOLING] if heat else [0.0]
    for temperature in temperatures:
        for left in range(-(-n_moves // len(temperatures)), 0, -EXACT_CHUNK):
            core_of, n, over = loads.core_of.copy(), min(left, EXACT_CHUNK), best.excess
            rank = moves.search(demand, loads, weight, temperature, n, keep_all, search.state, core_of)
            if rank < best.rank:
                best = best._replace(core_of=core_of, excess=int(rank[0]), cost=rank[1])
            if search.is_late or over and best.excess == over:
                return best
    return best
