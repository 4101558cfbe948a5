"""Hot loops that placers share: routed cost, cost of a swap, legal moves, annealing (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined, kernel, part
from nwcompile.kernels.mapping.random import is_taken, random_below


class PlacementProblem(NamedTuple):
    """Constants of a placement: messages, costs of routes, and the sites that each core fits.

    Only messages between different cores count. They are stored as CSR, each pair of cores once for either core.
    """

    start: np.ndarray  # int64[core + 1]
    other: np.ndarray  # int64[end]: other core, ascending for each core
    sent: np.ndarray  # int64[end]: messages to the other core
    received: np.ndarray  # int64[end]: messages from the other core
    site_xy: np.ndarray  # int64[site, 2]: rows of `along_x` and of `along_y`
    along_x: np.ndarray  # int64[x, x]: cost of a route along x
    along_y: np.ndarray  # int64[y, y]
    outside: np.ndarray  # int64[2, core]: messages from outside the chip, and to outside
    io_cost: np.ndarray  # int64[2, site]: route cost of each such message
    site_kind: np.ndarray  # int64[site]
    fits: np.ndarray  # bool[core, kind]


@inlined
def distance(problem, a, b):
    """Cost of the route from site `a` to site `b`."""
    return (
        problem.along_x[problem.site_xy[a, 0], problem.site_xy[b, 0]]
        + problem.along_y[problem.site_xy[a, 1], problem.site_xy[b, 1]]
    )


@kernel
def routed_cost(problem, site_of):
    """Sum of the route costs of all messages. site_of: int64[core]."""
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


@inlined
def move_delta(problem, site_of, a, b, new):
    """Change of the cost if core `a` moves to site `new`, without its messages with core `b`."""
    old = site_of[a]
    old_x, old_y = problem.site_xy[old, 0], problem.site_xy[old, 1]
    new_x, new_y = problem.site_xy[new, 0], problem.site_xy[new, 1]
    delta = np.int64(0)
    for k in range(2):
        delta += problem.outside[k, a] * (problem.io_cost[k, new] - problem.io_cost[k, old])
    for i in range(problem.start[a], problem.start[a + 1]):
        if problem.other[i] != b:
            there = site_of[problem.other[i]]
            x, y = problem.site_xy[there, 0], problem.site_xy[there, 1]
            to = problem.along_x[new_x, x] - problem.along_x[old_x, x]
            to += problem.along_y[new_y, y] - problem.along_y[old_y, y]
            back = problem.along_x[x, new_x] - problem.along_x[x, old_x]
            back += problem.along_y[y, new_y] - problem.along_y[y, old_y]
            delta += problem.sent[i] * to + problem.received[i] * back
    return delta


@kernel
def swap_delta(problem, site_of, a, b, new):
    """Exact change of the cost if core `a` moves to site `new` and core `b` there (-1: none) to a's site."""
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


class Lanes(NamedTuple):
    """Messages of each core, both ways, with the cores of each column and of each row; empty if not used.

    If routes cost the same in both directions, the change by a move then needs no loop over single messages.
    """

    of_core: np.ndarray  # int64[core, x + y], or int64[0, 0]
    other: np.ndarray  # uint32[end]: as in PlacementProblem
    messages: np.ndarray  # int64[end]: messages in both directions


@kernel
def fill_lanes(problem, site_of, lanes):
    """Add the messages of all cores to lanes: Lanes, its `of_core` all 0."""
    n_x = len(problem.along_x)
    for a in range(len(site_of)):
        x, y = problem.site_xy[site_of[a], 0], n_x + problem.site_xy[site_of[a], 1]
        for i in range(problem.start[a], problem.start[a + 1]):
            lanes.of_core[lanes.other[i], x] += lanes.messages[i]
            lanes.of_core[lanes.other[i], y] += lanes.messages[i]


@inlined
def _move_in_lanes(problem, lanes, a, old, new):
    """Update the lanes of all cores that exchange messages with core `a` for its move between two sites."""
    n_x = len(problem.along_x)
    old_x, old_y = problem.site_xy[old, 0], n_x + problem.site_xy[old, 1]
    new_x, new_y = problem.site_xy[new, 0], n_x + problem.site_xy[new, 1]
    for i in range(problem.start[a], problem.start[a + 1]):
        b, n = lanes.other[i], lanes.messages[i]
        lanes.of_core[b, old_x] -= n
        lanes.of_core[b, new_x] += n
        lanes.of_core[b, old_y] -= n
        lanes.of_core[b, new_y] += n


