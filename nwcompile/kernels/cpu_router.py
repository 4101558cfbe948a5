"""Input-buffered routers, flit by flit, in Numba: virtual channels, credits, back-pressure, separable allocation.

A router is looked at only at times when something about it can change. Within one time the order of nodes cannot
matter: whatever a node does at time t is seen by another later than t (every latency is at least one tick).

A packet's head first waits for a channel of the output that it is routed to (virtual-channel allocation), then each of
its flits waits for the crossbar (switch allocation). Both are one round of iSLIP (McKeown 1999): every output grants
to one requester, every requester accepts one grant, both go round from the one after the last match. In a speculative
router a head asks for both at once, and a switch that it won without a channel stays idle; without speculation it asks
for the switch a cycle after it has the channel. This is the input-queued router of BookSim 2, whose packets arrive at
the same cycles (tests/sim/test_noc.py).
"""

import numpy as np

from nwcompile.kernels.bits import bit, first_from, lowest
from nwcompile.kernels.cpu_mesh import (
    ACCEPT,
    ACCEPT_PORT,
    CHANNEL,
    COUNT,
    DOWN,
    DOWN_INPUT,
    DOWN_NODE,
    FIRST_CHANNEL,
    FLIT,
    GRANT,
    GRANTED,
    HEAD,
    HELD,
    INPUT_FREE,
    LATENCY,
    LINK,
    LINK_FREE,
    LOWER,
    OWNED,
    PORT,
    PORT_BITS,
    READY,
    TIME,
    UP_NODE,
    UPPER,
    left_of,
    message_of,
)
from nwcompile.kernels.cpu_wheel import NEVER, forget, wake_at
from nwcompile.kernels.jit import inlined


@inlined
def slot_free_at(m, q, b):
    """When the next slot of a buffer can be filled; NEVER while it is full."""
    count = q.buffer[b, COUNT]
    if count == m.depth:
        return NEVER
    slot = q.buffer[b, HEAD] + count
    return q.slot[b, slot - m.depth if slot >= m.depth else slot, TIME]


@inlined
def push(m, q, b, node, i, flit, ready):
    """Put a flit into buffer b, input channel i of a router or a core's queue, and wake the node at `ready`."""
    wake_at(q.wheel, node, ready)
    slot = q.buffer[b, HEAD] + q.buffer[b, COUNT]
    slot -= m.depth if slot >= m.depth else 0
    q.slot[b, slot, FLIT] = flit
    q.slot[b, slot, TIME] = ready
    q.buffer[b, COUNT] += 1
    if q.buffer[b, COUNT] == 1:
        q.buffer[b, READY] = ready
        if node < m.n_routers:
            q.filled[node] |= bit(i)
            if q.buffer[b, PORT] < 0:
                q.buffer[b, PORT] = m.route[node, q.target[message_of(flit)]]
                q.buffer[b, READY] += m.route_ticks


@inlined
def pop(m, q, b, sender, time):
    """Take the first flit of a buffer; its slot returns to the sender, who is woken if it may be waiting for it."""
    slot = q.buffer[b, HEAD]
    taken = q.slot[b, slot, FLIT]
    q.slot[b, slot, TIME] = time + m.credit_ticks
    if q.buffer[b, COUNT] == m.depth:
        wake_at(q.wheel, sender, time + m.credit_ticks)
    q.buffer[b, HEAD] = slot + 1 if slot + 1 < m.depth else 0
    q.buffer[b, COUNT] -= 1
    return taken


@inlined
def look_at_router(m, q, router, time):
    """Let a router match its inputs with its outputs once and send; it is woken when it can act next."""
    later = NEVER
    n_vcs, n_ports = m.n_vcs, m.n_ports
    first_buffer, first_port = router * n_ports * n_vcs, router * n_ports
    rest = q.filled[router]
    if rest == 0:
        return
    if rest & (rest - np.uint64(1)) == 0:
        later = pass_on(m, q, router, first_port, first_buffer, np.int64(lowest(rest)), time)
        if later < NEVER:
            wake_at(q.wheel, router, later)
        return
    for port in range(n_ports):
        q.asks_lower[port] = 0
        q.asks_upper[port] = 0
        q.asks_switch[port] = 0
        q.grants[port] = 0
    wanted = np.uint64(0)  # outputs of which a channel is asked for
    contested = np.uint64(0)  # outputs for which the switch is asked
    while rest != 0:
        i = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        b = first_buffer + i
        if q.buffer[b, READY] > time:
            later = min(later, q.buffer[b, READY])
            continue
        port, half = routed(q, b)
        channel = q.buffer[b, CHANNEL]
        output = first_port + port
        if channel >= 0:
            when = slot_free_at(m, q, m.output[output, DOWN] + channel)
        else:
            if half != UPPER:
                q.asks_lower[port] |= bit(i)
            if half != LOWER:
                q.asks_upper[port] |= bit(i)
            wanted |= bit(port)
            when = channel_free_at(m, q, output, half, time) if m.is_speculative else NEVER
        entry = input_of(m, i)
        when = max(when, q.port[output, LINK_FREE], q.port[first_port + entry, INPUT_FREE])
        if when > time:
            later = min(later, when)
            continue
        contested |= bit(port)
        ask_for_switch(m, q, first_port, first_buffer, entry, i - entry * n_vcs, port)
    grant_switch(q, first_port, contested)
    later = min(later, give_channels(m, q, first_port, first_buffer, wanted, time))
    later = min(later, send_granted(m, q, router, first_port, first_buffer, time))
    rest = contested
    while rest != 0:  # whoever lost asks again
        port = np.int64(lowest(rest))
        rest &= rest - np.uint64(1)
        asks = q.asks_switch[port]
        if n_vcs > 1 or asks & (asks - np.uint64(1)) != 0:
            later = min(later, time + m.cycle_ticks)
    if later < NEVER:
        wake_at(q.wheel, router, max(later, time + 1))


