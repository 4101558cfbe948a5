"""Hot loops that add up messages between cores, by sending core, and flits per link (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled


@compiled()
def core_messages(start, source_class, messages, offset, core, n_cores):
    """Messages between each pair of cores that exchanges any, as CSR by sending core.

    start: int64[home + 1] into source_class: int64[flow] and messages: int64[flow]; offset: int64[class + 1] into
    core: int64[...], the destinations. Returns (start int64[home + 1], core int64[pair], messages int64[pair]).
    """
    n_homes = len(start) - 1
    total = np.zeros(n_cores, np.int64)
    first = np.zeros(n_homes + 1, np.int64)
    n_most = 0
    for k in source_class:
        n_most += offset[k + 1] - offset[k]
    n_most = min(n_most, n_homes * n_cores)
    to, sent = np.empty(n_most, np.int64), np.empty(n_most, np.int64)
    n = 0
    for home in range(n_homes):
        for f in range(start[home], start[home + 1]):
            for i in range(offset[source_class[f]], offset[source_class[f] + 1]):
                total[core[i]] += messages[f]
        for c in range(n_cores):
            if total[c]:
                to[n], sent[n] = c, total[c]
                n += 1
                total[c] = 0
        first[home + 1] = n
    return first, to[:n].copy(), sent[:n].copy()


@compiled()
def add_flits(sends, core_of, reader_offset, reader, router, to, port, neighbor, ends, is_tree, flits):
    """Add a flit for every message of clusters on the cores core_of: int32[cluster] to flits: int64[link, step].

    sends: cluster_state.Sends; reader_offset: int64[class + 1] into reader: int64[...], the cores that read each class.
    router, to: int64[core]: router of each core, and its place in port: uint8[router, place], the output towards it.
    neighbor: int64[router, 4]; ends: int64[2, core], injection and ejection link. is_tree: messages are multicast as in
    `cost/traffic/multicast.py`: copies share a flit until their routes part, and then stay separate.
    """
    child = np.zeros((64, 4), np.int32)  # children of each node of a group's tree; 0 is the root, and means no child
    for g in range(len(sends.group_class)):
        home = core_of[sends.group_cluster[g]]
        source_class = sends.group_class[g]
        first = sends.spike_offset[g]
        last = sends.spike_offset[g + 1]
        if first == last or reader_offset[source_class] == reader_offset[source_class + 1]:
            continue
        n_injected = 1 if is_tree else reader_offset[source_class + 1] - reader_offset[source_class]
        for i in range(first, last):
            flits[ends[0, home], sends.spike_step[i]] += n_injected * sends.spike_count[i]
        child[0] = 0
        n_places = 1
        for r in range(reader_offset[source_class], reader_offset[source_class + 1]):
            core = reader[r]
            for i in range(first, last):
                flits[ends[1, core], sends.spike_step[i]] += sends.spike_count[i]
            at = router[home]
            place = 0
            while at != router[core]:
                out = port[at, to[core]]
                link = 4 * at + out
                at = neighbor[at, out]
                if is_tree:
                    before = place
                    place = child[place, out]
                    if place:
                        continue
                    if n_places == len(child):
                        child = np.concatenate((child, np.zeros_like(child)))
                    child[before, out] = n_places
                    child[n_places] = 0
                    place = n_places
                    n_places += 1
                for i in range(first, last):
                    flits[link, sends.spike_step[i]] += sends.spike_count[i]
