"""Annealing of units of neurons by a smooth step time (Numba).

The largest load of a step says nothing of the loads just below it, so that most moves away from busy cores change
nothing. Here a step takes the p-norm of all its loads: a little more than the largest, and less by every load that
falls. Its derivative is what a core's load costs; norms are brought up to date between calls.
"""

import numpy as np

from nwcompile.ir.resources import NEURONS
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.mapping.cluster_state import EXCESS, N_USED, TIME
from nwcompile.kernels.mapping.moves import below, cost, move, settle, settle_limits, unit_on
from nwcompile.kernels.mapping.placement import uniform

SQUARINGS = 3  # p = 8, or twice that


@inlined
def _power(x, is_steep):
    for _ in range(SQUARINGS):
        x *= x
    return x * x if is_steep else x


@kernel
def column_cost(load, column, norm, inverse, is_steep):
    """What a column of load: int64[column, step] adds to the smooth time, by the slope of the norms."""
    total = 0.0
    for h in range(load.shape[1]):
        total += _power(load[column, h] * inverse[h], is_steep) * norm[h]
    return total / (2 << SQUARINGS if is_steep else 1 << SQUARINGS)


@kernel
def take_norms(s, norm, inverse, is_steep):
    """Set norm: float64[step] to the p-norms of the loads, one cycle at least, and inverse to 1 / norm."""
    n_columns, n_steps = s.load.shape
    for h in range(n_steps):
        top = max(1.0, float(s.top[h]))
        total = 0.0
        for c in range(n_columns):
            total += _power(s.load[c, h] / top, is_steep)
        for _ in range(SQUARINGS + is_steep):
            total = np.sqrt(total)
        norm[h] = max(1.0, top * total)
        inverse[h] = 1.0 / norm[h]


@kernel
def _draw(d, s, reader_offset, reader, state):
    """A random move (unit, other unit or -1, core): to any core of its zone, or to one with readers of its sources."""
    unit = below(state, len(s.core_of))
    zone, n_inside = d.zone[s.core_of[unit]]
    first, n = d.in_offset[unit], d.in_offset[unit + 1] - d.in_offset[unit]
    if n > 0 and below(state, 2) == 0:
        atom = d.row_atom[d.in_row[first + below(state, n)]]
        at = reader_offset[atom]
        core = np.int64(s.core_of[reader[at + below(state, reader_offset[atom + 1] - at)]])
    else:
        core = zone + below(state, n_inside)
    if core == s.core_of[unit] or not zone <= core < zone + n_inside:
        return -1, -1, core
    other = np.int64(-1)
    if below(state, 2) == 0:
        other = unit_on(s, state, core)
    return unit, other, core


@inlined
def _has_room(d, s, unit, other, core):
    n = d.size[unit] - (d.size[other] if other >= 0 else 0)
    home = s.core_of[unit]
    return s.used[core, NEURONS] + n <= d.limit[core, NEURONS] and s.used[home, NEURONS] - n <= d.limit[home, NEURONS]


@inlined
def _changed(d, s, home, core, changed):
    """Set changed: int64[column] to the touched columns that a move may have changed, and return how many there are."""
    n, n_cores = 0, len(s.n_units)
    for i in range(s.touched[-1]):
        c = s.touched[i] % n_cores
        if d.cycles[0] > 0 or c in (home, core):
            changed[n] = s.touched[i]
            n += 1
    return n


@kernel
def anneal(d, s, weight, readers, smooth, is_steep, temperature, n_moves, keep_all, state):
    """Try `n_moves` random moves at one temperature (Metropolis rule), limits first, in place.

    Loads count by the smooth time, all else as in `moves.cost` with weight: float64[8]; what exceeds limits never
    grows. readers: int64[atom + 1], int32[...], the units that read each atom; smooth: norms and inverses, both
    float64[step], then float64[column] twice and int64[column]; keep_all: no core may be left empty; state: uint64[1].
    Returns how many moves were made; `s.total` is exact after.
    """
    reader_offset, reader = readers
    norm, inverse, value, kept, changed = smooth
    n_made = 0
    for c in range(s.load.shape[0]):
        value[c] = column_cost(s.load, c, norm, inverse, is_steep)
    n_barriers = s.load.shape[1]
    for _ in range(n_moves):
        unit, other, core = _draw(d, s, reader_offset, reader, state)
        if unit < 0 or (keep_all and other < 0 and s.n_units[s.core_of[unit]] == 1):
            continue
        over = s.total[EXCESS]
        if over == 0 and not _has_room(d, s, unit, other, core):
            continue
        home, time, n_used = np.int64(s.core_of[unit]), s.total[TIME], s.total[N_USED]
        before = cost(s.total, weight)
        move(d, s, unit, other, core)
        n_changed = _changed(d, s, home, core, changed)
        settle_limits(d, s)
        if s.total[EXCESS] <= over:
            change = 0.0
            for i in range(n_changed):
                kept[i] = value[changed[i]]
                value[changed[i]] = column_cost(s.load, changed[i], norm, inverse, is_steep)
                change += value[changed[i]] - kept[i]
            barriers = d.barrier[s.total[N_USED]] - d.barrier[n_used]
            s.total[TIME] = time + np.int64(np.floor(change + 0.5)) + n_barriers * barriers
            delta = cost(s.total, weight) - before
            accept = s.total[EXCESS] < over or delta <= 0
            if not accept and temperature > 0.0:
                accept = uniform(state) < np.exp(-delta / temperature)
            if accept:
                n_made += 1
                continue
            for i in range(n_changed):
                value[changed[i]] = kept[i]
        move(d, s, unit, other, home)
        settle_limits(d, s)
        s.total[TIME] = time
    for c in range(s.load.shape[0]):
        s.touched[c], s.is_touched[c] = c, True
    s.touched[-1] = s.load.shape[0]
    settle(d, s)
    return n_made
