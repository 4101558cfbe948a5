"""What a router does in a cycle, in Numba: the rules of event_router.py, output by output.

An output is looked at only in cycles in which somebody asks for it and may be served. It gives its free channels to
heads and grants its switch to one input channel, whatever other outputs do. When all have, each input accepts one of
the grants to it, and that flit moves.
"""

import numpy as np

from nwcompile.kernels.bits import ONE, bit, first_from, lowest
from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.lockstep_receive import BUSY_UNTIL, receive_at
from nwcompile.kernels.noc.lockstep_state import (
    INPUT_BITS,
    NOBODY,
    NONE,
    PORT,
    TAIL,
    TO,
    TO_BITS,
    ask,
    fill,
    push,
    room_at,
    wake,
)
from nwcompile.kernels.noc.mesh import ANY, PORT_BITS


@inlined
def allocate(m, c, o, time):
    """Let an output give its channels to those that ask, and grant its switch to one."""
    output = m.output[o]
    asks = output.asks
    output.granted = NOBODY
    if asks == NONE:
        return
    first = np.int64(output.first)
    port = o - first
    if asks & (asks - ONE) != NONE:
        match(m, c, o, output, first, port, asks, time)
        return
    i = np.int64(lowest(asks))
    b = first * m.n_vcs + i
    buffer = m.buffer[b]
    if asks & output.held != NONE:
        if is_busy(m, o, first, buffer, time) or not has_room(m, c, o, output, np.int64(buffer.channel), i, time):
            return
    else:
        channels = output.free & channels_for(m, b)
        if channels == NONE:
            return
        is_idle = not is_busy(m, o, first, buffer, time)
        asks_switch = m.is_speculative and is_idle and any_room(m, output, channels, time)
        take_channel(m, output, port, i, b, first_accepted(m, buffer, port, channels))
        if not asks_switch:
            return
    output.granted = i
    m.output[first + np.int64(buffer.input)].grants |= bit(port)


@inlined
def match(m, c, o, output, first, port, asks, time):
    """`allocate` where several input channels ask."""
    n_vcs = m.n_vcs
    wants = asks & ~output.held
    sure, maybe, entries = NONE, NONE, NONE  # that ask for the switch: with a channel, without; their inputs
    rest = asks
    while rest != NONE:
        i = np.int64(lowest(rest))
        rest &= rest - ONE
        b = first * n_vcs + i
        buffer = m.buffer[b]
        if is_busy(m, o, first, buffer, time):
            continue
        if bit(i) & wants == NONE:
            if has_room(m, c, o, output, np.int64(buffer.channel), i, time):
                sure |= bit(i)
                entries |= bit(np.int64(buffer.input))
        elif m.is_speculative and any_room(m, output, output.free & channels_for(m, b), time):
            maybe |= bit(i)
            entries |= bit(np.int64(buffer.input))
    if entries != NONE:
        entry = first_from(entries, np.int64(output.turn))
        of_input = m.output[first + entry]
        own = bit(n_vcs) - ONE
        channels = sure >> np.uint64(entry * n_vcs) & own
        if channels == NONE:
            channels = maybe >> np.uint64(entry * n_vcs) & own
        output.granted = entry * n_vcs + first_from(channels, np.int64(of_input.first_channel))
        of_input.grants |= bit(port)
    if wants != NONE and output.free != NONE:
        give_channels(m, output, first, port, wants)


@inlined
def give_channels(m, output, first, port, wants):
    """Every free channel is offered to one of `wants`, and each of those accepts one offer."""
    offered = output.free
    while offered != NONE:
        v = np.int64(lowest(offered))
        i = offered_to(m, output, first, v, wants)
        if i < 0:
            offered &= offered - ONE
            continue
        same, rest = bit(v), offered & (offered - ONE)
        while rest != NONE:
            other = np.int64(lowest(rest))
            rest &= rest - ONE
            if offered_to(m, output, first, other, wants) == i:
                same |= bit(other)
        offered &= ~same
        b = first * m.n_vcs + i
        take_channel(m, output, port, i, b, first_accepted(m, m.buffer[b], port, same))


