"""A list of packets through the routers, in Numba: each core is a source that queues its packets, and a sink."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.event_queue import NEVER, next_node, wake_at
from nwcompile.kernels.noc.event_router import look_at_router, pop, push, slot_free_at
from nwcompile.kernels.noc.mesh import equal_turns, start_over


class Packets(NamedTuple):
    """Packets by source, then in the order in which the source sends them; times are in ticks."""

    first: np.ndarray  # int64[core + 1]
    time: np.ndarray  # int64[packet]: when the source has it
    size: np.ndarray  # int64[packet]: flits
    to: np.ndarray  # int32[packet]: destination core, or n_cores + first branch of its tree
    inject: np.ndarray  # int64[packet], out: when its head leaves the source
    arrive: np.ndarray  # int64[delivery], out: when its tail is at the sink
    delivery: np.ndarray  # int64[packet]: its first one
    interrupted: np.ndarray  # bool[1]: set from outside, to end before the next event


class Sources(NamedTuple):
    """Where each source stands."""

    packet: np.ndarray  # int64[core]: the next to be sent
    left: np.ndarray  # int64[core]: flits of it still to send, 0: its head has not left
    channel: np.ndarray  # int64[core]: channel of it, or the one to try first
    free: np.ndarray  # int64[core]: injection link free


@inlined
def take_flits(m, q, packets, core, router, time):
    """Let a sink take what has arrived in each of its channels; returns how many deliveries are complete."""
    done = 0
    for v in range(m.n_vcs):
        b = (m.n_routers * m.n_ports + core) * m.n_vcs + v
        while q.buffer[b].count > 0:
            slot = q.slot[b * m.depth + q.buffer[b].head]
            if slot.time > time:
                wake_at(q.wheel, m.n_routers + core, slot.time)
                break
            pop(m, q, b, router, time)
            if slot.left == 1:
                place = slot.to if packets.to[slot.message] >= m.n_cores else 0
                packets.arrive[packets.delivery[slot.message] + place] = time
                done += 1
    return done


@inlined
def feed(m, q, packets, s, core, router, time):
    """Let a source put its next flit on the injection link, if it is free and a channel has room."""
    k = s.packet[core]
    if k == packets.first[core + 1]:
        return
    node = m.n_routers + core
    when = max(packets.time[k], s.free[core])
    if when > time:
        wake_at(q.wheel, node, when)
        return
    i = (4 + core - router * m.per_router) * m.n_vcs
    first = router * m.n_ports * m.n_vcs + i
    channel, soonest = np.int64(-1), NEVER
    for turn in range(m.n_vcs if s.left[core] == 0 else 1):
        v = s.channel[core] + turn
        v -= m.n_vcs if v >= m.n_vcs else 0
        when = slot_free_at(m, q, first + v)
        if when <= time:
            channel = v
            break
        soonest = min(soonest, when)
    if channel < 0:
        if soonest < NEVER:
            wake_at(q.wheel, node, soonest)
        return
    if s.left[core] == 0:
        s.left[core] = packets.size[k]
        packets.inject[k] = time
    push(m, q, first + channel, router, i + channel, k, packets.to[k], s.left[core], -1, time + m.inject_ticks)
    q.flits[m.inject_link[core]] += 1
    s.free[core] = time + m.link_ticks
    s.channel[core] = channel
    s.left[core] -= 1
    if s.left[core] == 0:
        s.packet[core] += 1
        s.channel[core] = channel + 1 if channel + 1 < m.n_vcs else 0
        if s.packet[core] == packets.first[core + 1]:
            return
        wake_at(q.wheel, node, max(s.free[core], packets.time[s.packet[core]]))
    else:
        wake_at(q.wheel, node, s.free[core])


@kernel
def replay(m, q, packets, s, last):
    """Send all packets, from an idle network, until they have arrived or time `last` is reached.

    Returns the number of deliveries; those that are missing keep their `arrive` (and packets their `inject`).
    """
    equal_turns(q)
    start_over(q)
    n_done = 0
    for core in range(s.packet.shape[0]):
        s.packet[core] = packets.first[core]
        s.left[core] = 0
        s.channel[core] = 0
        s.free[core] = 0
        if packets.first[core] < packets.first[core + 1]:
            wake_at(q.wheel, m.n_routers + core, packets.time[packets.first[core]])
    while n_done < packets.arrive.shape[0]:
        time, node = next_node(q.wheel)
        if node < 0 or time > last or packets.interrupted[0]:
            break
        if node < m.n_routers:
            look_at_router(m, q, node, time)
        else:
            core = node - m.n_routers
            router = core if m.per_router == 1 else core // m.per_router
            n_done += take_flits(m, q, packets, core, router, time)
            feed(m, q, packets, s, core, router, time)
    return n_done
