"""Hot loops that add up rows and spikes of clusters of neurons before mapping (Numba).

`readers_of_rows` also finds sources that every cluster reads identically. Lists are made by two calls with memory of
the caller: the first call, with lists of length 0, only counts.
"""

import numpy as np

from nwcompile.kernels.jit import kernel
from nwcompile.kernels.mapping.random import splitmix64


@kernel
def add_to_boxes(place, cluster_of, low, high):
    """Widen the bounding box of every cluster, low and high: int64[cluster, 3], to contain its neurons.

    place: int64[neuron, 3]; cluster_of: int64[neuron].
    """
    for i in range(len(cluster_of)):
        for axis in range(3):
            low[cluster_of[i], axis] = min(low[cluster_of[i], axis], place[i, axis])
            high[cluster_of[i], axis] = max(high[cluster_of[i], axis], place[i, axis])


@kernel
def cluster_rows(table, start, neurons, place, offset, row, count):
    """List the rows that the neurons of every cluster read, and the synapses from each source of a row in the cluster.

    table: core_usage.SynapseTable; a row here is an entry of its `classes`. start: int64[cluster + 1] into
    neurons: int64[neuron]; place: int64[row of the table], all -1. Sets offset: int64[cluster + 1] and, unless they
    have no length, row: int32[entry] and count: int32[entry], all 0.
    """
    is_written = len(row) > 0
    for u in range(len(start) - 1):
        n = offset[u]
        for j in range(start[u], start[u + 1]):
            for slot in range(table.slot_offset[neurons[j]], table.slot_offset[neurons[j] + 1]):
                target = table.slot_class[slot]
                for i in range(table.tap_offset[target], table.tap_offset[target + 1]):
                    k = table.taps[i]
                    n_classes = table.class_offset[k + 1] - table.class_offset[k]
                    if place[k] < offset[u]:
                        place[k] = n
                        if is_written:
                            for r in range(n_classes):
                                row[n + r] = table.class_offset[k] + r
                        n += n_classes
                    if is_written:
                        for r in range(n_classes):
                            count[place[k] + r] += 1
        offset[u + 1] = n


@kernel
def spikes_of(counts, first_step, start, members, step_at, total, offset, step, count):
    """List the spikes of groups of one layer's neurons, by step, without steps of no spikes.

    counts: int32[T, n]; start: int64[group + 1] into members: int64[...], neurons of the layer; step_at: int64[H]:
    index of a hardware step, or -1; total: int64[step index], scratch. Sets offset: int64[group + 1] and, unless they
    have no length, step: int32[...] and count: int32[...].
    """
    is_written = len(step) > 0
    for g in range(len(start) - 1):
        for h in range(len(total)):
            total[h] = 0
        for j in range(start[g], start[g + 1]):
            for t in range(counts.shape[0]):
                if counts[t, members[j]] and step_at[first_step + t] >= 0:
                    total[step_at[first_step + t]] += counts[t, members[j]]
        n = offset[g]
        for h in range(len(total)):
            if total[h]:
                if is_written:
                    step[n] = h
                    count[n] = total[h]
                n += 1
        offset[g + 1] = n


@kernel
def add_received(row_offset, row, n_synapses, source_class, row_cycles, offset, step, count, cycles):
    """Add the cycles of the synaptic operations of every cluster to cycles: int64[cluster, step].

    row_cycles: int64[row]: cycles of one operation; offset, step, count: arrivals; all as in cluster_state.Demand.
    """
    for u in range(len(row_offset) - 1):
        for e in range(row_offset[u], row_offset[u + 1]):
            spike_cycles = row_cycles[row[e]] * n_synapses[e]
            k = source_class[row[e]]
            for i in range(offset[k], offset[k + 1]):
                cycles[u, step[i]] += spike_cycles * count[i]


@kernel
def readers_of_rows(offset, row, count, row_format, digest):
    """Add a digest of each row's readers to digest: uint64[row, 2]: its format, and each cluster with its synapses.

    offset: int64[cluster + 1] into row: int32[entry] and count: int32[entry]; row_format: int64[row]. Sums of hashes
    do not depend on the order. With 128 bits, rows of equal digests have equal readers.
    """
    for i in range(len(row_format)):
        for half in range(2):
            digest[i, half] = splitmix64(np.uint64(2 * row_format[i] + half + 1))
    for cluster in range(len(offset) - 1):
        for e in range(offset[cluster], offset[cluster + 1]):
            word = (np.uint64(cluster) << np.uint64(32)) ^ np.uint64(count[e])
            for half in range(2):
                word = splitmix64(word)
                digest[row[e], half] += splitmix64(word ^ (np.uint64(row_format[row[e]]) << np.uint64(1)))


@kernel
def keep_rows(offset, row, count, new_row, kept):
    """Remove entries of dropped rows in place and renumber the others; new_row: int64[row], -1 for dropped rows.

    Sets kept: int64[cluster + 1] to the new offsets; entries after its end are void.
    """
    n = 0
    kept[0] = 0
    for cluster in range(len(offset) - 1):
        for e in range(offset[cluster], offset[cluster + 1]):
            new = new_row[row[e]]
            if new >= 0:
                row[n] = new
                count[n] = count[e]
                n += 1
        kept[cluster + 1] = n
