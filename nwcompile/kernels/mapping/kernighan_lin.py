"""Hot loops of Kernighan-Lin refinement: the best sequence of swaps between two parts (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled

PATIENCE = 32  # swaps in a row without a new best before the search of a pair of parts ends


@compiled()
def traffic_between(start, other, weight, part, n_parts):
    """int64[part, part]: weight of the edges between parts. CSR: start, other, weight; part: int32[vertex] or -1."""
    table = np.zeros((n_parts, n_parts), np.int64)
    for v in range(len(part)):
        if part[v] >= 0:
            for i in range(start[v], start[v + 1]):
                if part[other[i]] >= 0:
                    table[part[v], part[other[i]]] += weight[i]
    return table


@compiled()
def refine_pair(start, other, weight, size, part, members, n_first, gain, free, link):
    """Perform the best sequence of swaps between two parts, Kernighan and Lin's steps 1 to 5; returns the cut saved.

    start, other, weight: CSR as in `traffic_between`; part: int32[vertex], changed in place; members: int64[vertex]:
    `n_first` vertices of one part, then those of the other. Scratch per vertex: gain: int64, free: bool, and link:
    int64, which must be 0. A swap takes the vertex with the largest gain and its best partner of the same size:
    int32[vertex].
    """
    a, b = part[members[0]], part[members[n_first]]
    for v in members:
        free[v] = True
        gain[v] = 0
        for i in range(start[v], start[v + 1]):
            to = part[other[i]]
            if to in (a, b):
                gain[v] += -weight[i] if to == part[v] else weight[i]
    n_swaps = min(n_first, len(members) - n_first)
    swaps = np.empty((n_swaps, 2), np.int64)
    total = best = n_best = n = np.int64(0)
    while n < n_swaps and n - n_best < PATIENCE:
        u = np.int64(-1)
        top = np.iinfo(np.int64).min
        for v in members:
            if free[v] and gain[v] > top:
                u, top = v, gain[v]
        if u < 0:
            break
        for i in range(start[u], start[u + 1]):
            link[other[i]] = weight[i]
        partner = u
        largest_gain = np.iinfo(np.int64).min
        for v in members:
            if free[v] and part[v] != part[u] and size[v] == size[u] and gain[v] - 2 * link[v] > largest_gain:
                partner = v
                largest_gain = gain[v] - 2 * link[v]
        for i in range(start[u], start[u + 1]):
            link[other[i]] = 0
        if partner == u:
            free[u] = False
            continue
        total += gain[u] + largest_gain
        swaps[n] = u, partner
        n += 1
        for mover in (u, partner):
            free[mover] = False
            for i in range(start[mover], start[mover + 1]):
                w = other[i]
                if free[w]:
                    gain[w] += 2 * weight[i] if part[w] == part[mover] else -2 * weight[i]
        part[u], part[partner] = part[partner], part[u]
        if total > best:
            best, n_best = total, n
    for k in range(n_best, n):
        u, partner = swaps[k]
        part[u], part[partner] = part[partner], part[u]
    for v in members:
        free[v] = False
    return best
