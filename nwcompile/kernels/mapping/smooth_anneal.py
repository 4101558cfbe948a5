"""Annealing of clusters of neurons by a smooth step time (Numba).

The largest load of a step ignores all smaller loads, so most moves away from busy cores do not change it. Here a step
takes the p-norm of its loads: slightly more than the largest, and falling with every load. Its derivative is the price
of a core's load. The norms are updated between calls.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.ir.resources import NEURONS
from nwcompile.kernels.jit import kernel, part, spliced
from nwcompile.kernels.mapping.cluster_state import EXCESS, MESSAGE_OUT, N_USED, TIME
from nwcompile.kernels.mapping.moves import cluster_on, cost, refresh_limits, refresh_totals, relocate
from nwcompile.kernels.mapping.random import is_taken, random_below

SQUARINGS = 3  # A norm takes this many squarings, p = 8, or one more at low temperature.


class Smooth(NamedTuple):
    """The norms of the steps, and the contribution of each column to the smooth time."""

    norm: np.ndarray  # float64[step]: p-norm of the loads, at least one cycle
    inverse: np.ndarray  # float64[step]: 1 / norm
    value: np.ndarray  # float64[column]: contribution of the column
    saved: np.ndarray  # float64[column]: contributions of the columns in `changed` before a move
    changed: np.ndarray  # int64[column]: columns that a move may have changed


class Readers(NamedTuple):
    """Clusters that read each source class, each listed once per class."""

    offset: np.ndarray  # int64[class + 1]
    cluster: np.ndarray  # int32[...]


@spliced
def _raise_to_norm(x, is_steep):
    for _ in range(SQUARINGS):
        x *= x
    return x * x if is_steep else x


@kernel
def column_cost(load, column, norm, inverse, is_steep):
    """Contribution of a column of load: int64[column, step] to the smooth time, linearized at the norms."""
    total = 0.0
    for h in range(load.shape[1]):
        total += _raise_to_norm(load[column, h] * inverse[h], is_steep) * norm[h]
    return total / (2 << SQUARINGS if is_steep else 1 << SQUARINGS)


@kernel
def take_norms(rules, busy, smooth, is_steep):
    """Set the norms of `smooth` to those of the current loads and the shortest step."""
    min_work = rules.min_work[busy.total[N_USED]]
    n_columns, n_steps = busy.load.shape
    for h in range(n_steps):
        top = max(1.0, float(max(busy.top[h], min_work)))
        total = _raise_to_norm(min_work / top, is_steep)
        for column in range(n_columns):
            total += _raise_to_norm(busy.load[column, h] / top, is_steep)
        for _ in range(SQUARINGS + is_steep):
            total = np.sqrt(total)
        smooth.norm[h] = max(1.0, top * total)
        smooth.inverse[h] = 1.0 / smooth.norm[h]


@part
def _propose_move(reads, rows, rules, core_of, attempt, readers, state):
    """Set `attempt` to a random move: to any core of the region, or to a core with readers of the cluster's sources.

    Its cluster is -1 if none was found.
    """
    cluster = random_below(state, len(core_of))
    home = np.int64(core_of[cluster])
    first = rules.region[home, 0]
    n_inside = rules.region[home, 1]
    first_entry = reads.row_offset[cluster]
    n_entries = reads.row_offset[cluster + 1] - first_entry
    if n_entries > 0 and random_below(state, 2) == 0:
        source_class = rows.source_class[reads.row[first_entry + random_below(state, n_entries)]]
        at = readers.offset[source_class]
        core = np.int64(core_of[readers.cluster[at + random_below(state, readers.offset[source_class + 1] - at)]])
    else:
        core = first + random_below(state, n_inside)
    attempt.cluster[0] = cluster
    attempt.cluster[1] = -1
    attempt.to[0] = core
    attempt.to[1] = home
    if core == home or not first <= core < first + n_inside:
        attempt.cluster[0] = -1
    elif random_below(state, 2) == 0:
        attempt.cluster[1] = cluster_on(core_of, len(rules.region), state, core)


@part
def _has_room(sends, rules, used, attempt):
    """Whether both cores of a move have room for their neurons after it."""
    n = sends.n_neurons[attempt.cluster[0]]
    if attempt.cluster[1] >= 0:
        n -= sends.n_neurons[attempt.cluster[1]]
    core = attempt.to[0]
    home = attempt.to[1]
    has_room = used[core, NEURONS] + n <= rules.limit[core, NEURONS]
    return has_room and used[home, NEURONS] - n <= rules.limit[home, NEURONS]


@part
def _take_changed(rules, busy, n_cores, attempt, changed):
    """Set changed: int64[column] to the touched columns that a move may have changed, and return their number."""
    n = 0
    for i in range(busy.touched[-1]):
        core = busy.touched[i] % n_cores
        if rules.cycles[MESSAGE_OUT] > 0 or core == attempt.to[0] or core == attempt.to[1]:
            changed[n] = busy.touched[i]
            n += 1
    return n


@kernel
def anneal_smoothly(demand, cores, weight, readers, smooth, is_steep, temperature, n_moves, keep_all, state):
    """Try `n_moves` random moves at one temperature (Metropolis rule), limits first, in place.

    demand, cores: Demand and CoreState. Loads count by the smooth time, all else as in `moves.cost` with weight:
    Objective. The excess over limits never grows. keep_all: no core may become empty; state: uint64[1]. Returns the
    number of moves made; the totals are exact afterwards.
    """
    reads, rows, sends, classes, rules = demand
    held, busy, attempt = cores
    n_made = 0
    n_columns, n_steps = busy.load.shape
    for column in range(n_columns):
        smooth.value[column] = column_cost(busy.load, column, smooth.norm, smooth.inverse, is_steep)
    for _ in range(n_moves):
        _propose_move(reads, rows, rules, held.core_of, attempt, readers, state)
        home = attempt.to[1]
        if attempt.cluster[0] < 0 or (keep_all and attempt.cluster[1] < 0 and held.n_clusters[home] == 1):
            continue
        excess = busy.total[EXCESS]
        if excess == 0 and not _has_room(sends, rules, held.used, attempt):
            continue
        time = busy.total[TIME]
        n_used = busy.total[N_USED]
        before = cost(busy.total, weight)
        relocate(reads, rows, sends, classes, rules, held, busy, attempt.cluster, attempt.to)
        n_changed = _take_changed(rules, busy, len(held.n_clusters), attempt, smooth.changed)
        refresh_limits(rules, held, busy)
        if busy.total[EXCESS] <= excess:
            change = 0.0
            for i in range(n_changed):
                column = smooth.changed[i]
                smooth.saved[i] = smooth.value[column]
                smooth.value[column] = column_cost(busy.load, column, smooth.norm, smooth.inverse, is_steep)
                change += smooth.value[column] - smooth.saved[i]
            barriers = rules.barrier[busy.total[N_USED]] - rules.barrier[n_used]
            busy.total[TIME] = time + np.int64(np.floor(change + 0.5)) + n_steps * barriers
            rise = cost(busy.total, weight) - before
            accept = busy.total[EXCESS] < excess or rise <= 0
            if not accept and temperature > 0.0:
                accept = is_taken(rise, temperature, state)
            if accept:
                n_made += 1
                continue
            for i in range(n_changed):
                smooth.value[smooth.changed[i]] = smooth.saved[i]
        attempt.to[1] = attempt.to[0]
        attempt.to[0] = home
        relocate(reads, rows, sends, classes, rules, held, busy, attempt.cluster, attempt.to)
        refresh_limits(rules, held, busy)
        busy.total[TIME] = time
    for column in range(n_columns):
        busy.touched[column] = column
        busy.is_touched[column] = True
    busy.touched[-1] = n_columns
    refresh_totals(rules, held, busy)
    return n_made
