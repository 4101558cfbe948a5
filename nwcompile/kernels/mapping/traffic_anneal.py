"""Hot loops that make traffic least: units of neurons move between cores whose sites are known (Numba).

What a message costs depends on where it leaves and arrives only: the links of its way, and something for the message
itself. The change by a move is looked up before anything is moved: for every atom and core it is known what the atom's
messages would cost if the core read it (`pull`), and what a spike from there costs on its way to all who do (`reach`);
and for every unit and core, what it would bring there of both (`alone`). Most moves are turned down by that look alone.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.ir.resources import NEURONS
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.mapping.cluster_state import EXCESS, TIME
from nwcompile.kernels.mapping.moves import move, settle, settle_limits
from nwcompile.kernels.mapping.placement import random_bits, uniform


class Flow(NamedTuple):
    """Who reads what where, and what messages cost; units, atoms and groups are those of `Demand`."""

    read_offset: np.ndarray  # int64[unit + 1]
    read_atom: np.ndarray  # int32[...]: the atoms that a unit reads, each once, in order
    reader_offset: np.ndarray  # int64[atom + 1]
    reader: np.ndarray  # int32[...]: the units that read an atom
    cost: np.ndarray  # int64[core, core]: of a message from a core to a core
    n_readers: np.ndarray  # int32[atom, core]: units there that read the atom
    pull: np.ndarray  # int64[atom, core]: cost of all the atom's messages to that core
    reach: np.ndarray  # int64[atom, core]: cost of one spike from that core to all cores that read the atom
    alone: np.ndarray  # int64[unit, core]: the pull there of all that the unit reads and no other unit there does
    core_of: np.ndarray  # int32[unit]
    order: np.ndarray  # int32[unit]: units by core
    place: np.ndarray  # int32[unit]: where each is in `order`
    first: np.ndarray  # int64[core + 1]: where each core begins in `order`
    total: np.ndarray  # int64[1]: cost of all messages


@inlined
def _only_reader(f, atom, core, but):
    """A unit on a core that reads an atom, other than `but`; there is one."""
    for i in range(f.reader_offset[atom], f.reader_offset[atom + 1]):
        if f.core_of[f.reader[i]] == core and f.reader[i] != but:
            return f.reader[i]
    return but


@inlined
def _read(f, unit, atom, core, sign):
    """A unit more (`sign` -1: less) reads an atom on a core."""
    n = f.n_readers[atom, core] + sign
    f.n_readers[atom, core] = n
    others, pull = n - (sign > 0), sign * f.pull[atom, core]
    if others == 0:
        for at in range(f.cost.shape[0]):
            f.reach[atom, at] += sign * f.cost[at, core]
        if pull:
            for i in range(f.reader_offset[atom], f.reader_offset[atom + 1]):
                f.alone[f.reader[i], core] -= pull
            f.alone[unit, core] += pull
    elif others == 1 and pull:
        f.alone[_only_reader(f, atom, core, unit), core] -= pull


@inlined
def _send(f, atom, at, more):
    """All of an atom's messages to a core cost so much more."""
    f.pull[atom, at] += more
    if f.n_readers[atom, at] == 0:
        for i in range(f.reader_offset[atom], f.reader_offset[atom + 1]):
            f.alone[f.reader[i], at] += more
    elif f.n_readers[atom, at] == 1:
        f.alone[_only_reader(f, atom, at, -1), at] += more


@kernel
def put_units(d, f, core_of):
    """Fill the tables for units on the cores core_of: int32[unit], from tables of zeros."""
    n_cores = f.cost.shape[0]
    for unit in range(len(core_of)):
        f.core_of[unit] = core_of[unit]
        f.first[core_of[unit] + 1] += 1
        for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
            _read(f, unit, f.read_atom[i], core_of[unit], 1)
    for g in range(len(d.group_atom)):
        for at in range(n_cores):
            f.pull[d.group_atom[g], at] += d.group_spikes[g] * f.cost[core_of[d.group_unit[g]], at]
    for core in range(n_cores):
        f.first[core + 1] += f.first[core]
    for unit in range(len(core_of)):
        f.place[unit] = f.first[core_of[unit]]
        f.first[core_of[unit]] += 1
        f.order[f.place[unit]] = unit
        for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
            atom = f.read_atom[i]
            for at in range(n_cores):
                if f.n_readers[atom, at] == (at == core_of[unit]):
                    f.alone[unit, at] += f.pull[atom, at]
    for core in range(n_cores, 0, -1):
        f.first[core] = f.first[core - 1]
    f.first[0] = 0
    f.total[0] = 0
    for g in range(len(d.group_atom)):
        f.total[0] += d.group_spikes[g] * f.reach[d.group_atom[g], core_of[d.group_unit[g]]]


