"""Hot loops of placement by link: what every link carries as cores change sites, exact at any moment (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.placement import propose, swap, swap_delta


class Ways(NamedTuple):
    """The links of every way between routers: those from a to b are `link[offset[i]:offset[i + 1]]`, i = a * n + b."""

    offset: np.ndarray  # int64[router * router + 1]
    link: np.ndarray  # int64[...]
    router: np.ndarray  # int64[site]
    need: np.ndarray  # int64[link]: what a message counts for there
    pair_offset: np.ndarray  # int64[link + 1]
    pair: np.ndarray  # int64[...]: the ways, a * n + b, that take each link


@compiled()
def _way(ways, a, b, messages, load):
    n = int(np.sqrt(len(ways.offset) - 1) + 0.5)
    i = ways.router[a] * n + ways.router[b]
    for j in range(ways.offset[i], ways.offset[i + 1]):
        load[ways.link[j]] += messages * ways.need[ways.link[j]]


@compiled()
def add_core(ground, ways, site_of, a, without, sign, load):
    """Add (sign 1) or take (-1) the messages of core `a` with all cores but `without` to load: int64[link]."""
    for i in range(ground.start[a], ground.start[a + 1]):
        b = ground.other[i]
        if b != without:
            _way(ways, site_of[a], site_of[b], sign * ground.sent[i], load)
            _way(ways, site_of[b], site_of[a], sign * ground.received[i], load)


@compiled()
def fill_links(ground, ways, site_of, load):
    """Add all messages to load: int64[link]. site_of: int64[core]."""
    for a in range(len(site_of)):
        for i in range(ground.start[a], ground.start[a + 1]):
            _way(ways, site_of[a], site_of[ground.other[i]], ground.sent[i], load)


@compiled()
def _mark(ways, link, value, crosses):
    for i in range(ways.pair_offset[link], ways.pair_offset[link + 1]):
        crosses[ways.pair[i]] = value


@compiled()
def _crossing(ground, ways, site_of, a, without, crosses):
    """Messages of core `a` with all cores but `without` on the ways that crosses: bool[pair] marks."""
    n, total = int(np.sqrt(len(ways.offset) - 1) + 0.5), np.int64(0)
    at = ways.router[site_of[a]]
    for i in range(ground.start[a], ground.start[a + 1]):
        b = ground.other[i]
        if b != without:
            to = ways.router[site_of[b]]
            if crosses[at * n + to]:
                total += ground.sent[i]
            if crosses[to * n + at]:
                total += ground.received[i]
    return total


@compiled()
def _crossing_of_both(ground, ways, site_of, a, b, crosses):
    total = _crossing(ground, ways, site_of, a, -1, crosses)
    return total + _crossing(ground, ways, site_of, b, a, crosses) if b >= 0 else total


@compiled()
def cool_links(ground, ways, site_of, core_at, state, n_moves, weight, load):
    """Try random swaps, in place, and keep those that lower the cost of all ways plus `weight` times the hottest link.

    What a swap takes off the link that is the hottest now tells most that are no use before all links are counted.
    load: int64[link], that of `site_of`; state: uint64[1]. Returns what the cost of all ways has changed by.
    """
    hot, change = load.argmax(), np.int64(0)
    crosses = np.zeros(len(ways.offset) - 1, np.bool_)
    _mark(ways, hot, True, crosses)
    for _ in range(n_moves):
        a, b, new = propose(ground, site_of, core_at, state)
        if a < 0:
            continue
        hottest, old = load[hot], site_of[a]
        delta = swap_delta(ground, site_of, a, b, new)
        if delta > weight * hottest:
            continue
        less = _crossing_of_both(ground, ways, site_of, a, b, crosses)
        swap(site_of, core_at, a, new)
        less -= _crossing_of_both(ground, ways, site_of, a, b, crosses)
        swap(site_of, core_at, a, old)
        if delta - weight * (less * ways.need[hot]) >= 0:
            continue
        _exchange(ground, ways, site_of, core_at, a, b, new, load)
        if delta + weight * (load.max() - hottest) < 0:
            change += delta
            _mark(ways, hot, False, crosses)
            hot = load.argmax()
            _mark(ways, hot, True, crosses)
        else:
            _exchange(ground, ways, site_of, core_at, a, b, old, load)
    return change


@compiled()
def _exchange(ground, ways, site_of, core_at, a, b, new, load):
    add_core(ground, ways, site_of, a, -1, -1, load)
    if b >= 0:
        add_core(ground, ways, site_of, b, a, -1, load)
    swap(site_of, core_at, a, new)
    add_core(ground, ways, site_of, a, -1, 1, load)
    if b >= 0:
        add_core(ground, ways, site_of, b, a, 1, load)
