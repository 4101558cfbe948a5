"""Hot loops of placement by link: the flits of every link as cores change sites, exact at any moment (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cpu_place import propose, swap, swap_delta
from nwcompile.kernels.jit import compiled


class Ways(NamedTuple):
    """The links of every way between routers: those from a to b are `link[offset[i]:offset[i + 1]]`, i = a * n + b."""

    offset: np.ndarray  # int64[router * router + 1]
    link: np.ndarray  # int64[...]
    router: np.ndarray  # int64[site]


@compiled()
def _way(ways, a, b, messages, load):
    n = int(np.sqrt(len(ways.offset) - 1) + 0.5)
    i = ways.router[a] * n + ways.router[b]
    for j in range(ways.offset[i], ways.offset[i + 1]):
        load[ways.link[j]] += messages


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
def cool_links(ground, ways, site_of, core_at, state, n_moves, weight, load):
    """Try random swaps, in place, and keep those that lower the cost of all ways plus `weight` times the hottest link.

    load: int64[link], that of `site_of`; state: uint64[1]. Returns what the cost of all ways has changed by.
    """
    hottest, change = load.max(), np.int64(0)
    for _ in range(n_moves):
        a, b, new = propose(ground, site_of, core_at, state)
        if a < 0:
            continue
        delta = swap_delta(ground, site_of, a, b, new)
        if delta > weight * hottest:
            continue
        old = site_of[a]
        _exchange(ground, ways, site_of, core_at, a, b, new, load)
        found = load.max()
        if delta + weight * (found - hottest) < 0:
            hottest, change = found, change + delta
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