@inlined
def _set_place(f, unit, place):
    f.order[place] = unit
    f.place[unit] = place


@kernel
def _reorder(f, unit, home, core):
    """Bring a unit to its new core in `order`: the edge of each core between is moved by one unit."""
    at, step = f.place[unit], 1 if core > home else -1
    for c in range(home, core, step):
        edge = f.first[c + 1] - 1 if step > 0 else f.first[c]
        if edge != at:
            _set_place(f, f.order[edge], at)
        at = edge
        f.first[c + (step > 0)] -= step
    _set_place(f, unit, at)


@kernel
def _shift(d, f, unit, home, core):
    for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
        _read(f, unit, f.read_atom[i], home, -1)
        _read(f, unit, f.read_atom[i], core, 1)
    f.core_of[unit] = core
    for g in range(d.out_offset[unit], d.out_offset[unit + 1]):
        for at in range(f.cost.shape[0]):
            more = d.group_spikes[g] * (f.cost[core, at] - f.cost[home, at])
            if more:
                _send(f, d.group_atom[g], at, more)


@kernel
def shift(d, f, unit, other, home, core):
    """Bring the tables, not the total, up to date with a move of `unit` to `core`, and of `other` (-1: none) back."""
    _shift(d, f, unit, home, core)
    if other < 0:
        _reorder(f, unit, home, core)
        return
    _shift(d, f, other, core, home)
    at = f.place[unit]
    _set_place(f, unit, f.place[other])
    _set_place(f, other, at)


@inlined
def _reads(f, unit, atom):
    """Whether a unit (-1: none) reads an atom."""
    if unit < 0:
        return False
    low, high = f.read_offset[unit], f.read_offset[unit + 1]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if f.read_atom[middle] < atom:
            low = middle + 1
        else:
            high = middle
    return low < end and f.read_atom[low] == atom


@inlined
def _of_reading(f, unit, other, home, core):
    """What the messages to a unit cost more on another core, from where `other` (-1: none) comes to its own."""
    change = np.int64(0)
    for i in range(f.read_offset[unit], f.read_offset[unit + 1]):
        atom = f.read_atom[i]
        if f.n_readers[atom, home] == 1 and not _reads(f, other, atom):
            change -= f.pull[atom, home]
        if f.n_readers[atom, core] == 0:  # so `other` does not read it
            change += f.pull[atom, core]
    return change


@inlined
def _of_sending(d, f, unit, other, home, core):
    """What the messages from a unit cost more on another core; who reads them may move with it, or the other way."""
    change = np.int64(0)
    for g in range(d.out_offset[unit], d.out_offset[unit + 1]):
        atom, n = d.group_atom[g], d.group_spikes[g]
        change += n * (f.reach[atom, core] - f.reach[atom, home])
        goes, comes = _reads(f, unit, atom), _reads(f, other, atom)
        if goes != comes:
            leaves, joins = (home, core) if goes else (core, home)
            if f.n_readers[atom, leaves] == 1:
                change += n * (f.cost[home, leaves] - f.cost[core, leaves])
            if f.n_readers[atom, joins] == 0:
                change += n * (f.cost[core, joins] - f.cost[home, joins])
    return change


@kernel
def change_of(d, f, unit, other, home, core):
    """What a move of `unit` from `home` to `core`, and of `other` (-1: none) the other way, adds to the cost; exact."""
    change = _of_reading(f, unit, other, home, core) + _of_sending(d, f, unit, other, home, core)
    if other >= 0:
        change += _of_reading(f, other, unit, core, home) + _of_sending(d, f, other, unit, core, home)
    return change


@inlined
def _alone(d, f, unit, home, core):
    """`change_of` a move without an exchange, but for messages of the unit to itself; at a look."""
    change = f.alone[unit, core] - f.alone[unit, home]
    for g in range(d.out_offset[unit], d.out_offset[unit + 1]):
        change += d.group_spikes[g] * (f.reach[d.group_atom[g], core] - f.reach[d.group_atom[g], home])
    return change


