"""A router's cycle in the lockstep engine, in Numba: the rules of event_router.py, output by output.

An output is served only in cycles in which it has a request that it may grant. It assigns its free channels to heads
(VC allocation) and grants its switch to one input channel (switch allocation), independently of other outputs. Then
each input port accepts one of its grants, and that flit moves. Cores serve single flits first come, first served, so
the service time is known when a flit leaves its last router: no event is needed at arrival.

`links` is None if every link takes a flit in each cycle. Flits belong to `packets` or `cores`; the other is None.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import ONE, bit, first_from, lowest
from nwcompile.kernels.cores.receive_side import serve_inputs
from nwcompile.kernels.cores.tables import CoreTables, CoreWork
from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.lockstep_state import (
    INPUT,
    INPUT_BITS,
    NOBODY,
    NONE,
    PORT,
    TAIL,
    TO,
    TO_BITS,
    ask,
    ask_later,
    fill,
    push,
    room_at,
)
from nwcompile.kernels.noc.mesh import ANY, PORT_BITS

# Indices of Cores.now.
CLOCK = 0  # when the next micro-step can begin
BUSY_UNTIL = 1  # when the last link falls idle
N_WAITING = 2  # messages of the micro-step that no core has received yet
N_NOW = 3


class Cores(NamedTuple):
    """The cores of a chip as receivers of messages."""

    tables: CoreTables
    work: CoreWork
    counts: np.ndarray  # int64[core and io site, N_COUNTS]: as in `event_cores.run_events`
    now: np.ndarray  # int64[N_NOW]


@inlined
def deliver_to_core(cores, to, ticks, time):
    """Let physical core `to` receive a message that arrives at `time` and takes `ticks` of work, after earlier ones.

    Returns when the core takes it.
    """
    c = np.int64(cores.tables.sites.core_at[to])
    core = cores.work.core[c]
    served = serve_inputs(cores.tables.axons, cores.work.inputs, core, c, time, cores.counts)
    cores.now[N_WAITING] -= served + 1
    taken = max(time, core.receive_at)
    core.receive_at = taken + ticks
    core.end = max(core.end, core.receive_at)
    return taken


@inlined
def serve_outputs(routers, links, vcs, agenda, packets, cores, n_outputs, time, last):
    """Let all listed outputs allocate and send in a cycle; returns how many stay listed for the next one."""
    if vcs is not None:
        for n in range(n_outputs):
            allocate(routers, links, vcs, agenda, np.int64(agenda.outputs[n]), time)
    n_kept = 0
    for n in range(n_outputs):
        o = np.int64(agenda.outputs[n])
        if vcs is None:
            stays = serve_single(routers, links, agenda, packets, cores, o, time, last)
        else:
            stays = accept_grant(routers, links, agenda, packets, cores, o, time, last)
        routers.output[o].is_listed = stays
        agenda.outputs[n_kept] = o
        n_kept += stays
    return n_kept


@inlined
def list_due(routers, agenda, row, n, n_sources):
    """List the outputs and sources with requests in a row of the agenda; returns the numbers of both listed."""
    for k in range(agenda.count[row]):
        both = np.int64(agenda.asks[row, k])
        o = both >> INPUT_BITS
        if o >= routers.n_outputs:
            agenda.sources[n_sources] = o - routers.n_outputs
            n_sources += 1
            continue
        output = routers.output[o]
        output.asks |= bit(both & INPUT)
        agenda.outputs[n] = o
        n += not output.is_listed
        output.is_listed = True
    agenda.count[row] = 0
    agenda.used[row >> 6] &= ~bit(row & 63)
    return n, n_sources


@inlined
def allocate(routers, links, vcs, agenda, o, time):
    """Let an output assign its channels to requesters and grant its switch to one input channel."""
    output = routers.output[o]
    asks = output.asks
    output.granted = NOBODY
    if asks == NONE:
        return
    first = np.int64(output.first)
    port = o - first
    if asks & (asks - ONE) != NONE:
        allocate_contended(routers, links, vcs, agenda, o, output, first, port, asks, time)
        return
    i = np.int64(lowest(asks))
    b = first * routers.n_vcs + i
    buffer = routers.buffer[b]
    if asks & output.held != NONE:
        if is_busy(links, o, first, buffer, time) or not has_room(
            routers, agenda, o, output, np.int64(buffer.channel), i, time
        ):
            return
    else:
        channels = output.free & vcs_for(routers, vcs, b)
        if channels == NONE:
            return
        is_idle = not is_busy(links, o, first, buffer, time)
        asks_switch = routers.is_speculative and is_idle and any_room(routers, output, channels, time)
        assign_vc(routers, output, port, i, b, select_channel(routers, buffer, port, channels))
        if not asks_switch:
            return
    output.granted = i
    routers.output[first + np.int64(buffer.in_port)].grants |= bit(port)


@inlined
def allocate_contended(routers, links, vcs, agenda, o, output, first, port, asks, time):
    """`allocate` with several requesters: the switch first, then channels."""
    n_vcs = routers.n_vcs
    wants = asks & ~output.held
    sure = NONE  # input channels that request the switch and hold a channel
    maybe = NONE  # input channels that request the switch without a channel
    in_ports = NONE  # the input ports of both
    rest = asks
    while rest != NONE:
        i = np.int64(lowest(rest))
        rest &= rest - ONE
        b = first * n_vcs + i
        buffer = routers.buffer[b]
        if is_busy(links, o, first, buffer, time):
            continue
        if bit(i) & wants == NONE:
            if has_room(routers, agenda, o, output, np.int64(buffer.channel), i, time):
                sure |= bit(i)
                in_ports |= bit(np.int64(buffer.in_port))
        elif routers.is_speculative and any_room(routers, output, output.free & vcs_for(routers, vcs, b), time):
            maybe |= bit(i)
            in_ports |= bit(np.int64(buffer.in_port))
    if in_ports != NONE:
        in_port = first_from(in_ports, np.int64(output.grant))
        of_input = routers.output[first + in_port]
        of_one_port = bit(n_vcs) - ONE
        channels = sure >> np.uint64(in_port * n_vcs) & of_one_port
        if channels == NONE:
            channels = maybe >> np.uint64(in_port * n_vcs) & of_one_port
        output.granted = in_port * n_vcs + first_from(channels, np.int64(of_input.first_channel))
        of_input.grants |= bit(port)
    if wants != NONE and output.free != NONE:
        allocate_vcs(routers, vcs, output, first, port, wants)


@inlined
def allocate_vcs(routers, vcs, output, first, port, wants):
    """Offer every free channel to one of `wants`; each of those accepts one offer."""
    offered = output.free
    while offered != NONE:
        v = np.int64(lowest(offered))
        i = select_requester(routers, vcs, output, first, v, wants)
        if i < 0:
            offered &= offered - ONE
            continue
        same, rest = bit(v), offered & (offered - ONE)
        while rest != NONE:
            other = np.int64(lowest(rest))
            rest &= rest - ONE
            if select_requester(routers, vcs, output, first, other, wants) == i:
                same |= bit(other)
        offered &= ~same
        b = first * routers.n_vcs + i
        assign_vc(routers, output, port, i, b, select_channel(routers, routers.buffer[b], port, same))


@inlined
def select_requester(routers, vcs, output, first, v, wants):
    """The input channel in `wants` that channel v of an output is offered to; -1 if none may take it."""
    able = wants
    if vcs.has_dateline:
        rest = wants
        while rest != NONE:
            i = np.int64(lowest(rest))
            rest &= rest - ONE
            if vcs_for(routers, vcs, first * routers.n_vcs + i) & bit(v) == NONE:
                able &= ~bit(i)
    if able == NONE:
        return np.int64(-1)
    return first_from(able, np.int64(routers.buffer[np.int64(output.down) + v].offer))


@inlined
def vcs_for(routers, vcs, b):
    """The output channels that the packet at the head of buffer b may take."""
    if not vcs.has_dateline:
        return vcs.of_class[ANY]
    word = np.int64(routers.slot[np.int64(routers.buffer[b].head)].word)
    return vcs.of_class[word >> TO_BITS + PORT_BITS & 3]


@inlined
def select_channel(routers, buffer, port, channels):
    """The channel that the packet at the head of a buffer accepts, among the offered `channels` of an output."""
    start = np.int64(buffer.accept) - port * routers.n_vcs
    return first_from(channels, start if 0 <= start < routers.n_vcs else np.int64(0))


@inlined
def assign_vc(routers, output, port, i, b, v):
    """Assign channel v of an output to the packet at the head of buffer b, input channel i."""
    n_inputs = routers.n_ports * routers.n_vcs
    there, buffer = routers.buffer[np.int64(output.down) + v], routers.buffer[b]
    there.offer = i + 1 if i + 1 < n_inputs else 0
    there.holder = i
    after = port * routers.n_vcs + v + 1
    buffer.accept = after if after < n_inputs else 0
    buffer.channel = v
    output.free &= ~bit(v)
    output.held |= bit(i)


@inlined
def is_busy(links, o, first, buffer, time):
    """Whether an output's link, or the input port of a buffer, is still busy with another flit."""
    if links is None:
        return False
    return links[o].free > time or links[first + np.int64(buffer.in_port)].input_free > time


