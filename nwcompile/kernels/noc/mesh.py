"""Routers as both router engines describe them, and what the event engine changes while it runs.

Buffer b is one virtual channel: router r, input port i, channel v is (r * n_ports + i) * n_vcs + v; the receive queue
of core k is (n_routers * n_ports + k) * n_vcs + v. An input channel is i * n_vcs + v. Ports: 0 E, 1 W, 2 N, 3 S, 4 + c
the router's core c. An output is router * n_ports + port. Nodes: routers first, then cores. Times are in ticks.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import EventQueue, clear_events

NO_PORT = -1  # BUFFER.port of a packet that is not routed yet.
NO_CHANNEL = -1  # BUFFER.channel of a packet that holds no channel of its output.
PORT_BITS = 6  # A route has the output port in so many bits, and above them the dateline class.
ANY, BEFORE, AFTER = range(3)  # Dateline classes, numbered as in `ir.noc.routing`.
# Of Queues.now.
BUSY_UNTIL = 0  # when the last link falls idle
N_LOST = 1  # messages dropped in this micro-step

BUFFER = np.dtype(
    [
        ("ready", np.int64),  # when the first flit may ask
        ("owned", np.int64),  # as the sender's output channel: when a packet may be given it, NEVER while one holds it
        ("head", np.int32),  # slot of the first flit
        ("count", np.int32),  # flits in it
        ("port", np.int8),  # output port that the packet at the head is routed to, NO_PORT while not yet
        ("vc_class", np.int8),  # ANY, BEFORE or AFTER the dateline: which channels of that output it may take
        ("channel", np.int8),  # the one it holds, NO_CHANNEL while none
        ("accept", np.int8),  # the (port, channel) whose grant it accepts first
        ("granted", np.int8),  # as the sender's output channel: its input channel to which it grants first
    ],
    align=True,
)
SLOT = np.dtype(
    [
        ("time", np.int64),  # of a flit: when it may be looked at; of an empty slot: when the sender may use it
        ("message", np.int32),
        ("to", np.int32),  # destination core; from n_cores on: a branch of a multicast tree, see BRANCH
        ("left", np.int32),  # flits of the packet from this one on; 1: the tail
        ("entry", np.int32),  # of Probes.entry, -1 none
    ],
    align=True,
)
OUTPUT = np.dtype(
    [
        ("link_free", np.int64),  # when the link can take the next flit
        ("input_free", np.int64),  # of the router's input port of that number: when the crossbar can
        ("latency", np.int64),  # leaving -> may ask downstream
        ("held", np.int64),  # a flit holds the link this long
        ("down", np.int32),  # buffer of channel 0 downstream, -1 at the mesh's edge
        ("down_node", np.int32),
        ("down_input", np.int32),  # input channel of the router downstream that channel 0 leads to
        ("up_node", np.int32),  # who fills the router's input port of that number
        ("link", np.int32),  # link number for `flits`
        ("grant", np.int8),  # input port to which the output grants first
        ("accept_port", np.int8),  # output whose grant the input port accepts first
        ("first_channel", np.int8),  # channel of the input port that asks first
    ],
    align=True,
)
BRANCH = np.dtype(  # a flit that is copied goes on through consecutive branches one after the other
    [
        ("to", np.int32),  # `to` of the copy
        ("route", np.uint8),  # as in RouteTable
        ("is_last", np.bool_),
    ],
    align=True,
)
REQUEST = np.dtype(  # of one port, in one allocation of a router
    [
        ("before", np.uint64),  # input channels that ask the output for a channel before the dateline
        ("after", np.uint64),  # input channels that ask it for a channel after the dateline
        ("switch", np.uint64),  # input ports that ask for the output
        ("grants", np.uint64),  # outputs that grant to the input port
    ],
    align=True,
)


class Timing(NamedTuple):
    """How long everything takes."""

    is_speculative: bool
    cycle_ticks: int  # a router's cycle
    route_ticks: int  # a head waits so long before it may ask
    link_ticks: int  # a flit holds a crossbar input, or the injection link, this long
    inject_ticks: int  # leaving the core -> may ask
    credit_ticks: int  # slot left -> usable by the sender


class RouteTable(NamedTuple):
    """The output through which each router passes a message on, told by the core that it goes to.

    A route is the output port, and the dateline class << PORT_BITS. That from router r to core c is
    `route[from_router[r] + to_core[c]]`.
    """

    from_router: np.ndarray  # int32[router]
    to_core: np.ndarray  # int32[core]
    route: np.ndarray  # uint8[...]


class Mesh(NamedTuple):
    """What does not change."""

    n_routers: int
    n_ports: int
    n_vcs: int
    depth: int  # flits a buffer holds
    per_router: int  # cores at a router
    n_cores: int
    dateline_vc: int  # first channel after the dateline; n_vcs where all channels are alike
    timing: Timing
    output: np.ndarray  # OUTPUT[output]: as they are at first
    inject_link: np.ndarray  # int64[core]
    routes: RouteTable
    branch: np.ndarray  # BRANCH[branch]: of the multicast trees


class Allocation(NamedTuple):
    """Scratch of one router's allocation."""

    request: np.ndarray  # REQUEST[port]
    asking: np.ndarray  # int64[input port, output]: channel with which the input port asks for the output
    offer: np.ndarray  # int64[channel]: input channel to which an output channel grants


class Queues(NamedTuple):
    """What changes."""

    buffer: np.ndarray  # BUFFER[buffer]
    slot: np.ndarray  # SLOT[buffer * depth + slot]
    output: np.ndarray  # OUTPUT[output]
    filled: np.ndarray  # uint64[router]: input channels that hold a flit
    flits: np.ndarray  # int64[link]: flits carried
    now: np.ndarray  # int64[2]: BUSY_UNTIL, N_LOST
    events: EventQueue
    allocation: Allocation


@inlined
def route_to(routes, router, core):
    """The route of a message in a router to a core, as `RouteTable` has it."""
    return routes.route[np.int64(routes.from_router[router]) + np.int64(routes.to_core[core])]


@inlined
def clear_network(queues):
    """An empty, idle network at time 0; round-robin arbiters, and counts of flits, stay."""
    for b in range(queues.buffer.shape[0]):
        buffer = queues.buffer[b]
        buffer.count = 0
        buffer.port = NO_PORT
        buffer.channel = NO_CHANNEL
        buffer.owned = 0
    for slot in range(queues.slot.shape[0]):
        queues.slot[slot].time = 0
    for o in range(queues.output.shape[0]):
        queues.output[o].link_free = 0
        queues.output[o].input_free = 0
    for router in range(queues.filled.shape[0]):
        queues.filled[router] = 0
    clear_events(queues.events)
    queues.now[BUSY_UNTIL] = 0


@inlined
def reset_arbiters(queues):
    """All round-robin arbiters as at first."""
    for b in range(queues.buffer.shape[0]):
        buffer = queues.buffer[b]
        buffer.head = 0
        buffer.accept = 0
        buffer.granted = 0
    for o in range(queues.output.shape[0]):
        output = queues.output[o]
        output.grant = 0
        output.accept_port = 0
        output.first_channel = 0
