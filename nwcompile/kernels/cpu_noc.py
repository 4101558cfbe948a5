"""A mesh of input-buffered routers, flit by flit, in Numba: credits, virtual channels, round-robin, back-pressure.

Event driven: a node (router or core) is looked at only at times when something about it can change, kept in a tree of
wake-up times, so the cost follows events and idle time is free. Within one time the order of nodes cannot matter:
whatever a node does at time t is seen by another at t + 1 or later (every latency is at least one tick).

Buffer b is one virtual channel: router r, input port i, channel v is (r * n_ports + i) * n_vcs + v; the receive queue
of core k is (n_routers * n_ports + k) * n_vcs + v. Ports: 0 E, 1 W, 2 N, 3 S, 4 + c the router's core c.
Nodes: routers first, then cores.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import kernel

NEVER = np.int64(1) << 62


class Mesh(NamedTuple):
    """What does not change. An output is router * n_ports + port; times are in ticks."""

    n_routers: int
    n_ports: int
    n_vcs: int
    depth: int  # flits a buffer holds
    columns: int
    per_router: int  # cores at a router
    link_ticks: int  # a flit holds a link this long
    inject_ticks: int  # leaving the core -> may arbitrate
    credit_ticks: int  # slot left -> usable by the sender
    latency: np.ndarray  # int64[output]: winning -> may be looked at downstream
    down: np.ndarray  # int64[output]: buffer of channel 0 downstream, -1 at the mesh's edge
    down_node: np.ndarray  # int32[output]
    up_node: np.ndarray  # int32[router input]: who fills input port i of router r
    link: np.ndarray  # int64[output]: link number for `flits`
    inject_link: np.ndarray  # int64[core]


class Queues(NamedTuple):
    """What changes."""

    message: np.ndarray  # int32[buffer, slot]
    left: np.ndarray  # int32[buffer, slot]: flits of the message from this one on; 1 is the tail
    ready: np.ndarray  # int64[buffer, slot]: when the flit may be looked at
    free: np.ndarray  # int64[buffer, slot]: when the sender may use the slot again
    head: np.ndarray  # int32[buffer]
    count: np.ndarray  # int32[buffer]
    output: np.ndarray  # int32[buffer]: output that the packet at the head was routed to, -1 none yet
    channel: np.ndarray  # int32[buffer]: output channel it holds, -1 none yet
    owner: np.ndarray  # int32[output, channel]: buffer whose packet holds it, -1 free
    link_free: np.ndarray  # int64[output]
    input_free: np.ndarray  # int64[router input]: crossbar input
    winner: np.ndarray  # int32[output]: last winner, for round-robin
    wake: np.ndarray  # int64[2 * leaves]: tree of wake-up times
    target: np.ndarray  # int32[message]: destination core
    flits: np.ndarray  # int64[link]: flits carried
    busy_until: np.ndarray  # int64[1]: when the last link falls idle


@kernel
def wake_at(wake, node, time):
    """Look at `node` at `time` or earlier."""
    i = wake.shape[0] // 2 + node
    while i >= 1 and wake[i] > time:
        wake[i] = time
        i >>= 1


@kernel
def next_node(wake):
    """Take the node with the earliest wake-up; (NEVER, -1) if there is none."""
    time = wake[1]
    leaves = wake.shape[0] // 2
    if time >= NEVER:
        return NEVER, -1
    i = 1
    while i < leaves:
        i = 2 * i if wake[2 * i] == time else 2 * i + 1
    node = i - leaves
    wake[i] = NEVER
    i >>= 1
    while i >= 1:
        wake[i] = min(wake[2 * i], wake[2 * i + 1])
        i >>= 1
    return time, node


@kernel
def slot_free_at(q, buffer):
    """When the next slot of a buffer can be filled; NEVER while it is full."""
    depth = q.message.shape[1]
    if q.count[buffer] == depth:
        return NEVER
    return q.free[buffer, (q.head[buffer] + q.count[buffer]) % depth]


@kernel
def push(q, buffer, message, left, ready):
    slot = (q.head[buffer] + q.count[buffer]) % q.message.shape[1]
    q.message[buffer, slot] = message
    q.left[buffer, slot] = left
    q.ready[buffer, slot] = ready
    q.count[buffer] += 1


@kernel
def pop(m, q, buffer, sender, time):
    """Take the head flit of a buffer; its slot returns to the sender, who is woken if it may be waiting for it."""
    depth = q.message.shape[1]
    q.free[buffer, q.head[buffer]] = time + m.credit_ticks
    if q.count[buffer] == depth:
        wake_at(q.wake, sender, time + m.credit_ticks)
    q.head[buffer] = (q.head[buffer] + 1) % depth
    q.count[buffer] -= 1


@kernel
def route_xy(m, router, core):
    """Output port at `router` toward `core`: along x first, then y, then the core's own port."""
    home = core // m.per_router
    dx = home % m.columns - router % m.columns
    dy = home // m.columns - router // m.columns
    if dx != 0:
        return 0 if dx > 0 else 1
    if dy != 0:
        return 2 if dy > 0 else 3
    return 4 + core % m.per_router


