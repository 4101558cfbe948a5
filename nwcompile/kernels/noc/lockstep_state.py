"""What the lockstep engine works on: routers, the flits in them, and an agenda of what is to be done when.

Buffers, outputs and ports are numbered as in mesh.py; an input channel is input port * n_vcs + channel.
Times are in cycles.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import bit, first_from, lowest
from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.mesh import PORT_BITS, RouteTable, route_to

NONE = np.uint64(0)  # The empty set of up to 64 channels or ports.
INPUT_BITS = 6  # Channels of a router are numbers below 64; `Agenda.asks` and `wakes` have the output above them.
INPUT = (1 << INPUT_BITS) - 1  # Mask of the channel in such a number.
PORT = (1 << PORT_BITS) - 1  # Mask of the port in a route.
TO_BITS = 20  # SLOT.word has the destination core in so many bits, above them a route (8 bits), HEAD and TAIL.
TO = (1 << TO_BITS) - 1  # Mask of the destination core.
HEAD = 1 << 28  # Of SLOT.word: the first flit of its packet.
TAIL = 1 << 29  # Of SLOT.word: the last flit of its packet.
NOBODY = 255  # OUTPUT.granted while the output grants to no input channel; these are below 64.
N_BLOCKS = 64  # Blocks of cycles that a timer can be ahead, a bit of a word each; later ones are set again in between.

OUTPUT = np.dtype(  # from n_outputs on: of the sources
    [
        ("asks", np.uint64),  # input channels whose first flit asks for it
        ("held", np.uint64),  # input channels whose packet holds one of its channels
        ("free", np.uint64),  # its channels that none holds
        ("grants", np.uint64),  # to the router's input port of that number: outputs that grant to it in this cycle
        ("sent", np.int64),  # flits
        ("latency", np.uint32),  # leaving -> may ask downstream
        ("first", np.uint32),  # first output of its router
        ("down", np.uint32),  # buffer of channel 0 downstream
        ("down_router", np.uint32),
        ("down_input", np.uint8),  # input channel downstream that channel 0 leads to
        ("grant", np.uint8),  # input port to which the output grants first
        ("accept_port", np.uint8),  # output whose grant the input port of that number accepts first
        ("first_channel", np.uint8),  # channel of that input port that asks first
        ("granted", np.uint8),  # input channel to which it grants in this cycle, or NOBODY
        ("is_listed", np.bool_),  # in `Agenda.outputs`
        ("is_last", np.bool_),  # it leads to a sink
    ],
    align=True,
)
BUFFER = np.dtype(
    [
        ("head", np.uint32),  # slot of the first flit
        ("count", np.uint32),  # flits in it
        ("place", np.uint32),  # slot to be filled next
        ("sender", np.uint32),  # output channel that fills it: output << INPUT_BITS | channel
        ("in_port", np.uint8),  # input port of its router
        ("channel", np.uint8),  # output channel that the packet at the head holds
        ("accept", np.uint8),  # the (port, channel) that its packets accept first
        ("offer", np.uint8),  # as the sender's output channel: input channel to which it is offered first
        ("holder", np.uint8),  # as that: input channel whose packet holds it
        ("is_waited_for", np.bool_),  # the holder waits for a slot
    ],
    align=True,
)
SLOT = np.dtype(
    [
        ("time", np.int64),  # of a flit: when it may ask; of an empty slot: when the sender may fill it
        ("packet", np.uint32),
        ("word", np.uint32),  # `to`, route << TO_BITS, HEAD and TAIL
    ],
    align=True,
)
LINK = np.dtype(  # of an output, or a source
    [
        ("free", np.int64),  # when it can take the next flit
        ("input_free", np.int64),  # of the router's input port of that number: when the crossbar can
        ("cycles", np.int64),  # a flit holds it this long
    ],
    align=True,
)
AGENDA_ROW = np.dtype([("n_asks", np.int64), ("n_wakes", np.int64)], align=True)
TIMER = np.dtype(
    [
        ("due", np.int64),  # when the source goes on
        ("after", np.int64),  # the next source of the same block, -1: none
    ],
    align=True,
)


class Routers(NamedTuple):
    """Routers, and the flits in them.

    Where links are slow or there are several channels, kernels take a table of links or `VirtualChannels` besides,
    else None in their place.
    """

    n_ports: int
    n_vcs: int
    n_outputs: int  # of routers
    depth: int
    is_speculative: bool
    route_cycles: int
    credit_cycles: int
    link_cycles: int  # a flit holds a crossbar input, or the injection link, this long
    routes: RouteTable
    output: np.ndarray  # OUTPUT[output], then [source]
    buffer: np.ndarray  # BUFFER[buffer]
    slot: np.ndarray  # SLOT[buffer * depth + slot]


class VirtualChannels(NamedTuple):
    """Several channels of each output."""

    has_dateline: bool
    of_class: np.ndarray  # uint64[3]: channels that a packet of class ANY, BEFORE or AFTER may take


class Timers(NamedTuple):
    """Sources that wait for longer than an agenda reaches ahead.

    Time is cut in blocks of as many cycles as the agenda has rows; a source waits in the list of its block, and is put
    into the agenda when that begins. A source waits in one list at most.
    """

    timer: np.ndarray  # TIMER[source]
    first: np.ndarray  # int64[block % N_BLOCKS]: first source, -1: none
    used: np.ndarray  # uint64[1]: the set of blocks % N_BLOCKS in which a source waits
    next: np.ndarray  # int64[1]: the cycle in which the first of these begins, or NEVER


class Agenda(NamedTuple):
    """What is to be done in the next cycles; that of cycle t lies in row t % rows, a power of two."""

    asks: np.ndarray  # uint32[row, buffer]: output << INPUT_BITS | input channel: its first flit begins to ask
    wakes: np.ndarray  # uint32[row, output or source channel]: has a slot again that its holder, or source, waits for
    count: np.ndarray  # AGENDA_ROW[row]: how many of these there are
    used: np.ndarray  # uint8[row]: 1 where anything is written
    used_words: np.ndarray  # uint64[row // 8]: the same memory
    outputs: np.ndarray  # uint32[output]: to be served in this cycle
    sources: np.ndarray  # uint32[core]: those that have a flit


def timers(n_sources: int) -> Timers:
    """None of so many sources waits."""
    return Timers(
        timer=np.zeros(n_sources, TIMER),
        first=np.full(N_BLOCKS, -1),
        used=np.zeros(1, np.uint64),
        next=np.full(1, NEVER),
    )


@inlined
def ask(agenda, time, output, i):
    """From that cycle on the first flit of input channel i asks for an output."""
    row = time & (agenda.count.shape[0] - 1)
    count = agenda.count[row]
    agenda.asks[row, count.n_asks] = output << INPUT_BITS | i
    count.n_asks += 1
    agenda.used[row] = 1


@inlined
def wake(agenda, time, sender):
    """In that cycle an output channel has a slot that its holder waits for, or a source can go on: `sender`.

    If that is more than the rows of the agenda ahead, it is woken before, and has to look whether it can.
    """
    row = time & (agenda.count.shape[0] - 1)
    count = agenda.count[row]
    agenda.wakes[row, count.n_wakes] = sender
    count.n_wakes += 1
    agenda.used[row] = 1


@inlined
def next_cycle(agenda, time):
    """The next cycle for which something is written; -1 if there is none."""
    rows, n_words = agenda.used.shape[0], agenda.used_words.shape[0]
    first = (time + 1) & (rows - 1)
    word, before = first >> 3, np.uint64(8 * (first & 7))
    used = agenda.used_words[word] >> before << before
    for _ in range(n_words + 1):
        if used != 0:
            row = (word << 3) + (np.int64(lowest(used)) >> 3)
            return time + 1 + ((row - first) & (rows - 1))
        word = word + 1 if word + 1 < n_words else 0
        used = agenda.used_words[word]
    return np.int64(-1)


@inlined
def set_timer(timers, agenda, time, due, source, sender):
    """At `time`: wake a source, `sender` in the agenda, in cycle `due`."""
    rows = agenda.used.shape[0]
    if due - time < rows:
        wake(agenda, due, sender)
        return
    bits = np.int64(lowest(np.uint64(rows)))
    block = min(due >> bits, (time >> bits) + N_BLOCKS - 1)
    k = block & (N_BLOCKS - 1)
    timer = timers.timer[source]
    timer.due = due
    timer.after = timers.first[k]
    timers.first[k] = source
    timers.used[0] |= bit(k)
    timers.next[0] = min(timers.next[0], block << bits)


@inlined
def fire_timers(timers, agenda, first_source):
    """Put the sources of the block that begins now into the agenda; source 0 is output `first_source` there."""
    rows, start = agenda.used.shape[0], timers.next[0]
    bits = np.int64(lowest(np.uint64(rows)))
    block = start >> bits
    k = block & (N_BLOCKS - 1)
    source = timers.first[k]
    timers.first[k] = -1
    timers.used[0] &= ~bit(k)
    timers.next[0] = NEVER
    while source >= 0:
        after = timers.timer[source].after
        set_timer(timers, agenda, start, timers.timer[source].due, source, first_source + source << INPUT_BITS)
        source = after
    if timers.used[0] != NONE:
        ahead = (first_from(timers.used[0], (k + 1) & (N_BLOCKS - 1)) - k) & (N_BLOCKS - 1)
        timers.next[0] = (block + ahead) << bits


@inlined
def room_at(routers, there):
    """When the next slot of a buffer can be filled; NEVER while it is full."""
    if np.int64(there.count) == routers.depth:
        return NEVER
    return routers.slot[np.int64(there.place)].time


@inlined
def fill(routers, b, there, time):
    """The slot that a flit takes in buffer b, by number; the next one will be filled after it."""
    place = np.int64(there.place)
    end = (b + 1) * routers.depth
    there.place = place + 1 if place + 1 < end else end - routers.depth
    routers.slot[place].time = time
    return place


@inlined
def push(routers, agenda, output, v, b, there, packet, word, ready):
    """Put a flit into buffer b, channel v of an output; as its first one it asks there."""
    place = fill(routers, b, there, ready)
    to = word & TO
    down_router = np.int64(output.down_router)
    route = np.int64(route_to(routers.routes, down_router, to))
    slot = routers.slot[place]
    slot.packet = packet
    slot.word = to | route << TO_BITS | word & (HEAD | TAIL)
    if there.count == 0:
        delay = routers.route_cycles if word & HEAD else 0
        in_channel = np.int64(output.down_input) + v
        ask(agenda, ready + delay, down_router * routers.n_ports + (route & PORT), in_channel)
    there.count = np.int64(there.count) + 1
