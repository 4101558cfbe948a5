"""State of the lockstep engine: routers, the flits in them, and an agenda of the work of the next cycles.

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
INPUT_BITS = 6  # Bits of a channel below the output in `Agenda.asks` and `wakes`: a router has up to 64 channels.
INPUT = (1 << INPUT_BITS) - 1  # Mask of the channel in such an entry.
PORT = (1 << PORT_BITS) - 1  # Mask of the port in a route.
TO_BITS = 20  # Bits of the destination core in SLOT.word; above them are a route (8 bits), HEAD and TAIL.
TO = (1 << TO_BITS) - 1  # Mask of the destination core.
HEAD = 1 << 28  # Flag of SLOT.word: the first flit of its packet.
TAIL = 1 << 29  # Flag of SLOT.word: the last flit of its packet.
NOBODY = 255  # OUTPUT.granted of an output without a grant; input channels are below 64.
N_BLOCKS = 64  # Blocks of cycles that a timer reaches ahead, one bit each; later timers are set again on the way.

OUTPUT = np.dtype(  # rows from n_outputs on are sources
    [
        ("asks", np.uint64),  # input channels whose first flit requests it
        ("held", np.uint64),  # input channels whose packet holds one of its channels
        ("free", np.uint64),  # its channels that no packet holds
        ("grants", np.uint64),  # of the router's input port with this number: outputs that grant to it in this cycle
        ("sent", np.int64),  # flits sent
        ("latency", np.uint32),  # cycles from leaving until the flit may request downstream
        ("first", np.uint32),  # first output of its router
        ("down", np.uint32),  # buffer downstream of channel 0
        ("down_router", np.uint32),
        ("down_input", np.uint8),  # input channel downstream of channel 0
        ("grant", np.uint8),  # round-robin: input port with the first grant
        ("accept_port", np.uint8),  # round-robin: output whose grant the input port with this number accepts first
        ("first_channel", np.uint8),  # round-robin: channel of that input port with the first request
        ("granted", np.uint8),  # input channel with the grant of this cycle, or NOBODY
        ("is_listed", np.bool_),  # whether it is in `Agenda.outputs`
        ("is_last", np.bool_),  # whether it leads to a sink
    ],
    align=True,
)
BUFFER = np.dtype(
    [
        ("head", np.uint32),  # slot of the first flit
        ("count", np.uint32),  # flits in the buffer
        ("place", np.uint32),  # slot to fill next
        ("sender", np.uint32),  # output channel that fills the buffer: output << INPUT_BITS | channel
        ("in_port", np.uint8),  # input port of its router
        ("channel", np.uint8),  # output channel that the packet at the head holds
        ("accept", np.uint8),  # round-robin: the (port, channel) that its packets accept first
        ("offer", np.uint8),  # of the sender's output channel, round-robin: input channel with the first offer
        ("holder", np.uint8),  # of the sender's output channel: input channel whose packet holds it
        ("is_waited_for", np.bool_),  # whether the holder waits for a slot
    ],
    align=True,
)
SLOT = np.dtype(
    [
        ("time", np.int64),  # of a flit: when it may request; of an empty slot: when the sender may fill it
        ("packet", np.uint32),
        ("word", np.uint32),  # `to`, route << TO_BITS, HEAD and TAIL
    ],
    align=True,
)
LINK = np.dtype(  # of an output or a source
    [
        ("free", np.int64),  # when the link can take the next flit
        ("input_free", np.int64),  # when the crossbar input with this number can take the next flit
        ("cycles", np.int64),  # cycles that a flit occupies the link
    ],
    align=True,
)
AGENDA_ROW = np.dtype([("n_asks", np.int64), ("n_wakes", np.int64)], align=True)
TIMER = np.dtype(
    [
        ("due", np.int64),  # when the source wakes
        ("after", np.int64),  # next source of the same block, -1: none
    ],
    align=True,
)


class Routers(NamedTuple):
    """Routers, and the flits in them.

    Kernels also take a table of links if links are slow, and `VirtualChannels` if there are several; else None.
    """

    n_ports: int
    n_vcs: int
    n_outputs: int  # outputs of routers
    depth: int
    is_speculative: bool
    route_cycles: int
    credit_cycles: int
    link_cycles: int  # cycles that a flit occupies a crossbar input, or the injection link
    routes: RouteTable
    output: np.ndarray  # OUTPUT[output], then [source]
    buffer: np.ndarray  # BUFFER[buffer]
    slot: np.ndarray  # SLOT[buffer * depth + slot]


class VirtualChannels(NamedTuple):
    """The virtual channels of each output."""

    has_dateline: bool
    of_class: np.ndarray  # uint64[3]: channels that a packet of class ANY, BEFORE or AFTER may take


class Timers(NamedTuple):
    """Sources that wait for longer than the agenda reaches.

    Time is divided into blocks of as many cycles as the agenda has rows. A source waits in the list of its block and
    moves to the agenda when that block begins. A source waits in at most one list.
    """

    timer: np.ndarray  # TIMER[source]
    first: np.ndarray  # int64[block % N_BLOCKS]: first source of the list, -1: none
    used: np.ndarray  # uint64[1]: set of blocks % N_BLOCKS with a waiting source
    next: np.ndarray  # int64[1]: first cycle of the earliest of these blocks, or NEVER


class Agenda(NamedTuple):
    """Work of the next cycles. Row t % rows holds the work of cycle t; the number of rows is a power of two."""

    asks: np.ndarray  # uint32[row, buffer]: output << INPUT_BITS | input channel whose first flit begins to request
    wakes: np.ndarray  # uint32[row, output or source channel]: senders that have a slot again
    count: np.ndarray  # AGENDA_ROW[row]: number of entries of both
    used: np.ndarray  # uint8[row]: 1 if the row has entries
    used_words: np.ndarray  # uint64[row // 8]: the same memory as `used`
    outputs: np.ndarray  # uint32[output]: outputs to serve in this cycle
    sources: np.ndarray  # uint32[core]: sources with a flit


def timers(n_sources: int) -> Timers:
    """Empty timers for `n_sources` sources."""
    return Timers(
        timer=np.zeros(n_sources, TIMER),
        first=np.full(N_BLOCKS, -1),
        used=np.zeros(1, np.uint64),
        next=np.full(1, NEVER),
    )


@inlined
def ask(agenda, time, output, i):
    """Note that the first flit of input channel i requests an output from cycle `time` on."""
    row = time & (agenda.count.shape[0] - 1)
    count = agenda.count[row]
    agenda.asks[row, count.n_asks] = output << INPUT_BITS | i
    count.n_asks += 1
    agenda.used[row] = 1


@inlined
def wake(agenda, time, sender):
    """Wake `sender` in cycle `time`: an output channel whose holder waits for a slot, or a source.

    If `time` is beyond the agenda, the sender wakes early and has to check again.
    """
    row = time & (agenda.count.shape[0] - 1)
    count = agenda.count[row]
    agenda.wakes[row, count.n_wakes] = sender
    count.n_wakes += 1
    agenda.used[row] = 1


@inlined
def next_cycle(agenda, time):
    """Next cycle after `time` with an entry in the agenda; -1 if there is none."""
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
    """Schedule a source for cycle `due`, seen from cycle `time`; its number in the agenda is `sender`."""
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
    """Move the sources of the block that begins now into the agenda. Source 0 has number `first_source` there."""
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
    """When the next slot of a buffer can be filled; NEVER while the buffer is full."""
    if np.int64(there.count) == routers.depth:
        return NEVER
    return routers.slot[np.int64(there.place)].time


@inlined
def fill(routers, b, there, time):
    """Claim the next slot of buffer b for a flit and return its number."""
    place = np.int64(there.place)
    end = (b + 1) * routers.depth
    there.place = place + 1 if place + 1 < end else end - routers.depth
    routers.slot[place].time = time
    return place


@inlined
def push(routers, agenda, output, v, b, there, packet, word, ready):
    """Put a flit into buffer b, channel v of an output; the first flit of a buffer requests its output there."""
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
