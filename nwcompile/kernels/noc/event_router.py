"""Input-buffered routers, flit by flit, in Numba: virtual channels, credits, back-pressure, separable allocation.

A router is looked at only at times when something about it can change. Within one time the order of nodes cannot
matter: whatever a node does at time t is seen by another later than t (every latency is at least one tick).

A packet's head first waits for a channel of the output that it is routed to (virtual-channel allocation), then each of
its flits waits for the crossbar (switch allocation). Both are one round of iSLIP (McKeown 1999): every output grants
to one requester, every requester accepts one grant, both go round from the one after the last match. In a speculative
router a head asks for both at once, and a switch that it won without a channel stays idle; without speculation it asks
for the switch a cycle after it has the channel. This is the input-queued router of BookSim 2, whose packets arrive at
the same cycles (tests/sim/cycle/test_noc.py).
"""

import numpy as np

from nwcompile.kernels.bits import bit, first_from, lowest
from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import NEVER, wake_at
from nwcompile.kernels.noc.mesh import LOWER, NO_CHANNEL, NO_PORT, PORT_BITS, UPPER


@inlined
def slot_free_at(m, q, b):
    """When the next slot of a buffer can be filled; NEVER while it is full."""
    buffer = q.buffer[b]
    if buffer.count == m.depth:
        return NEVER
    slot = buffer.head + buffer.count
    return q.slot[b * m.depth + (slot - m.depth if slot >= m.depth else slot)].time


@inlined
def push(m, q, b, node, i, message, to, left, entry, ready):
    """Put a flit into buffer b, input channel i of a router or a core's queue; as its first one it wakes the node."""
    buffer = q.buffer[b]
    place = buffer.head + buffer.count
    slot = q.slot[b * m.depth + (place - m.depth if place >= m.depth else place)]
    slot.time = ready
    slot.message = message
    slot.to = to
    slot.left = left
    slot.entry = entry
    buffer.count += 1
    if buffer.count == 1:
        wake_at(q.wheel, node, ready)
        buffer.ready = ready
        if node < m.n_routers:
            q.filled[node] |= bit(i)
            if buffer.port == NO_PORT:
                route_head(m, buffer, node, to)
                buffer.ready = ready + m.route_ticks


@inlined
def route_head(m, buffer, router, to):
    """Find the output of the packet at the head of a router's buffer, and which of its channels it may take."""
    route = m.route[router, to] if to < m.n_cores else m.branch[to - m.n_cores].route
    buffer.port = route & ((1 << PORT_BITS) - 1)
    buffer.half = route >> PORT_BITS


@inlined
def pop(m, q, b, sender, time):
    """Take the first flit of a buffer; its slot returns to the sender, who is woken if it may be waiting for it.

    Returns the number of the slot, which holds the flit until the sender fills it.
    """
    buffer = q.buffer[b]
    slot = b * m.depth + buffer.head
    q.slot[slot].time = time + m.credit_ticks
    if buffer.count == m.depth:
        wake_at(q.wheel, sender, time + m.credit_ticks)
    buffer.head = buffer.head + 1 if buffer.head + 1 < m.depth else 0
    buffer.count -= 1
    return slot


@inlined
def look_at_router(m, q, router, time):
    """Let a router match its inputs with its outputs once and send; it is woken when it can act next."""
    later = NEVER
    first_buffer, first_port = router * m.n_ports * m.n_vcs, router * m.n_ports
    ready, wanted, entries, twice = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    rest = q.filled[router]
    while rest != 0:
        i = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        buffer = q.buffer[first_buffer + i]
        if buffer.ready > time:
            later = min(later, buffer.ready)
            continue
        port, entry = bit(buffer.port), bit(input_of(m, i))
        twice |= wanted & port | entries & entry
        wanted |= port
        entries |= entry
        ready |= bit(i)
    if twice != 0:
        later = min(later, match(m, q, router, first_port, first_buffer, ready, time))
    else:
        while ready != 0:
            i = np.int64(lowest(ready))
            ready &= ready - np.uint64(1)
            later = min(later, pass_on(m, q, router, first_port, first_buffer, i, time))
    if later < NEVER:
        wake_at(q.wheel, router, later)