@inlined
def offered_to(m, output, first, v, wants):
    """The input channel of `wants` to which channel v of an output is offered, -1: to none."""
    able = wants
    if m.has_halves:
        rest = wants
        while rest != NONE:
            i = np.int64(lowest(rest))
            rest &= rest - ONE
            if channels_for(m, first * m.n_vcs + i) & bit(v) == NONE:
                able &= ~bit(i)
    if able == NONE:
        return np.int64(-1)
    return first_from(able, np.int64(m.buffer[np.int64(output.down) + v].turn))


@inlined
def channels_for(m, b):
    """The channels of its output that the packet at the head of buffer b may take."""
    if not m.has_halves:
        return m.halves[ANY]
    word = np.int64(m.slot[np.int64(m.buffer[b].head)].word)
    return m.halves[word >> TO_BITS + PORT_BITS & 3]


@inlined
def first_accepted(m, buffer, port, channels):
    """Of channels of an output that are offered to the packet at the head of a buffer, the one that it accepts."""
    start = np.int64(buffer.accept) - port * m.n_vcs
    return first_from(channels, start if 0 <= start < m.n_vcs else np.int64(0))


@inlined
def take_channel(m, output, port, i, b, v):
    """The packet at the head of buffer b, input channel i, gets channel v of an output."""
    n_inputs = m.n_ports * m.n_vcs
    there, buffer = m.buffer[np.int64(output.down) + v], m.buffer[b]
    there.turn = i + 1 if i + 1 < n_inputs else 0
    there.holder = i
    after = port * m.n_vcs + v + 1
    buffer.accept = after if after < n_inputs else 0
    buffer.channel = v
    output.free &= ~bit(v)
    output.held |= bit(i)


@inlined
def is_busy(m, o, first, buffer, time):
    """Whether an output's link, or the input that a buffer belongs to, still holds another flit."""
    return m.is_slow and (m.link[o].free > time or m.link[first + np.int64(buffer.input)].input_free > time)


@inlined
def has_room(m, c, o, output, v, i, time):
    """Whether input channel i can send through channel v of an output; if not, it does not ask until it is woken."""
    there = m.buffer[np.int64(output.down) + v]
    free = room_at(m, there)
    if free <= time:
        return True
    output.asks &= ~bit(i)
    if free == NEVER:
        there.is_waited_for = True
    else:
        wake(c, free, o << INPUT_BITS | v)
    return False


@inlined
def any_room(m, output, channels, time):
    """Whether one of an output's channels has room."""
    while channels != NONE:
        v = np.int64(lowest(channels))
        channels &= channels - ONE
        if room_at(m, m.buffer[np.int64(output.down) + v]) <= time:
            return True
    return False


@inlined
def pass_on(m, c, packets, cores, o, time, last):
    """Let the input that an output grants to accept one grant and send; returns whether to look again a cycle later."""
    output = m.output[o]
    i = np.int64(output.granted)
    if i != NOBODY:
        first = np.int64(output.first)
        port = o - first
        b = first * m.n_vcs + i
        entry = np.int64(m.buffer[b].input)
        of_input = m.output[first + entry]
        grants = of_input.grants
        if grants != NONE and first_from(grants, np.int64(of_input.accept_port)) == port:
            of_input.grants = NONE
            output.turn = entry + 1 if entry + 1 < m.n_ports else 0
            of_input.accept_port = port + 1 if port + 1 < m.n_ports else 0
            v = i - entry * m.n_vcs + 1
            of_input.first_channel = v if v < m.n_vcs else 0
            if output.held & bit(i) != NONE:
                down = np.int64(output.down) + np.int64(m.buffer[b].channel)
                if room_at(m, m.buffer[down]) <= time:
                    send(m, c, packets, cores, o, output, first, i, b, down, time, last)
    asks = output.asks
    return asks & output.held != NONE or asks != NONE and output.free != NONE