@inlined
def routed(q, b):
    """Output port of the packet at the head of buffer b, and which of its channels it may take."""
    route = q.buffer[b, PORT]
    return route & ((1 << PORT_BITS) - 1), route >> PORT_BITS


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
    """What a router does when one input channel i alone holds flits: the same as else, with nothing to match."""
    b = first_buffer + i
    if q.buffer[b, READY] > time:
        return q.buffer[b, READY]
    port, half = routed(q, b)
    channel = q.buffer[b, CHANNEL]
    output, entry = first_port + port, input_of(m, i)
    free = max(q.port[output, LINK_FREE], q.port[first_port + entry, INPUT_FREE])
    if channel < 0:
        has_room = m.is_speculative and channel_free_at(m, q, output, half, time) <= time
        lowest_v, end = channels_of(m, half)
        start = q.buffer[b, ACCEPT] - port * m.n_vcs
        v = start if lowest_v <= start < end else np.int64(lowest_v)
        soonest = NEVER
        for _ in range(lowest_v, end):
            when = q.buffer[m.output[output, DOWN] + v, OWNED]
            if when <= time:
                channel = v
                break
            soonest = min(soonest, when)
            v = v + 1 if v + 1 < end else lowest_v
        if channel < 0:
            return soonest
        take_channel(m, q, b, i, port, output, channel)
        if not m.is_speculative:
            q.buffer[b, READY] = time + m.cycle_ticks
        if not has_room or free > time:
            return max(time + m.cycle_ticks, free)
    else:
        free = max(free, slot_free_at(m, q, m.output[output, DOWN] + channel))
        if free > time:
            return free
    turn_switch(m, q, first_port, entry, port, i - entry * m.n_vcs)
    if slot_free_at(m, q, m.output[output, DOWN] + channel) > time:
        return time + m.cycle_ticks
    return send(m, q, router, first_port, b, i, entry, output, channel, time)


@inlined
def take_channel(m, q, b, i, port, output, v):
    """The packet at the head of buffer b, input channel i, gets channel v of an output."""
    n_inputs = m.n_ports * m.n_vcs
    there = m.output[output, DOWN] + v
    q.buffer[there, GRANTED] = i + 1 if i + 1 < n_inputs else 0
    q.buffer[there, OWNED] = NEVER
    after = port * m.n_vcs + v + 1
    q.buffer[b, ACCEPT] = after if after < n_inputs else 0
    q.buffer[b, CHANNEL] = v


@inlined
def turn_switch(m, q, first_port, entry, port, v):
    """An input's channel v and an output are matched: whose turn comes next."""
    q.port[first_port + port, GRANT] = entry + 1 if entry + 1 < m.n_ports else 0
    q.port[first_port + entry, ACCEPT_PORT] = port + 1 if port + 1 < m.n_ports else 0
    q.port[first_port + entry, FIRST_CHANNEL] = v + 1 if v + 1 < m.n_vcs else 0


@inlined
def channel_free_at(m, q, output, half, time):
    """The present if a channel of `output` is free to take and has room, else when one may be; NEVER if unknown."""
    soonest = NEVER
    first, end = channels_of(m, half)
    for v in range(first, end):
        there = m.output[output, DOWN] + v
        when = q.buffer[there, OWNED]
        if when < NEVER:
            soonest = min(soonest, max(when, slot_free_at(m, q, there)))
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
        mine, its = q.buffer[b + v, CHANNEL] >= 0, q.buffer[b + other, CHANNEL] >= 0
        start = q.port[first_port + entry, FIRST_CHANNEL]
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
        entry = first_from(q.asks_switch[port], q.port[first_port + port, GRANT])
        q.grants[entry] |= bit(port)


