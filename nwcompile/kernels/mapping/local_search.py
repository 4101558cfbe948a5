"""Hot loops of search-based placers: tensions between neighboring sites, best sites, particles (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.placement import is_legal, swap, swap_delta
from nwcompile.kernels.mapping.random import random_below, uniform


@compiled()
def tensions(problem, site_of, core_at, pairs, gain):
    """Set gain: int64[pair] to the saving by exchanging the contents of two sites; 0 if not legal or both are empty.

    pairs: int64[pair, 2].
    """
    for i in range(len(pairs)):
        gain[i] = 0
        a, new = core_at[pairs[i, 0]], pairs[i, 1]
        if a < 0:
            a, new = core_at[pairs[i, 1]], pairs[i, 0]
        if a >= 0 and is_legal(problem, site_of, core_at, a, new):
            gain[i] = -swap_delta(problem, site_of, a, core_at[new], new)


@compiled()
def relax(problem, site_of, core_at, pairs):
    """Exchange the contents of each pair of sites if that saves cost at that time, in place; returns the saving."""
    saved = np.int64(0)
    gain = np.zeros(1, np.int64)
    for i in range(len(pairs)):
        tensions(problem, site_of, core_at, pairs[i : i + 1], gain)
        if gain[0] > 0:
            s, t = pairs[i]
            if core_at[s] >= 0:
                swap(site_of, core_at, core_at[s], t)
            else:
                swap(site_of, core_at, core_at[t], s)
            saved += gain[0]
    return saved


@compiled()
def climb(problem, site_of, core_at, order):
    """Move each core, in order, to the site that saves most, in place; returns the saving. order: int64[...]."""
    saved = np.int64(0)
    for a in order:
        best, least = np.int64(-1), np.int64(0)
        for new in range(len(core_at)):
            if is_legal(problem, site_of, core_at, a, new):
                delta = swap_delta(problem, site_of, a, core_at[new], new)
                if delta < least:
                    best, least = np.int64(new), delta
        if best >= 0:
            swap(site_of, core_at, a, best)
            saved -= least
    return saved


@compiled()
def fly(problem, sites, cores, own_best, own_cost, best, state, chance, cost):
    """Move every particle once: each core stays, or moves to a random site or to its site in a best solution, if legal.

    sites: int64[particle, core], cores: int64[particle, site], cost: int64[particle]; own_best, own_cost: best solution
    of each particle; best: int64[core]: best of all. chance: float64[3]: random, own best, best of all. All are changed
    in place. Returns the lowest cost of all particles' best solutions.
    """
    lowest = own_cost.min()
    for p in range(len(sites)):
        for a in range(sites.shape[1]):
            drawn = uniform(state)
            new = sites[p, a]
            if drawn < chance[0]:
                new = random_below(state, cores.shape[1])
            elif drawn < chance[0] + chance[1]:
                new = own_best[p, a]
            elif drawn < chance[0] + chance[1] + chance[2]:
                new = best[a]
            if new != sites[p, a] and is_legal(problem, sites[p], cores[p], a, new):
                cost[p] += swap_delta(problem, sites[p], a, cores[p, new], new)
                swap(sites[p], cores[p], a, new)
        if cost[p] < own_cost[p]:
            own_cost[p] = cost[p]
            own_best[p] = sites[p]
            if cost[p] < lowest:
                lowest = cost[p]
                best[:] = sites[p]
    return lowest


@compiled()
def smooth(start, other, weight, root, values, n_rounds):
    """Turn values: float64[axis, core] into the slowest waves of a graph, in place: each round averages neighbors.

    start, other: CSR; weight: float64[end], w_ij / sqrt(w_i * w_j); root: float64[core], sqrt(w_i), of length 1. A
    round multiplies by 2 I - L, L being the normalized Laplacian, and orthogonalizes the axes to root and each other.
    """
    n = len(root)
    new = np.empty(n)
    for _ in range(n_rounds):
        for k in range(len(values)):
            for i in range(n):
                total = values[k, i]
                for j in range(start[i], start[i + 1]):
                    total += weight[j] * values[k, other[j]]
                new[i] = total
            for earlier in range(-1, k):
                dot = 0.0
                for i in range(n):
                    dot += new[i] * (root[i] if earlier < 0 else values[earlier, i])
                for i in range(n):
                    new[i] -= dot * (root[i] if earlier < 0 else values[earlier, i])
            length = 0.0
            for i in range(n):
                length += new[i] * new[i]
            length = np.sqrt(length)
            for i in range(n):
                values[k, i] = new[i] / length if length > 0 else 0.0
