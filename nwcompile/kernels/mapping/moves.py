"""Hot loops of the `floorline` partitioner: exact contents and loads of every core while clusters move (Numba).

A move updates only the cluster's own rows and messages and those of its sources. All figures are integers, and equal
to a full count at any time.
"""

import numpy as np

from nwcompile.ir.resources import IN_AXONS, N_RESOURCES, NEURONS, OUT_AXONS, SYNAPSE_BITS
from nwcompile.kernels.jit import kernel, part, spliced
from nwcompile.kernels.mapping.cluster_state import (
    AXONS,
    EXCESS,
    MESSAGE_IN,
    MESSAGE_OUT,
    MESSAGES,
    N_USED,
    REMOTE,
    TIME,
    WORD,
)
from nwcompile.kernels.mapping.random import is_taken, random_below


@spliced
def _mark_touched(busy, column):
    """Mark a column as changed."""
    if not busy.is_touched[column]:
        busy.is_touched[column] = True
        n_touched = busy.touched[-1]
        busy.touched[n_touched] = column
        busy.touched[-1] = n_touched + 1


@spliced
def _row_bits(rows, row_format, n):
    """Bits of a row of `n` synapses."""
    block = rows.bits.shape[1] - 1
    return n // block * rows.bits[row_format, block] + rows.bits[row_format, n % block]


@spliced
def _add_departures(sends, rules, held, busy, cluster, core, sign):
    """Add (or, with `sign` -1, subtract) the neurons, work and messages of a cluster on a core."""
    before = held.n_clusters[core]
    held.n_clusters[core] = before + sign
    if before + sign == 0:
        busy.total[N_USED] -= 1
    elif before == 0:
        busy.total[N_USED] += 1
    held.used[core, NEURONS] += sign * sends.n_neurons[cluster]
    _mark_touched(busy, core)
    for h in range(busy.load.shape[1]):
        busy.load[core, h] += sign * sends.send[cluster, h]
    for g in range(sends.group_offset[cluster], sends.group_offset[cluster + 1]):
        source_class = sends.group_class[g]
        n = sign * held.fan_out[source_class]
        if n == 0:
            continue
        held.used[core, OUT_AXONS] += n * sends.group_size[g]
        busy.total[MESSAGES] += n * sends.group_spikes[g]
        n_remote = n - sign if held.n_rows[core, source_class] > 0 else n
        busy.total[REMOTE] += n_remote * sends.group_spikes[g]
        if rules.cycles[MESSAGE_OUT]:
            for i in range(sends.spike_offset[g], sends.spike_offset[g + 1]):
                busy.load[core, sends.spike_step[i]] += n * rules.cycles[MESSAGE_OUT] * sends.spike_count[i]


@spliced
def _add_axons(sends, classes, rules, held, busy, source_class, core, column, sign):
    """Add or subtract the axons from a source class to a core."""
    held.fan_out[source_class] += sign
    held.used[core, IN_AXONS] += sign * classes.size[source_class]
    busy.total[AXONS] += sign * classes.size[source_class]
    for i in range(classes.arrival_offset[source_class], classes.arrival_offset[source_class + 1]):
        busy.load[column, classes.arrival_step[i]] += sign * rules.cycles[MESSAGE_IN] * classes.arrival_count[i]
    for j in range(classes.group_offset[source_class], classes.group_offset[source_class + 1]):
        g = classes.group[j]
        home = held.core_of[sends.group_cluster[g]]
        if home < 0:
            continue
        _mark_touched(busy, home)
        held.used[home, OUT_AXONS] += sign * sends.group_size[g]
        busy.total[MESSAGES] += sign * sends.group_spikes[g]
        if home != core:
            busy.total[REMOTE] += sign * sends.group_spikes[g]
        if rules.cycles[MESSAGE_OUT]:
            for i in range(sends.spike_offset[g], sends.spike_offset[g + 1]):
                busy.load[home, sends.spike_step[i]] += sign * rules.cycles[MESSAGE_OUT] * sends.spike_count[i]