@inlined
def _move_delta_by_lanes(problem, lanes, a, old, new):
    """Change of the cost if core `a` moves from one site to another and all other cores stay."""
    old_x, old_y = problem.site_xy[old, 0], problem.site_xy[old, 1]
    new_x, new_y = problem.site_xy[new, 0], problem.site_xy[new, 1]
    n_x, delta = len(problem.along_x), np.int64(0)
    for k in range(2):
        delta += problem.outside[k, a] * (problem.io_cost[k, new] - problem.io_cost[k, old])
    for x in range(n_x):
        delta += lanes.of_core[a, x] * (problem.along_x[new_x, x] - problem.along_x[old_x, x])
    for y in range(len(problem.along_y)):
        delta += lanes.of_core[a, n_x + y] * (problem.along_y[new_y, y] - problem.along_y[old_y, y])
    return delta


@inlined
def _messages_between(problem, a, b):
    """Messages between cores `a` and `b`, both ways."""
    low, end = problem.start[a], problem.start[a + 1]
    high = end
    while low < high:
        middle = (low + high) // 2
        if problem.other[middle] < b:
            low = middle + 1
        else:
            high = middle
    return problem.sent[low] + problem.received[low] if low < end and problem.other[low] == b else np.int64(0)


@kernel
def swap_delta_by_lanes(problem, lanes, site_of, a, b, new):
    """`swap_delta` if routes cost the same in both directions; `lanes` belong to site_of."""
    old = site_of[a]
    delta = _move_delta_by_lanes(problem, lanes, a, old, new)
    if b >= 0:
        delta += _move_delta_by_lanes(problem, lanes, b, new, old)
        stayed = distance(problem, new, new) + distance(problem, old, old) - 2 * distance(problem, old, new)
        delta -= _messages_between(problem, a, b) * stayed
    return delta


@part
def is_legal(problem, site_of, core_at, a, new):
    """Whether core `a` may swap with the content of site `new`, another than its own. core_at: int64[site]."""
    b = core_at[new]
    legal = b != a and problem.fits[a, problem.site_kind[new]]
    return legal and (b < 0 or problem.fits[b, problem.site_kind[site_of[a]]])


@kernel
def swap(site_of, core_at, a, new):
    """Swap core `a` with the content of site `new`, in place. core_at: int64[site], -1 for an empty site."""
    old, b = site_of[a], core_at[new]
    site_of[a], core_at[new], core_at[old] = new, a, b
    if b >= 0:
        site_of[b] = old


@kernel
def propose(problem, site_of, core_at, state):
    """A random legal move (core, other core or -1, new site); core -1 if the drawn move is not legal."""
    a = random_below(state, len(site_of))
    new = random_below(state, len(core_at))
    return a if is_legal(problem, site_of, core_at, a, new) else np.int64(-1), core_at[new], new


@kernel
def shuffle(problem, site_of, core_at, state):
    """Exchange the contents of random sites, last to first, where legal (Fisher and Yates), in place."""
    for s in range(len(core_at) - 1, 0, -1):
        t = random_below(state, s + 1)
        a, new = core_at[s], t
        if a < 0:
            a, new = core_at[t], np.int64(s)
        if a >= 0 and is_legal(problem, site_of, core_at, a, new):
            swap(site_of, core_at, a, new)


@kernel
def sample_changes(problem, site_of, core_at, state, changes):
    """Set changes: int64[move] to the change of the cost by random legal moves, which are not made."""
    for i in range(len(changes)):
        a, b, new = propose(problem, site_of, core_at, state)
        changes[i] = swap_delta(problem, site_of, a, b, new) if a >= 0 else 0


@kernel
def anneal_cores(problem, lanes, site_of, core_at, state, temperature, n_moves, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), in place.

    lanes: Lanes of site_of; if empty, changes are computed from single messages. site_of: int64[core],
    core_at: int64[site], state: uint64[1]. Returns the change of the cost, and the lowest change on the way. If that is
    below 0, best: int64[core] is set to the sites at that time.
    """
    change = np.int64(0)
    lowest = np.int64(0)
    for _ in range(n_moves):
        a, b, new = propose(problem, site_of, core_at, state)
        if a < 0:
            continue
        if len(lanes.of_core) > 0:
            delta = swap_delta_by_lanes(problem, lanes, site_of, a, b, new)
        else:
            delta = swap_delta(problem, site_of, a, b, new)
        if delta > 0 and not is_taken(delta, temperature, state):
            continue
        if len(lanes.of_core) > 0:
            _move_in_lanes(problem, lanes, a, site_of[a], new)
            if b >= 0:
                _move_in_lanes(problem, lanes, b, new, site_of[a])
        swap(site_of, core_at, a, new)
        change += delta
        if change < lowest:
            lowest = change
            for core in range(len(site_of)):
                best[core] = site_of[core]
    return change, lowest
