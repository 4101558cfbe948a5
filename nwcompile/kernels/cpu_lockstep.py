"""A list of packets through routers of one channel, cycle by cycle, in Numba.

The same routers as in cpu_router.py, and every packet arrives at the same cycle, for the case that each input has one
virtual channel and every link takes a flit a cycle. Then the two allocations are one: the packet that is given the
channel of an output is the only one that may ask for its switch until its tail has left, so an output needs one
round-robin turn, and serves at most one of those that ask in a cycle. What happens in a cycle is known from lists made
in earlier ones: first flits that begin to ask, senders whose slot has come back, outputs that somebody still asks for.
Nothing is looked at twice and no time is searched for, which is what the events of cpu_router.py cost most.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import bit, first_from
from nwcompile.kernels.jit import inlined, kernel

ALL = ~np.uint64(0)
NONE = np.uint64(0)
INPUT_BITS = 6  # of a number in `Calendar.asks`: the input; above it the output
TO_BITS = 23  # of SINGLE_SLOT.word: the destination core; above it the output port, then HEAD and TAIL
TO = (1 << TO_BITS) - 1
PORT = (1 << INPUT_BITS) - 1
HEAD, TAIL = 1 << 29, 1 << 30

SINGLE_OUTPUT = np.dtype(  # from n_outputs on: of the sources
    [
        ("asks", np.uint64),  # inputs whose first flit asks for it
        ("serves", np.uint64),  # inputs that it may serve: all, the one whose packet holds it, none while that waits
        ("sent", np.int64),  # flits
        ("latency", np.uint32),  # leaving -> may ask downstream
        ("first", np.uint32),  # first output, and first buffer, of its router
        ("down", np.uint32),  # buffer downstream
        ("place", np.uint32),  # slot there to be filled next
        ("down_router", np.uint32),
        ("down_input", np.uint8),
        ("turn", np.uint8),  # input that it serves first
        ("holder", np.uint8),  # input whose packet holds it
        ("is_listed", np.bool_),  # in `Calendar.outputs`
        ("is_last", np.bool_),  # it leads to a sink
    ],
    align=True,
)
SINGLE_BUFFER = np.dtype(
    [
        ("head", np.uint32),  # slot of the first flit
        ("count", np.uint32),  # flits in it
        ("sender", np.uint32),  # output that fills it
        ("is_waited_for", np.bool_),  # the sender waits for a slot
    ],
    align=True,
)
SINGLE_SLOT = np.dtype(
    [
        ("time", np.int64),  # of a flit: when it may ask; of an empty slot: when the sender may fill it
        ("packet", np.uint32),
        ("word", np.uint32),
    ],
    align=True,
)


class Single(NamedTuple):
    """Routers with one channel: buffers are numbered as in cpu_mesh.py, those of sinks behind those of routers."""

    n_ports: int
    n_outputs: int  # of routers
    depth: int
    is_speculative: bool
    route_cycles: int
    credit_cycles: int
    route: np.ndarray  # uint8[router, core]
    output: np.ndarray  # SINGLE_OUTPUT[output], then [source]
    buffer: np.ndarray  # SINGLE_BUFFER[buffer]
    slot: np.ndarray  # SINGLE_SLOT[buffer * depth + slot]


class Calendar(NamedTuple):
    """What is to be done in the next cycles; that of cycle t lies in row t % rows, a power of two."""

    asks: np.ndarray  # uint32[row, output]: output << INPUT_BITS | input: its first flit begins to ask
    n_asks: np.ndarray  # int64[row]
    wakes: np.ndarray  # uint32[row, output or source]: has a slot again that it waited for
    n_wakes: np.ndarray  # int64[row]
    outputs: np.ndarray  # uint32[output]: to be looked at in this cycle
    sources: np.ndarray  # uint32[core]: those that have a flit and do not wait for a slot


class Timed(NamedTuple):
    """Packets in the order of time."""

    time: np.ndarray  # int64[packet]
    src: np.ndarray  # int64[packet]
    to: np.ndarray  # int64[packet]
    size: np.ndarray  # int64[packet]
    after: np.ndarray  # int32[packet]: scratch: the next one of the same source
    inject: np.ndarray  # int64[packet], out
    arrive: np.ndarray  # int64[packet], out


SOURCE = np.dtype(
    [
        ("packet", np.int32),  # that it sends, -1: none
        ("newest", np.int32),  # that it has
        ("left", np.int32),  # flits of `packet` still to send, 0: its head has not left
    ],
    align=True,
)


@inlined
def ask(c, time, output, i):
    row = time & (c.n_asks.shape[0] - 1)
    n = c.n_asks[row]
    c.asks[row, n] = output << INPUT_BITS | i
    c.n_asks[row] = n + 1


@inlined
def wake(c, time, sender):
    row = time & (c.n_wakes.shape[0] - 1)
    n = c.n_wakes[row]
    c.wakes[row, n] = sender
    c.n_wakes[row] = n + 1


@inlined
def has_room(m, c, sender, output, there, time):
    """Whether the slot that a sender fills next is free; if not, it will be woken."""
    if np.int64(there.count) == m.depth:
        there.is_waited_for = True
        return False
    free = m.slot[np.int64(output.place)].time
    if free > time:
        wake(c, free, sender)
        return False
    return True


@inlined
def push(m, c, output, there, packet, word, ready):
    """Put a flit into the buffer downstream; as its first one it asks there."""
    place = np.int64(output.place)
    end = (np.int64(output.down) + 1) * m.depth
    output.place = place + 1 if place + 1 < end else end - m.depth
    to = word & TO
    down_router = np.int64(output.down_router)
    port = np.int64(m.route[down_router, to])
    slot = m.slot[place]
    slot.time = ready
    slot.packet = packet
    slot.word = to | port << TO_BITS | word & (HEAD | TAIL)
    if there.count == 0:
        delay = m.route_cycles if word & HEAD else 0
        ask(c, ready + delay, down_router * m.n_ports + port, np.int64(output.down_input))
    there.count = np.int64(there.count) + 1


@inlined
def look_at(m, c, packets, o, time, last):
    """Let an output serve one of those that ask; returns whether to look at it again a cycle later."""
    output = m.output[o]
    asks = output.asks & output.serves
    if asks == NONE:
        return False
    i = first_from(asks, np.int64(output.turn))
    was_free = output.serves == ALL
    output.turn = i + 1 if i + 1 < m.n_ports else 0
    output.serves = bit(i)
    if was_free and not m.is_speculative:
        return True
    there = m.buffer[np.int64(output.down)]
    if not has_room(m, c, o, output, there, time):
        output.serves = NONE
        output.holder = i
        return False
    first = np.int64(output.first)
    buffer = m.buffer[first + i]
    flit = m.slot[np.int64(buffer.head)]
    packet, word = np.int64(flit.packet), np.int64(flit.word)
    flit.time = time + m.credit_cycles
    end = (first + i + 1) * m.depth
    head = np.int64(buffer.head) + 1
    head = head if head < end else end - m.depth
    buffer.head = head
    count = np.int64(buffer.count) - 1
    buffer.count = count
    if buffer.is_waited_for:
        buffer.is_waited_for = False
        wake(c, time + m.credit_cycles, np.int64(buffer.sender))
    is_tail = word & TAIL != 0
    if count > 0:
        follower = m.slot[head]
        when = max(time + 1, follower.time) + (m.route_cycles if is_tail else 0)
        ask(c, when, first + (np.int64(follower.word) >> TO_BITS & PORT), i)
    output.sent += 1
    ready = time + np.int64(output.latency)
    if not output.is_last:
        push(m, c, output, there, packet, word, ready)
    else:
        place = np.int64(output.place)
        end = (np.int64(output.down) + 1) * m.depth
        output.place = place + 1 if place + 1 < end else end - m.depth
        m.slot[place].time = ready + m.credit_cycles
        if is_tail and ready <= last:
            packets.arrive[packet] = ready
    if is_tail:
        output.serves = ALL
    output.asks &= ~bit(i)
    return output.asks & output.serves != NONE


@inlined
def feed(m, c, packets, source, core, time):
    """Let a source send a flit; returns whether it can send another a cycle later."""
    output = m.output[m.n_outputs + core]
    there = m.buffer[np.int64(output.down)]
    if not has_room(m, c, m.n_outputs + core, output, there, time):
        return False
    s = source[core]
    k = np.int64(s.packet)
    flags = 0
    if s.left == 0:
        s.left = packets.size[k]
        packets.inject[k] = time
        flags = HEAD
    s.left -= 1
    if s.left == 0:
        flags |= TAIL
        s.packet = packets.after[k] if s.newest != k else -1
    output.sent += 1
    push(m, c, output, there, k, packets.to[k] | flags, time + np.int64(output.latency))
    return s.packet >= 0


@inlined
def next_cycle(c, time):
    """The next cycle for which something is written; -1 if there is none."""
    rows = c.n_asks.shape[0]
    for later in range(1, rows):
        row = (time + later) & (rows - 1)
        if c.n_asks[row] + c.n_wakes[row] > 0:
            return time + later
    return np.int64(-1)


@kernel
def replay_single(m, c, packets, source, last):
    """Send all packets, from an idle network, until they have arrived or cycle `last` is over.

    Those that have not arrived keep their `arrive`, and those that have not left their `inject`.
    """
    n_packets, rows = packets.time.shape[0], c.n_asks.shape[0]
    k, n_outputs, n_sources = 0, 0, 0
    time = np.int64(0)
    while True:
        if n_outputs == 0 and n_sources == 0:
            soon = next_cycle(c, time - 1)
            if k < n_packets:
                soon = packets.time[k] if soon < 0 else min(soon, packets.time[k])
            if soon < 0:
                break
            time = soon
        if time > last:
            break
        while k < n_packets and packets.time[k] <= time:
            core = packets.src[k]
            s = source[core]
            if s.packet < 0:
                s.packet = k
                c.sources[n_sources] = core
                n_sources += 1
            else:
                packets.after[s.newest] = k
            s.newest = k
            k += 1
        row = time & (rows - 1)
        for n in range(c.n_wakes[row]):
            o = np.int64(c.wakes[row, n])
            if o < m.n_outputs:
                output = m.output[o]
                output.serves = bit(np.int64(output.holder))
                if not output.is_listed:
                    output.is_listed = True
                    c.outputs[n_outputs] = o
                    n_outputs += 1
            else:
                c.sources[n_sources] = o - m.n_outputs
                n_sources += 1
        c.n_wakes[row] = 0
        for n in range(c.n_asks[row]):
            both = np.int64(c.asks[row, n])
            o = both >> INPUT_BITS
            output = m.output[o]
            output.asks |= bit(both & PORT)
            c.outputs[n_outputs] = o
            n_outputs += not output.is_listed
            output.is_listed = True
        c.n_asks[row] = 0
        n_kept = 0
        for n in range(n_outputs):
            o = np.int64(c.outputs[n])
            stays = look_at(m, c, packets, o, time, last)
            m.output[o].is_listed = stays
            c.outputs[n_kept] = o
            n_kept += stays
        n_outputs = n_kept
        n_kept = 0
        for n in range(n_sources):
            core = np.int64(c.sources[n])
            stays = feed(m, c, packets, source, core, time)
            c.sources[n_kept] = core
            n_kept += stays
        n_sources = n_kept
        time += 1
