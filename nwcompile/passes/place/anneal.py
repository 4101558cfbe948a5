"""Placer by simulated annealing, as SNEAP places."""

import time
from collections.abc import Iterator

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import place_anneal, placement
from nwcompile.passes.place.problem import cores_at, ground

MOVES_PER_SITE, LARGEST_MOVES = 100, 200_000  # at each temperature
LARGEST_LOOKS, FEWEST_MOVES = 3_000_000, 12_000  # ends of messages that its moves look at; moves whatever they look at
COOLING, N_TEMPERATURES = 0.92, 84


def anneal(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Sites by simulated annealing on messages times the cost of their ways, from row-major on, never worse.

    A move swaps the sites of two cores or takes a core to a free site; sites are exchanged only where both hold what
    comes. Kirkpatrick et al., Science 220, 1983; used for placement on chips by SNEAP (Li et al., GLSVLSI'20,
    arXiv 2004.01639). The same seed gives the same sites, unless `options.time_budget_s` is set: then annealing is
    repeated from the best sites until the time is up, or until an interrupt (Ctrl-C).
    """
    known = ground(mapping, network, chip, activity, options)
    best = annealed(known, chip.site_index(mapping.site_of), options)
    return Mapping(mapping.core_of, chip.sites[best], mapping.note)


def annealed(known: placement.Ground, best: np.ndarray, options: Options) -> np.ndarray:
    """Sites int64[core] that `anneal` finds from `best`, int64[core], on any ground."""
    deadline = None if options.time_budget_s is None else time.monotonic() + options.time_budget_s
    try:
        for best in _improvements(known, best, options.seed, repeat=deadline is not None):  # noqa: B007, B020
            if deadline is not None and time.monotonic() >= deadline:
                break
    except KeyboardInterrupt:
        if deadline is None:
            raise
    return best


def _improvements(ground: placement.Ground, best: np.ndarray, seed: int, repeat: bool) -> Iterator[np.ndarray]:
    """The best sites so far, int64[core], after every temperature of one annealing, or of one after another for ever.

    Starts where a mean worsening is taken with probability 1/e, cools to a thousandth of that, and ends with moves that
    only go down. Each further annealing starts from the best sites.
    """
    n_sites, state = len(ground.site_xy), np.array([seed], np.uint64)
    looks_of_move = 1 + 2 * len(ground.other) // max(1, len(best))
    n_most = min(LARGEST_MOVES, max(FEWEST_MOVES, LARGEST_LOOKS // looks_of_move))
    n_moves = min(n_most, MOVES_PER_SITE * n_sites)
    while len(ground.other) or (ground.outside.any() and ground.gate_cost.any()):
        site_of, core_at = best.copy(), cores_at(best, n_sites)
        changes = np.zeros(n_moves, np.int64)
        place_anneal.sample_changes(ground, site_of, core_at, state, changes)
        first = uphill_mean(changes)
        above_best = 0
        for temperature in (*(first * COOLING**i for i in range(N_TEMPERATURES)), 0.0):
            found = site_of.copy()
            change, lowest = place_anneal.anneal(ground, site_of, core_at, state, temperature, n_moves, found)
            if above_best + lowest < 0:
                best, above_best = found, change - lowest
            else:
                above_best += change
            yield best
        if not repeat:
            return


def uphill_mean(changes: np.ndarray) -> float:
    """Mean of those of the changes of the cost, int64[move], that make it worse; 0 if none does."""
    worse = changes[changes > 0]
    return float(worse.sum()) / max(len(worse), 1)