@inlined
def match(m, q, router, first_port, first_buffer, inputs, time):
    """Match input channels `inputs`, of which some want one output or have one input; returns when to look again."""
    n_vcs, n_ports = m.n_vcs, m.n_ports
    for port in range(n_ports):
        q.asks_lower[port] = 0
        q.asks_upper[port] = 0
        q.asks_switch[port] = 0
        q.grants[port] = 0
    wanted = np.uint64(0)  # outputs of which a channel is asked for
    contested = np.uint64(0)  # outputs for which the switch is asked
    rest = inputs
    while rest != 0:
        i = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        buffer = q.buffer[first_buffer + i]
        port, half, channel = np.int64(buffer.port), np.int64(buffer.half), np.int64(buffer.channel)
        output = q.output[first_port + port]
        if channel != NO_CHANNEL:
            when = slot_free_at(m, q, output.down + channel)
        else:
            if half != UPPER:
                q.asks_lower[port] |= bit(i)
            if half != LOWER:
                q.asks_upper[port] |= bit(i)
            wanted |= bit(port)
            when = channel_free_at(m, q, output.down, half, time) if m.is_speculative else NEVER
        entry = input_of(m, i)
        if max(when, output.link_free, q.output[first_port + entry].input_free) <= time:
            contested |= bit(port)
            ask_for_switch(m, q, first_port, first_buffer, entry, i - entry * n_vcs, port)
    grant_switch(q, first_port, contested)
    give_channels(m, q, first_port, first_buffer, wanted, time)
    send_granted(m, q, router, first_port, first_buffer, time)
    later = NEVER
    rest = inputs & q.filled[router]
    while rest != 0:
        i = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        later = min(later, asks_at(m, q, first_port, q.buffer[first_buffer + i], input_of(m, i), time))
    return later


@inlined
def asks_at(m, q, first_port, buffer, entry, time):
    """When a flit of input `entry`, at the head of `buffer` after a match, may next ask for a channel or the switch."""
    output = q.output[first_port + buffer.port]
    when = max(buffer.ready, time + m.cycle_ticks)
    if buffer.channel != NO_CHANNEL:
        free = max(output.link_free, q.output[first_port + entry].input_free)
        return max(when, free, slot_free_at(m, q, output.down + buffer.channel))
    soonest = NEVER
    first, end = channels_of(m, buffer.half)
    for v in range(first, end):
        soonest = min(soonest, q.buffer[output.down + v].owned)
    return max(when, soonest)


@inlined
def channels_of(m, half):
    """First channel of an output that a packet may take, and the one after the last."""
    return m.upper if half == UPPER else 0, m.upper if half == LOWER else m.n_vcs


@inlined
def input_of(m, i):
    """The input port of input channel i."""
    return i if m.n_vcs == 1 else i // m.n_vcs


@inlined
def pass_on(m, q, router, first_port, first_buffer, i, time):
    """What a router does with input channel i if no other wants its output or has its input: `match` of one.

    Returns when to look again.
    """
    b = first_buffer + i
    buffer = q.buffer[b]
    port, half, channel = np.int64(buffer.port), np.int64(buffer.half), np.int64(buffer.channel)
    output, entry = q.output[first_port + port], input_of(m, i)
    free = max(output.link_free, q.output[first_port + entry].input_free)
    if channel == NO_CHANNEL:
        has_room = m.is_speculative and channel_free_at(m, q, output.down, half, time) <= time
        lowest_v, end = channels_of(m, half)
        start = buffer.accept - port * m.n_vcs
        v = start if lowest_v <= start < end else np.int64(lowest_v)
        soonest = NEVER
        for _ in range(lowest_v, end):
            when = q.buffer[output.down + v].owned
            if when <= time:
                channel = v
                break
            soonest = min(soonest, when)
            v = v + 1 if v + 1 < end else lowest_v
        if channel == NO_CHANNEL:
            return soonest
        take_channel(m, q, buffer, i, port, output.down, channel)
        if not m.is_speculative:
            buffer.ready = time + m.cycle_ticks
        if not has_room or free > time:
            return max(time + m.cycle_ticks, free)
    else:
        free = max(free, slot_free_at(m, q, output.down + channel))
        if free > time:
            return free
    turn_switch(m, q, first_port, entry, port, i - entry * m.n_vcs)
    if slot_free_at(m, q, output.down + channel) > time:
        return time + m.cycle_ticks
    return send(m, q, router, first_port, b, i, entry, port, channel, time)


@inlined
def take_channel(m, q, buffer, i, port, down, v):
    """The packet at the head of `buffer`, input channel i, gets channel v of an output that leads to buffer `down`."""
    n_inputs = m.n_ports * m.n_vcs
    there = q.buffer[down + v]
    there.granted = i + 1 if i + 1 < n_inputs else 0
    there.owned = NEVER
    after = port * m.n_vcs + v + 1
    buffer.accept = after if after < n_inputs else 0
    buffer.channel = v


@inlined
def turn_switch(m, q, first_port, entry, port, v):
    """An input's channel v and an output are matched: whose turn comes next."""
    q.output[first_port + port].grant = entry + 1 if entry + 1 < m.n_ports else 0
    of_input = q.output[first_port + entry]
    of_input.accept_port = port + 1 if port + 1 < m.n_ports else 0
    of_input.first_channel = v + 1 if v + 1 < m.n_vcs else 0


@inlined
def channel_free_at(m, q, down, half, time):
    """The present if a channel to buffer `down` is free to take and has room, else when one may be; NEVER: unknown."""
    soonest = NEVER
    first, end = channels_of(m, half)
    for v in range(first, end):
        when = q.buffer[down + v].owned
        if when < NEVER:
            soonest = min(soonest, max(when, slot_free_at(m, q, down + v)))
            if soonest <= time:
                return time
    return soonest