@inlined
def has_room(routers, agenda, o, output, v, i, time):
    """Whether input channel i can send through channel v of an output. If not, it asks again when there is room."""
    there = routers.buffer[np.int64(output.down) + v]
    free = room_at(routers, there)
    if free <= time:
        return True
    output.asks &= ~bit(i)
    if free == NEVER:
        there.is_waited_for = True
    else:
        ask_later(agenda, time, free, o, i)
    return False


@inlined
def any_room(routers, output, channels, time):
    """Whether any of the output's `channels` has room."""
    while channels != NONE:
        v = np.int64(lowest(channels))
        channels &= channels - ONE
        if room_at(routers, routers.buffer[np.int64(output.down) + v]) <= time:
            return True
    return False


@inlined
def accept_grant(routers, links, agenda, packets, cores, o, time, last):
    """Let the input port that an output grants to accept one grant, and send.

    Returns whether the output needs service in the next cycle.
    """
    output = routers.output[o]
    i = np.int64(output.granted)
    if i != NOBODY:
        first = np.int64(output.first)
        port = o - first
        b = first * routers.n_vcs + i
        in_port = np.int64(routers.buffer[b].in_port)
        of_input = routers.output[first + in_port]
        grants = of_input.grants
        if grants != NONE and first_from(grants, np.int64(of_input.accept_port)) == port:
            of_input.grants = NONE
            output.grant = in_port + 1 if in_port + 1 < routers.n_ports else 0
            of_input.accept_port = port + 1 if port + 1 < routers.n_ports else 0
            v = i - in_port * routers.n_vcs + 1
            of_input.first_channel = v if v < routers.n_vcs else 0
            if output.held & bit(i) != NONE:
                down = np.int64(output.down) + np.int64(routers.buffer[b].channel)
                if room_at(routers, routers.buffer[down]) <= time:
                    send(routers, links, agenda, packets, cores, o, first, i, b, down, time, last)
    asks = output.asks
    return asks & output.held != NONE or asks != NONE and output.free != NONE


