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
INPUT_BITS = 6  # Bits of a channel below the output in `Agenda.asks`: a router has up to 64 channels.
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
        ("sender", np.uint32),  # output or source that fills the buffer
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
TIMER = np.dtype(
    [
        ("due", np.int64),  # cycle of the request
        ("after", np.int64),  # next request of the same block, -1: none
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
    """Requests that are due later than the agenda reaches; only networks with one channel have such requests.

    Time is divided into blocks of as many cycles as the agenda has rows. A request waits in the list of its block and
    moves to the agenda when that block begins. An output or source has at most one request in the lists.
    """

    timer: np.ndarray  # TIMER[output or source]
    first: np.ndarray  # int64[block % N_BLOCKS]: first request of the list, as in `Agenda.asks`, -1: none
    used: np.ndarray  # uint64[1]: set of blocks % N_BLOCKS with a request
    next: np.ndarray  # int64[1]: first cycle of the earliest of these blocks, or NEVER


class Agenda(NamedTuple):
    """Requests of the next cycles. Row t % rows holds those of cycle t; the number of rows is a power of two."""

    asks: np.ndarray  # uint32[row, request]: output << INPUT_BITS | input channel that asks for it; or a source
    count: np.ndarray  # int64[row]: number of requests
    used: np.ndarray  # uint64[row // 64]: set of rows with requests
    outputs: np.ndarray  # uint32[output]: outputs to serve in this cycle
    sources: np.ndarray  # uint32[core]: sources with a flit
    timers: Timers


def idle_timers(n_senders: int) -> Timers:
    """Timers of `n_senders` outputs and sources; none is set."""
    return Timers(
        timer=np.zeros(n_senders, TIMER),
        first=np.full(N_BLOCKS, -1),
        used=np.zeros(1, np.uint64),
        next=np.full(1, NEVER),
    )


@inlined
def ask(agenda, due, output, i):
    """Let input channel i request an output, or a source send, in cycle `due`, which the agenda reaches."""
    row = due & (agenda.count.shape[0] - 1)
    agenda.asks[row, agenda.count[row]] = output << INPUT_BITS | i
    agenda.count[row] += 1
    agenda.used[row >> 6] |= bit(row & 63)


@inlined
def ask_later(agenda, time, due, output, i):
    """`ask` in any cycle `due` after cycle `time`."""
    rows = agenda.count.shape[0]
    if due - time < rows:
        ask(agenda, due, output, i)
        return
    timers, bits = agenda.timers, np.int64(lowest(np.uint64(rows)))
    block = min(due >> bits, (time >> bits) + N_BLOCKS - 1)
    k = block & (N_BLOCKS - 1)
    timer = timers.timer[output]
    timer.due = due
    timer.after = timers.first[k]
    timers.first[k] = output << INPUT_BITS | i
    timers.used[0] |= bit(k)
    timers.next[0] = min(timers.next[0], block << bits)


@inlined
def next_cycle(agenda, time):
    """Next cycle after `time` with a request in the agenda; -1 if there is none."""
    rows, n_words = agenda.count.shape[0], agenda.used.shape[0]
    first = (time + 1) & (rows - 1)
    word, before = first >> 6, np.uint64(first & 63)
    used = agenda.used[word] >> before << before
    for _ in range(n_words + 1):
        if used != NONE:
            row = (word << 6) + np.int64(lowest(used))
            return time + 1 + ((row - first) & (rows - 1))
        word = word + 1 if word + 1 < n_words else 0
        used = agenda.used[word]
    return np.int64(-1)


@inlined
def fire_timers(agenda):
    """Move the requests of the block that begins now into the agenda."""
    timers, rows = agenda.timers, agenda.count.shape[0]
    start, bits = timers.next[0], np.int64(lowest(np.uint64(rows)))
    block = start >> bits
    k = block & (N_BLOCKS - 1)
    both = timers.first[k]
    timers.first[k] = -1
    timers.used[0] &= ~bit(k)
    timers.next[0] = NEVER
    while both >= 0:
        timer = timers.timer[both >> INPUT_BITS]
        after = timer.after
        ask_later(agenda, start, timer.due, both >> INPUT_BITS, both & INPUT)
        both = after
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
