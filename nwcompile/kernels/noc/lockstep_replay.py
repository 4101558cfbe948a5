"""A list of packets through the routers, cycle by cycle, in Numba.

Every packet has the cycles that event_replay.py gives it (tests/sim/cycle/test_noc_lockstep.py). What happens in a
cycle is known from lists made in earlier ones: first flits that begin to ask, channels that have a slot again, outputs
that somebody still asks for, sources with a flit. So nothing is looked at in vain and no time is searched for, and the
processor can work on several routers at once; cycles in which no list holds anything are skipped.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import bit, lowest
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.lockstep_router import allocate, pass_on, serve
from nwcompile.kernels.noc.lockstep_state import HEAD, INPUT, INPUT_BITS, TAIL, push, room_at


class Timed(NamedTuple):
    """Packets in the order of time."""

    time: np.ndarray  # int64[packet]
    src: np.ndarray  # int64[packet]
    to: np.ndarray  # int64[packet]
    size: np.ndarray  # int64[packet]
    after: np.ndarray  # int32[packet]: scratch: the next one of the same source
    inject: np.ndarray  # int64[packet], out
    arrive: np.ndarray  # int64[packet], out
    interrupted: np.ndarray  # bool[1]: set from outside, to end before the next cycle


SOURCE = np.dtype(
    [
        ("packet", np.int32),  # that it sends, -1: none
        ("newest", np.int32),  # that it has
        ("channel", np.int32),  # of it, or the one to try first
        ("left", np.int32),  # flits of `packet` still to send, 0: its head has not left
    ],
    align=True,
)


@inlined
def feed(m, c, packets, source, core, time):
    """Let a source send a flit if there is room; returns whether it has another."""
    output = m.output[m.n_outputs + core]
    if m.is_slow and m.link[m.n_outputs + core].free > time:
        return True
    s = source[core]
    v = np.int64(s.channel)
    b = np.int64(output.down) + v
    is_head = s.left == 0
    if room_at(m, m.buffer[b]) > time:
        if not is_head:
            return True
        for _ in range(m.n_vcs - 1):
            v = v + 1 if v + 1 < m.n_vcs else 0
            b = np.int64(output.down) + v
            if room_at(m, m.buffer[b]) <= time:
                break
        else:
            return True
    k = np.int64(s.packet)
    flags = 0
    if is_head:
        s.left = packets.size[k]
        packets.inject[k] = time
        flags = HEAD
    s.left -= 1
    s.channel = v
    if s.left == 0:
        flags |= TAIL
        s.packet = packets.after[k] if s.newest != k else -1
        s.channel = v + 1 if v + 1 < m.n_vcs else 0
    output.sent += 1
    if m.is_slow:
        m.link[m.n_outputs + core].free = time + m.link_cycles
    push(m, c, output, v, b, m.buffer[b], k, packets.to[k] | flags, time + np.int64(output.latency))
    return s.packet >= 0


@inlined
def next_cycle(c, time):
    """The next cycle for which something is written; -1 if there is none."""
    rows, n_words = c.used.shape[0], c.used_words.shape[0]
    first = (time + 1) & (rows - 1)
    word, before = first >> 3, np.uint64(8 * (first & 7))
    used = c.used_words[word] >> before << before
    for _ in range(n_words + 1):
        if used != 0:
            row = (word << 3) + (np.int64(lowest(used)) >> 3)
            return time + 1 + ((row - first) & (rows - 1))
        word = word + 1 if word + 1 < n_words else 0
        used = c.used_words[word]
    return np.int64(-1)


@inlined
def queue_up(c, packets, source, k, n_sources):
    """Put packet k behind the others of its source; returns whether the source is now listed because of it."""
    core = packets.src[k]
    s = source[core]
    is_idle = s.packet < 0
    if is_idle:
        s.packet = k
        c.sources[n_sources] = core
    else:
        packets.after[s.newest] = k
    s.newest = k
    return is_idle


@inlined
def list_those_to_look_at(m, c, row, n, n_sources):
    """Note what begins in the cycle of a row of the calendar; returns how many outputs and sources are listed then."""
    for k in range(c.n_wakes[row]):
        sender = np.int64(c.wakes[row, k])
        o = sender >> INPUT_BITS
        if o >= m.n_outputs:
            c.sources[n_sources] = o - m.n_outputs
            n_sources += 1
            continue
        output = m.output[o]
        v = sender & INPUT
        output.asks |= bit(np.int64(m.buffer[np.int64(output.down) + v].holder))
        c.outputs[n] = o
        n += not output.is_listed
        output.is_listed = True
    for k in range(c.n_asks[row]):
        both = np.int64(c.asks[row, k])
        o = both >> INPUT_BITS
        output = m.output[o]
        output.asks |= bit(both & INPUT)
        c.outputs[n] = o
        n += not output.is_listed
        output.is_listed = True
    c.n_wakes[row] = 0
    c.n_asks[row] = 0
    c.used[row] = 0
    return n, n_sources


@inlined
def look_at_outputs(m, c, packets, cores, n_outputs, time, last):
    """Let all listed outputs do what they can in a cycle; returns how many stay listed for the next."""
    is_single = m.n_vcs == 1
    if not is_single:
        for n in range(n_outputs):
            allocate(m, c, np.int64(c.outputs[n]), time)
    n_kept = 0
    for n in range(n_outputs):
        o = np.int64(c.outputs[n])
        if is_single:
            stays = serve(m, c, packets, cores, o, time, last)
        else:
            stays = pass_on(m, c, packets, cores, o, time, last)
        m.output[o].is_listed = stays
        c.outputs[n_kept] = o
        n_kept += stays
    return n_kept


@kernel
def replay_in_lockstep(m, c, packets, source, last):
    """Send all packets, from an idle network, until they have arrived, cycle `last` is over, or nothing moves any more.

    Sources look for room in every cycle. If no output is asked for until every latency is over and they could have
    filled their buffers, flits wait for each other in a circle. Packets that have not arrived keep their `arrive`, and
    those that have not left their `inject`.
    """
    n_packets, rows = packets.time.shape[0], c.n_asks.shape[0]
    patience = rows + m.depth * m.n_vcs * m.link_cycles
    k, n_outputs, n_sources, quiet = 0, 0, 0, 0
    time = np.int64(0)
    while True:
        if n_outputs == 0 and n_sources == 0:
            soon = next_cycle(c, time - 1)
            if k < n_packets:
                soon = packets.time[k] if soon < 0 else min(soon, packets.time[k])
            if soon < 0:
                break
            time = soon
        if time > last or packets.interrupted[0]:
            break
        while k < n_packets and packets.time[k] <= time:
            n_sources += queue_up(c, packets, source, k, n_sources)
            k += 1
        n_outputs, n_sources = list_those_to_look_at(m, c, time & (rows - 1), n_outputs, n_sources)
        quiet = 0 if n_outputs > 0 else quiet + 1
        if quiet > patience:
            break
        n_outputs = look_at_outputs(m, c, packets, None, n_outputs, time, last)
        n_kept = 0
        for n in range(n_sources):
            core = np.int64(c.sources[n])
            stays = feed(m, c, packets, source, core, time)
            c.sources[n_kept] = core
            n_kept += stays
        n_sources = n_kept
        time += 1
