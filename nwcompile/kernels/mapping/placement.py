"""Hot loops that all placers share: routed cost, cost of a swap, legal moves (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.random import below


class Ground(NamedTuple):
    """What does not change while cores move: messages, costs of ways and which core may go where.

    Messages are those between different cores; CSR by core, every pair of cores twice.
    """

    start: np.ndarray  # int64[core + 1]
    other: np.ndarray  # int64[end]: core
    sent: np.ndarray  # int64[end]: messages to it
    received: np.ndarray  # int64[end]: messages from it
    site_xy: np.ndarray  # int64[site, 2]: rows of `along_x` and of `along_y`
    along_x: np.ndarray  # int64[x, x]: cost of a way from x to x
    along_y: np.ndarray  # int64[y, y]
    outside: np.ndarray  # int64[2, core]: messages from outside the chip, and to it
    gate_cost: np.ndarray  # int64[2, site]: cost of the way of each such message
    site_kind: np.ndarray  # int64[site]
    fits: np.ndarray  # bool[core, kind]


@compiled()
def distance(ground, a, b):
    """Cost of the way from site `a` to site `b`."""
    return (
        ground.along_x[ground.site_xy[a, 0], ground.site_xy[b, 0]]
        + ground.along_y[ground.site_xy[a, 1], ground.site_xy[b, 1]]
    )


@compiled()
def routed_cost(ground, site_of):
    """Sum over messages of the cost of their ways. site_of: int64[core]."""
    total = np.int64(0)
    for a in range(len(site_of)):
        for k in range(2):
            total += ground.outside[k, a] * ground.gate_cost[k, site_of[a]]
        for i in range(ground.start[a], ground.start[a + 1]):
            b = ground.other[i]
            if b > a:
                total += ground.sent[i] * distance(ground, site_of[a], site_of[b])
                total += ground.received[i] * distance(ground, site_of[b], site_of[a])
    return total


@compiled()
def move_delta(ground, site_of, a, b, new):
    """What moving core `a` to site `new` adds to the cost of its messages, but for those with core `b`."""
    old = site_of[a]
    delta = np.int64(0)
    for k in range(2):
        delta += ground.outside[k, a] * (ground.gate_cost[k, new] - ground.gate_cost[k, old])
    for i in range(ground.start[a], ground.start[a + 1]):
        if ground.other[i] != b:
            there = site_of[ground.other[i]]
            delta += ground.sent[i] * (distance(ground, new, there) - distance(ground, old, there))
            delta += ground.received[i] * (distance(ground, there, new) - distance(ground, there, old))
    return delta


@compiled()
def swap_delta(ground, site_of, a, b, new):
    """What moving core `a` to site `new`, and core `b` there (-1: none) to a's site, adds to the cost; exact."""
    delta = move_delta(ground, site_of, a, b, new)
    if b >= 0:
        old = site_of[a]
        delta += move_delta(ground, site_of, b, a, old)
        turned = distance(ground, new, old) - distance(ground, old, new)
        if turned != 0:
            for i in range(ground.start[a], ground.start[a + 1]):
                if ground.other[i] == b:
                    delta += (ground.sent[i] - ground.received[i]) * turned
    return delta


@compiled()
def is_legal(ground, site_of, core_at, a, new):
    """Whether core `a` may go to site `new`, another than its own, and what is there to a's. core_at: int64[site]."""
    b = core_at[new]
    legal = b != a and ground.fits[a, ground.site_kind[new]]
    return legal and (b < 0 or ground.fits[b, ground.site_kind[site_of[a]]])


@compiled()
def swap(site_of, core_at, a, new):
    """Move core `a` to site `new`, and what is there to a's site, in place. core_at: int64[site], -1 where free."""
    old, b = site_of[a], core_at[new]
    site_of[a], core_at[new], core_at[old] = new, a, b
    if b >= 0:
        site_of[b] = old


@compiled()
def propose(ground, site_of, core_at, state):
    """A random legal move (core, other core or -1, new site); core -1 if the one drawn is not legal."""
    a = below(state, len(site_of))
    new = below(state, len(core_at))
    return a if is_legal(ground, site_of, core_at, a, new) else np.int64(-1), core_at[new], new


@compiled()
def shuffle(ground, site_of, core_at, state):
    """Exchange the contents of random sites, last to first, wherever that is legal (Fisher and Yates), in place."""
    for s in range(len(core_at) - 1, 0, -1):
        t = below(state, s + 1)
        a, new = core_at[s], t
        if a < 0:
            a, new = core_at[t], np.int64(s)
        if a >= 0 and is_legal(ground, site_of, core_at, a, new):
            swap(site_of, core_at, a, new)
