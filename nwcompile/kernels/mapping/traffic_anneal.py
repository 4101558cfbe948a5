"""Hot loops that make traffic least: clusters of neurons move between cores whose sites are known (Numba).

What a message costs depends on where it leaves and arrives only: the links of its route, and something for the message
itself. The change by a move is looked up before anything is moved: for every source class and core it is known what the
class's messages would cost if the core read it (`inbound_cost`), and what a spike from there costs on its way to all
who do (`outbound_cost`); and for every cluster and core, what it would bring there of both (`exclusive_cost`). Most
moves are turned down by that look alone.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.ir.resources import NEURONS
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.mapping.cluster_state import EXCESS, TIME
from nwcompile.kernels.mapping.moves import refresh_limits, refresh_totals, relocate
from nwcompile.kernels.mapping.random import largest_rise, scaled_below


class Readers(NamedTuple):
    """Who reads which source class; each is named once."""

    class_offset: np.ndarray  # int64[cluster + 1]
    source_class: np.ndarray  # int32[...]: the classes that a cluster reads, in order
    cluster_offset: np.ndarray  # int64[class + 1]
    cluster: np.ndarray  # int32[...]: the clusters that read a class


class MessageCosts(NamedTuple):
    """What messages cost and would cost, clusters being where they are."""

    cost: np.ndarray  # int64[core, core]: of a message from a core to a core
    n_readers: np.ndarray  # int32[class, core]: clusters there that read the class
    inbound_cost: np.ndarray  # int64[class, core]: of all the class's messages to that core
    outbound_cost: np.ndarray  # int64[class, core]: of one spike from that core to all cores that read the class
    exclusive_cost: np.ndarray  # int64[cluster, core]: inbound, of all that the cluster reads and no other there does
    total: np.ndarray  # int64[1]: of all messages


class Seats(NamedTuple):
    """The clusters, core by core."""

    core_of: np.ndarray  # int32[cluster]
    order: np.ndarray  # int32[cluster]: clusters by core
    place: np.ndarray  # int32[cluster]: where each is in `order`
    first: np.ndarray  # int64[core + 1]: where each core begins in `order`


class Flow(NamedTuple):
    """All that the search for little traffic keeps beside the state of the cores."""

    readers: Readers
    costs: MessageCosts
    seats: Seats


@inlined
def _only_reader(readers, core_of, source_class, core, but):
    """A cluster on a core that reads a class, other than `but`; there is one."""
    for i in range(readers.cluster_offset[source_class], readers.cluster_offset[source_class + 1]):
        if core_of[readers.cluster[i]] == core and readers.cluster[i] != but:
            return np.int64(readers.cluster[i])
    return np.int64(but)


@inlined
def _add_reader(readers, costs, core_of, cluster, source_class, core, sign):
    """A cluster more (`sign` -1: less) reads a class on a core."""
    n = costs.n_readers[source_class, core] + sign
    costs.n_readers[source_class, core] = n
    n_others = n - 1 if sign > 0 else n
    inbound = sign * costs.inbound_cost[source_class, core]
    if n_others == 0:
        for at in range(costs.cost.shape[0]):
            costs.outbound_cost[source_class, at] += sign * costs.cost[at, core]
        if inbound:
            for i in range(readers.cluster_offset[source_class], readers.cluster_offset[source_class + 1]):
                costs.exclusive_cost[readers.cluster[i], core] -= inbound
            costs.exclusive_cost[cluster, core] += inbound
    elif n_others == 1 and inbound:
        costs.exclusive_cost[_only_reader(readers, core_of, source_class, core, cluster), core] -= inbound


@inlined
def _add_inbound(readers, costs, core_of, source_class, at, more):
    """All of a class's messages to a core cost so much more."""
    costs.inbound_cost[source_class, at] += more
    if costs.n_readers[source_class, at] == 0:
        for i in range(readers.cluster_offset[source_class], readers.cluster_offset[source_class + 1]):
            costs.exclusive_cost[readers.cluster[i], at] += more
    elif costs.n_readers[source_class, at] == 1:
        costs.exclusive_cost[_only_reader(readers, core_of, source_class, at, -1), at] += more


