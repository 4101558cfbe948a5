"""Hot loops of traffic accounting: taps of a convolution, rows per core, events and link loads per step (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled, kernel
from nwcompile.kernels.mapping.random import splitmix64


@compiled()
def conv_taps(source, output, window, stride, padding, dilation):
    """Source classes (group, y, x) that each output class (group, y, x) reads, without taps on padding.

    source: (groups, rows, columns); the others are (rows, columns).
    Returns offset: int64[output class + 1], taps: int32[tap], in the order of the kernel's taps.
    """
    groups, rows, columns = source
    n_classes = groups * output[0] * output[1]
    offset = np.zeros(n_classes + 1, np.int64)
    taps = np.empty(n_classes * window[0] * window[1], np.int32)
    n = 0
    k = 0
    for g in range(groups):
        for oy in range(output[0]):
            for ox in range(output[1]):
                for ky in range(window[0]):
                    y = oy * stride[0] - padding[0] + ky * dilation[0]
                    if y < 0 or y >= rows:
                        continue
                    for kx in range(window[1]):
                        x = ox * stride[1] - padding[1] + kx * dilation[1]
                        if x < 0 or x >= columns:
                            continue
                        taps[n] = (g * rows + y) * columns + x
                        n += 1
                k += 1
                offset[k] = n
    return offset, taps[:n].copy()


@compiled()
def rows_of_classes(pair_core, pair_class, pair_count, offset, taps, n_source_classes):
    """Synapses per (source class, core), from the number of targets of each class on each core.

    pair_core, pair_class, pair_count: int64[pair], sorted by core; offset: int64[target class + 1], taps: int32[tap].
    Returns offset: int64[source class + 1], core: int32[row], n_synapses: int64[row]; rows of a class sorted by core.
    """
    start = np.zeros(n_source_classes + 1, np.int64)
    last = np.full(n_source_classes, -1, np.int64)
    for p in range(len(pair_core)):
        for i in range(offset[pair_class[p]], offset[pair_class[p] + 1]):
            if last[taps[i]] != pair_core[p]:
                last[taps[i]] = pair_core[p]
                start[taps[i] + 1] += 1
    for k in range(n_source_classes):
        start[k + 1] += start[k]
    core = np.empty(start[-1], np.int32)
    n_synapses = np.zeros(start[-1], np.int64)
    cursor = start[:-1] - 1
    last[:] = -1
    for p in range(len(pair_core)):
        for i in range(offset[pair_class[p]], offset[pair_class[p] + 1]):
            k = taps[i]
            if last[k] != pair_core[p]:
                last[k] = pair_core[p]
                cursor[k] += 1
                core[cursor[k]] = pair_core[p]
            n_synapses[cursor[k]] += pair_count[p]
    return start, core, n_synapses


@kernel
def count_merged(begin, end, core, at, n_axons):
    """Set n_axons: int64[source] to the number of different cores in the rows of each source.

    begin, end: int64[source, connection] into core: int32[row], ascending within each; at: int64[connection], scratch.
    """
    for s in range(len(begin)):
        if len(at) == 1:
            n_axons[s] = end[s, 0] - begin[s, 0]
            continue
        for k in range(len(at)):
            at[k] = begin[s, k]
        n_axons[s] = 0
        while True:
            least = np.int64(-1)
            for k in range(len(at)):
                if at[k] < end[s, k] and (least < 0 or core[at[k]] < least):
                    least = np.int64(core[at[k]])
            if least < 0:
                break
            n_axons[s] += 1
            for k in range(len(at)):
                at[k] += at[k] < end[s, k] and core[at[k]] == least


@kernel
def merge_rows(begin, end, kind, word_bits, core, row, at, offset, to_core, synops, words, bits):
    """Write the axons of every source; rows of several connections to one core are merged.

    begin, end, core, at: as in `count_merged`; kind, word_bits: int64[connection], bits of a word;
    row: int32[row, 2]: synapses and words;
    offset: int64[source + 1] into to_core: int32[axon], synops: int32[axon, kind], all 0, words: int32[axon] and
    bits: int64[axon], both 0.
    """
    for s in range(len(begin)):
        if len(at) == 1:
            for i in range(offset[s + 1] - offset[s]):
                a, r = offset[s] + i, begin[s, 0] + i
                to_core[a], words[a], bits[a] = core[r], row[r, 1], row[r, 1] * word_bits[0]
                synops[a, kind[0]] = row[r, 0]
            continue
        for k in range(len(at)):
            at[k] = begin[s, k]
        for a in range(offset[s], offset[s + 1]):
            least = np.iinfo(np.int32).max
            for k in range(len(at)):
                if at[k] < end[s, k] and core[at[k]] < least:
                    least = core[at[k]]
            to_core[a] = least
            for k in range(len(at)):
                if at[k] < end[s, k] and core[at[k]] == least:
                    synops[a, kind[k]] += row[at[k], 0]
                    words[a] += row[at[k], 1]
                    bits[a] += row[at[k], 1] * word_bits[k]
                    at[k] += 1


@compiled()
def pairs_of_axons(order, start, offset, core, n_cores, pair):
    """Number the core pairs (from, to) that have axons, ascending, and find the pair of each axon.

    start: int64[from + 1] into order: int64[...], the sources on each core; offset: int64[source + 1] into
    core: int32[axon]. Sets pair: int32[axon]; returns (first: int64[from + 1], to: int64[pair]).
    """
    number = np.full(n_cores, -1, np.int64)
    first = np.zeros(len(start), np.int64)
    to = np.empty(min(len(core), n_cores * (len(start) - 1)), np.int64)
    n = 0
    for home in range(len(start) - 1):
        for i in range(start[home], start[home + 1]):
            for a in range(offset[order[i]], offset[order[i] + 1]):
                number[core[a]] = 0
        for c in range(n_cores):
            if number[c] >= 0:
                to[n], number[c] = c, n
                n += 1
        first[home + 1] = n
        for i in range(start[home], start[home + 1]):
            for a in range(offset[order[i]], offset[order[i] + 1]):
                pair[a] = number[core[a]]
        number[:] = -1
    return first, to[:n].copy()


@compiled()
def same_destinations(offset, core, home, group):
    """Number the groups of sources with the same core and destinations; returns the first source of each: int64[group].

    offset: int64[source + 1] into core: int32[axon]; home: int32[source]. Sets group: int64[source], except for home -1
    and for sources without axons. A hash table with open addressing compares sources in full.
    """
    n_places = 1
    while n_places < 2 * len(group):
        n_places *= 2
    known = np.full(n_places, -1, np.int64)
    first = np.empty(len(group), np.int64)
    n_groups = 0
    for s in range(len(group)):
        if home[s] < 0 or offset[s] == offset[s + 1]:
            continue
        word = splitmix64(np.uint64(home[s]))
        for i in range(offset[s], offset[s + 1]):
            word = splitmix64(word ^ np.uint64(core[i]))
        place = np.int64(word & np.uint64(n_places - 1))
        while known[place] >= 0 and not _are_alike(offset, core, home, s, first[known[place]]):
            place = (place + 1) % n_places
        if known[place] < 0:
            known[place] = n_groups
            first[n_groups] = s
            n_groups += 1
        group[s] = known[place]
    return first[:n_groups].copy()


@compiled()
def _are_alike(offset, core, home, a, b):
    n, i = offset[a + 1] - offset[a], 0
    if home[a] != home[b] or offset[b + 1] - offset[b] != n:
        return False
    while i < n and core[offset[a] + i] == core[offset[b] + i]:
        i += 1
    return i == n


@kernel
def add_hops(offset, pair, hops, along):
    """Add the hops of all axons of every source, hops: int64[pair, 2], to along: int64[source, 2].

    offset: int64[source + 1]; pair: int32[axon], -1: none.
    """
    for s in range(len(offset) - 1):
        for a in range(offset[s], offset[s + 1]):
            if pair[a] >= 0:
                along[s, 0] += hops[pair[a], 0]
                along[s, 1] += hops[pair[a], 1]


@kernel
def count_arrivals(count, h0, axon_offset, axon_core, axon_synops, axon_words, messages, synops, words):
    """Add the load of the axons of one node's sources at their destination cores.

    count: int32[step, source], sent in hardware step `h0 + step`; axon_offset: int64[source + 1] into
    axon_core: int32[axon], axon_synops: int32[axon, kind], axon_words: int32[axon].
    Adds to messages: int64[H, core], synops: int64[kind, H, core], words: int64[H, core].
    """
    for t in range(count.shape[0]):
        for s in range(count.shape[1]):
            n = np.int64(count[t, s])
            if n == 0:
                continue
            for a in range(axon_offset[s], axon_offset[s + 1]):
                c = axon_core[a]
                messages[h0 + t, c] += n
                words[h0 + t, c] += n * axon_words[a]
                for kind in range(axon_synops.shape[1]):
                    synops[kind, h0 + t, c] += n * axon_synops[a, kind]


@kernel
def count_departures(count, h0, core_of, sent, along, spikes, messages, hops):
    """Add the spikes, messages and hops of one layer's neurons at their own cores.

    count: int32[step, neuron], sent in hardware step `h0 + step`; core_of: int32[neuron]; sent: int64[neuron] and
    along: int64[neuron, 2] are a spike's messages and hops. Adds to spikes and messages: int64[H, core], and to hops,
    east-west and north-south: int64[2, H, core].
    """
    for s in range(count.shape[1]):
        c = core_of[s]
        for t in range(count.shape[0]):
            n = np.int64(count[t, s])
            spikes[h0 + t, c] += n
            messages[h0 + t, c] += n * sent[s]
            hops[0, h0 + t, c] += n * along[s, 0]
            hops[1, h0 + t, c] += n * along[s, 1]


@compiled()
def compact_router(xy, along_x, along_y, n_cores_at, n_cores):
    """The first router whose `n_cores` nearest cores have the shortest routes among each other in total.

    Ties between equally near cores go to the first routers. xy: int64[router, 2]: rows of along_x: int64[x, x] and
    along_y: int64[y, y], which add up to the cost of a route; n_cores_at: int64[router].
    """
    n_at_cost = np.zeros(along_x.max() + along_y.max() + 1, np.int64)
    n_at_x, n_at_y = np.zeros(len(along_x), np.int64), np.zeros(len(along_y), np.int64)
    best, least = 0, -1
    for center in range(len(xy)):
        x, y = xy[center]
        n_at_cost[:] = 0
        for r in range(len(xy)):
            n_at_cost[along_x[x, xy[r, 0]] + along_y[y, xy[r, 1]]] += n_cores_at[r]
        farthest, left = 0, n_cores
        while n_at_cost[farthest] < left:
            left -= n_at_cost[farthest]
            farthest += 1
        n_at_x[:], n_at_y[:] = 0, 0
        for r in range(len(xy)):
            cost = along_x[x, xy[r, 0]] + along_y[y, xy[r, 1]]
            if cost <= farthest:
                n = n_cores_at[r] if cost < farthest else min(n_cores_at[r], left)
                left -= n if cost == farthest else 0
                n_at_x[xy[r, 0]] += n
                n_at_y[xy[r, 1]] += n
        total = 0
        for n_at, along in ((n_at_x, along_x), (n_at_y, along_y)):
            for a in np.flatnonzero(n_at):
                for b in np.flatnonzero(n_at):
                    total += n_at[a] * n_at[b] * along[a, b]
        if least < 0 or total < least:
            best, least = center, total
        if least == 0:
            break
    return best
