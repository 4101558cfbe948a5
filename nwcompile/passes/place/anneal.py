"""Placer by simulated annealing, as SNEAP places."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import placement
from nwcompile.passes.place.problem import cores_at, placement_problem


@dataclass(frozen=True)
class SiteAnnealing:
    """How cores are annealed between sites."""

    # Moves at each temperature for every site of the chip, but never more in all than a few seconds allow.
    moves_per_site: int = 100
    max_moves: int = 200_000

    # The moves of a temperature look at no more ends of messages than this, but there are so many moves at least.
    max_looks: int = 3_000_000
    min_moves: int = 12_000

    # Each temperature is this share of the one before; after so many it is a thousandth of the first.
    cooling_share: float = 0.92
    n_temperatures: int = 84

    def moves_at_each(self, n_sites: int, looks_of_move: int) -> int:
        """Moves at each temperature."""
        n_allowed = min(self.max_moves, max(self.min_moves, self.max_looks // looks_of_move))
        return min(n_allowed, self.moves_per_site * n_sites)


SITES = SiteAnnealing()


def anneal(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Sites by simulated annealing on messages times the cost of their routes, from row-major on, never worse.

    A move swaps the sites of two cores or takes a core to a free site; sites are exchanged only where both hold what
    comes. Kirkpatrick et al., Science 220, 1983; used for placement on chips by SNEAP (Li et al., GLSVLSI'20,
    arXiv 2004.01639). The same seed gives the same sites, unless `options.time_budget_s` is set: then annealing is
    repeated from the best sites until the time is up, or until an interrupt (Ctrl-C).
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    best = annealed(problem, chip.site_index(mapping.site_of), options)
    return Mapping(mapping.core_of, chip.sites[best], mapping.note)


def annealed(problem: placement.PlacementProblem, best: np.ndarray, options: Options) -> np.ndarray:
    """Sites int64[core] that `anneal` finds from `best`, int64[core], on any problem."""
    deadline = None if options.time_budget_s is None else time.monotonic() + options.time_budget_s
    try:
        for best in _improvements(problem, best, options.seed, repeat=deadline is not None):  # noqa: B007, B020
            if deadline is not None and time.monotonic() >= deadline:
                break
    except KeyboardInterrupt:
        if deadline is None:
            raise
    return best


def _improvements(
    problem: placement.PlacementProblem, best: np.ndarray, seed: int, repeat: bool
) -> Iterator[np.ndarray]:
    """The best sites so far, int64[core], after every temperature of one annealing, or of one after another for ever.

    Starts where a mean worsening is taken with probability 1/e, cools to a thousandth of that, and ends with moves that
    only go down. Each further annealing starts from the best sites.
    """
    n_sites, state = len(problem.site_xy), np.array([seed], np.uint64)
    looks_of_move = 1 + 2 * len(problem.other) // max(1, len(best))
    n_moves = SITES.moves_at_each(n_sites, looks_of_move)
    while len(problem.other) or (problem.outside.any() and problem.io_cost.any()):
        site_of, core_at = best.copy(), cores_at(best, n_sites)
        changes = np.zeros(n_moves, np.int64)
        placement.sample_changes(problem, site_of, core_at, state, changes)
        first = uphill_mean(changes)
        above_best = 0
        for temperature in (*(first * SITES.cooling_share**i for i in range(SITES.n_temperatures)), 0.0):
            best_here = site_of.copy()
            change, lowest = placement.anneal_cores(problem, site_of, core_at, state, temperature, n_moves, best_here)
            if above_best + lowest < 0:
                best, above_best = best_here, change - lowest
            else:
                above_best += change
            yield best
        if not repeat:
            return


def uphill_mean(changes: np.ndarray) -> float:
    """Mean of those of the changes of the cost, int64[move], that make it worse; 0 if none does."""
    worse = changes[changes > 0]
    return float(worse.sum()) / max(len(worse), 1)
