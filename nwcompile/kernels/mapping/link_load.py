"""Hot loops of placement by link load: the exact load of every link while cores change sites (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.placement import propose, swap, swap_delta


class Routes(NamedTuple):
    """Links of every route between routers: from a to b `link[offset[i]:offset[i + 1]]`, i = a * n + b."""

    offset: np.ndarray  # int64[router * router + 1]
    link: np.ndarray  # int64[...]
    router: np.ndarray  # int64[site]
    need: np.ndarray  # int64[link]: weight of a message there
    pair_offset: np.ndarray  # int64[link + 1]
    pair: np.ndarray  # int64[...]: routes, a * n + b, through each link


@compiled()
def _add_route(routes, a, b, messages, load):
    n = int(np.sqrt(len(routes.offset) - 1) + 0.5)
    i = routes.router[a] * n + routes.router[b]
    for j in range(routes.offset[i], routes.offset[i + 1]):
        load[routes.link[j]] += messages * routes.need[routes.link[j]]


@compiled()
def add_core(problem, routes, site_of, a, without, sign, load):
    """Add (sign 1) or subtract (-1) the messages of core `a` with all cores but `without` to load: int64[link]."""
    for i in range(problem.start[a], problem.start[a + 1]):
        b = problem.other[i]
        if b != without:
            _add_route(routes, site_of[a], site_of[b], sign * problem.sent[i], load)
            _add_route(routes, site_of[b], site_of[a], sign * problem.received[i], load)


@compiled()
def fill_links(problem, routes, site_of, load):
    """Add all messages to load: int64[link]. site_of: int64[core]."""
    for a in range(len(site_of)):
        for i in range(problem.start[a], problem.start[a + 1]):
            _add_route(routes, site_of[a], site_of[problem.other[i]], problem.sent[i], load)


@compiled()
def _mark_routes(routes, link, value, crosses):
    for i in range(routes.pair_offset[link], routes.pair_offset[link + 1]):
        crosses[routes.pair[i]] = value


@compiled()
def _count_crossings(problem, routes, site_of, a, without, crosses):
    """Messages of core `a` with all cores but `without` on the routes that crosses: bool[pair] marks."""
    n, total = int(np.sqrt(len(routes.offset) - 1) + 0.5), np.int64(0)
    at = routes.router[site_of[a]]
    for i in range(problem.start[a], problem.start[a + 1]):
        b = problem.other[i]
        if b != without:
            to = routes.router[site_of[b]]
            if crosses[at * n + to]:
                total += problem.sent[i]
            if crosses[to * n + at]:
                total += problem.received[i]
    return total


@compiled()
def _count_swap_crossings(problem, routes, site_of, a, b, crosses):
    total = _count_crossings(problem, routes, site_of, a, -1, crosses)
    return total + _count_crossings(problem, routes, site_of, b, a, crosses) if b >= 0 else total


@compiled()
def cool_links(problem, routes, site_of, core_at, state, n_moves, weight, load):
    """Try random swaps, in place; keep those that lower the routes' total cost plus `weight` times the hottest load.

    A swap's relief of the link that is hottest now rejects most useless swaps before all links are counted.
    load: int64[link]: loads for `site_of`; state: uint64[1]. Returns the change of the cost of all routes.
    """
    hot, change = load.argmax(), np.int64(0)
    crosses = np.zeros(len(routes.offset) - 1, np.bool_)
    _mark_routes(routes, hot, True, crosses)
    for _ in range(n_moves):
        a, b, new = propose(problem, site_of, core_at, state)
        if a < 0:
            continue
        hottest, old = load[hot], site_of[a]
        delta = swap_delta(problem, site_of, a, b, new)
        if delta > weight * hottest:
            continue
        less = _count_swap_crossings(problem, routes, site_of, a, b, crosses)
        swap(site_of, core_at, a, new)
        less -= _count_swap_crossings(problem, routes, site_of, a, b, crosses)
        swap(site_of, core_at, a, old)
        if delta - weight * (less * routes.need[hot]) >= 0:
            continue
        _swap_with_load(problem, routes, site_of, core_at, a, b, new, load)
        if delta + weight * (load.max() - hottest) < 0:
            change += delta
            _mark_routes(routes, hot, False, crosses)
            hot = load.argmax()
            _mark_routes(routes, hot, True, crosses)
        else:
            _swap_with_load(problem, routes, site_of, core_at, a, b, old, load)
    return change


@compiled()
def _swap_with_load(problem, routes, site_of, core_at, a, b, new, load):
    add_core(problem, routes, site_of, a, -1, -1, load)
    if b >= 0:
        add_core(problem, routes, site_of, b, a, -1, load)
    swap(site_of, core_at, a, new)
    add_core(problem, routes, site_of, a, -1, 1, load)
    if b >= 0:
        add_core(problem, routes, site_of, b, a, 1, load)
