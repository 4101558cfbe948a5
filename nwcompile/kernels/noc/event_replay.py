"""Replay a list of packets through the routers, in Numba. Each core is a source with a packet queue, and a sink."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.event_queue import NEVER, next_node, wake_at
from nwcompile.kernels.noc.event_router import pop, push, slot_free_at, step_router
from nwcompile.kernels.noc.mesh import clear_network, reset_arbiters


class Packets(NamedTuple):
    """Packets sorted by source, then by the order in which the source sends them. Times are in ticks."""

    first: np.ndarray  # int64[core + 1]
    time: np.ndarray  # int64[packet]: when the packet is ready at its source
    size: np.ndarray  # int64[packet]: flits
    to: np.ndarray  # int32[packet]: destination core, or n_cores + first branch of its tree
    inject: np.ndarray  # int64[packet], out: when the head leaves the source
    arrive: np.ndarray  # int64[delivery], out: when the tail reaches the sink
    delivery: np.ndarray  # int64[packet]: number of the packet's first delivery
    interrupted: np.ndarray  # bool[1]: set from outside to stop before the next event


class Sources(NamedTuple):
    """State of each source."""

    packet: np.ndarray  # int64[core]: next packet to send
    left: np.ndarray  # int64[core]: flits of that packet still to send, 0: its head has not left
    channel: np.ndarray  # int64[core]: virtual channel of that packet, or the one to try first
    free: np.ndarray  # int64[core]: when the injection link is free


@inlined
def take_flits(mesh, queues, packets, core, router, time):
    """Let a sink take all flits that have arrived in its channels. Returns the number of completed deliveries."""
    done = 0
    for v in range(mesh.n_vcs):
        b = (mesh.n_routers * mesh.n_ports + core) * mesh.n_vcs + v
        while queues.buffer[b].count > 0:
            slot = queues.slot[b * mesh.depth + queues.buffer[b].head]
            if slot.time > time:
                wake_at(queues.events, mesh.n_routers + core, slot.time)
                break
            pop(mesh, queues, b, router, time)
            if slot.left == 1:
                place = slot.to if packets.to[slot.message] >= mesh.n_cores else 0
                packets.arrive[packets.delivery[slot.message] + place] = time
                done += 1
    return done


@inlined
def inject(mesh, queues, packets, sources, core, router, time):
    """Let a source put its next flit on the injection link if the link is free and a channel has room."""
    k = sources.packet[core]
    if k == packets.first[core + 1]:
        return
    node = mesh.n_routers + core
    when = max(packets.time[k], sources.free[core])
    if when > time:
        wake_at(queues.events, node, when)
        return
    i = (4 + core - router * mesh.per_router) * mesh.n_vcs
    first = router * mesh.n_ports * mesh.n_vcs + i
    channel, soonest = np.int64(-1), NEVER
    for offset in range(mesh.n_vcs if sources.left[core] == 0 else 1):
        v = sources.channel[core] + offset
        v -= mesh.n_vcs if v >= mesh.n_vcs else 0
        when = slot_free_at(mesh, queues, first + v)
        if when <= time:
            channel = v
            break
        soonest = min(soonest, when)
    if channel < 0:
        if soonest < NEVER:
            wake_at(queues.events, node, soonest)
        return
    if sources.left[core] == 0:
        sources.left[core] = packets.size[k]
        packets.inject[k] = time
    push(
        mesh,
        queues,
        first + channel,
        router,
        i + channel,
        k,
        packets.to[k],
        sources.left[core],
        -1,
        time + mesh.timing.inject_ticks,
    )
    queues.flits[mesh.inject_link[core]] += 1
    sources.free[core] = time + mesh.timing.link_ticks
    sources.channel[core] = channel
    sources.left[core] -= 1
    if sources.left[core] == 0:
        sources.packet[core] += 1
        sources.channel[core] = channel + 1 if channel + 1 < mesh.n_vcs else 0
        if sources.packet[core] == packets.first[core + 1]:
            return
        wake_at(queues.events, node, max(sources.free[core], packets.time[sources.packet[core]]))
    else:
        wake_at(queues.events, node, sources.free[core])


@kernel
def replay_events(mesh, queues, packets, sources, last):
    """Send all packets through an idle network until all have arrived or time `last` is reached.

    Returns the number of deliveries. Undelivered packets keep their `arrive`, unsent ones also their `inject`.
    """
    reset_arbiters(queues)
    clear_network(queues)
    n_done = 0
    for core in range(sources.packet.shape[0]):
        sources.packet[core] = packets.first[core]
        sources.left[core] = 0
        sources.channel[core] = 0
        sources.free[core] = 0
        if packets.first[core] < packets.first[core + 1]:
            wake_at(queues.events, mesh.n_routers + core, packets.time[packets.first[core]])
    while n_done < packets.arrive.shape[0]:
        time, node = next_node(queues.events)
        if node < 0 or time > last or packets.interrupted[0]:
            break
        if node < mesh.n_routers:
            step_router(mesh, queues, node, time)
        else:
            core = node - mesh.n_routers
            router = core if mesh.per_router == 1 else core // mesh.per_router
            n_done += take_flits(mesh, queues, packets, core, router, time)
            inject(mesh, queues, packets, sources, core, router, time)
    return n_done
