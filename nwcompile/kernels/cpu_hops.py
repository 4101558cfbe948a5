"""Hot loops that make traffic least: units of neurons move between cores whose sites are known (Numba).

What a message costs depends on where it leaves and arrives only: the links of its way, and something for the message
itself. The change by a move is looked up before anything is moved: for every atom and core it is known what the atom's
messages would cost if the core read it (`pull`), and what a spike from there costs on its way to all who do (`reach`).
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cpu_demand import EXCESS, NEURONS, TIME
from nwcompile.kernels.cpu_moves import below, move, settle, settle_limits, unit_on
from nwcompile.kernels.cpu_place import uniform
from nwcompile.kernels.jit import inlined, kernel


class Flow(NamedTuple):
    """Who reads what where, and what messages cost; units, atoms and groups are those of `Demand`."""

    read_offset: np.ndarray  # int64[unit + 1]
    read_atom: np.ndarray  # int32[...]: the atoms that a unit reads, each once
    reader_offset: np.ndarray  # int64[atom + 1]
    reader: np.ndarray  # int32[...]: the units that read an atom
    cost: np.ndarray  # int64[core, core]: of a message from a core to a core
    n_readers: np.ndarray  # int32[atom, core]: units there that read the atom
    pull: np.ndarray  # int64[atom, core]: cost of all the atom's messages to that core
    reach: np.ndarray  # int64[atom, core]: cost of one spike from that core to all cores that read the atom
    mark: np.ndarray  # int8[atom]: 0 between calls
    total: np.ndarray  # int64[1]: cost of all messages


@inlined
def _read(f, atom, core, sign):
    """One unit more or less that reads an atom on a core."""
    n = f.n_readers[atom, core] + sign
    f.n_readers[atom, core] = n
    if n == (sign > 0):
        for at in range(f.cost.shape[0]):
            f.reach[atom, at] += sign * f.cost[at, core]


@kernel
def put_units(d, f, core_of):
    """Fill the tables for units on the cores core_of: int32[unit], from tables of zeros."""
    for unit in range(len(core_of)):
        for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
            _read(f, f.read_atom[i], core_of[unit], 1)
        for g in range(d.out_offset[unit], d.out_offset[unit + 1]):
            for at in range(f.cost.shape[0]):
                f.pull[d.group_atom[g], at] += d.group_spikes[g] * f.cost[core_of[unit], at]
    f.total[0] = 0
    for g in range(len(d.group_atom)):
        f.total[0] += d.group_spikes[g] * f.reach[d.group_atom[g], core_of[d.group_unit[g]]]


@kernel
def _shift(d, f, unit, home, core):
    for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
        _read(f, f.read_atom[i], home, -1)
        _read(f, f.read_atom[i], core, 1)
    for g in range(d.out_offset[unit], d.out_offset[unit + 1]):
        for at in range(f.cost.shape[0]):
            f.pull[d.group_atom[g], at] += d.group_spikes[g] * (f.cost[core, at] - f.cost[home, at])


@kernel
def shift(d, f, unit, other, home, core):
    """Bring the tables, not the total, up to date with a move of `unit` to `core`, and of `other` (-1: none) back."""
    _shift(d, f, unit, home, core)
    if other >= 0:
        _shift(d, f, other, core, home)


@inlined
def _of_reading(f, unit, mine, home, core):
    """What the messages to a unit cost more on another core, but for atoms that who comes for it reads as well."""
    change = np.int64(0)
    for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
        atom = f.read_atom[i]
        if f.mark[atom] == mine:
            if f.n_readers[atom, home] == 1:
                change -= f.pull[atom, home]
            if f.n_readers[atom, core] == 0:
                change += f.pull[atom, core]
    return change


@inlined
def _of_sending(d, f, unit, home, core, first_home, first_core):
    """What the messages from a unit cost more on another core; who reads them may move with it, or the other way."""
    change = np.int64(0)
    for g in range(d.out_offset[unit], d.out_offset[unit + 1]):
        atom, n = d.group_atom[g], d.group_spikes[g]
        change += n * (f.reach[atom, core] - f.reach[atom, home])
        if f.mark[atom] == 1 or f.mark[atom] == 2:
            leaves, joins = (first_home, first_core) if f.mark[atom] == 1 else (first_core, first_home)
            if f.n_readers[atom, leaves] == 1:
                change += n * (f.cost[home, leaves] - f.cost[core, leaves])
            if f.n_readers[atom, joins] == 0:
                change += n * (f.cost[core, joins] - f.cost[home, joins])
    return change


@inlined
def _set_mark(f, unit, value):
    for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
        f.mark[f.read_atom[i]] += value


@kernel
def change_of(d, f, unit, other, home, core):
    """What a move of `unit` from `home` to `core`, and of `other` (-1: none) the other way, adds to the cost; exact."""
    _set_mark(f, unit, 1)
    if other >= 0:
        _set_mark(f, other, 2)
    change = _of_reading(f, unit, 1, home, core) + _of_sending(d, f, unit, home, core, home, core)
    if other >= 0:
        change += _of_reading(f, other, 2, core, home) + _of_sending(d, f, other, core, home, home, core)
        _set_mark(f, other, -2)
    _set_mark(f, unit, -1)
    return change


@kernel
def _near(d, s, f, unit, state):
    """The core of a random unit that reads what this one reads or sends, or that sends what it reads; -1 if none."""
    n_read = f.read_offset[unit + 1] - f.read_offset[unit]
    n_sent = d.out_offset[unit + 1] - d.out_offset[unit]
    if n_read + n_sent == 0:
        return -1
    if below(state, 3) == 0 or n_read == 0:
        if n_sent == 0:
            return -1
        atom = d.group_atom[d.out_offset[unit] + below(state, n_sent)]
    else:
        atom = f.read_atom[f.read_offset[unit] + below(state, n_read)]
        first, n = d.atom_offset[atom], d.atom_offset[atom + 1] - d.atom_offset[atom]
        if n > 0 and below(state, 2) == 0:
            return np.int64(s.core_of[d.group_unit[d.atom_group[first + below(state, n)]]])
    first, n = f.reader_offset[atom], f.reader_offset[atom + 1] - f.reader_offset[atom]
    return np.int64(s.core_of[f.reader[first + below(state, n)]]) if n > 0 else -1


@kernel
def _draw(d, s, f, state):
    """A random move (unit, other unit or -1, core); unit -1 if none was found."""
    unit, core = below(state, len(s.core_of)), np.int64(-1)
    if below(state, 4) > 0:
        core = _near(d, s, f, unit, state)
    if core < 0:
        core = below(state, len(s.n_units))
    home = np.int64(s.core_of[unit])
    if core == home:
        return -1, np.int64(-1), core
    other = np.int64(-1)
    room = d.limit[core, NEURONS] - s.used[core, NEURONS]
    if room < d.size[unit] or below(state, 2) == 0:
        other = unit_on(s, state, core)
        if other >= 0:
            more = d.size[unit] - d.size[other]
            if more > room or -more > d.limit[home, NEURONS] - s.used[home, NEURONS]:
                return -1, other, core
    return unit, other, core


@inlined
def _is_taken(change, temperature, state):
    return change <= 0 or (temperature > 0.0 and uniform(state) < np.exp(-change / temperature))


@kernel
def settled(d, s, most_time):
    """Bring the totals up to date; returns the excess, that of the time above `most_time` (0: no limit) included."""
    if most_time == 0:
        settle_limits(d, s)
        return s.total[EXCESS]
    settle(d, s)
    late = s.total[TIME] - most_time
    return s.total[EXCESS] + ((late << 20) // most_time + 1 if late > 0 else 0)


@kernel
def anneal(d, s, f, most_time, temperature, n_moves, keep_all, state, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), in place; what exceeds limits never grows.

    most_time: limit of the sum of the step times, in cycles, 0 for none; keep_all: no core may be left empty; state:
    uint64[1]. best: int32[unit] takes the cores of the moment with the least excess and cost, if that is better than
    the start; returns both.
    """
    over = settled(d, s, most_time)
    least, lowest = over, f.total[0]
    for _ in range(n_moves):
        unit, other, core = _draw(d, s, f, state)
        if unit < 0 or (keep_all and other < 0 and s.n_units[s.core_of[unit]] == 1):
            continue
        home = np.int64(s.core_of[unit])
        change = change_of(d, f, unit, other, home, core)
        is_taken = _is_taken(change, temperature, state)
        if over == 0 and not is_taken:
            continue
        move(d, s, unit, other, core)
        new = settled(d, s, most_time)
        if new > over or (new == over and not is_taken):
            move(d, s, unit, other, home)
            settled(d, s, most_time)
            continue
        over = new
        shift(d, f, unit, other, home, core)
        f.total[0] += change
        if over < least or (over == least and f.total[0] < lowest):
            least, lowest = over, f.total[0]
            for u in range(len(best)):
                best[u] = s.core_of[u]
    return least, lowest


@kernel
def uphill_mean(d, s, f, n_moves, state):
    """Mean cost increase over those of `n_moves` random moves that make it worse; 0 if none does."""
    total, n = 0.0, 0
    for _ in range(n_moves):
        unit, other, core = _draw(d, s, f, state)
        if unit >= 0:
            change = change_of(d, f, unit, other, np.int64(s.core_of[unit]), core)
            if change > 0:
                total += change
                n += 1
    return total / max(n, 1)
