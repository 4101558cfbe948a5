"""Anneal: placement by simulated annealing, as in SNEAP, and the loop of every annealing search.

`cool` is the loop over temperatures and chunks of moves. Each search has its own kernel for its moves (`propose`, the
change of the cost, the move and its reverse). Random numbers and the Metropolis rule are in
`kernels/mapping/random.py`. `docs/decisions/mapping.md` explains why every kernel has its own loop over single moves.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nwcompile.checkpoint import load_or_compute
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import placement
from nwcompile.passes.place.problem import cores_at, placement_problem
from nwcompile.threads import raise_if_canceled


@dataclass(frozen=True)
class SiteAnnealing:
    """Parameters of annealing cores between sites."""

    moves_per_site: int = 100  # Moves at each temperature per site of the chip.
    max_moves: int = 200_000  # The most moves at each temperature, which take a few seconds.
    # Maximum number of message ends that the moves of a temperature visit; `min_moves` are tried anyway.
    max_looks: int = 3_000_000
    min_moves: int = 12_000
    # Ratio of successive temperatures; after `n_temperatures` the temperature is a thousandth of the first.
    cooling_share: float = 0.92
    n_temperatures: int = 84

    def moves_at_each(self, n_sites: int, looks_of_move: int) -> int:
        """Return the moves at each temperature."""
        n_allowed = min(self.max_moves, max(self.min_moves, self.max_looks // looks_of_move))
        return min(n_allowed, self.moves_per_site * n_sites)


SITES = SiteAnnealing()


def anneal(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Find sites by simulated annealing on messages times route costs, from row-major order, never worse than it.

    A move swaps the sites of two cores or moves a core to a free site, if both sites hold their new cores. Kirkpatrick
    et al., Science 220, 1983; used for placement on chips by SNEAP (Li et al., GLSVLSI'20, arXiv 2004.01639). The same
    seed gives the same sites, unless `options.time_budget_s` is set: then annealing is repeated from the best sites
    until the time is up, or until an interrupt (Ctrl-C).
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    best = anneal_sites(problem, chip.site_index(mapping.site_of), options)
    return Mapping(mapping.core_of, chip.sites[best], mapping.note)


def anneal_sites(problem: placement.PlacementProblem, best: np.ndarray, options: Options) -> np.ndarray:
    """Return the sites int64[core] that `anneal` finds from `best`, int64[core], on any problem."""
    if not len(problem.other) and not (problem.outside.any() and problem.io_cost.any()):
        return best
    if options.time_budget_s is None:
        given = [problem, best, options.seed]
        return load_or_compute("sites", given, lambda: {"site": _search_sites(problem, best, options)})["site"]
    return _search_sites(problem, best, options)


def _search_sites(problem: placement.PlacementProblem, best: np.ndarray, options: Options) -> np.ndarray:
    """Compute the result of `anneal_sites`."""
    deadline = None if options.time_budget_s is None else time.monotonic() + options.time_budget_s
    state = np.array([options.seed], np.uint64)

    def goes_on() -> bool:
        return deadline is None or time.monotonic() < deadline

    def keep(sites: np.ndarray) -> None:
        nonlocal best
        best = sites

    try:
        _anneal_once(problem, best, state, keep, goes_on)
        while deadline is not None and goes_on():
            _anneal_once(problem, best, state, keep, goes_on)
    except KeyboardInterrupt:
        if deadline is None:
            raise
    return best


def _anneal_once(
    problem: placement.PlacementProblem,
    start: np.ndarray,
    state: np.ndarray,
    keep: Callable[[np.ndarray], None],
    goes_on: Callable[[], bool],
) -> None:
    """Pass better and better sites, int64[core], to `keep` while `goes_on()`.

    Starts at the temperature at which a mean worsening is accepted with probability 1/e, cools to a thousandth of that,
    and ends with moves that only improve. state: uint64[1], of the random numbers.
    """
    n_sites = len(problem.site_xy)
    n_moves = SITES.moves_at_each(n_sites, looks_of_move=1 + 2 * len(problem.other) // max(1, len(start)))
    site_of = start.copy()
    core_at, lanes = cores_at(start, n_sites), _build_lanes(problem, start)
    changes = np.zeros(n_moves, np.int64)
    placement.sample_changes(problem, site_of, core_at, state, changes)
    hottest = uphill_mean(changes)
    above_best = 0

    def attempt(_: int, temperature: float, n: int) -> bool:
        nonlocal above_best
        sites = site_of.copy()
        change, lowest = placement.anneal_cores(problem, lanes, site_of, core_at, state, temperature, n, sites)
        if above_best + lowest < 0:
            keep(sites)
            above_best = change - lowest
        else:
            above_best += change
        return goes_on()

    cool([*(hottest * SITES.cooling_share**i for i in range(SITES.n_temperatures)), 0.0], n_moves, n_moves, attempt)


def _build_lanes(problem: placement.PlacementProblem, site_of: np.ndarray) -> placement.Lanes:
    """Return the lanes of `anneal_cores`; empty if route costs are asymmetric or lanes exceed the message lists."""
    n_cores, n_lanes = len(site_of), len(problem.along_x) + len(problem.along_y)
    is_even = all((along == along.T).all() for along in (problem.along_x, problem.along_y))
    if not is_even or n_cores * n_lanes > len(problem.other):
        n_cores = n_lanes = 0
    lanes = placement.Lanes(
        np.zeros((n_cores, n_lanes), np.int64), problem.other.astype(np.uint32), problem.sent + problem.received
    )
    if n_cores:
        placement.fill_lanes(problem, site_of, lanes)
    return lanes


def cool(
    temperatures: Sequence[float], n_moves: int, chunk_moves: int, attempt: Callable[[int, float, int], bool]
) -> None:
    """Try `n_moves` moves at each temperature, in chunks of at most `chunk_moves`.

    Kirkpatrick et al., Science 220, 1983. `attempt(i, temperature, n)` tries n moves at the i-th temperature and
    returns whether to continue.
    """
    for i, temperature in enumerate(temperatures):
        for left in range(n_moves, 0, -chunk_moves):
            raise_if_canceled()
            if not attempt(i, temperature, min(left, chunk_moves)):
                return


def uphill_mean(changes: np.ndarray) -> float:
    """Return the mean of the positive changes of the cost, int64[move]; 0 if there are none."""
    worse = changes[changes > 0]
    return float(worse.sum()) / max(len(worse), 1)