@spliced
def _add_arrivals(reads, rows, sends, classes, rules, held, busy, cluster, core, sign):
    """Add or subtract the rows, kernels and axons that a cluster reads on a core, and their cycles."""
    column = core + busy.load.shape[0] - len(held.n_clusters)
    _mark_touched(busy, column)
    for h in range(busy.load.shape[1]):
        busy.load[column, h] += sign * reads.receive[cluster, h]
    for i in range(reads.kernel_offset[cluster], reads.kernel_offset[cluster + 1]):
        k = reads.kernel[i]
        n_before = held.n_readers[core, k]
        n_readers = n_before + sign * reads.n_readers[i]
        held.n_readers[core, k] = n_readers
        if n_before == 0 or n_readers == 0:
            group = rows.kernels.group[k]
            n_kernels = np.int64(held.n_kernels[core, group])
            held.n_kernels[core, group] = n_kernels + sign
            bits = rows.kernels.bits[group, n_kernels + sign] - rows.kernels.bits[group, n_kernels]
            held.used[core, SYNAPSE_BITS] += bits
    for e in range(reads.row_offset[cluster], reads.row_offset[cluster + 1]):
        row = reads.row[e]
        source_class = rows.source_class[row]
        row_format = rows.format[row]
        old = np.int64(held.n_synapses[core, row])
        new = old + sign * reads.n_synapses[e]
        held.n_synapses[core, row] = new
        old_bits = _row_bits(rows, row_format, old)
        new_bits = _row_bits(rows, row_format, new)
        held.used[core, SYNAPSE_BITS] += classes.size[source_class] * (new_bits - old_bits)
        if rules.cycles[WORD]:
            if rows.shared_bits[row_format]:
                old_bits = old * rows.shared_bits[row_format]
                new_bits = new * rows.shared_bits[row_format]
            words = -(-new_bits // rules.word_bits[0]) + -old_bits // rules.word_bits[0]
            if words:
                for i in range(classes.arrival_offset[source_class], classes.arrival_offset[source_class + 1]):
                    busy.load[column, classes.arrival_step[i]] += rules.cycles[WORD] * words * classes.arrival_count[i]
        if old == 0 or new == 0:
            n_rows = held.n_rows[core, source_class] + sign
            held.n_rows[core, source_class] = n_rows
            if n_rows == (1 if sign > 0 else 0):
                _add_axons(sends, classes, rules, held, busy, source_class, core, column, sign)


@kernel
def relocate(reads, rows, sends, classes, rules, held, busy, clusters, to):
    """Remove clusters: int64[...] from their cores, then put each on the core to: int64[...].

    -1 in `clusters` stands for none. The totals of `busy` are valid after `refresh_totals`.
    """
    n_all = len(clusters)
    for i in range(2 * n_all):
        sign = np.int64(1 if i >= n_all else -1)
        cluster = clusters[i % n_all]
        if cluster < 0:
            continue
        core = to[i % n_all] if sign > 0 else np.int64(held.core_of[cluster])
        if core < 0:
            continue
        if sign > 0:
            held.core_of[cluster] = core
        for stage in range(2):  # removing is adding in reverse order
            if (stage == 0) == (sign > 0):
                _add_departures(sends, rules, held, busy, cluster, core, sign)
            else:
                _add_arrivals(reads, rows, sends, classes, rules, held, busy, cluster, core, sign)
        if sign < 0:
            held.core_of[cluster] = -1


@kernel
def fill_cores(reads, rows, sends, classes, rules, held, busy, to):
    """Put every cluster on its core, to: int64[cluster], if all cores are empty: a faster `relocate`.

    Departures are counted once, after all arrivals are known, instead of for every core that reads them.
    """
    shift = busy.load.shape[0] - len(held.n_clusters)
    for cluster in range(len(to)):
        _mark_touched(busy, to[cluster])
        _mark_touched(busy, to[cluster] + shift)
        _add_arrivals(reads, rows, sends, classes, rules, held, busy, cluster, to[cluster], 1)
    for cluster in range(len(to)):
        held.core_of[cluster] = to[cluster]
        _add_departures(sends, rules, held, busy, cluster, to[cluster], 1)


@part
def refresh_limits(rules, held, busy):
    """Update the excess of touched cores and clear the list of touched columns."""
    n_cores = len(held.n_clusters)
    for i in range(busy.touched[-1]):
        core = busy.touched[i] % n_cores
        excess = np.int64(0)
        for r in range(N_RESOURCES):
            over = held.used[core, r] - rules.limit[core, r]
            if over > 0:
                excess += (over << 20) // max(rules.limit[core, r], 1) + 1
        busy.total[EXCESS] += excess - held.excess[core]
        held.excess[core] = excess
        busy.is_touched[busy.touched[i]] = False
    busy.touched[-1] = 0


@kernel
def refresh_totals(rules, held, busy):
    """Update the largest load of every step, the time and the excess."""
    n_columns, n_steps = busy.load.shape
    n_touched = busy.touched[-1]
    for h in range(n_steps):
        if busy.is_touched[busy.top_column[h]]:
            busy.top[h] = -1
            for column in range(n_columns):
                if busy.load[column, h] > busy.top[h]:
                    busy.top[h] = busy.load[column, h]
                    busy.top_column[h] = column
    for i in range(n_touched):
        column = busy.touched[i]
        for h in range(n_steps):
            if busy.load[column, h] > busy.top[h]:
                busy.top[h] = busy.load[column, h]
                busy.top_column[h] = column
    time = np.int64(0)
    min_work = rules.min_work[busy.total[N_USED]]
    for h in range(n_steps):
        time += max(busy.top[h], min_work)
    busy.total[TIME] = time + n_steps * rules.barrier[busy.total[N_USED]]
    refresh_limits(rules, held, busy)


@kernel
def cost(total, weight):
    """The objective of the search, float64; weight: Objective, total: int64[N_TOTALS].

    (fixed + time T + messages M + remote R + axons A + messages_by_cores M / U) times (factor + factor_time T). T is
    the time, M all messages, R those to other cores, A the in-axons, U the cores in use.
    """
    once = weight.fixed + weight.time * total[TIME] + weight.messages * total[MESSAGES] + weight.remote * total[REMOTE]
    once += weight.axons * total[AXONS] + weight.messages_by_cores * total[MESSAGES] / max(total[N_USED], 1)
    return once * (weight.factor + weight.factor_time * total[TIME])


@spliced
def _save_totals(busy, attempt):
    for h in range(len(attempt.top)):
        attempt.top[h] = busy.top[h]
        attempt.top_column[h] = busy.top_column[h]
    for i in range(len(attempt.total)):
        attempt.total[i] = busy.total[i]


@spliced
def _restore_totals(rules, held, busy, attempt):
    """Restore the largest loads and totals of `_save_totals`, after the loads themselves are restored."""
    refresh_limits(rules, held, busy)
    for h in range(len(attempt.top)):
        busy.top[h] = attempt.top[h]
        busy.top_column[h] = attempt.top_column[h]
    for i in range(len(attempt.total)):
        busy.total[i] = attempt.total[i]


@part
def cluster_on(core_of, n_cores, state, core):
    """A random cluster of a core; -1 if 4 draws per core found none."""
    n_clusters = len(core_of)
    for _ in range(4 * n_cores):
        cluster = random_below(state, n_clusters)
        if core_of[cluster] == core:
            return cluster
    return np.int64(-1)


@spliced
def _propose_move(reads, rules, held, busy, attempt, state):
    """Set `attempt` to a random move to a core of the same region; its cluster is -1 if none was found.

    Three of four moves relieve the busiest core of a random step.
    """
    n_cores = len(held.n_clusters)
    h = random_below(state, busy.load.shape[1])
    target = np.int64(-1)
    if random_below(state, 4) > 0:
        column = busy.top_column[h]
        core = column % n_cores
        cluster = cluster_on(held.core_of, n_cores, state, core)
        if cluster >= 0:
            for _ in range(3):
                other = cluster_on(held.core_of, n_cores, state, core)
                if column >= n_cores and other >= 0 and reads.receive[other, h] > reads.receive[cluster, h]:
                    cluster = other
            first = rules.region[core, 0]
            n_inside = rules.region[core, 1]
            target = first + random_below(state, n_inside)
            for _ in range(2):
                near = first + random_below(state, n_inside)
                if busy.load[near + column - core, h] < busy.load[target + column - core, h]:
                    target = near
    else:
        cluster = random_below(state, len(held.core_of))
        core = np.int64(held.core_of[cluster])
        target = rules.region[core, 0] + random_below(state, rules.region[core, 1])
    attempt.cluster[1] = -1
    if cluster >= 0 and target == held.core_of[cluster]:
        cluster = np.int64(-1)
    if cluster >= 0 and random_below(state, 2) == 0:
        attempt.cluster[1] = cluster_on(held.core_of, n_cores, state, target)
    attempt.cluster[0] = cluster
    attempt.to[0] = target


@spliced
def _least_change(reads, rules, held, busy, attempt):
    """Lower bound of the change of the time by a move, from the synaptic operations of its two cores."""
    min_work = rules.min_work[busy.total[N_USED]]
    shift = busy.load.shape[0] - len(held.n_clusters)
    cluster = attempt.cluster[0]
    other = attempt.cluster[1]
    a = held.core_of[cluster] + shift
    b = attempt.to[0] + shift
    change = np.int64(0)
    for h in range(busy.load.shape[1]):
        delta = reads.receive[cluster, h]
        if other >= 0:
            delta -= reads.receive[other, h]
        if delta != 0:
            new = max(busy.load[a, h] - delta, busy.load[b, h] + delta)
            if new > busy.top[h] or busy.top_column[h] == a or busy.top_column[h] == b:
                change += max(new, min_work) - max(busy.top[h], min_work)
    return change


@spliced
def _messages_read(reads, rows, classes, attempt):
    """Upper bound of the messages that a move saves: all messages that its clusters read."""
    n = np.int64(0)
    for i in range(2):
        cluster = attempt.cluster[i]
        if cluster >= 0:
            for e in range(reads.row_offset[cluster], reads.row_offset[cluster + 1]):
                n += classes.spikes[rows.source_class[reads.row[e]]]
    return n


@kernel
def anneal_clusters(demand, cores, weight, temperature, n_moves, keep_all, state, best):
    """Try `n_moves` random moves at one temperature (Metropolis rule), in place; return the least excess and its cost.

    Excess over the limits decides before the cost. demand, cores, weight: Demand, CoreState and Objective; keep_all: no
    core may become empty; state: uint64[1]. best: int32[cluster], set to the best state if it is better than the start.
    """
    reads, rows, sends, classes, rules = demand
    held, busy, attempt = cores
    least_excess = busy.total[EXCESS]
    least_cost = cost(busy.total, weight)
    for _ in range(n_moves):
        _propose_move(reads, rules, held, busy, attempt, state)
        cluster = attempt.cluster[0]
        if cluster < 0:
            continue
        home = np.int64(held.core_of[cluster])
        if keep_all and attempt.cluster[1] < 0 and held.n_clusters[home] == 1:
            continue
        before = cost(busy.total, weight)
        excess = busy.total[EXCESS]
        if excess == 0 and weight.time == 1.0:
            n_saved = _messages_read(reads, rows, classes, attempt)
            saved = weight.messages_by_cores / busy.total[N_USED] * n_saved
            if _least_change(reads, rules, held, busy, attempt) > saved + 5 * temperature:
                continue
        _save_totals(busy, attempt)
        attempt.to[1] = home
        for is_way_back in range(2):
            relocate(reads, rows, sends, classes, rules, held, busy, attempt.cluster, attempt.to)
            if is_way_back:
                _restore_totals(rules, held, busy, attempt)
                break
            refresh_totals(rules, held, busy)
            rise = cost(busy.total, weight) - before
            accept = busy.total[EXCESS] <= excess
            if accept and busy.total[EXCESS] == excess and rise > 0:
                accept = is_taken(rise, temperature, state)
            if accept:
                is_cheaper = busy.total[EXCESS] == least_excess and before + rise < least_cost
                if busy.total[EXCESS] < least_excess or is_cheaper:
                    least_excess = busy.total[EXCESS]
                    least_cost = before + rise
                    for i in range(len(best)):
                        best[i] = held.core_of[i]
                break
            attempt.to[1] = attempt.to[0]
            attempt.to[0] = home
    return least_excess, least_cost
