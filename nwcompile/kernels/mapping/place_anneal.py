"""Hot loops of placement by simulated annealing: how steep the ground is, and a run of moves (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.placement import propose, swap, swap_delta
from nwcompile.kernels.mapping.random import is_taken


@compiled()
def sample_changes(ground, site_of, core_at, state, changes):
    """Set changes: int64[move] to what random legal moves, none of them made, would add to the cost."""
    for i in range(len(changes)):
        a, b, new = propose(ground, site_of, core_at, state)
        changes[i] = swap_delta(ground, site_of, a, b, new) if a >= 0 else 0


@compiled()
def anneal(ground, site_of, core_at, state, temperature, n_moves, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), in place.

    site_of: int64[core], core_at: int64[site], state: uint64[1]. Returns the change of the cost, and the lowest that
    this change has been; best: int64[core] takes the sites of that moment if it is below 0.
    """
    change = np.int64(0)
    lowest = np.int64(0)
    for _ in range(n_moves):
        a, b, new = propose(ground, site_of, core_at, state)
        if a < 0:
            continue
        delta = swap_delta(ground, site_of, a, b, new)
        if delta > 0 and not is_taken(delta, temperature, state):
            continue
        swap(site_of, core_at, a, new)
        change += delta
        if change < lowest:
            lowest = change
            for core in range(len(site_of)):
                best[core] = site_of[core]
    return change, lowest