@kernel
def free_channel(m, q, output, time):
    """(channel, when): an unowned channel of `output` with room now, or -1 and when one may have room."""
    soonest = NEVER
    for v in range(m.n_vcs):
        if q.owner[output, v] < 0:
            when = slot_free_at(q, m.down[output] + v)
            if when <= time:
                return v, time
            soonest = min(soonest, when)
    return -1, soonest


@kernel
def look_at_router(m, q, router, time):
    """Let every output of a router send the flit that wins; wakes the router when it can act next."""
    first = router * m.n_ports * m.n_vcs
    n_inputs = m.n_ports * m.n_vcs
    later = NEVER
    requested = np.int64(0)
    for i in range(n_inputs):
        b = first + i
        if q.count[b] == 0:
            continue
        ready = q.ready[b, q.head[b]]
        if ready > time:
            later = min(later, ready)
            continue
        if q.output[b] < 0:
            port = route_xy(m, router, q.target[q.message[b, q.head[b]]])
            q.output[b] = router * m.n_ports + port
        requested |= np.int64(1) << np.int64(q.output[b] - router * m.n_ports)
    for port in range(m.n_ports):
        if not (requested >> port) & 1:
            continue
        output = router * m.n_ports + port
        if q.link_free[output] > time:
            later = min(later, q.link_free[output])
            continue
        for k in range(1, n_inputs + 1):
            i = (q.winner[output] + k) % n_inputs
            b = first + i
            if q.count[b] == 0 or q.output[b] != output or q.ready[b, q.head[b]] > time:
                continue
            source = router * m.n_ports + i // m.n_vcs
            if q.input_free[source] > time:
                later = min(later, q.input_free[source])
                continue
            if q.channel[b] < 0:
                channel, when = free_channel(m, q, output, time)
            else:
                channel = q.channel[b]
                when = slot_free_at(q, m.down[output] + channel)
                channel = channel if when <= time else -1
            if channel < 0:
                later = min(later, when)
                continue
            send(m, q, b, source, output, channel, time)
            q.winner[output] = i
            later = min(later, time + m.link_ticks)
            break
    if later < NEVER:
        wake_at(q.wake, router, later)


@kernel
def send(m, q, buffer, source, output, channel, time):
    """Move the head flit of `buffer` through the crossbar and over the link."""
    slot = q.head[buffer]
    message, left = q.message[buffer, slot], q.left[buffer, slot]
    ready = time + m.latency[output]
    pop(m, q, buffer, m.up_node[source], time)
    push(q, m.down[output] + channel, message, left, ready)
    wake_at(q.wake, m.down_node[output], ready)
    q.link_free[output] = time + m.link_ticks
    q.input_free[source] = time + m.link_ticks
    q.busy_until[0] = max(q.busy_until[0], time + m.link_ticks)
    q.flits[m.link[output]] += 1
    if left == 1:
        q.owner[output, channel] = -1
        q.output[buffer] = -1
        q.channel[buffer] = -1
    else:
        q.owner[output, channel] = buffer
        q.channel[buffer] = channel


@kernel
def clear(q):
    """An empty, idle network at time 0; counts of flits stay."""
    q.free[:] = 0
    q.head[:] = 0
    q.count[:] = 0
    q.output[:] = -1
    q.channel[:] = -1
    q.owner[:] = -1
    q.link_free[:] = 0
    q.input_free[:] = 0
    q.wake[:] = NEVER
    q.busy_until[0] = 0
