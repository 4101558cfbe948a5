"""Input-buffered routers, flit by flit, in Numba: virtual channels, credits, back-pressure, separable allocation.

A router acts only at times at which something about it can change. The order of nodes at one time does not matter:
every latency is at least one tick, so other nodes see an action at time t only after t.

The head of a packet first waits for a virtual channel of its output (VC allocation). Then each flit waits for the
crossbar (switch allocation). Both are one round of iSLIP (McKeown 1999): every output grants to one requester and every
requester accepts one grant, both in round-robin order from the one after the last match. In a speculative router a head
requests both at once; a switch that it wins without a channel stays idle. Without speculation it requests the switch
one cycle after it gets the channel. This is the input-queued router of BookSim 2; packets arrive at the same cycles
(tests/sim/cycle/test_noc.py).
"""

import numpy as np

from nwcompile.kernels.bits import bit, first_from, lowest
from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import NEVER, wake_at
from nwcompile.kernels.noc.mesh import AFTER, BEFORE, BUSY_UNTIL, NO_CHANNEL, NO_PORT, PORT_BITS, route_to


@inlined
def slot_free_at(mesh, queues, b):
    """When the next slot of a buffer can be filled; NEVER while the buffer is full."""
    buffer = queues.buffer[b]
    if buffer.count == mesh.depth:
        return NEVER
    place = buffer.head + buffer.count
    return queues.slot[b * mesh.depth + (place - mesh.depth if place >= mesh.depth else place)].time


@inlined
def push(mesh, queues, b, node, i, message, to, left, entry, ready):
    """Put a flit into buffer b, input channel i of a router or a core's queue; a buffer's first flit wakes the node."""
    buffer = queues.buffer[b]
    place = buffer.head + buffer.count
    slot = queues.slot[b * mesh.depth + (place - mesh.depth if place >= mesh.depth else place)]
    slot.time = ready
    slot.message = message
    slot.to = to
    slot.left = left
    slot.entry = entry
    buffer.count += 1
    if buffer.count == 1:
        wake_at(queues.events, node, ready)
        buffer.ready = ready
        if node < mesh.n_routers:
            queues.filled[node] |= bit(i)
            if buffer.port == NO_PORT:
                route_head(mesh, buffer, node, to)
                buffer.ready = ready + mesh.timing.route_ticks


@inlined
def route_head(mesh, buffer, router, to):
    """Compute the output port and the dateline class of the packet at the head of a router's buffer."""
    route = route_to(mesh.routes, router, to) if to < mesh.n_cores else mesh.branch[to - mesh.n_cores].route
    buffer.port = route & ((1 << PORT_BITS) - 1)
    buffer.vc_class = route >> PORT_BITS


@inlined
def pop(mesh, queues, b, sender, time):
    """Remove the first flit of a buffer and return its credit; wakes the sender if the buffer was full.

    Returns the number of the slot, which holds the flit until the sender refills it.
    """
    buffer = queues.buffer[b]
    slot = b * mesh.depth + buffer.head
    queues.slot[slot].time = time + mesh.timing.credit_ticks
    if buffer.count == mesh.depth:
        wake_at(queues.events, sender, time + mesh.timing.credit_ticks)
    buffer.head = buffer.head + 1 if buffer.head + 1 < mesh.depth else 0
    buffer.count -= 1
    return slot


@inlined
def step_router(mesh, queues, router, time):
    """Let a router allocate and send once, and schedule its next action."""
    later = NEVER
    first_buffer, first_port = router * mesh.n_ports * mesh.n_vcs, router * mesh.n_ports
    ready, wanted, in_ports, twice = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    rest = queues.filled[router]
    while rest != 0:
        i = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        buffer = queues.buffer[first_buffer + i]
        if buffer.ready > time:
            later = min(later, buffer.ready)
            continue
        port, in_port = bit(buffer.port), bit(input_port_of(mesh, i))
        twice |= wanted & port | in_ports & in_port
        wanted |= port
        in_ports |= in_port
        ready |= bit(i)
    if twice != 0:
        later = min(later, allocate(mesh, queues, router, first_port, first_buffer, ready, time))
    else:
        while ready != 0:
            i = np.int64(lowest(ready))
            ready &= ready - np.uint64(1)
            later = min(later, forward_uncontended(mesh, queues, router, first_port, first_buffer, i, time))
    if later < NEVER:
        wake_at(queues.events, router, later)