@inlined
def serve(m, c, packets, cores, o, time, last):
    """`allocate` and `pass_on` where there is one channel: an input asks for one output, so a grant is accepted.

    Returns whether to look again a cycle later.
    """
    output = m.output[o]
    first, down = np.int64(output.first), np.int64(output.down)
    there = m.buffer[down]
    if output.held != NONE:
        if output.asks & output.held == NONE:
            return False
        i = np.int64(there.holder)
        if is_busy(m, o, first, m.buffer[first + i], time):
            return True
    elif output.asks != NONE:
        i = first_from(output.asks, np.int64(there.turn))
        there.turn = i + 1 if i + 1 < m.n_ports else 0
        there.holder = i
        output.held = bit(i)
        if not m.is_speculative or not gets_switch(m, o, output, first, there, i, time):
            return True
    else:
        return False
    if not has_room(m, c, o, output, 0, i, time):
        return False
    send(m, c, packets, cores, o, output, first, i, first + i, down, time, last)
    if m.is_slow:
        output.turn = i + 1 if i + 1 < m.n_ports else 0
    return output.asks != NONE


@inlined
def gets_switch(m, o, output, first, there, i, time):
    """Whether an output's new holder i gets its switch in the same cycle, or a packet without a channel takes the turn.

    Where links are free and there is room, turns of channel and switch are equal; without room nobody gets anything.
    """
    if not m.is_slow or room_at(m, there) > time:
        return True
    rest, able = output.asks, NONE
    while rest != NONE:
        k = np.int64(lowest(rest))
        rest &= rest - ONE
        if not is_busy(m, o, first, m.buffer[first + k], time):
            able |= bit(k)
    if able == NONE:
        return False
    entry = first_from(able, np.int64(output.turn))
    output.turn = entry + 1 if entry + 1 < m.n_ports else 0
    return entry == i


@inlined
def send(m, c, packets, cores, o, output, first, i, b, down, time, last):
    """Move the first flit of buffer b, input channel i, through the crossbar and over the link to buffer `down`.

    Either `packets` or `cores` is None: a packet is noted when it arrives by cycle `last`, a core takes a message.
    """
    buffer, there = m.buffer[b], m.buffer[down]
    v = down - np.int64(output.down)
    flit = m.slot[np.int64(buffer.head)]
    packet, word = np.int64(flit.packet), np.int64(flit.word)
    flit.time = time + m.credit_cycles
    end = (b + 1) * m.depth
    head = np.int64(buffer.head) + 1
    head = head if head < end else end - m.depth
    buffer.head = head
    count = np.int64(buffer.count) - 1
    buffer.count = count
    if buffer.is_waited_for:
        buffer.is_waited_for = False
        wake(c, time + m.credit_cycles, np.int64(buffer.sender))
    is_tail = word & TAIL != 0
    if count > 0:
        follower = m.slot[head]
        when = max(time + 1, follower.time) + (m.route_cycles if is_tail else 0)
        ask(c, when, first + (np.int64(follower.word) >> TO_BITS & PORT), i)
    if m.is_slow:
        link = m.link[o]
        link.free = time + link.cycles
        m.link[first + np.int64(buffer.input)].input_free = time + m.link_cycles
    output.sent += 1
    output.asks &= ~bit(i)
    if is_tail:
        output.held &= ~bit(i)
        output.free |= bit(v)
    ready = time + np.int64(output.latency)
    if cores is not None:
        cores.now[BUSY_UNTIL] = max(cores.now[BUSY_UNTIL], time + m.link[o].cycles)
    if not output.is_last:
        push(m, c, output, v, down, there, packet, word, ready)
        return
    taken = ready
    if cores is not None:
        taken = receive_at(cores, word & TO, packet, ready)
    if packets is not None and is_tail and ready <= last:
        packets.arrive[packet] = ready
    fill(m, down, there, taken + m.credit_cycles)
