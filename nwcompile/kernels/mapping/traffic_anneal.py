"""Hot loops that minimize traffic: clusters of neurons move between cores at known sites (Numba).

The cost of a message depends only on its source and destination core: the links of its route, plus a constant. Tables
give the change by a move before it is made. For every source class and core, `inbound_cost` is the cost of the class's
messages if the core reads it, and `outbound_cost` the cost of a spike from there to all readers. For every cluster and
core, `exclusive_cost` is the inbound cost that the cluster alone causes there. These tables alone reject most moves.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.ir.resources import NEURONS
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.mapping.cluster_state import EXCESS, TIME
from nwcompile.kernels.mapping.moves import refresh_limits, refresh_totals, relocate
from nwcompile.kernels.mapping.random import largest_rise, random_below_scaled


class Readers(NamedTuple):
    """Clusters and the source classes that they read, each pair listed once."""

    class_offset: np.ndarray  # int64[cluster + 1]
    source_class: np.ndarray  # int32[...]: classes that a cluster reads, ascending
    cluster_offset: np.ndarray  # int64[class + 1]
    cluster: np.ndarray  # int32[...]: clusters that read a class


class MessageCosts(NamedTuple):
    """Costs of messages for the current cores of the clusters."""

    cost: np.ndarray  # int64[core, core]: cost of one message from core to core
    n_readers: np.ndarray  # int32[class, core]: clusters of the core that read the class
    inbound_cost: np.ndarray  # int64[class, core]: cost of all the class's messages to that core
    outbound_cost: np.ndarray  # int64[class, core]: cost of one spike from that core to all cores that read the class
    exclusive_cost: np.ndarray  # int64[cluster, core]: inbound cost of all that only this cluster would read there
    total: np.ndarray  # int64[1]: cost of all messages


class Seats(NamedTuple):
    """Clusters sorted by core."""

    core_of: np.ndarray  # int32[cluster]
    order: np.ndarray  # int32[cluster]: clusters by core
    place: np.ndarray  # int32[cluster]: index of each cluster in `order`
    first: np.ndarray  # int64[core + 1]: start of each core in `order`


class Flow(NamedTuple):
    """Search state for minimal traffic, besides the state of the cores."""

    readers: Readers
    costs: MessageCosts
    seats: Seats


@inlined
def _only_reader(readers, core_of, source_class, core, but):
    """A cluster on a core that reads a class, other than `but`; the caller ensures that there is one."""
    for i in range(readers.cluster_offset[source_class], readers.cluster_offset[source_class + 1]):
        if core_of[readers.cluster[i]] == core and readers.cluster[i] != but:
            return np.int64(readers.cluster[i])
    return np.int64(but)


@inlined
def _add_reader(readers, costs, core_of, cluster, source_class, core, sign):
    """Add a reader of a class on a core, or remove one (`sign` -1)."""
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
    """Add `more` to the cost of all of a class's messages to a core."""
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
def _reorder_seats(seats, cluster, home, core):
    """Move a cluster to its new core in `order`, by shifting one boundary cluster per core in between."""
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
def _shift_cluster(sends, readers, costs, core_of, cluster, home, core):
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
    """Update the tables for a move of `cluster` to `core`, and of `other` (-1: none) back, except the total."""
    _shift_cluster(sends, readers, costs, seats.core_of, cluster, home, core)
    if other < 0:
        _reorder_seats(seats, cluster, home, core)
        return
    _shift_cluster(sends, readers, costs, seats.core_of, other, core, home)
    at = np.int64(seats.place[cluster])
    _set_place(seats, cluster, np.int64(seats.place[other]))
    _set_place(seats, other, at)


@inlined
def _reads_class(readers, cluster, source_class):
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
def _inbound_change(readers, costs, cluster, other, home, core):
    """Change of the cost of messages to a cluster that moves to `core`, while `other` (-1: none) moves to `home`."""
    change = np.int64(0)
    for i in range(readers.class_offset[cluster], readers.class_offset[cluster + 1]):
        source_class = readers.source_class[i]
        if costs.n_readers[source_class, home] == 1 and not _reads_class(readers, other, source_class):
            change -= costs.inbound_cost[source_class, home]
        if costs.n_readers[source_class, core] == 0:  # then `other` does not read it either
            change += costs.inbound_cost[source_class, core]
    return change


