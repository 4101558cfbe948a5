"""Router structures of both router engines, and the mutable state of the event engine.

Buffer b is one virtual channel. Router r, input port i, channel v has buffer (r * n_ports + i) * n_vcs + v; the receive
queue of core k has (n_routers * n_ports + k) * n_vcs + v. An input channel is i * n_vcs + v. Ports: 0 E, 1 W, 2 N,
3 S, 4 + c core c of the router. An output is router * n_ports + port. Nodes are routers, then cores. Times: ticks.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import EventQueue, clear_events

NO_PORT = -1  # BUFFER.port of a packet without a route.
NO_CHANNEL = -1  # BUFFER.channel of a packet without an output channel.
PORT_BITS = 6  # Bits of the output port in a route; the dateline class is above them.
ANY, BEFORE, AFTER = range(3)  # Dateline classes, numbered as in `ir.noc.routing`.
# Indices of Queues.now.
BUSY_UNTIL = 0  # when the last link falls idle
N_LOST = 1  # messages dropped in this micro-step

BUFFER = np.dtype(
    [
        ("ready", np.int64),  # when the first flit may request
        ("owned", np.int64),  # of the sender's output channel: when it can be assigned, NEVER while a packet holds it
        ("head", np.int32),  # slot of the first flit
        ("count", np.int32),  # flits in the buffer
        ("port", np.int8),  # output port of the packet at the head, NO_PORT before routing
        ("vc_class", np.int8),  # ANY, BEFORE or AFTER the dateline: which channels of that output it may take
        ("channel", np.int8),  # output channel that it holds, NO_CHANNEL if none
        ("accept", np.int8),  # round-robin: the (port, channel) whose grant it accepts first
        ("granted", np.int8),  # of the sender's output channel, round-robin: input channel that gets the first grant
    ],
    align=True,
)
SLOT = np.dtype(
    [
        ("time", np.int64),  # of a flit: when it may request; of an empty slot: when the sender may fill it
        ("message", np.int32),
        ("to", np.int32),  # destination core; n_cores + branch of a multicast tree, see BRANCH
        ("left", np.int32),  # flits of the packet from this one on; 1: the tail
        ("entry", np.int32),  # index of Probes.entry, -1: none
    ],
    align=True,
)
OUTPUT = np.dtype(
    [
        ("link_free", np.int64),  # when the link can take the next flit
        ("input_free", np.int64),  # when the crossbar input with this number can take the next flit
        ("latency", np.int64),  # ticks from leaving until the flit may request downstream
        ("held", np.int64),  # ticks that a flit occupies the link
        ("down", np.int32),  # buffer downstream of channel 0, -1 at the mesh's edge
        ("down_node", np.int32),
        ("down_input", np.int32),  # input channel of the router downstream of channel 0
        ("up_node", np.int32),  # node that fills the router's input port with this number
        ("link", np.int32),  # link number in `flits`
        ("grant", np.int8),  # round-robin: input port with the first grant
        ("accept_port", np.int8),  # round-robin: output whose grant the input port accepts first
        ("first_channel", np.int8),  # round-robin: channel of the input port with the first request
    ],
    align=True,
)
BRANCH = np.dtype(  # consecutive branches of a multicast tree; a flit is copied into one after the other
    [
        ("to", np.int32),  # `to` of the copy
        ("route", np.uint8),  # as in RouteTable
        ("is_last", np.bool_),
    ],
    align=True,
)
REQUEST = np.dtype(  # requests of one port in one allocation of a router
    [
        ("before", np.uint64),  # input channels that request a channel before the dateline
        ("after", np.uint64),  # input channels that request a channel after the dateline
        ("switch", np.uint64),  # input ports that request the output
        ("grants", np.uint64),  # outputs that grant to the input port
    ],
    align=True,
)


class Timing(NamedTuple):
    """Latencies of routers and links."""

    is_speculative: bool
    cycle_ticks: int  # cycle of a router
    route_ticks: int  # routing delay of a head before it may request
    link_ticks: int  # ticks that a flit occupies a crossbar input, or the injection link
    inject_ticks: int  # from leaving the core until the flit may request
    credit_ticks: int  # from leaving a slot until the sender can refill it


class RouteTable(NamedTuple):
    """The output of each router for a message to each core.

    A route is the output port | dateline class << PORT_BITS. The route from router r to core c is
    `route[from_router[r] + to_core[c]]`.
    """

    from_router: np.ndarray  # int32[router]
    to_core: np.ndarray  # int32[core]
    route: np.ndarray  # uint8[...]


class Mesh(NamedTuple):
    """Constants of a mesh or torus of routers."""

    n_routers: int
    n_ports: int
    n_vcs: int
    depth: int  # flits of a buffer
    per_router: int  # cores per router
    n_cores: int
    dateline_vc: int  # first channel after the dateline; n_vcs if there is no dateline
    timing: Timing
    output: np.ndarray  # OUTPUT[output]: initial state
    inject_link: np.ndarray  # int64[core]
    routes: RouteTable
    branch: np.ndarray  # BRANCH[branch]: branches of the multicast trees


class Allocation(NamedTuple):
    """Scratch of one router's allocation."""

    request: np.ndarray  # REQUEST[port]
    asking: np.ndarray  # int64[input port, output]: channel with which the input port requests the output
    offer: np.ndarray  # int64[channel]: input channel to which an output channel grants


class Queues(NamedTuple):
    """Mutable state of the routers."""

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
    """The route of a message in a router to a core, as in `RouteTable`."""
    return routes.route[np.int64(routes.from_router[router]) + np.int64(routes.to_core[core])]


@inlined
def clear_network(queues):
    """Empty the network and reset time to 0; round-robin arbiters and flit counts are unchanged."""
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
    """Reset all round-robin arbiters."""
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
