"""Hot loops of placement by simulated annealing: routed cost, cost of a swap, and a run of moves (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import compiled


class Ground(NamedTuple):
    """What does not change while cores move: messages, distances and which core may go where.

    Messages are those between different cores, both directions added up; CSR by core, every pair twice.
    """

    start: np.ndarray  # int64[core + 1]
    other: np.ndarray  # int64[end]: core
    messages: np.ndarray  # int64[end]
    site_xy: np.ndarray  # int64[site, 2]
    around: np.ndarray  # int64[2]: hops once round a torus along x and along y; on a mesh more than can be
    weight: np.ndarray  # int64[2]: cost of a hop along x and along y
    site_kind: np.ndarray  # int64[site]
    fits: np.ndarray  # bool[core, kind]


@compiled()
def distance(ground, a, b):
    """Weighted hops of a shortest way between two sites, along x and along y."""
    x = abs(ground.site_xy[a, 0] - ground.site_xy[b, 0])
    y = abs(ground.site_xy[a, 1] - ground.site_xy[b, 1])
    x, y = min(x, ground.around[0] - x), min(y, ground.around[1] - y)
    return ground.weight[0] * x + ground.weight[1] * y


@compiled()
def routed_cost(ground, site_of):
    """Sum over pairs of cores of messages times weighted distance. site_of: int64[core]."""
    total = np.int64(0)
    for a in range(len(site_of)):
        for i in range(ground.start[a], ground.start[a + 1]):
            if ground.other[i] > a:
                total += ground.messages[i] * distance(ground, site_of[a], site_of[ground.other[i]])
    return total


@compiled()
def swap_delta(ground, site_of, a, b, new):
    """What moving core `a` to site `new`, and core `b` there (-1: none) to a's site, adds to the cost; exact."""
    old = site_of[a]
    delta = np.int64(0)
    for i in range(ground.start[a], ground.start[a + 1]):
        if ground.other[i] != b:
            there = site_of[ground.other[i]]
            delta += ground.messages[i] * (distance(ground, new, there) - distance(ground, old, there))
    if b >= 0:
        for i in range(ground.start[b], ground.start[b + 1]):
            if ground.other[i] != a:
                there = site_of[ground.other[i]]
                delta += ground.messages[i] * (distance(ground, old, there) - distance(ground, new, there))
    return delta


@compiled()
def _random(state):
    """Next 64 random bits of state: uint64[1] (SplitMix64, Steele et al., OOPSLA'14)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled()
def propose(ground, site_of, core_at, state):
    """A random legal move (core, other core or -1, new site); core -1 if the one drawn is not legal.

    core_at: int64[site], -1 where free.
    """
    a = np.int64(_random(state) % np.uint64(len(site_of)))
    new = np.int64(_random(state) % np.uint64(len(core_at)))
    b = core_at[new]
    legal = b != a and ground.fits[a, ground.site_kind[new]]
    if legal and b >= 0:
        legal = ground.fits[b, ground.site_kind[site_of[a]]]
    return a if legal else np.int64(-1), b, new


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
            uniform = (_random(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
            if temperature <= 0.0 or uniform >= np.exp(-delta / temperature):
                continue
        old = site_of[a]
        site_of[a], core_at[new], core_at[old] = new, a, b
        if b >= 0:
            site_of[b] = old
        change += delta
        if change < lowest:
            lowest = change
            best[:] = site_of
    return change, lowest