@inlined
def _outbound_change(sends, readers, costs, cluster, other, home, core):
    """Change of the cost of messages from a cluster that moves; one of its readers may move with it, or against it."""
    change = np.int64(0)
    for g in range(sends.group_offset[cluster], sends.group_offset[cluster + 1]):
        source_class = sends.group_class[g]
        n = sends.group_spikes[g]
        change += n * (costs.outbound_cost[source_class, core] - costs.outbound_cost[source_class, home])
        goes = _reads_class(readers, cluster, source_class)
        comes = _reads_class(readers, other, source_class)
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
    """Change of the cost if `cluster` moves from `home` to `core`, and `other` (-1: none) the other way."""
    change = _inbound_change(readers, costs, cluster, other, home, core)
    change += _outbound_change(sends, readers, costs, cluster, other, home, core)
    if other >= 0:
        change += _inbound_change(readers, costs, other, cluster, core, home)
        change += _outbound_change(sends, readers, costs, other, cluster, core, home)
    return change


@inlined
def _exclusive_change(sends, costs, cluster, home, core):
    """Fast `change_of` for a move without exchange, except for messages of the cluster to itself."""
    change = costs.exclusive_cost[cluster, core] - costs.exclusive_cost[cluster, home]
    for g in range(sends.group_offset[cluster], sends.group_offset[cluster + 1]):
        source_class = sends.group_class[g]
        more = costs.outbound_cost[source_class, core] - costs.outbound_cost[source_class, home]
        change += sends.group_spikes[g] * more
    return change


@inlined
def _estimate_change(sends, costs, cluster, other, home, core):
    """Fast `change_of` that ignores messages of the two clusters to themselves and to each other."""
    change = _exclusive_change(sends, costs, cluster, home, core)
    return change + _exclusive_change(sends, costs, other, core, home) if other >= 0 else change


@kernel
def _pick_partner_core(sends, classes, readers, core_of, cluster, state):
    """The core of a random cluster that reads what this cluster reads or sends, or sends what it reads; -1 if none."""
    first_read = readers.class_offset[cluster]
    first_sent = sends.group_offset[cluster]
    n_read = readers.class_offset[cluster + 1] - first_read
    n_sent = sends.group_offset[cluster + 1] - first_sent
    if n_read + n_sent == 0:
        return np.int64(-1)
    if random_below_scaled(state, 3) == 0 or n_read == 0:
        if n_sent == 0:
            return np.int64(-1)
        source_class = sends.group_class[first_sent + random_below_scaled(state, n_sent)]
    else:
        source_class = readers.source_class[first_read + random_below_scaled(state, n_read)]
        first = classes.group_offset[source_class]
        n = classes.group_offset[source_class + 1] - first
        if n > 0 and random_below_scaled(state, 2) == 0:
            return np.int64(core_of[sends.group_cluster[classes.group[first + random_below_scaled(state, n)]]])
    first = readers.cluster_offset[source_class]
    n = readers.cluster_offset[source_class + 1] - first
    return np.int64(core_of[readers.cluster[first + random_below_scaled(state, n)]]) if n > 0 else np.int64(-1)


@kernel
def _pick_core(sends, classes, readers, costs, core_of, cluster, home, n_drawn, state):
    """The best of a few random cores for a cluster, most of them near its partners; -1 if all are its own."""
    best = np.int64(-1)
    least = np.int64(0)
    for _ in range(n_drawn):
        core = np.int64(-1)
        if random_below_scaled(state, 4) > 0:
            core = _pick_partner_core(sends, classes, readers, core_of, cluster, state)
        if core < 0:
            core = random_below_scaled(state, costs.cost.shape[0])
        if core != home:
            more = _exclusive_change(sends, costs, cluster, home, core)
            if best < 0 or more < least:
                best = core
                least = more
    return best


