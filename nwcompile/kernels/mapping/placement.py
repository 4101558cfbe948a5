"""Hot loops that placers share: routed cost, cost of a swap, legal moves; and annealing by them (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.random import below, is_taken


class PlacementProblem(NamedTuple):
    """What does not change while cores move: messages, costs of routes and which core may go where.

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
    io_cost: np.ndarray  # int64[2, site]: cost of the way of each such message
    site_kind: np.ndarray  # int64[site]
    fits: np.ndarray  # bool[core, kind]


@compiled()
def distance(problem, a, b):
    """Cost of the way from site `a` to site `b`."""
    return (
        problem.along_x[problem.site_xy[a, 0], problem.site_xy[b, 0]]
        + problem.along_y[problem.site_xy[a, 1], problem.site_xy[b, 1]]
    )


@compiled()
def routed_cost(problem, site_of):
    """Sum over messages of the cost of their routes. site_of: int64[core]."""
    total = np.int64(0)
    for a in range(len(site_of)):
        for k in range(2):
            total += problem.outside[k, a] * problem.io_cost[k, site_of[a]]
        for i in range(problem.start[a], problem.start[a + 1]):
            b = problem.other[i]
            if b > a:
                total += problem.sent[i] * distance(problem, site_of[a], site_of[b])
                total += problem.received[i] * distance(problem, site_of[b], site_of[a])
    return total


@compiled()
def move_delta(problem, site_of, a, b, new):
    """What moving core `a` to site `new` adds to the cost of its messages, but for those with core `b`."""
    old = site_of[a]
    delta = np.int64(0)
    for k in range(2):
        delta += problem.outside[k, a] * (problem.io_cost[k, new] - problem.io_cost[k, old])
    for i in range(problem.start[a], problem.start[a + 1]):
        if problem.other[i] != b:
            there = site_of[problem.other[i]]
            delta += problem.sent[i] * (distance(problem, new, there) - distance(problem, old, there))
            delta += problem.received[i] * (distance(problem, there, new) - distance(problem, there, old))
    return delta


@compiled()
def swap_delta(problem, site_of, a, b, new):
    """What moving core `a` to site `new`, and core `b` there (-1: none) to a's site, adds to the cost; exact."""
    delta = move_delta(problem, site_of, a, b, new)
    if b >= 0:
        old = site_of[a]
        delta += move_delta(problem, site_of, b, a, old)
        turned = distance(problem, new, old) - distance(problem, old, new)
        if turned != 0:
            for i in range(problem.start[a], problem.start[a + 1]):
                if problem.other[i] == b:
                    delta += (problem.sent[i] - problem.received[i]) * turned
    return delta


@compiled()
def is_legal(problem, site_of, core_at, a, new):
    """Whether core `a` may go to site `new`, another than its own, and what is there to a's. core_at: int64[site]."""
    b = core_at[new]
    legal = b != a and problem.fits[a, problem.site_kind[new]]
    return legal and (b < 0 or problem.fits[b, problem.site_kind[site_of[a]]])


@compiled()
def swap(site_of, core_at, a, new):
    """Move core `a` to site `new`, and what is there to a's site, in place. core_at: int64[site], -1 where free."""
    old, b = site_of[a], core_at[new]
    site_of[a], core_at[new], core_at[old] = new, a, b
    if b >= 0:
        site_of[b] = old


@compiled()
def propose(problem, site_of, core_at, state):
    """A random legal move (core, other core or -1, new site); core -1 if the one drawn is not legal."""
    a = below(state, len(site_of))
    new = below(state, len(core_at))
    return a if is_legal(problem, site_of, core_at, a, new) else np.int64(-1), core_at[new], new


@compiled()
def shuffle(problem, site_of, core_at, state):
    """Exchange the contents of random sites, last to first, wherever that is legal (Fisher and Yates), in place."""
    for s in range(len(core_at) - 1, 0, -1):
        t = below(state, s + 1)
        a, new = core_at[s], t
        if a < 0:
            a, new = core_at[t], np.int64(s)
        if a >= 0 and is_legal(problem, site_of, core_at, a, new):
            swap(site_of, core_at, a, new)


@compiled()
def sample_changes(problem, site_of, core_at, state, changes):
    """Set changes: int64[move] to what random legal moves, none of them made, would add to the cost."""
    for i in range(len(changes)):
        a, b, new = propose(problem, site_of, core_at, state)
        changes[i] = swap_delta(problem, site_of, a, b, new) if a >= 0 else 0


@compiled()
def anneal_cores(problem, site_of, core_at, state, temperature, n_moves, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), in place.

    site_of: int64[core], core_at: int64[site], state: uint64[1]. Returns the change of the cost, and the lowest that
    this change has been; best: int64[core] takes the sites of that moment if it is below 0.
    """
    change = np.int64(0)
    lowest = np.int64(0)
    for _ in range(n_moves):
        a, b, new = propose(problem, site_of, core_at, state)
        if a < 0:
            continue
        delta = swap_delta(problem, site_of, a, b, new)
        if delta > 0 and not is_taken(delta, temperature, state):
            continue
        swap(site_of, core_at, a, new)
        change += delta
        if change < lowest:
            lowest = change
            for core in range(len(site_of)):
                best[core] = site_of[core]
    return change, lowest