@inlined
def allocate(mesh, queues, router, first_port, first_buffer, inputs, time):
    """Allocate channels and switch to input channels that contend for an output or an input. Returns the next time."""
    n_vcs, n_ports = mesh.n_vcs, mesh.n_ports
    for port in range(n_ports):
        request = queues.allocation.request[port]
        request.before = 0
        request.after = 0
        request.switch = 0
        request.grants = 0
    wanted = np.uint64(0)  # outputs with a channel request
    contested = np.uint64(0)  # outputs with a switch request
    rest = inputs
    while rest != 0:
        i = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        buffer = queues.buffer[first_buffer + i]
        port, vc_class, channel = np.int64(buffer.port), np.int64(buffer.vc_class), np.int64(buffer.channel)
        output = queues.output[first_port + port]
        if channel != NO_CHANNEL:
            when = slot_free_at(mesh, queues, output.down + channel)
        else:
            request = queues.allocation.request[port]
            if vc_class != AFTER:
                request.before |= bit(i)
            if vc_class != BEFORE:
                request.after |= bit(i)
            wanted |= bit(port)
            when = vc_free_at(mesh, queues, output.down, vc_class, time) if mesh.timing.is_speculative else NEVER
        in_port = input_port_of(mesh, i)
        if max(when, output.link_free, queues.output[first_port + in_port].input_free) <= time:
            contested |= bit(port)
            request_switch(mesh, queues, first_port, first_buffer, in_port, i - in_port * n_vcs, port)
    allocate_switch(queues, first_port, contested)
    allocate_vcs(mesh, queues, first_port, first_buffer, wanted, time)
    send_granted(mesh, queues, router, first_port, first_buffer, time)
    later = NEVER
    rest = inputs & queues.filled[router]
    while rest != 0:
        i = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        buffer = queues.buffer[first_buffer + i]
        later = min(later, asks_at(mesh, queues, first_port, buffer, input_port_of(mesh, i), time))
    return later


@inlined
def asks_at(mesh, queues, first_port, buffer, in_port, time):
    """When the flit at the head of `buffer`, at input `in_port`, can next request a channel or the switch."""
    output = queues.output[first_port + buffer.port]
    when = max(buffer.ready, time + mesh.timing.cycle_ticks)
    if buffer.channel != NO_CHANNEL:
        free = max(output.link_free, queues.output[first_port + in_port].input_free)
        return max(when, free, slot_free_at(mesh, queues, output.down + buffer.channel))
    soonest = NEVER
    first, end = vcs_of_class(mesh, buffer.vc_class)
    for v in range(first, end):
        soonest = min(soonest, queues.buffer[output.down + v].owned)
    return max(when, soonest)


@inlined
def vcs_of_class(mesh, vc_class):
    """First output channel that a packet of a dateline class may take, and the end of that range."""
    first = mesh.dateline_vc if vc_class == AFTER else 0
    end = mesh.dateline_vc if vc_class == BEFORE else mesh.n_vcs
    return first, end


@inlined
def input_port_of(mesh, i):
    """The input port of input channel i."""
    return i if mesh.n_vcs == 1 else i // mesh.n_vcs