@inlined
def serve_single(routers, links, agenda, packets, cores, o, time, last):
    """`allocate` and `accept_grant` with one channel, where an input port requests one output and accepts its grant.

    Returns whether the output needs service in the next cycle.
    """
    output = routers.output[o]
    first, down = np.int64(output.first), np.int64(output.down)
    there = routers.buffer[down]
    if output.held != NONE:
        if output.asks & output.held == NONE:
            return False
        i = np.int64(there.holder)
        if is_busy(links, o, first, routers.buffer[first + i], time):
            return True
    elif output.asks != NONE:
        i = first_from(output.asks, np.int64(there.offer))
        there.offer = i + 1 if i + 1 < routers.n_ports else 0
        there.holder = i
        output.held = bit(i)
        if not routers.is_speculative or not wins_switch(routers, links, o, output, first, there, i, time):
            return True
    else:
        return False
    if not has_room(routers, agenda, o, output, 0, i, time):
        return False
    send(routers, links, agenda, packets, cores, o, first, i, first + i, down, time, last)
    if links is not None:
        output.grant = i + 1 if i + 1 < routers.n_ports else 0
    return output.asks != NONE


@inlined
def wins_switch(routers, links, o, output, first, there, i, time):
    """Whether input channel i, which has just received the output's only channel, wins the switch in the same cycle.

    All switch requesters compete, also those without a channel; if one of these wins, the switch stays idle. If no link
    is slow, the arbiters of channel and switch agree, so i wins. Without room nobody wins.
    """
    if links is None:
        return True
    if room_at(routers, there) > time:
        return True
    rest, able = output.asks, NONE
    while rest != NONE:
        k = np.int64(lowest(rest))
        rest &= rest - ONE
        if not is_busy(links, o, first, routers.buffer[first + k], time):
            able |= bit(k)
    if able == NONE:
        return False
    in_port = first_from(able, np.int64(output.grant))
    output.grant = in_port + 1 if in_port + 1 < routers.n_ports else 0
    return in_port == i


