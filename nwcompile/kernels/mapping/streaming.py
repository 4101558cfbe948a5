"""Hot loop of streaming partitioning: one pass over all vertices, in order (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled


@compiled()
def stream(start, other, weight, size, room, order):
    """Assign each vertex, in order, to the part with the best score; returns the part: int32[vertex].

    start, other, weight: CSR of the graph; size: int64[vertex], 0 for a vertex that takes no room; room: int64[part];
    order: int64[vertex]. The score is the weight of the edges to a part times the free share of its room (linear
    deterministic greedy). Ties go to the part with the larger free share, then to the first. A vertex that fits into no
    part goes to the part with the most room left.
    """
    n_parts = len(room)
    part = np.full(len(size), -1, np.int32)
    used = np.zeros(n_parts, np.int64)
    to_part = np.zeros(n_parts, np.int64)
    for v in order:
        for i in range(start[v], start[v + 1]):
            if part[other[i]] >= 0:
                to_part[part[other[i]]] += weight[i]
        best = np.int64(-1)
        best_score = best_free = 0.0
        for p in range(n_parts):
            if used[p] + size[v] > room[p] or room[p] == 0:
                continue
            free = 1.0 - used[p] / room[p]
            score = to_part[p] * free
            if best < 0 or score > best_score or (score == best_score and free > best_free):
                best, best_score, best_free = np.int64(p), score, free
        if best < 0:
            best = np.int64(np.argmax(room - used))
        part[v] = best
        used[best] += size[v]
        for i in range(start[v], start[v + 1]):
            if part[other[i]] >= 0:
                to_part[part[other[i]]] = 0
        to_part[best] = 0
    return part