@inlined
def forward_uncontended(mesh, queues, router, first_port, first_buffer, i, time):
    """`allocate` for an input channel i that contends with no other for its output or its input.

    Returns the earliest time at which the channel can request or send again.
    """
    b = first_buffer + i
    buffer = queues.buffer[b]
    port, vc_class, channel = np.int64(buffer.port), np.int64(buffer.vc_class), np.int64(buffer.channel)
    output, in_port = queues.output[first_port + port], input_port_of(mesh, i)
    free = max(output.link_free, queues.output[first_port + in_port].input_free)
    if channel == NO_CHANNEL:
        has_room = mesh.timing.is_speculative and vc_free_at(mesh, queues, output.down, vc_class, time) <= time
        lowest_v, end = vcs_of_class(mesh, vc_class)
        start = buffer.accept - port * mesh.n_vcs
        v = start if lowest_v <= start < end else np.int64(lowest_v)
        soonest = NEVER
        for _ in range(lowest_v, end):
            when = queues.buffer[output.down + v].owned
            if when <= time:
                channel = v
                break
            soonest = min(soonest, when)
            v = v + 1 if v + 1 < end else lowest_v
        if channel == NO_CHANNEL:
            return soonest
        assign_vc(mesh, queues, buffer, i, port, output.down, channel)
        if not mesh.timing.is_speculative:
            buffer.ready = time + mesh.timing.cycle_ticks
        if not has_room or free > time:
            return max(time + mesh.timing.cycle_ticks, free)
    else:
        free = max(free, slot_free_at(mesh, queues, output.down + channel))
        if free > time:
            return free
    advance_round_robin(mesh, queues, first_port, in_port, port, i - in_port * mesh.n_vcs)
    if slot_free_at(mesh, queues, output.down + channel) > time:
        return time + mesh.timing.cycle_ticks
    return send(mesh, queues, router, first_port, b, i, in_port, port, channel, time)


@inlined
def assign_vc(mesh, queues, buffer, i, port, down, v):
    """Assign channel v of an output with buffer `down` to the packet at the head of `buffer`, input channel i."""
    n_inputs = mesh.n_ports * mesh.n_vcs
    there = queues.buffer[down + v]
    there.granted = i + 1 if i + 1 < n_inputs else 0
    there.owned = NEVER
    after = port * mesh.n_vcs + v + 1
    buffer.accept = after if after < n_inputs else 0
    buffer.channel = v


@inlined
def advance_round_robin(mesh, queues, first_port, in_port, port, v):
    """Move the switch arbiters past a match of input channel v with an output."""
    queues.output[first_port + port].grant = in_port + 1 if in_port + 1 < mesh.n_ports else 0
    of_input = queues.output[first_port + in_port]
    of_input.accept_port = port + 1 if port + 1 < mesh.n_ports else 0
    of_input.first_channel = v + 1 if v + 1 < mesh.n_vcs else 0


@inlined
def vc_free_at(mesh, queues, down, vc_class, time):
    """Earliest time of a free channel with room to buffer `down`: `time` if one is free now, NEVER if unknown."""
    soonest = NEVER
    first, end = vcs_of_class(mesh, vc_class)
    for v in range(first, end):
        when = queues.buffer[down + v].owned
        if when < NEVER:
            soonest = min(soonest, max(when, slot_free_at(mesh, queues, down + v)))
            if soonest <= time:
                return time
    return soonest


@inlined
def request_switch(mesh, queues, first_port, first_buffer, in_port, v, port):
    """Request output `port` for channel v of input `in_port`. An input sends one request per output.

    A channel that holds an output channel has priority over one that does not; then round-robin order decides.
    """
    request = queues.allocation.request[port]
    if request.switch & bit(in_port):
        other = queues.allocation.asking[in_port, port]
        b = first_buffer + in_port * mesh.n_vcs
        mine, its = queues.buffer[b + v].channel != NO_CHANNEL, queues.buffer[b + other].channel != NO_CHANNEL
        start = queues.output[first_port + in_port].first_channel
        n_vcs = mesh.n_vcs
        is_nearer = (v - start + n_vcs) % n_vcs < (other - start + n_vcs) % n_vcs
        if mine == its and not is_nearer or its and not mine:
            return
    request.switch |= bit(in_port)
    queues.allocation.asking[in_port, port] = v


@inlined
def allocate_switch(queues, first_port, contested):
    """Let every requested output grant to one input."""
    while contested != 0:
        port = np.int64(lowest(contested))
        contested &= contested - np.uint64(1)
        in_port = first_from(queues.allocation.request[port].switch, np.int64(queues.output[first_port + port].grant))
        queues.allocation.request[in_port].grants |= bit(port)


