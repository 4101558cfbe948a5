"""Replay a list of packets through the routers, cycle by cycle, in Numba.

Every packet has the same cycles as in event_replay.py (tests/sim/cycle/test_noc_lockstep.py). Earlier cycles list the
work of each cycle: first flits that begin to request, channels with a new credit, outputs with pending requests,
sources with a flit. No time is searched for, and the processor can overlap the work of several routers. Cycles
without work are skipped.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.lockstep_router import list_due, serve_outputs
from nwcompile.kernels.noc.lockstep_state import HEAD, TAIL, next_cycle, push, room_at

SOURCE = np.dtype(
    [
        ("packet", np.int32),  # packet that it sends, -1: none
        ("newest", np.int32),  # last packet of its queue
        ("channel", np.int32),  # virtual channel of `packet`, or the one to try first
        ("left", np.int32),  # flits of `packet` still to send, 0: its head has not left
    ],
    align=True,
)


class TimedPackets(NamedTuple):
    """Packets in the order of time. Times are in cycles."""

    time: np.ndarray  # int64[packet]
    src: np.ndarray  # int64[packet]
    to: np.ndarray  # int64[packet]
    size: np.ndarray  # int64[packet]
    after: np.ndarray  # int64[packet]: scratch: next packet of the same source
    inject: np.ndarray  # int64[packet], out
    arrive: np.ndarray  # int64[packet], out
    interrupted: np.ndarray  # bool[1]: set from outside to stop before the next cycle


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
    """Append packet k to the queue of its source; returns whether the source was idle and is now listed."""
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
    """Send all packets through an idle network until all have arrived, cycle `last` is over, or nothing can move.

    links: LINK[output or source], None if every link takes a flit in each cycle. vcs: VirtualChannels, None if there is
    one channel. sources: SOURCE[core]; they look for room in every cycle. The network is in deadlock if no output has a
    request for longer than every latency and the time to fill the sources' buffers. Undelivered packets keep their
    `arrive`, unsent ones also their `inject`.
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