@kernel
def _propose_move(sends, classes, rules, used, readers, costs, seats, attempt, n_drawn, state):
    """Set `attempt` to the best of `n_drawn` moves of a random cluster; its cluster is -1 if there is none."""
    cluster = random_below_scaled(state, len(seats.core_of))
    home = np.int64(seats.core_of[cluster])
    core = _pick_core(sends, classes, readers, costs, seats.core_of, cluster, home, n_drawn, state)
    attempt.cluster[0] = cluster if core >= 0 else -1
    attempt.cluster[1] = -1
    attempt.to[0] = core
    attempt.to[1] = home
    if core < 0:
        return
    room = rules.limit[core, NEURONS] - used[core, NEURONS]
    n = seats.first[core + 1] - seats.first[core]
    if n == 0 or (room >= sends.n_neurons[cluster] and random_below_scaled(state, 2) > 0):
        return
    room_at_home = rules.limit[home, NEURONS] - used[home, NEURONS]
    least = np.int64(0)
    for _ in range(n_drawn):
        other = np.int64(seats.order[seats.first[core] + random_below_scaled(state, n)])
        more = sends.n_neurons[cluster] - sends.n_neurons[other]
        if more <= room and -more <= room_at_home:
            back = _exclusive_change(sends, costs, other, core, home)
            if attempt.cluster[1] < 0 or back < least:
                attempt.cluster[1] = other
                least = back
    if attempt.cluster[1] < 0:
        attempt.cluster[0] = -1


@kernel
def refresh_excess(rules, held, busy, max_time):
    """Update the totals; returns the excess, including the time above `max_time` (0: no limit)."""
    if max_time == 0:
        refresh_limits(rules, held, busy)
        return busy.total[EXCESS]
    refresh_totals(rules, held, busy)
    late = busy.total[TIME] - max_time
    return busy.total[EXCESS] + ((late << 20) // max_time + 1 if late > 0 else 0)


@kernel
def minimize_hops(demand, cores, flow, max_time, temperature, n_moves, n_drawn, keep_all, state, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), in place; the excess over limits never grows.

    demand, cores, flow: Demand, CoreState, Flow; max_time: limit of the sum of the step times, in cycles, 0: none;
    n_drawn: candidate cores, and candidate clusters there; keep_all: no core may become empty; state: uint64[1].
    best: int32[cluster] is set to the cores of least excess and cost, if better than the start; returns both.
    """
    reads, rows, sends, classes, rules = demand
    held, busy, attempt = cores
    readers, costs, seats = flow
    excess = refresh_excess(rules, held, busy, max_time)
    least_excess = excess
    least_cost = costs.total[0]
    for _ in range(n_moves):
        _propose_move(sends, classes, rules, held.used, readers, costs, seats, attempt, n_drawn, state)
        cluster = attempt.cluster[0]
        other = attempt.cluster[1]
        core = attempt.to[0]
        home = attempt.to[1]
        if cluster < 0 or (keep_all and other < 0 and held.n_clusters[home] == 1):
            continue
        allowed = largest_rise(temperature, state)
        if excess == 0 and _estimate_change(sends, costs, cluster, other, home, core) > allowed:
            continue
        change = change_of(sends, readers, costs, cluster, other, home, core)
        is_allowed = change <= allowed
        if excess == 0 and not is_allowed:
            continue
        relocate(reads, rows, sends, classes, rules, held, busy, attempt.cluster, attempt.to)
        new_excess = refresh_excess(rules, held, busy, max_time)
        if new_excess > excess or (new_excess == excess and not is_allowed):
            attempt.to[0] = home
            attempt.to[1] = core
            relocate(reads, rows, sends, classes, rules, held, busy, attempt.cluster, attempt.to)
            refresh_excess(rules, held, busy, max_time)
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
    """Set changes: int64[move] to the change of the cost by random moves, which are not made; 0 if none was found.

    used: int64[core, resource]; state: uint64[1].
    """
    for i in range(len(changes)):
        _propose_move(sends, classes, rules, used, readers, costs, seats, attempt, 1, state)
        changes[i] = 0
        if attempt.cluster[0] >= 0:
            changes[i] = change_of(
                sends, readers, costs, attempt.cluster[0], attempt.cluster[1], attempt.to[1], attempt.to[0]
            )