@inlined
def send(routers, links, agenda, packets, cores, o, first, i, b, down, time, last):
    """Move the first flit of buffer b, input channel i, through the crossbar and over the link to buffer `down`.

    Either `packets` or `cores` is None. A packet's arrival is noted if it is not after cycle `last`; a core receives a
    message.
    """
    output, buffer, there = routers.output[o], routers.buffer[b], routers.buffer[down]
    v = down - np.int64(output.down)
    flit = routers.slot[np.int64(buffer.head)]
    packet, word = np.int64(flit.packet), np.int64(flit.word)
    flit.time = time + routers.credit_cycles
    end = (b + 1) * routers.depth
    head = np.int64(buffer.head) + 1
    head = head if head < end else end - routers.depth
    buffer.head = head
    count = np.int64(buffer.count) - 1
    buffer.count = count
    if buffer.is_waited_for:
        buffer.is_waited_for = False
        ask(agenda, time + routers.credit_cycles, np.int64(buffer.sender), np.int64(buffer.holder))
    is_tail = word & TAIL != 0
    if count > 0:
        follower = routers.slot[head]
        when = max(time + 1, follower.time) + (routers.route_cycles if is_tail else 0)
        ask(agenda, when, first + (np.int64(follower.word) >> TO_BITS & PORT), i)
    busy_until = time + 1
    if links is not None:
        link = links[o]
        busy_until = time + link.cycles
        link.free = busy_until
        links[first + np.int64(buffer.in_port)].input_free = time + routers.link_cycles
    output.sent += 1
    output.asks &= ~bit(i)
    if is_tail:
        output.held &= ~bit(i)
        output.free |= bit(v)
    ready = time + np.int64(output.latency)
    if cores is not None:
        cores.now[BUSY_UNTIL] = max(cores.now[BUSY_UNTIL], busy_until)
    if not output.is_last:
        push(routers, agenda, output, v, down, there, packet, word, ready)
        return
    taken = ready
    if cores is not None:
        taken = deliver_to_core(cores, word & TO, packet, ready)
    if packets is not None and is_tail and ready <= last:
        packets.arrive[packet] = ready
    fill(routers, down, there, taken + routers.credit_cycles)
