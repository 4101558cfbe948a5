"""Unit search: the cores of given units made better, move by move, under all limits of the chip."""

import time
from typing import NamedTuple

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.kernels import cpu_demand, cpu_moves
from nwcompile.passes.demand import empty_loads, unit_demand
from nwcompile.passes.objective import weights

WORK = 1_800_000_000  # steps and rows that one search may look at, a move counting for `EACH_MOVE` more
EACH_MOVE = 1500
FEWEST_MOVES, MOVES_PER_UNIT = 300, 300  # tried at least, and at most for each unit
SMALL = 1000  # units up to which the search begins hot
CHUNK = 1000  # moves between two looks at the clock
HEAT = 0.3  # of the cost, and divided by the number of units: where the temperature starts
COOLING = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.01, 0.0)  # of that temperature; as many moves at each


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

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return self.excess, self.cost

    @property
    def neuron_core(self) -> np.ndarray:
        """int32[neuron]: the core of every neuron."""
        return self.core_of[self.unit_of]


def improved(search: Search, unit_of: np.ndarray, starts: list[np.ndarray], n_cores: int, effort: float) -> Partition:
    """The best partition found from the best of `starts`, each int[unit], with `effort` times the usual moves.

    Limits come first; from a start within them, every partition is. No core is left empty where `options.n_cores`
    asks for a number of cores.
    """
    network, chip, activity, timing = search[:4]
    demand = unit_demand(network, chip, activity, timing, unit_of, n_cores)
    n_steps = timing.n_hardware_steps(activity.n_steps, "aligned")
    weight = weights(network, chip, activity, n_steps, search.options.optimise)
    best = min((_counted(demand, chip, unit_of, start, weight) for start in starts), key=lambda p: p.rank)
    if n_cores == 1 or len(best.core_of) == 1:
        return best
    for heat in (HEAT, 0.0) if len(best.core_of) <= SMALL else (0.0,):
        best = _annealed(search, demand, weight, best, heat, effort)
    return best


def _counted(demand: cpu_demand.Demand, chip: Chip, unit_of, core_of, weight: np.ndarray) -> Partition:
    loads = _filled(demand, chip, core_of)
    cost = cpu_moves.cost(loads.total, weight)
    return Partition(unit_of, loads.core_of, len(demand.limit), int(loads.total[cpu_demand.EXCESS]), cost)


def _filled(demand: cpu_demand.Demand, chip: Chip, core_of) -> cpu_demand.Loads:
    loads = empty_loads(demand, chip)
    cpu_moves.put_all(demand, loads, np.asarray(core_of, np.int32))
    return loads


def _annealed(search: Search, demand, weight: np.ndarray, start: Partition, heat: float, effort: float) -> Partition:
    """The best of an annealing (Kirkpatrick et al., Science 220, 1983) from `start`; with `heat` 0 only down.

    Given up where limits are exceeded and a whole `CHUNK` of moves has not mended any of it.
    """
    n_units, n_steps = demand.send.shape
    each = EACH_MOVE + n_steps + len(demand.in_row) // n_units
    n_moves = int(effort * min(MOVES_PER_UNIT * n_units, WORK // each)) + FEWEST_MOVES
    loads, best = _filled(demand, search.chip, start.core_of), start
    keep_all = search.options.n_cores is not None
    temperatures = [heat * start.cost / n_units * step for step in COOLING] if heat else [0.0]
    for temperature in temperatures:
        for left in range(-(-n_moves // len(temperatures)), 0, -CHUNK):
            core_of, n, over = loads.core_of.copy(), min(left, CHUNK), best.excess
            rank = cpu_moves.search(demand, loads, weight, temperature, n, keep_all, search.state, core_of)
            if rank < best.rank:
                best = best._replace(core_of=core_of, excess=int(rank[0]), cost=rank[1])
            if search.is_late or over and best.excess == over:
                return best
    return best