@inlined
def ask_for_switch(m, q, first_port, first_buffer, entry, v, port):
    """Input `entry` asks for an output for its channel v; of its channels that ask for one output, one does so.

    One that holds an output channel goes before one that does not, then the one that comes first going round.
    """
    if q.asks_switch[port] & bit(entry):
        other = q.asking[entry, port]
        b = first_buffer + entry * m.n_vcs
        mine, its = q.buffer[b + v].channel != NO_CHANNEL, q.buffer[b + other].channel != NO_CHANNEL
        start = q.output[first_port + entry].first_channel
        is_nearer = (v - start + m.n_vcs) % m.n_vcs < (other - start + m.n_vcs) % m.n_vcs
        if mine == its and not is_nearer or its and not mine:
            return
    q.asks_switch[port] |= bit(entry)
    q.asking[entry, port] = v


@inlined
def grant_switch(q, first_port, contested):
    """Every output that is asked for grants to one input."""
    while contested != 0:
        port = np.int64(lowest(contested))
        contested &= contested - np.uint64(1)
        entry = first_from(q.asks_switch[port], np.int64(q.output[first_port + port].grant))
        q.grants[entry] |= bit(port)


@inlined
def give_channels(m, q, first_port, first_buffer, wanted, time):
    """Match heads with free channels of their outputs."""
    while wanted != 0:
        port = np.int64(lowest(wanted))
        wanted &= wanted - np.uint64(1)
        down = q.output[first_port + port].down
        offered = np.uint64(0)
        lower, upper = q.asks_lower[port], q.asks_upper[port]
        for v in range(m.n_vcs):
            there = q.buffer[down + v]
            asks = lower if v < m.upper else upper
            if asks == 0:
                continue
            if there.owned <= time:
                q.offers[v] = first_from(asks, np.int64(there.granted))
                offered |= bit(v)
        while offered != 0:
            i = q.offers[np.int64(lowest(offered))]
            same = np.uint64(0)
            rest = offered
            while rest != 0:
                v = np.int64(lowest(rest))
                rest &= rest - np.uint64(1)
                if q.offers[v] == i:
                    same |= bit(v)
            offered &= ~same
            buffer = q.buffer[first_buffer + i]
            start = buffer.accept - port * m.n_vcs
            v = first_from(same, start if 0 <= start < m.n_vcs else np.int64(0))
            take_channel(m, q, buffer, i, port, down, v)
            if not m.is_speculative:
                buffer.ready = time + m.cycle_ticks


@inlined
def send_granted(m, q, router, first_port, first_buffer, time):
    """Every input accepts one grant and sends, if its packet holds a channel with room."""
    for entry in range(m.n_ports):
        if q.grants[entry] == 0:
            continue
        port = first_from(q.grants[entry], np.int64(q.output[first_port + entry].accept_port))
        v = q.asking[entry, port]
        turn_switch(m, q, first_port, entry, port, v)
        i = entry * m.n_vcs + v
        b = first_buffer + i
        channel = np.int64(q.buffer[b].channel)
        there = q.output[first_port + port].down + channel
        if channel != NO_CHANNEL and slot_free_at(m, q, there) <= time:
            send(m, q, router, first_port, b, i, entry, port, channel, time)


@inlined
def send(m, q, router, first_port, b, i, entry, port, channel, time):
    """Move the first flit of a buffer through the crossbar and over the link; a tail gives its channel back.

    A flit that has more branches to take is copied and stays. Returns when the next flit of the buffer may ask; NEVER
    if there is none.
    """
    output, of_input, buffer = q.output[first_port + port], q.output[first_port + entry], q.buffer[b]
    there = output.down + channel
    moved = q.slot[b * m.depth + buffer.head]
    is_tail, to, stays = moved.left == 1, moved.to, False
    if to >= m.n_cores:
        branch = m.branch[to - m.n_cores]
        to, stays = branch.to, not branch.is_last
    if stays:
        moved.to += 1
    else:
        pop(m, q, b, of_input.up_node, time)
    push(m, q, there, output.down_node, output.down_input + channel, moved.message, to, moved.left,
         moved.entry, time + output.latency)  # fmt: skip
    output.link_free = time + output.held
    of_input.input_free = time + m.link_ticks
    q.busy_until[0] = max(q.busy_until[0], time + output.held)
    q.flits[output.link] += 1
    if is_tail:
        q.buffer[there].owned = time + m.cycle_ticks
        buffer.port = NO_PORT
        buffer.channel = NO_CHANNEL
    if buffer.count == 0:
        q.filled[router] &= ~bit(i)
        return NEVER
    next_one = q.slot[b * m.depth + buffer.head]
    ready = max(time + m.cycle_ticks, next_one.time)
    if is_tail:
        route_head(m, buffer, router, next_one.to)
        ready += 0 if stays else m.route_ticks
    buffer.ready = ready
    return ready
