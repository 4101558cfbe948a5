"""Hot loops of placement by simulated annealing: how steep the ground is, and a run of moves (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.placement import propose, swap, swap_delta, uniform


@compiled()
def uphill_mean(ground, site_of, core_at, state, n_moves):
    """Mean cost increase over those of `n_moves` random legal moves that make it worse; 0 if none does."""
    total = 0.0
    n = 0
    for _ in range(n_moves):
        a, b, new = propose(ground, site_of, core_at, state)
        if a >= 0:
            delta = swap_delta(ground, site_of, a, b, new)
            if delta > 0:
                total += delta
                n += 1
    return total / max(n, 1)


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
        if delta > 0:
            drawn = uniform(state)
            if temperature <= 0.0 or drawn >= np.exp(-delta / temperature):
                continue
        swap(site_of, core_at, a, new)
        change += delta
        if change < lowest:
            lowest = change
            best[:] = site_of
    return change, lowest
