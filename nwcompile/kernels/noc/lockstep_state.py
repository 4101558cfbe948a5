"""What the kernels that go cycle by cycle work on: routers, the flits in them, and what is to be done when.

Buffers, outputs and ports are numbered as in mesh.py; an input channel is input * n_vcs + channel.
Times are in cycles.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.mesh import PORT_BITS

NONE = np.uint64(0)
INPUT_BITS = 6  # of a number in `Calendar.asks`: the input channel, of one in `wakes`: that of the output, above them
TO_BITS = 20  # of `word` in a slot: the destination core; above them 8 bits as in Mesh.route, HEAD and TAIL
TO = (1 << TO_BITS) - 1
INPUT = (1 << INPUT_BITS) - 1
PORT = (1 << PORT_BITS) - 1
HEAD, TAIL = 1 << 28, 1 << 29
NOBODY = 255

OUTPUT = np.dtype(  # from n_outputs on: of the sources
    [
        ("asks", np.uint64),  # input channels whose first flit asks for it
        ("held", np.uint64),  # input channels whose packet holds one of its channels
        ("free", np.uint64),  # its channels that none holds
        ("grants", np.uint64),  # to the router's input of that number: outputs that grant to it in this cycle
        ("sent", np.int64),  # flits
        ("latency", np.uint32),  # leaving -> may ask downstream
        ("first", np.uint32),  # first output of its router
        ("down", np.uint32),  # buffer of channel 0 downstream
        ("down_router", np.uint32),
        ("down_input", np.uint8),  # input channel downstream that channel 0 leads to
        ("turn", np.uint8),  # input to which the output grants first
        ("accept_port", np.uint8),  # output whose grant the input of that number accepts first
        ("first_channel", np.uint8),  # channel of that input that asks first
        ("granted", np.uint8),  # input channel to which it grants in this cycle, or NOBODY
        ("is_listed", np.bool_),  # in `Calendar.outputs`
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
        ("input", np.uint8),  # input of its router
        ("channel", np.uint8),  # output channel that the packet at the head holds
        ("accept", np.uint8),  # the (port, channel) that its packets accept first
        ("turn", np.uint8),  # as the sender's output channel: input channel to which it is offered first
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
        ("input_free", np.int64),  # of the router's input of that number: when the crossbar can
        ("cycles", np.int64),  # a flit holds it this long
    ],
    align=True,
)


class Routers(NamedTuple):
    """Routers, and the flits in them."""

    n_ports: int
    n_vcs: int
    n_outputs: int  # of routers
    depth: int
    is_speculative: bool
    route_cycles: int
    credit_cycles: int
    link_cycles: int  # a flit holds a crossbar input, or the injection link, this long
    route: np.ndarray  # uint8[router, core]: as Mesh.route
    is_slow: bool  # some link holds a flit for more than a cycle; `link` is used only then
    has_halves: bool
    halves: np.ndarray  # uint64[3]: channels that a packet routed to ANY, LOWER or UPPER may take
    output: np.ndarray  # OUTPUT[output], then [source]
    buffer: np.ndarray  # BUFFER[buffer]
    slot: np.ndarray  # SLOT[buffer * depth + slot]
    link: np.ndarray  # LINK[output or source]


class Calendar(NamedTuple):
    """What is to be done in the next cycles; that of cycle t lies in row t % rows, a power of two."""

    asks: np.ndarray  # uint32[row, buffer]: output << INPUT_BITS | input channel: its first flit begins to ask
    n_asks: np.ndarray  # int64[row]
    wakes: (
        np.ndarray
    )  # uint32[row, output or source channel]: has a slot again that its holder, or the source, waits for
    n_wakes: np.ndarray  # int64[row]
    used: np.ndarray  # uint8[row]: 1 where anything is written
    used_words: np.ndarray  # uint64[row // 8]: the same memory
    outputs: np.ndarray  # uint32[output]: to be looked at in this cycle
    sources: np.ndarray  # uint32[core]: those that have a flit


@inlined
def ask(c, time, output, i):
    """From that cycle on the first flit of input channel i asks for an output."""
    row = time & (c.n_asks.shape[0] - 1)
    n = c.n_asks[row]
    c.asks[row, n] = output << INPUT_BITS | i
    c.n_asks[row] = n + 1
    c.used[row] = 1


@inlined
def wake(c, time, sender):
    """In that cycle an output channel has a slot that its holder waits for, or a source can go on: `sender`.

    If that is more than the rows of the calendar ahead, it is woken before, and has to look whether it can.
    """
    row = time & (c.n_wakes.shape[0] - 1)
    n = c.n_wakes[row]
    c.wakes[row, n] = sender
    c.n_wakes[row] = n + 1
    c.used[row] = 1


@inlined
def room_at(m, there):
    """When the next slot of a buffer can be filled; NEVER while it is full."""
    if np.int64(there.count) == m.depth:
        return NEVER
    return m.slot[np.int64(there.place)].time


@inlined
def fill(m, b, there, time):
    """The slot that a flit takes in buffer b, by number; the next one will be filled after it."""
    place = np.int64(there.place)
    end = (b + 1) * m.depth
    there.place = place + 1 if place + 1 < end else end - m.depth
    m.slot[place].time = time
    return place


@inlined
def push(m, c, output, v, b, there, packet, word, ready):
    """Put a flit into buffer b, channel v of an output; as its first one it asks there."""
    place = fill(m, b, there, ready)
    to = word & TO
    down_router = np.int64(output.down_router)
    route = np.int64(m.route[down_router, to])
    slot = m.slot[place]
    slot.packet = packet
    slot.word = to | route << TO_BITS | word & (HEAD | TAIL)
    if there.count == 0:
        delay = m.route_cycles if word & HEAD else 0
        ask(c, ready + delay, down_router * m.n_ports + (route & PORT), np.int64(output.down_input) + v)
    there.count = np.int64(there.count) + 1