@inlined
def give_channels(m, q, first_port, first_buffer, wanted, time):
    """Match heads with free channels of their outputs; returns when the router should look again."""
    later = NEVER
    while wanted != 0:
        port = np.int64(lowest(wanted))
        wanted &= wanted - np.uint64(1)
        output = first_port + port
        offered = np.uint64(0)
        lower, upper = q.asks_lower[port], q.asks_upper[port]
        for v in range(m.n_vcs):
            there = m.output[output, DOWN] + v
            when = q.buffer[there, OWNED]
            asks = lower if v < m.upper else upper
            if asks == 0:
                continue
            if when <= time:
                q.offers[v] = first_from(asks, q.buffer[there, GRANTED])
                offered |= bit(v)
            else:
                later = min(later, when)
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
            start = q.buffer[first_buffer + i, ACCEPT] - port * m.n_vcs
            v = first_from(same, start if 0 <= start < m.n_vcs else np.int64(0))
            take_channel(m, q, first_buffer + i, i, port, output, v)
            q.asks_lower[port] &= ~bit(i)
            q.asks_upper[port] &= ~bit(i)
            if not m.is_speculative:
                q.buffer[first_buffer + i, READY] = time + m.cycle_ticks
            later = min(later, time + m.cycle_ticks)
    return later


@inlined
def send_granted(m, q, router, first_port, first_buffer, time):
    """Every input accepts one grant and sends, if its packet holds a channel with room."""
    later = NEVER
    for entry in range(m.n_ports):
        if q.grants[entry] == 0:
            continue
        port = first_from(q.grants[entry], q.port[first_port + entry, ACCEPT_PORT])
        output, v = first_port + port, q.asking[entry, port]
        turn_switch(m, q, first_port, entry, port, v)
        i = entry * m.n_vcs + v
        b = first_buffer + i
        channel = q.buffer[b, CHANNEL]
        if channel < 0 or slot_free_at(m, q, m.output[output, DOWN] + channel) > time:
            later = min(later, time + m.cycle_ticks)
            continue
        later = min(later, send(m, q, router, first_port, b, i, entry, output, channel, time))
        if q.asks_lower[port] | q.asks_upper[port] != 0:
            later = min(later, q.buffer[m.output[output, DOWN] + channel, OWNED])
    return later


@inlined
def send(m, q, router, first_port, b, i, entry, output, channel, time):
    """Move the first flit of a buffer through the crossbar and over the link; a tail gives its channel back.

    Returns when the next flit of the buffer may ask; NEVER if there is none.
    """
    there, ready = m.output[output, DOWN] + channel, time + m.output[output, LATENCY]
    moved = pop(m, q, b, m.output[first_port + entry, UP_NODE], time)
    push(m, q, there, m.output[output, DOWN_NODE], m.output[output, DOWN_INPUT] + channel, moved, ready)
    q.port[output, LINK_FREE] = time + m.output[output, HELD]
    q.port[first_port + entry, INPUT_FREE] = time + m.link_ticks
    q.busy_until[0] = max(q.busy_until[0], time + m.output[output, HELD])
    q.flits[m.output[output, LINK]] += 1
    is_tail = left_of(moved) == 1
    if is_tail:
        q.buffer[there, OWNED] = time + m.cycle_ticks
        q.buffer[b, PORT] = -1
        q.buffer[b, CHANNEL] = -1
    if q.buffer[b, COUNT] == 0:
        q.filled[router] &= ~bit(i)
        return NEVER
    slot = q.buffer[b, HEAD]
    ready = max(time + m.cycle_ticks, q.slot[b, slot, TIME])
    if is_tail:
        q.buffer[b, PORT] = m.route[router, q.target[message_of(q.slot[b, slot, FLIT])]]
        ready += m.route_ticks
    q.buffer[b, READY] = ready
    return ready


@inlined
def start_over(q):
    """An empty, idle network at time 0; whose turn it is, and counts of flits, stay."""
    for b in range(q.buffer.shape[0]):
        q.buffer[b, COUNT] = 0
        q.buffer[b, PORT] = -1
        q.buffer[b, CHANNEL] = -1
        q.buffer[b, OWNED] = 0
        for slot in range(q.slot.shape[1]):
            q.slot[b, slot, TIME] = 0
    for output in range(q.port.shape[0]):
        q.port[output, LINK_FREE] = 0
        q.port[output, INPUT_FREE] = 0
    for router in range(q.filled.shape[0]):
        q.filled[router] = 0
    forget(q.wheel)
    q.busy_until[0] = 0


@inlined
def equal_turns(q):
    """All round-robin turns as at first."""
    for b in range(q.buffer.shape[0]):
        q.buffer[b, HEAD] = 0
        q.buffer[b, ACCEPT] = 0
        q.buffer[b, GRANTED] = 0
    for output in range(q.port.shape[0]):
        q.port[output, GRANT] = 0
        q.port[output, ACCEPT_PORT] = 0
        q.port[output, FIRST_CHANNEL] = 0