@kernel
def put_clusters(sends, readers, costs, seats, core_of):
    """Fill the tables for clusters on the cores core_of: int32[cluster], from tables of zeros."""
    n_cores = costs.cost.shape[0]
    for cluster in range(len(core_of)):
        core = np.int64(core_of[cluster])
        seats.core_of[cluster] = core
        seats.first[core + 1] += 1
        for i in range(readers.class_offset[cluster], readers.class_offset[cluster + 1]):
            _add_reader(readers, costs, seats.core_of, cluster, readers.source_class[i], core, 1)
    for g in range(len(sends.group_class)):
        home = core_of[sends.group_cluster[g]]
        for at in range(n_cores):
            costs.inbound_cost[sends.group_class[g], at] += sends.group_spikes[g] * costs.cost[home, at]
    for core in range(n_cores):
        seats.first[core + 1] += seats.first[core]
    for cluster in range(len(core_of)):
        home = core_of[cluster]
        seats.place[cluster] = seats.first[home]
        seats.first[home] += 1
        seats.order[seats.place[cluster]] = cluster
        for i in range(readers.class_offset[cluster], readers.class_offset[cluster + 1]):
            source_class = readers.source_class[i]
            for at in range(n_cores):
                if costs.n_readers[source_class, at] == (at == home):
                    costs.exclusive_cost[cluster, at] += costs.inbound_cost[source_class, at]
    for core in range(n_cores, 0, -1):
        seats.first[core] = seats.first[core - 1]
    seats.first[0] = 0
    costs.total[0] = 0
    for g in range(len(sends.group_class)):
        home = core_of[sends.group_cluster[g]]
        costs.total[0] += sends.group_spikes[g] * costs.outbound_cost[sends.group_class[g], home]


@inlined
def _set_place(seats, cluster, place):
    seats.order[place] = cluster
    seats.place[cluster] = place


@kernel
def _reorder(seats, cluster, home, core):
    """Bring a cluster to its new core in `order`: the edge of each core between is moved by one cluster."""
    at = np.int64(seats.place[cluster])
    step = 1 if core > home else -1
    for between in range(home, core, step):
        edge = seats.first[between + 1] - 1 if step > 0 else seats.first[between]
        if edge != at:
            _set_place(seats, np.int64(seats.order[edge]), at)
        at = edge
        seats.first[between + (step > 0)] -= step
    _set_place(seats, cluster, at)


@kernel
def _shift(sends, readers, costs, core_of, cluster, home, core):
    for i in range(readers.class_offset[cluster], readers.class_offset[cluster + 1]):
        for sign in (-1, 1):
            at = home if sign < 0 else core
            _add_reader(readers, costs, core_of, cluster, readers.source_class[i], at, sign)
    core_of[cluster] = core
    for g in range(sends.group_offset[cluster], sends.group_offset[cluster + 1]):
        for at in range(costs.cost.shape[0]):
            more = sends.group_spikes[g] * (costs.cost[core, at] - costs.cost[home, at])
            if more:
                _add_inbound(readers, costs, core_of, sends.group_class[g], at, more)


@kernel
def shift(sends, readers, costs, seats, cluster, other, home, core):
    """Bring the tables up to date with a move of `cluster` to `core`, and of `other` (-1: none) back; not the total."""
    _shift(sends, readers, costs, seats.core_of, cluster, home, core)
    if other < 0:
        _reorder(seats, cluster, home, core)
        return
    _shift(sends, readers, costs, seats.core_of, other, core, home)
    at = np.int64(seats.place[cluster])
    _set_place(seats, cluster, np.int64(seats.place[other]))
    _set_place(seats, other, at)


