"""Axon colors: a coloring of a core's fan-in axons by types, so that each neuron needs one weight per type."""

import numpy as np

MOST_TRIES = 10_000  # Axons colored, one by one, before the search for a smaller coloring is given up.


def colors_of_axons(weights: np.ndarray, limit: int) -> np.ndarray:
    """Return int64[axon]: a type for each axon of `weights` int64[axon, neuron], at most `limit` types if found.

    Two axons may share a type unless some neuron reads both with different weights; weights of 0 are no synapses.
    Saturation coloring (Brélaz, CACM 22(4), 1979), first greedily, then by backtracking within `limit`.
    """
    rows, of_axon = np.unique(weights, axis=0, return_inverse=True)
    w, reads = rows.astype(np.float64), (rows != 0).astype(np.float64)
    squares = (w * w) @ reads.T
    conflict = squares + squares.T - 2 * (w @ w.T) > 0.5  # sums of (w_i - w_j)^2 over neurons that read both
    colors = _color_axons(conflict, len(conflict), len(conflict) + 1)
    assert colors is not None, "with as many colors as axons there is always one left"
    if colors.max(initial=-1) >= limit:
        fewer = _color_axons(conflict, limit, MOST_TRIES)
        colors = colors if fewer is None else fewer
    return colors[of_axon.reshape(-1)]


def _color_axons(conflict: np.ndarray, n_colors: int, tries: int) -> np.ndarray | None:
    """Return int64[vertex]: a proper coloring with at most `n_colors`, or None if none was found in `tries`."""
    n, least, vertex = len(conflict), 0, -1
    color, degree = np.full(n, -1), conflict.sum(1)
    neighbors = np.zeros((n, n_colors), np.int32)  # of each color
    path: list[int] = []
    used: list[int] = []  # colors in use before each vertex of the path
    while len(path) < n:
        n_used = max(used[-1], color[path[-1]] + 1) if path else 0
        if least == 0:
            saturation = (neighbors[:, :n_used] > 0).sum(1)
            vertex = int(np.where(color < 0, saturation * (n + 1) + degree, -1).argmax())
        free = [c for c in range(least, min(n_used + 1, n_colors)) if neighbors[vertex, c] == 0]
        if free:
            tries, least = tries - 1, 0
            color[vertex] = free[0]
            neighbors[conflict[vertex], free[0]] += 1
            path.append(vertex)
            used.append(n_used)
        elif path and tries > 0:
            vertex = path.pop()
            used.pop()
            neighbors[conflict[vertex], color[vertex]] -= 1
            color[vertex], least = -1, color[vertex] + 1
        else:
            return None
    return color