@inlined
def _guess(d, f, unit, other, home, core):
    """`change_of` as far as the units have to do with others only; at a look."""
    change = _alone(d, f, unit, home, core)
    return change + _alone(d, f, other, core, home) if other >= 0 else change


@inlined
def _drawn(state, n):
    """A random whole number from 0 to n - 1, n below 2**32."""
    return np.int64(((random_bits(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def _near(d, f, unit, state):
    """The core of a random unit that reads what this one reads or sends, or that sends what it reads; -1 if none."""
    n_read = f.read_offset[unit + 1] - f.read_offset[unit]
    n_sent = d.out_offset[unit + 1] - d.out_offset[unit]
    if n_read + n_sent == 0:
        return -1
    if _drawn(state, 3) == 0 or n_read == 0:
        if n_sent == 0:
            return -1
        atom = d.group_atom[d.out_offset[unit] + _drawn(state, n_sent)]
    else:
        atom = f.read_atom[f.read_offset[unit] + _drawn(state, n_read)]
        first, n = d.atom_offset[atom], d.atom_offset[atom + 1] - d.atom_offset[atom]
        if n > 0 and _drawn(state, 2) == 0:
            return np.int64(f.core_of[d.group_unit[d.atom_group[first + _drawn(state, n)]]])
    first, n = f.reader_offset[atom], f.reader_offset[atom + 1] - f.reader_offset[atom]
    return np.int64(f.core_of[f.reader[first + _drawn(state, n)]]) if n > 0 else -1


@kernel
def _core_for(d, f, unit, home, n_drawn, state):
    """The best for a unit of a few random cores, most of them near what it talks to; -1 if all are its own."""
    core, least = np.int64(-1), np.int64(0)
    for _ in range(n_drawn):
        one = _near(d, f, unit, state) if _drawn(state, 4) > 0 else np.int64(-1)
        if one < 0:
            one = _drawn(state, f.cost.shape[0])
        if one != home:
            more = _alone(d, f, unit, home, one)
            if core < 0 or more < least:
                core, least = one, more
    return core


@kernel
def _draw(d, s, f, n_drawn, state):
    """A move (unit, other unit or -1, core) of a random unit, the best of `n_drawn` for each; unit -1 if none."""
    unit, other = _drawn(state, len(f.core_of)), np.int64(-1)
    home = np.int64(f.core_of[unit])
    core = _core_for(d, f, unit, home, n_drawn, state)
    if core < 0:
        return -1, other, core
    room, n = d.limit[core, NEURONS] - s.used[core, NEURONS], f.first[core + 1] - f.first[core]
    if n == 0 or (room >= d.size[unit] and _drawn(state, 2) > 0):
        return unit, other, core
    least = np.int64(0)
    for _ in range(n_drawn):
        one = np.int64(f.order[f.first[core] + _drawn(state, n)])
        more = d.size[unit] - d.size[one]
        if more <= room and -more <= d.limit[home, NEURONS] - s.used[home, NEURONS]:
            back = _alone(d, f, one, core, home)
            if other < 0 or back < least:
                other, least = one, back
    return (unit if other >= 0 else -1), other, core


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
def anneal(d, s, f, most_time, temperature, n_moves, n_drawn, keep_all, state, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), in place; what exceeds limits never grows.

    most_time: limit of the sum of the step times, in cycles, 0 for none; n_drawn: cores, and units there, of which
    the best is tried; keep_all: no core may be left empty; state: uint64[1]. best: int32[unit] takes the cores of the
    moment with the least excess and cost, if that is better than the start; returns both.
    """
    over = settled(d, s, most_time)
    least, lowest = over, f.total[0]
    for _ in range(n_moves):
        unit, other, core = _draw(d, s, f, n_drawn, state)
        if unit < 0 or (keep_all and other < 0 and s.n_units[s.core_of[unit]] == 1):
            continue
        most = -temperature * np.log(1.0 - uniform(state)) if temperature > 0.0 else 0.0
        home = np.int64(s.core_of[unit])
        if over == 0 and _guess(d, f, unit, other, home, core) > most:
            continue
        change = change_of(d, f, unit, other, home, core)
        is_taken = change <= most
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
        unit, other, core = _draw(d, s, f, 1, state)
        if unit >= 0:
            change = change_of(d, f, unit, other, np.int64(s.core_of[unit]), core)
            if change > 0:
                total += change
                n += 1
    return total / max(n, 1)
