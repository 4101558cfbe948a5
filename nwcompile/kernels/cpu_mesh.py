"""What the router kernels work on: tables of what does not change, and of what does.

Buffer b is one virtual channel: router r, input port i, channel v is (r * n_ports + i) * n_vcs + v; the receive queue
of core k is (n_routers * n_ports + k) * n_vcs + v. Ports: 0 E, 1 W, 2 N, 3 S, 4 + c the router's core c.
Nodes: routers first, then cores.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cpu_wheel import Wheel
from nwcompile.kernels.jit import inlined

# columns of Queues.buffer
HEAD = 0  # slot of the first flit
COUNT = 1  # flits in it
READY = 2  # when the first flit may ask
PORT = 3  # what Mesh.route says of the packet at the head, -1 none yet
CHANNEL = 4  # output channel it holds, -1 none yet
ACCEPT = 5  # the (port, channel) whose grant it accepts first
OWNED = 6  # as the sender's output channel: when it may be given to a packet, NEVER while one holds it
GRANTED = 7  # as that: input channel of the sending router to which it grants first
RECORD = 8  # columns, a cache line
# columns of Queues.slot
FLIT = 0  # see `flit`
TIME = 1  # of a flit: when it may be looked at; of an empty slot: when the sender may use it
# columns of Mesh.output
DOWN = 0  # buffer of channel 0 downstream, -1 at the mesh's edge
DOWN_NODE = 1
LATENCY = 2  # leaving -> may ask downstream
LINK = 3  # link number for `flits`
UP_NODE = 4  # of the router's input of that number: who fills it
DOWN_INPUT = 5  # input channel of the router downstream that channel 0 leads to
HELD = 6  # a flit holds the link this long
# Mesh.route: the output port, and in the bits above it which channels of that output
PORT_BITS = 6
LOWER = 1  # those below Mesh.upper only
UPPER = 2  # the others only; 0: all
# columns of Queues.port: of the router's output, then of its input of that number
LINK_FREE = 0
GRANT = 1  # input to which the output grants first
INPUT_FREE = 2  # crossbar input
ACCEPT_PORT = 3  # output whose grant the input accepts first
FIRST_CHANNEL = 4  # channel of the input that asks first


class Mesh(NamedTuple):
    """What does not change. An output is router * n_ports + port; times are in ticks."""

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
    output: np.ndarray  # int64[output, RECORD]
    inject_link: np.ndarray  # int64[core]
    route: np.ndarray  # uint8[router, core]: output port toward a core, and LOWER or UPPER << PORT_BITS
    upper: int  # first channel of the upper half; n_vcs where all channels are alike


class Queues(NamedTuple):
    """What changes."""

    buffer: np.ndarray  # int64[buffer, RECORD]
    slot: np.ndarray  # int64[buffer, depth, 2]
    port: np.ndarray  # int64[output, RECORD]
    filled: np.ndarray  # uint64[router]: input channels that hold a flit
    wheel: Wheel
    target: np.ndarray  # int32[message]: destination core
    flits: np.ndarray  # int64[link]: flits carried
    busy_until: np.ndarray  # int64[1]: when the last link falls idle
    asks_lower: np.ndarray  # uint64[port]: scratch: input channels that ask for a channel of the output's lower half
    asks_upper: np.ndarray  # uint64[port]: scratch: the same, upper half
    asks_switch: np.ndarray  # uint64[port]: scratch: inputs that ask for the output
    asking: np.ndarray  # int64[port, port]: scratch: channel with which input asks for output
    grants: np.ndarray  # uint64[port]: scratch: outputs that grant to an input
    offers: np.ndarray  # int64[channel]: scratch: input channel to which an output channel grants


@inlined
def flit(message, left):
    """One number for a flit of a message with `left` flits from this one on (below 2**20); 1 is the tail."""
    return (np.int64(message) << 20) | np.int64(left)


@inlined
def message_of(flit):
    return flit >> 20


@inlined
def left_of(flit):
    return flit & ((1 << 20) - 1)