@inlined
def allocate_vcs(mesh, queues, first_port, first_buffer, wanted, time):
    """Match packet heads with free channels of their outputs."""
    while wanted != 0:
        port = np.int64(lowest(wanted))
        wanted &= wanted - np.uint64(1)
        down = queues.output[first_port + port].down
        offered = np.uint64(0)
        request = queues.allocation.request[port]
        for v in range(mesh.n_vcs):
            there = queues.buffer[down + v]
            asks = request.before if v < mesh.dateline_vc else request.after
            if asks == 0:
                continue
            if there.owned <= time:
                queues.allocation.offer[v] = first_from(asks, np.int64(there.granted))
                offered |= bit(v)
        while offered != 0:
            i = queues.allocation.offer[np.int64(lowest(offered))]
            same = np.uint64(0)
            rest = offered
            while rest != 0:
                v = np.int64(lowest(rest))
                rest &= rest - np.uint64(1)
                if queues.allocation.offer[v] == i:
                    same |= bit(v)
            offered &= ~same
            buffer = queues.buffer[first_buffer + i]
            start = buffer.accept - port * mesh.n_vcs
            v = first_from(same, start if 0 <= start < mesh.n_vcs else np.int64(0))
            assign_vc(mesh, queues, buffer, i, port, down, v)
            if not mesh.timing.is_speculative:
                buffer.ready = time + mesh.timing.cycle_ticks


@inlined
def send_granted(mesh, queues, router, first_port, first_buffer, time):
    """Let every input accept one grant, and send if its packet holds a channel with room."""
    for in_port in range(mesh.n_ports):
        grants = queues.allocation.request[in_port].grants
        if grants == 0:
            continue
        port = first_from(grants, np.int64(queues.output[first_port + in_port].accept_port))
        v = queues.allocation.asking[in_port, port]
        advance_round_robin(mesh, queues, first_port, in_port, port, v)
        i = in_port * mesh.n_vcs + v
        b = first_buffer + i
        channel = np.int64(queues.buffer[b].channel)
        there = queues.output[first_port + port].down + channel
        if channel != NO_CHANNEL and slot_free_at(mesh, queues, there) <= time:
            send(mesh, queues, router, first_port, b, i, in_port, port, channel, time)


@inlined
def send(mesh, queues, router, first_port, b, i, in_port, port, channel, time):
    """Move the first flit of a buffer through the crossbar and over the link; a tail releases its channel.

    A flit with further branches is copied and stays. Returns when the next flit of the buffer can request, or NEVER.
    """
    output, of_input, buffer = queues.output[first_port + port], queues.output[first_port + in_port], queues.buffer[b]
    there = output.down + channel
    moved = queues.slot[b * mesh.depth + buffer.head]
    is_tail, to, stays = moved.left == 1, moved.to, False
    if to >= mesh.n_cores:
        branch = mesh.branch[to - mesh.n_cores]
        to, stays = branch.to, not branch.is_last
    if stays:
        moved.to += 1
    else:
        pop(mesh, queues, b, of_input.up_node, time)
    push(
        mesh,
        queues,
        there,
        output.down_node,
        output.down_input + channel,
        moved.message,
        to,
        moved.left,
        moved.entry,
        time + output.latency,
    )
    output.link_free = time + output.held
    of_input.input_free = time + mesh.timing.link_ticks
    queues.now[BUSY_UNTIL] = max(queues.now[BUSY_UNTIL], time + output.held)
    queues.flits[output.link] += 1
    if is_tail:
        queues.buffer[there].owned = time + mesh.timing.cycle_ticks
        buffer.port = NO_PORT
        buffer.channel = NO_CHANNEL
    if buffer.count == 0:
        queues.filled[router] &= ~bit(i)
        return NEVER
    next_one = queues.slot[b * mesh.depth + buffer.head]
    ready = max(time + mesh.timing.cycle_ticks, next_one.time)
    if is_tail:
        route_head(mesh, buffer, router, next_one.to)
        ready += 0 if stays else mesh.timing.route_ticks
    buffer.ready = ready
    return ready
