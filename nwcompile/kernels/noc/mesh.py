"""What the router kernels work on: tables of what does not change, and of what does.

Buffer b is one virtual channel: router r, input port i, channel v is (r * n_ports + i) * n_vcs + v; the receive queue
of core k is (n_routers * n_ports + k) * n_vcs + v. Ports: 0 E, 1 W, 2 N, 3 S, 4 + c the router's core c. An output is
router * n_ports + port. Nodes: routers first, then cores. Times are in ticks.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import Wheel, forget

NO_PORT = -1
NO_CHANNEL = -1

BUFFER = np.dtype(
    [
        ("ready", np.int64),  # when the first flit may ask
        ("owned", np.int64),  # as the sender's output channel: when a packet may be given it, NEVER while one holds it
        ("head", np.int32),  # slot of the first flit
        ("count", np.int32),  # flits in it
        ("port", np.int8),  # output port that the packet at the head is routed to, NO_PORT while not yet
        ("half", np.int8),  # ANY, LOWER or UPPER: which channels of that output it may take
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
        ("to", np.int32),  # destination core; from n_cores on: a branch, see BRANCH
        ("left", np.int32),  # flits of the packet from this one on; 1: the tail
        ("entry", np.int32),  # of Watch.entry, -1 none
    ],
    align=True,
)
OUTPUT = np.dtype(
    [
        ("link_free", np.int64),  # when the link can take the next flit
        ("input_free", np.int64),  # of the router's input of that number: when the crossbar can
        ("latency", np.int64),  # leaving -> may ask downstream
        ("held", np.int64),  # a flit holds the link this long
        ("down", np.int32),  # buffer of channel 0 downstream, -1 at the mesh's edge
        ("down_node", np.int32),
        ("down_input", np.int32),  # input channel of the router downstream that channel 0 leads to
        ("up_node", np.int32),  # who fills the router's input of that number
        ("link", np.int32),  # link number for `flits`
        ("grant", np.int8),  # input to which the output grants first
        ("accept_port", np.int8),  # output whose grant the input accepts first
        ("first_channel", np.int8),  # channel of the input that asks first
    ],
    align=True,
)
BRANCH = np.dtype(  # a flit that is copied goes on through consecutive branches one after the other
    [
        ("to", np.int32),  # `to` of the copy
        ("route", np.uint8),  # as Mesh.route
        ("is_last", np.bool_),
    ],
    align=True,
)
# Mesh.route: the output port, and in the bits above it which channels of that output
PORT_BITS = 6
ANY = 0
LOWER = 1  # those below Mesh.upper only
UPPER = 2  # the others only


class Mesh(NamedTuple):
    """What does not change."""

    n_routers: int
    n_ports: int
    n_vcs: int
    depth: int  # flits a buffer holds
    is_speculative: bool
    cycle_ticks: int  # a router's cycle
    route_ticks: int  # a head waits so long before it may ask
    link_ticks: int  # a flit holds a crossbar input, or the injection link, this long
    inject_ticks: int  # leaving the core -> may ask
    credit_ticks: int  # slot left -> usable by the sender
    per_router: int  # cores at a router
    n_cores: int
    output: np.ndarray  # OUTPUT[output]: as they are at first
    inject_link: np.ndarray  # int64[core]
    route: np.ndarray  # uint8[router, core]: output port toward a core, and which channels << PORT_BITS
    branch: np.ndarray  # BRANCH[branch]: of the multicast trees
    upper: int  # first channel of the upper half; n_vcs where all channels are alike


class Queues(NamedTuple):
    """What changes."""

    buffer: np.ndarray  # BUFFER[buffer]
    slot: np.ndarray  # SLOT[buffer * depth + slot]
    output: np.ndarray  # OUTPUT[output]
    filled: np.ndarray  # uint64[router]: input channels that hold a flit
    wheel: Wheel
    flits: np.ndarray  # int64[link]: flits carried
    busy_until: np.ndarray  # int64[1]: when the last link falls idle
    asks_lower: np.ndarray  # uint64[port]: scratch: input channels that ask for a channel of the output's lower half
    asks_upper: np.ndarray  # uint64[port]: scratch: the same, upper half
    asks_switch: np.ndarray  # uint64[port]: scratch: inputs that ask for the output
    asking: np.ndarray  # int64[port, port]: scratch: channel with which input asks for output
    grants: np.ndarray  # uint64[port]: scratch: outputs that grant to an input
    offers: np.ndarray  # int64[channel]: scratch: input channel to which an output channel grants


@inlined
def start_over(q):
    """An empty, idle network at time 0; whose turn it is, and counts of flits, stay."""
    for b in range(q.buffer.shape[0]):
        buffer = q.buffer[b]
        buffer.count = 0
        buffer.port = NO_PORT
        buffer.channel = NO_CHANNEL
        buffer.owned = 0
    for slot in range(q.slot.shape[0]):
        q.slot[slot].time = 0
    for o in range(q.output.shape[0]):
        q.output[o].link_free = 0
        q.output[o].input_free = 0
    for router in range(q.filled.shape[0]):
        q.filled[router] = 0
    forget(q.wheel)
    q.busy_until[0] = 0


@inlined
def equal_turns(q):
    """All round-robin turns as at first."""
    for b in range(q.buffer.shape[0]):
        buffer = q.buffer[b]
        buffer.head = 0
        buffer.accept = 0
        buffer.granted = 0
    for o in range(q.output.shape[0]):
        output = q.output[o]
        output.grant = 0
        output.accept_port = 0
        output.first_channel = 0