@inlined
def _reads(readers, cluster, source_class):
    """Whether a cluster (-1: none) reads a class."""
    if cluster < 0:
        return False
    low = readers.class_offset[cluster]
    end = readers.class_offset[cluster + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if readers.source_class[middle] < source_class:
            low = middle + 1
        else:
            high = middle
    return low < end and readers.source_class[low] == source_class


@inlined
def _of_reading(readers, costs, cluster, other, home, core):
    """What the messages to a cluster cost more on another core, from where `other` (-1: none) comes to its own."""
    change = np.int64(0)
    for i in range(readers.class_offset[cluster], readers.class_offset[cluster + 1]):
        source_class = readers.source_class[i]
        if costs.n_readers[source_class, home] == 1 and not _reads(readers, other, source_class):
            change -= costs.inbound_cost[source_class, home]
        if costs.n_readers[source_class, core] == 0:  # so `other` does not read it
            change += costs.inbound_cost[source_class, core]
    return change


@inlined
def _of_sending(sends, readers, costs, cluster, other, home, core):
    """What the messages from a cluster cost more on another core; a reader may move with it, or the other way."""
    change = np.int64(0)
    for g in range(sends.group_offset[cluster], sends.group_offset[cluster + 1]):
        source_class = sends.group_class[g]
        n = sends.group_spikes[g]
        change += n * (costs.outbound_cost[source_class, core] - costs.outbound_cost[source_class, home])
        goes = _reads(readers, cluster, source_class)
        comes = _reads(readers, other, source_class)
        if goes != comes:
            leaves = home if goes else core
            joins = core if goes else home
            if costs.n_readers[source_class, leaves] == 1:
                change += n * (costs.cost[home, leaves] - costs.cost[core, leaves])
            if costs.n_readers[source_class, joins] == 0:
                change += n * (costs.cost[core, joins] - costs.cost[home, joins])
    return change


@kernel
def change_of(sends, readers, costs, cluster, other, home, core):
    """What a move of `cluster` from `home` to `core`, and of `other` (-1: none) the other way, adds to the cost."""
    change = _of_reading(readers, costs, cluster, other, home, core)
    change += _of_sending(sends, readers, costs, cluster, other, home, core)
    if other >= 0:
        change += _of_reading(readers, costs, other, cluster, core, home)
        change += _of_sending(sends, readers, costs, other, cluster, core, home)
    return change


@inlined
def _exclusive_change(sends, costs, cluster, home, core):
    """`change_of` a move without an exchange, but for messages of the cluster to itself; at a look."""
    change = costs.exclusive_cost[cluster, core] - costs.exclusive_cost[cluster, home]
    for g in range(sends.group_offset[cluster], sends.group_offset[cluster + 1]):
        source_class = sends.group_class[g]
        more = costs.outbound_cost[source_class, core] - costs.outbound_cost[source_class, home]
        change += sends.group_spikes[g] * more
    return change


@inlined
def _guess(sends, costs, cluster, other, home, core):
    """`change_of` as far as the clusters have to do with others only; at a look."""
    change = _exclusive_change(sends, costs, cluster, home, core)
    return change + _exclusive_change(sends, costs, other, core, home) if other >= 0 else change


@kernel
def _near(sends, classes, readers, core_of, cluster, state):
    """The core of a random cluster that reads what this one reads or sends, or that sends what it reads; -1 if none."""
    first_read = readers.class_offset[cluster]
    first_sent = sends.group_offset[cluster]
    n_read = readers.class_offset[cluster + 1] - first_read
    n_sent = sends.group_offset[cluster + 1] - first_sent
    if n_read + n_sent == 0:
        return np.int64(-1)
    if scaled_below(state, 3) == 0 or n_read == 0:
        if n_sent == 0:
            return np.int64(-1)
        source_class = sends.group_class[first_sent + scaled_below(state, n_sent)]
    else:
        source_class = readers.source_class[first_read + scaled_below(state, n_read)]
        first = classes.group_offset[source_class]
        n = classes.group_offset[source_class + 1] - first
        if n > 0 and scaled_below(state, 2) == 0:
            return np.int64(core_of[sends.group_cluster[classes.group[first + scaled_below(state, n)]]])
    first = readers.cluster_offset[source_class]
    n = readers.cluster_offset[source_class + 1] - first
    return np.int64(core_of[readers.cluster[first + scaled_below(state, n)]]) if n > 0 else np.int64(-1)


@kernel
def _core_for(sends, classes, readers, costs, core_of, cluster, home, n_drawn, state):
    """The best for a cluster of a few random cores, most of them near what it talks to; -1 if all are its own."""
    best = np.int64(-1)
    least = np.int64(0)
    for _ in range(n_drawn):
        core = np.int64(-1)
        if scaled_below(state, 4) > 0:
            core = _near(sends, classes, readers, core_of, cluster, state)
        if core < 0:
            core = scaled_below(state, costs.cost.shape[0])
        if core != home:
            more = _exclusive_change(sends, costs, cluster, home, core)
            if best < 0 or more < least:
                best = core
                least = more
    return best


@kernel
def _propose(sends, classes, rules, used, readers, costs, seats, attempt, n_drawn, state):
    """Set `attempt` to a move of a random cluster, the best of `n_drawn`; its cluster is -1 if there is none."""
    cluster = scaled_below(state, len(seats.core_of))
    home = np.int64(seats.core_of[cluster])
    core = _core_for(sends, classes, readers, costs, seats.core_of, cluster, home, n_drawn, state)
    attempt.cluster[0] = cluster if core >= 0 else -1
    attempt.cluster[1] = -1
    attempt.to[0] = core
    attempt.to[1] = home
    if core < 0:
        return
    room = rules.limit[core, NEURONS] - used[core, NEURONS]
    n = seats.first[core + 1] - seats.first[core]
    if n == 0 or (room >= sends.n_neurons[cluster] and scaled_below(state, 2) > 0):
        return
    room_at_home = rules.limit[home, NEURONS] - used[home, NEURONS]
    least = np.int64(0)
    for _ in range(n_drawn):
        other = np.int64(seats.order[seats.first[core] + scaled_below(state, n)])
        more = sends.n_neurons[cluster] - sends.n_neurons[other]
        if more <= room and -more <= room_at_home:
            back = _exclusive_change(sends, costs, other, core, home)
            if attempt.cluster[1] < 0 or back < least:
                attempt.cluster[1] = other
                least = back
    if attempt.cluster[1] < 0:
        attempt.cluster[0] = -1


@kernel
def refreshed_excess(rules, held, busy, max_time):
    """Bring the totals up to date; returns the excess, that of the time above `max_time` (0: no limit) included."""
    if max_time == 0:
        refresh_limits(rules, held, busy)
        return busy.total[EXCESS]
    refresh_totals(rules, held, busy)
    late = busy.total[TIME] - max_time
    return busy.total[EXCESS] + ((late << 20) // max_time + 1 if late > 0 else 0)


@kernel
def minimize_hops(demand, cores, flow, max_time, temperature, n_moves, n_drawn, keep_all, state, best):
    """Try `n_moves` random moves at one temperature (Metropolis's rule), in place; what exceeds limits never grows.

    demand, cores, flow: Demand, CoreState, Flow; max_time: limit of the sum of the step times, in cycles, 0 for none;
    n_drawn: cores, and clusters there, of which the best is tried; keep_all: no core may be left empty; state:
    uint64[1]. best: int32[cluster] takes the cores of the moment with the least excess and cost, if that is better than
    the start; returns both.
    """
    reads, rows, sends, classes, rules = demand
    held, busy, attempt = cores
    readers, costs, seats = flow
    excess = refreshed_excess(rules, held, busy, max_time)
    least_excess = excess
    least_cost = costs.total[0]
    for _ in range(n_moves):
        _propose(sends, classes, rules, held.used, readers, costs, seats, attempt, n_drawn, state)
        cluster = attempt.cluster[0]
        other = attempt.cluster[1]
        core = attempt.to[0]
        home = attempt.to[1]
        if cluster < 0 or (keep_all and other < 0 and held.n_clusters[home] == 1):
            continue
        allowed = largest_rise(temperature, state)
        if excess == 0 and _guess(sends, costs, cluster, other, home, core) > allowed:
            continue
        change = change_of(sends, readers, costs, cluster, other, home, core)
        is_allowed = change <= allowed
        if excess == 0 and not is_allowed:
            continue
        relocate(reads, rows, sends, classes, rules, held, busy, attempt.cluster, attempt.to)
        new_excess = refreshed_excess(rules, held, busy, max_time)
        if new_excess > excess or (new_excess == excess and not is_allowed):
            attempt.to[0] = home
            attempt.to[1] = core
            relocate(reads, rows, sends, classes, rules, held, busy, attempt.cluster, attempt.to)
            refreshed_excess(rules, held, busy, max_time)
            continue
        excess = new_excess
        shift(sends, readers, costs, seats, cluster, other, home, core)
        costs.total[0] += change
        if excess < least_excess or (excess == least_excess and costs.total[0] < least_cost):
            least_excess = excess
            least_cost = costs.total[0]
            for i in range(len(best)):
                best[i] = held.core_of[i]
    return least_excess, least_cost


@kernel
def sample_changes(sends, classes, rules, used, readers, costs, seats, attempt, state, changes):
    """Set changes: int64[move] to what random moves, none of them made, would add to the cost; 0 where none was found.

    used: int64[core, resource]; state: uint64[1].
    """
    for i in range(len(changes)):
        _propose(sends, classes, rules, used, readers, costs, seats, attempt, 1, state)
        changes[i] = 0
        if attempt.cluster[0] >= 0:
            changes[i] = change_of(
                sends, readers, costs, attempt.cluster[0], attempt.cluster[1], attempt.to[1], attempt.to[0]
            )
