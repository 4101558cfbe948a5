"""Hot loops of the `floorline` partitioner: what every core holds and does as units move, exact at any time (Numba).

A unit is a set of neurons that move together. A move touches only the unit's own rows and messages and those of its
sources; everything else stays as it is. All figures are whole numbers, equal to a full count at any moment.
"""

import numpy as np

from nwcompile.ir.resources import IN_AXONS, N_RESOURCES, NEURONS, OUT_AXONS, SYNAPSE_BITS
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.mapping.cluster_state import AXONS, EXCESS, MESSAGES, N_USED, REMOTE, TIME
from nwcompile.kernels.mapping.placement import random_bits, uniform


@inlined
def _touch(s, column):
    if not s.is_touched[column]:
        s.is_touched[column] = True
        s.touched[s.touched[-1]] = column
        s.touched[-1] += 1


@inlined
def _bits(d, row_format, n):
    block = d.row_bits.shape[1] - 1
    return n // block * d.row_bits[row_format, block] + d.row_bits[row_format, n % block]


@inlined
def _words(d, row_format, n):
    bits = n * d.shared_bits[row_format] if d.shared_bits[row_format] else _bits(d, row_format, n)
    return -(-bits // d.word_bits[0])


@kernel
def _departures(d, s, unit, core, sign):
    """Add (or, with `sign` -1, take) what a unit does and sends on a core."""
    s.n_units[core] += sign
    s.total[N_USED] += (sign > 0) * (s.n_units[core] == 1) - (sign < 0) * (s.n_units[core] == 0)
    s.used[core, NEURONS] += sign * d.size[unit]
    _touch(s, core)
    for h in range(s.load.shape[1]):
        s.load[core, h] += sign * d.send[unit, h]
    for g in range(d.out_offset[unit], d.out_offset[unit + 1]):
        atom = d.group_atom[g]
        n = sign * s.fan_out[atom]
        if n == 0:
            continue
        s.used[core, OUT_AXONS] += n * d.group_size[g]
        s.total[MESSAGES] += n * d.group_spikes[g]
        s.total[REMOTE] += (n - sign * (s.n_rows[core, atom] > 0)) * d.group_spikes[g]
        if d.cycles[0]:
            for i in range(d.spike_offset[g], d.spike_offset[g + 1]):
                s.load[core, d.spike_step[i]] += n * d.cycles[0] * d.spike_count[i]


@kernel
def _axon(d, s, atom, core, column, sign):
    """Add or take the axons from an atom to a core."""
    s.fan_out[atom] += sign
    s.used[core, IN_AXONS] += sign * d.atom_size[atom]
    s.total[AXONS] += sign * d.atom_size[atom]
    for i in range(d.arrival_offset[atom], d.arrival_offset[atom + 1]):
        s.load[column, d.arrival_step[i]] += sign * d.cycles[1] * d.arrival_count[i]
    for j in range(d.atom_offset[atom], d.atom_offset[atom + 1]):
        g = d.atom_group[j]
        home = s.core_of[d.group_unit[g]]
        if home < 0:
            continue
        _touch(s, home)
        s.used[home, OUT_AXONS] += sign * d.group_size[g]
        s.total[MESSAGES] += sign * d.group_spikes[g]
        if home != core:
            s.total[REMOTE] += sign * d.group_spikes[g]
        if d.cycles[0]:
            for i in range(d.spike_offset[g], d.spike_offset[g + 1]):
                s.load[home, d.spike_step[i]] += sign * d.cycles[0] * d.spike_count[i]


@kernel
def _arrivals(d, s, unit, core, sign):
    """Add or take what a unit reads on a core: rows, kernels, axons and the cycles that they take."""
    column = core if s.load.shape[0] == len(s.n_units) else core + len(s.n_units)
    _touch(s, column)
    for h in range(s.load.shape[1]):
        s.load[column, h] += sign * d.receive[unit, h]
    for i in range(d.kernel_offset[unit], d.kernel_offset[unit + 1]):
        k = d.kernel[i]
        before = s.n_readers[core, k]
        s.n_readers[core, k] = before + sign * d.kernel_readers[i]
        if before == 0 or s.n_readers[core, k] == 0:
            s.used[core, SYNAPSE_BITS] += sign * d.kernel_bits[k]
    for e in range(d.in_offset[unit], d.in_offset[unit + 1]):
        row = d.in_row[e]
        atom, form = d.row_atom[row], d.row_format[row]
        n = np.int64(s.n_synapses[core, row])
        new = n + sign * d.in_count[e]
        s.n_synapses[core, row] = new
        s.used[core, SYNAPSE_BITS] += d.atom_size[atom] * (_bits(d, form, new) - _bits(d, form, n))
        if d.cycles[2]:
            words = d.cycles[2] * (_words(d, form, new) - _words(d, form, n))
            if words:
                for i in range(d.arrival_offset[atom], d.arrival_offset[atom + 1]):
                    s.load[column, d.arrival_step[i]] += words * d.arrival_count[i]
        if n == 0 or new == 0:
            s.n_rows[core, atom] += sign
            if s.n_rows[core, atom] == (sign > 0):
                _axon(d, s, atom, core, column, sign)


@kernel
def put(d, s, unit, core):
    """Put a unit that is on no core on one; `settle` makes `total` whole again."""
    s.core_of[unit] = core
    _departures(d, s, unit, core, 1)
    _arrivals(d, s, unit, core, 1)


@kernel
def take(d, s, unit):
    """Take a unit off its core; `settle` makes `total` whole again."""
    core = s.core_of[unit]
    _arrivals(d, s, unit, core, -1)
    _departures(d, s, unit, core, -1)
    s.core_of[unit] = -1


@kernel
def put_all(d, s, core_of):
    """Put all units on empty cores, core_of: int32[unit], and settle."""
    for unit in range(len(core_of)):
        put(d, s, unit, core_of[unit])
    settle(d, s)


@inlined
def _core_excess(d, s, core):
    over = 0
    for r in range(N_RESOURCES):
        if s.used[core, r] > d.limit[core, r]:
            over += ((s.used[core, r] - d.limit[core, r]) << 20) // max(d.limit[core, r], 1) + 1
    return over


@kernel
def settle_limits(d, s):
    """Bring the excess up to date; nothing is touched any more."""
    n_cores = len(s.n_units)
    for i in range(s.touched[-1]):
        core = s.touched[i] % n_cores
        over = _core_excess(d, s, core)
        s.total[EXCESS] += over - s.excess[core]
        s.excess[core] = over
        s.is_touched[s.touched[i]] = False
    s.touched[-1] = 0


@kernel
def settle(d, s):
    """Bring the largest load of every step, the time and the excess up to date."""
    n_columns, n_steps = s.load.shape
    n_touched = s.touched[-1]
    for h in range(n_steps):
        if s.is_touched[s.top_column[h]]:
            s.top[h] = -1
            for c in range(n_columns):
                if s.load[c, h] > s.top[h]:
                    s.top[h], s.top_column[h] = s.load[c, h], c
    for i in range(n_touched):
        column = s.touched[i]
        for h in range(n_steps):
            if s.load[column, h] > s.top[h]:
                s.top[h], s.top_column[h] = s.load[column, h], column
    time = np.int64(0)
    for h in range(n_steps):
        time += s.top[h]
    s.total[TIME] = time + n_steps * d.barrier[s.total[N_USED]]
    settle_limits(d, s)


@inlined
def below(state, n):
    """A random whole number from 0 to n - 1."""
    return np.int64(random_bits(state) % np.uint64(n))


@inlined
def cost(total, weight):
    """What the search makes small, float64: a + b T + c M + d R + e A + h M / U times f + g T.

    T is the time, M all messages, R those to other cores, A the in-axons, U the cores in use; weight: float64[8] are
    the letters a to h.
    """
    once = weight[0] + weight[1] * total[TIME] + weight[2] * total[MESSAGES] + weight[3] * total[REMOTE]
    once += weight[4] * total[AXONS] + weight[7] * total[MESSAGES] / max(total[N_USED], 1)
    return once * (weight[5] + weight[6] * total[TIME])


@inlined
def _copy(values, to):
    for i in range(len(values)):
        to[i] = values[i]


@inlined
def _keep(s):
    _copy(s.top, s.old_top)
    _copy(s.top_column, s.old_column)
    _copy(s.total, s.old_total)


@inlined
def _forget(d, s):
    """After the loads were put back: the largest loads and totals as `_keep` saw them."""
    settle_limits(d, s)
    _copy(s.old_top, s.top)
    _copy(s.old_column, s.top_column)
    _copy(s.old_total, s.total)


@kernel
def move(d, s, unit, other, core):
    """Move a unit to `core`, and `other`, if there is one, from there to where the unit was."""
    home = s.core_of[unit]
    take(d, s, unit)
    if other >= 0:
        take(d, s, other)
    put(d, s, unit, core)
    if other >= 0:
        put(d, s, other, home)


@kernel
def unit_on(s, state, core):
    """A random unit of a core; -1 if none was met."""
    n = len(s.core_of)
    for _ in range(4 * len(s.n_units)):
        u = below(state, n)
        if s.core_of[u] == core:
            return u
    return -1


@kernel
def _propose(d, s, state):
    """A random move (unit, other unit or -1, core of the same zone); unit -1 if none was found.

    Half of them relieve a core that is the busiest of some step.
    """
    n_cores = len(s.n_units)
    h = below(state, s.load.shape[1])
    if below(state, 4) > 0:
        column = s.top_column[h]
        core = column % n_cores
        unit = unit_on(s, state, core)
        if unit < 0:
            return -1, -1, 0
        for _ in range(3):
            u = unit_on(s, state, core)
            if column >= n_cores and u >= 0 and d.receive[u, h] > d.receive[unit, h]:
                unit = u
        first, n = d.zone[core]
        target = first + below(state, n)
        for _ in range(2):
            c = first + below(state, n)
            if s.load[c + column - core, h] < s.load[target + column - core, h]:
                target = c
    else:
        unit = below(state, len(s.core_of))
        first, n = d.zone[s.core_of[unit]]
        target = first + below(state, n)
    if target == s.core_of[unit]:
        return -1, -1, 0
    other = -1
    if below(state, 2) == 0:
        other = unit_on(s, state, target)
    return unit, other, target


@kernel
def promise(d, s, unit, other, core):
    """Least change of the time by a move, as far as the synaptic operations of its two cores tell."""
    n_cores = len(s.n_units)
    shift = s.load.shape[0] - n_cores
    a, b = s.core_of[unit] + shift, core + shift
    change = np.int64(0)
    for h in range(s.load.shape[1]):
        delta = d.receive[unit, h]
        if other >= 0:
            delta -= d.receive[other, h]
        if delta != 0:
            new = max(s.load[a, h] - delta, s.load[b, h] + delta)
            if new > s.top[h] or s.top_column[h] == a or s.top_column[h] == b:
                change += new - s.top[h]
    return change


@inlined
def _most_saved(d, unit):
    """Messages that a unit can save at most: those of all that it reads."""
    n = np.int64(0)
    if unit >= 0:
        for e in range(d.in_offset[unit], d.in_offset[unit + 1]):
            n += d.atom_spikes[d.row_atom[d.in_row[e]]]
    return n


@kernel
def search(d, s, weight, temperature, n_moves, keep_all, state, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), limits first, in place.

    weight: as in `cost`; keep_all: no core may be left empty; state: uint64[1]. best: int32[unit] takes the
    cores of the best moment, if it is better than the start; returns its excess and cost.
    """
    least, lowest = s.total[EXCESS], cost(s.total, weight)
    for _ in range(n_moves):
        unit, other, core = _propose(d, s, state)
        if unit < 0 or (keep_all and other < 0 and s.n_units[s.core_of[unit]] == 1):
            continue
        before, over = cost(s.total, weight), s.total[EXCESS]
        if over == 0 and weight[1] == 1.0:
            saved = weight[7] / s.total[N_USED] * (_most_saved(d, unit) + _most_saved(d, other))
            if promise(d, s, unit, other, core) > saved + 5 * temperature:
                continue
        home = s.core_of[unit]
        _keep(s)
        move(d, s, unit, other, core)
        settle(d, s)
        delta = cost(s.total, weight) - before
        accept = s.total[EXCESS] <= over
        if accept and s.total[EXCESS] == over and delta > 0:
            drawn = uniform(state)
            accept = temperature > 0.0 and drawn < np.exp(-delta / temperature)
        if not accept:
            move(d, s, unit, other, home)
            _forget(d, s)
        elif s.total[EXCESS] < least or (s.total[EXCESS] == least and before + delta < lowest):
            least, lowest = s.total[EXCESS], before + delta
            _copy(s.core_of, best)
    return least, lowest
