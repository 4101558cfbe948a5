"""A list of packets through the routers, cycle by cycle, in Numba.

Every packet has the cycles that event_replay.py gives it (tests/sim/cycle/test_noc_lockstep.py). What happens in a
cycle is known from lists made in earlier ones: first flits that begin to ask, channels that have a slot again, outputs
that somebody still asks for, sources with a flit. So nothing is looked at in vain and no time is searched for, and the
processor can work on several routers at once; cycles in which no list holds anything are skipped.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.lockstep_router import list_due, serve_outputs
from nwcompile.kernels.noc.lockstep_state import HEAD, TAIL, next_cycle, push, room_at

SOURCE = np.dtype(
    [
        ("packet", np.int32),  # that it sends, -1: none
        ("newest", np.int32),  # that it has
        ("channel", np.int32),  # of it, or the one to try first
        ("left", np.int32),  # flits of `packet` still to send, 0: its head has not left
    ],
    align=True,
)


class TimedPackets(NamedTuple):
    """Packets in the order of time."""

    time: np.ndarray  # int64[packet]
    src: np.ndarray  # int64[packet]
    to: np.ndarray  # int64[packet]
    size: np.ndarray  # int64[packet]
    after: np.ndarray  # int32[packet]: scratch: the next one of the same source
    inject: np.ndarray  # int64[packet], out
    arrive: np.ndarray  # int64[packet], out
    interrupted: np.ndarray  # bool[1]: set from outside, to end before the next cycle


@inlined
def inject(routers, links, agenda, packets, sources, core, time):
    """Let a source send a flit if there is room; returns whether it has another."""
    output, source = routers.output[routers.n_outputs + core], sources[core]
    if links is not None and links[routers.n_outputs + core].free > time:
        return True
    v = np.int64(source.channel)
    b = np.int64(output.down) + v
    is_head = source.left == 0
    if room_at(routers, routers.buffer[b]) > time:
        if not is_head:
            return True
        for _ in range(routers.n_vcs - 1):
            v = v + 1 if v + 1 < routers.n_vcs else 0
            b = np.int64(output.down) + v
            if room_at(routers, routers.buffer[b]) <= time:
                break
        else:
            return True
    k = np.int64(source.packet)
    flags = 0
    if is_head:
        source.left = packets.size[k]
        packets.inject[k] = time
        flags = HEAD
    source.left -= 1
    source.channel = v
    if source.left == 0:
        flags |= TAIL
        source.packet = packets.after[k] if source.newest != k else -1
        source.channel = v + 1 if v + 1 < routers.n_vcs else 0
    output.sent += 1
    if links is not None:
        links[routers.n_outputs + core].free = time + routers.link_cycles
    word = packets.to[k] | flags
    push(routers, agenda, output, v, b, routers.buffer[b], k, word, time + np.int64(output.latency))
    return source.packet >= 0


@inlined
def queue_up(agenda, packets, sources, k, n_sources):
    """Put packet k behind the others of its source; returns whether the source is now listed because of it."""
    core = packets.src[k]
    source = sources[core]
    is_idle = source.packet < 0
    if is_idle:
        source.packet = k
        agenda.sources[n_sources] = core
    else:
        packets.after[source.newest] = k
    source.newest = k
    return is_idle


@kernel
def replay_lockstep(routers, links, vcs, agenda, packets, sources, last):
    """Send all packets, from an idle network, until they have arrived, cycle `last` is over, or nothing moves any more.

    links: LINK[output or source], None where every link takes a flit in each cycle; vcs: VirtualChannels, None where
    there is one channel; sources: SOURCE[core]. Sources look for room in every cycle. If no output is asked for until
    every latency is over and they could have filled their buffers, flits wait for each other in a circle. Packets that
    have not arrived keep their `arrive`, and those that have not left their `inject`.
    """
    n_packets, rows = packets.time.shape[0], agenda.count.shape[0]
    patience = rows + routers.depth * routers.n_vcs * routers.link_cycles
    k, n_outputs, n_sources, quiet = 0, 0, 0, 0
    time = np.int64(0)
    while True:
        if n_outputs == 0 and n_sources == 0:
            soon = next_cycle(agenda, time - 1)
            if k < n_packets:
                soon = packets.time[k] if soon < 0 else min(soon, packets.time[k])
            if soon < 0:
                break
            time = soon
        if time > last or packets.interrupted[0]:
            break
        while k < n_packets and packets.time[k] <= time:
            n_sources += queue_up(agenda, packets, sources, k, n_sources)
            k += 1
        n_outputs, n_sources = list_due(routers, agenda, time & (rows - 1), n_outputs, n_sources)
        quiet = 0 if n_outputs > 0 else quiet + 1
        if quiet > patience:
            break
        n_outputs = serve_outputs(routers, links, vcs, agenda, packets, None, n_outputs, time, last)
        n_kept = 0
        for n in range(n_sources):
            core = np.int64(agenda.sources[n])
            stays = inject(routers, links, agenda, packets, sources, core, time)
            agenda.sources[n_kept] = core
            n_kept += stays
        n_sources = n_kept
        time += 1
