"""The cores of a chip in one micro-step, event by event, in Numba: when they send and receive messages.

A core has a send side (visits, updates, spikes, messages out) and a receive side (messages in, words, synops). The two
run in parallel, or share one unit. A shared unit receives first, so that finite buffers always drain. The send side
stalls while its injection buffer is full, or drops the message. The receive side holds arriving flits in a finite
queue.
"""

import numpy as np

from nwcompile.kernels.cores.probes import (
    begin_probes,
    end_probes,
    probe_flight,
    probe_held,
    probe_injected,
    probe_lost,
    probe_ready,
    probe_resumed,
    probe_taken,
)
from nwcompile.kernels.cores.receive_side import count_received, serve_inputs, take_input_message
from nwcompile.kernels.cores.send_side import begin_cores, count_sent, has_message, work_before_next
from nwcompile.kernels.cores.tables import LOST_AT, LOST_EW, LOST_NS, LOST_OUT, LOST_TO, SEND_NEXT, STUCK, TOO_LONG
from nwcompile.kernels.jit import inlined, part
from nwcompile.kernels.noc.event_queue import NEVER, next_node, wake_at
from nwcompile.kernels.noc.event_router import pop, push, slot_free_at, step_router
from nwcompile.kernels.noc.mesh import BUSY_UNTIL, N_LOST, reset_arbiters

# CORE.phase after SEND_NEXT.
SENDING = 1  # The send side works on its next message, or on the rest of its work after the last message.
TO_INJECT = 2  # A message waits for its injection channel, or is being injected.
SENT = 3  # The send side has finished its micro-step.


@inlined
def step_core(mesh, queues, lossy, probes, tables, work, counts, c, time):
    """Let core `c` do its work at `time`. Returns the axon whose message it starts to accumulate, or -1."""
    core, outbox, shared = work.core[c], work.outbox, tables.costs.shared
    site = np.int64(tables.sites.site[c])
    node = mesh.n_routers + site
    axon = np.int64(-1)
    busy = shared and core.phase == SENDING and core.send_at > time
    if core.receive_at <= time and not busy:
        axon = receive(mesh, queues, probes, tables, work, c, site, time)
    elif not busy:
        wake_at(queues.events, node, core.receive_at)
    if core.phase == SENDING and core.send_at <= time:
        core.phase = SENT
        if has_message(outbox, core, c):
            core.phase = TO_INJECT
            message = outbox.message[core.message]
            core.flit = flits_of(mesh, tables.axons, message)
            if probes is not None:
                probe_ready(probes, core, c, message.copies, time)
        core.end = max(core.end, core.send_at)
    if core.phase == TO_INJECT:
        inject(mesh, queues, lossy, probes, tables, work, counts, c, site, time)
    if core.phase == SEND_NEXT:
        if not (shared and core.receive_at > time):
            if probes is not None and shared:
                probe_resumed(probes, core, c, time)
            core.send_at = time + work_before_next(outbox, core, c)
            core.phase = SENDING
            wake_at(queues.events, node, core.send_at)
    elif core.phase == SENDING:
        wake_at(queues.events, node, core.send_at)
    return axon


@inlined
def receive(mesh, queues, probes, tables, work, c, site, time):
    """Take the next complete message from the network, or from the input lines in a shared unit. Returns -1 if none."""
    core, shared = work.core[c], tables.costs.shared
    first = (mesh.n_routers * mesh.n_ports + site) * mesh.n_vcs
    router = site // mesh.per_router
    later = NEVER
    axon, entry = np.int64(-1), np.int64(-1)
    for k in range(1, mesh.n_vcs + 1):
        b = first + (core.receive_vc + k) % mesh.n_vcs
        while queues.buffer[b].count > 0:
            slot = queues.slot[b * mesh.depth + queues.buffer[b].head]
            if slot.time > time:
                later = min(later, slot.time)
                break
            if slot.left == 1:
                if axon < 0:
                    message = work.outbox.message[slot.message]
                    axon = np.int64(message.axon)
                    core.taken = slot.message
                    if message.to >= mesh.n_cores:
                        axon += slot.to
                    entry = np.int64(slot.entry)
                    pop(mesh, queues, b, router, time)
                    core.receive_vc = b - first
                break
            pop(mesh, queues, b, router, time)
    if axon < 0 and shared and work.inputs.first[c] >= 0:
        axon = take_input_message(work.inputs, c)
        core.taken = -1
    if axon >= 0:
        row = tables.axons.row[axon]
        if probes is not None:
            probe_taken(probes, core, c, row.source, entry, time, row.ticks, shared)
        core.receive_at = time + row.ticks
        core.end = max(core.end, core.receive_at)
        has_more = shared
        for b in range(first, first + mesh.n_vcs):
            has_more |= queues.buffer[b].count > 0
        if has_more:
            later = min(later, core.receive_at)
    if later < NEVER:
        wake_at(queues.events, mesh.n_routers + site, max(later, time + 1))
    return axon


@inlined
def flits_of(mesh, axons, message):
    """Flits of a message; a multicast message has one."""
    return np.int32(1) if message.to >= mesh.n_cores else axons.row[message.axon].flits


@inlined
def inject(mesh, queues, lossy, probes, tables, work, counts, c, site, time):
    """Put the next flit of the message into the router's buffer if there is room and the link is free.

    On chips that drop messages, a message whose head finds no room is lost. SpiNNaker's cores can do so: their
    spin1_send_mc_packet fails while the send queue is full (spin1_api.h of spinnaker_tools).
    """
    core, node = work.core[c], mesh.n_routers + site
    if core.inject_at > time:
        wake_at(queues.events, node, core.inject_at)
        return
    router, port = site // mesh.per_router, 4 + site % mesh.per_router
    first = (router * mesh.n_ports + port) * mesh.n_vcs
    k = core.message
    message = work.outbox.message[k]
    soonest, buffer = NEVER, np.int64(-1)
    is_head = core.flit == flits_of(mesh, tables.axons, message)
    for v in range(1, mesh.n_vcs + 1) if is_head else range(1):
        b = first + (core.inject_vc + v) % mesh.n_vcs
        when = slot_free_at(mesh, queues, b)
        if when <= time:
            buffer = b
            break
        soonest = min(soonest, when)
    if buffer < 0:
        if lossy is not None and is_head:
            lose(mesh, tables.axons, lossy, message, c, counts)
            queues.now[N_LOST] += message.copies
            if probes is not None:
                probe_lost(probes, c)
            count_sent(work.outbox, core)
            core.phase = SEND_NEXT
            return
        if soonest < NEVER:
            wake_at(queues.events, node, soonest)
        return
    core.inject_vc = buffer - first
    entry = np.int64(-1)
    if probes is not None:
        entry = probes.core[c].entry
    i = port * mesh.n_vcs + buffer - first
    ready = time + mesh.timing.inject_ticks
    push(mesh, queues, buffer, router, i, k, message.to, core.flit, entry, ready)
    core.inject_at = time + mesh.timing.link_ticks
    queues.now[BUSY_UNTIL] = max(queues.now[BUSY_UNTIL], core.inject_at)
    queues.flits[mesh.inject_link[site]] += 1
    core.flit -= 1
    if core.flit == 0:
        if probes is not None:
            probe_injected(probes, core, c, message.to, time, tables.costs.shared)
        count_sent(work.outbox, core)
        core.phase = SEND_NEXT
    else:
        wake_at(queues.events, node, core.inject_at)


@inlined
def lose(mesh, axons, lossy, message, c, counts):
    """Drop a message of core `c` and count the losses."""
    counts[c, LOST_AT] += 1
    goes_to_core = False
    for copy in range(message.copies):
        row = axons.row[message.axon + copy]
        counts[row.core, LOST_TO] += 1
        if row.core >= axons.n_cores:
            counts[c, LOST_OUT] += 1
        else:
            goes_to_core = c < axons.n_cores
    if goes_to_core:
        first = axons.row[message.axon]
        if message.to >= mesh.n_cores:
            counts[c, LOST_EW] += lossy.sent[first.source, 1]
            counts[c, LOST_NS] += lossy.sent[first.source, 2]
        else:
            counts[c, LOST_EW] += first.hops_ew
            counts[c, LOST_NS] += first.hops_ns
    message.lost += 1


@inlined
def probe_router(mesh, queues, probes, router, time):
    """Profile a router after it acted: its own buffers, and those that its links lead to."""
    for i in range(router * mesh.n_ports, (router + 1) * mesh.n_ports):
        probe_buffers(mesh, queues, probes, i, time)
        if mesh.output[i].down >= 0:
            probe_buffers(mesh, queues, probes, mesh.output[i].down // mesh.n_vcs, time)
    probe_flight(probes, time)


@inlined
def probe_core(mesh, queues, probes, site, time):
    """Profile a core after it acted: its injection buffers and its receive queue."""
    router = site // mesh.per_router
    probe_buffers(mesh, queues, probes, router * mesh.n_ports + 4 + site - router * mesh.per_router, time)
    probe_buffers(mesh, queues, probes, mesh.n_routers * mesh.n_ports + site, time)
    probe_flight(probes, time)


@inlined
def probe_buffers(mesh, queues, probes, group, time):
    """Report the number of flits in the buffers of a group to the probes."""
    held = np.int64(0)
    for b in range(group * mesh.n_vcs, (group + 1) * mesh.n_vcs):
        held += queues.buffer[b].count
    probe_held(probes, group, held, time)


@part
def run_events(mesh, queues, lossy, probes, tables, work, counts):
    """Run send, network and receive until nothing moves, with arbiters reset at the start; count arrivals per core.

    counts: int64[core and io site, N_COUNTS], or N_COUNTS_LOST if messages can be dropped; added to. `lossy.sent` is
    `FanOut.sent`; `lossy` is None if messages cannot be dropped. `probes` is None without profiling. Time continues
    from step to step: the step begins at the clock of the event queue, and an empty network needs no clearing.
    Returns the ticks until the last unit and link are idle, STUCK if messages cannot move, or TOO_LONG.
    """
    axons, costs = tables.axons, tables.costs
    start = queues.events.clock[0]
    reset_arbiters(queues)
    queues.flits[:] = 0
    queues.now[BUSY_UNTIL] = start
    queues.now[N_LOST] = 0
    n_waiting = begin_cores(work, axons.n_sites, start)
    for c in range(axons.n_sites):
        work.core[c].receive_vc = 0
        work.core[c].inject_vc = mesh.n_vcs - 1
        wake_at(queues.events, mesh.n_routers + tables.sites.site[c], start)
    if probes is not None:
        begin_probes(probes, work.inputs, axons.n_sites, start, costs.shared)
    end = start + (costs.longest_step or 2 * (costs.longest_idle + n_waiting * costs.longest_message))
    while True:
        time, node = next_node(queues.events)
        if node < 0:
            break
        if time > end:  # nodes may still act after all messages have arrived
            for c in range(0 if costs.shared else axons.n_sites):
                n_waiting -= serve_inputs(axons, work.inputs, work.core[c], c, time, counts)
            if n_waiting > queues.now[N_LOST]:
                return np.int64(TOO_LONG)
        if node < mesh.n_routers:
            step_router(mesh, queues, node, time)
            if probes is not None:
                probe_router(mesh, queues, probes, node, time)
            continue
        site = node - mesh.n_routers
        c = np.int64(tables.sites.core_at[site])
        if not costs.shared:
            n_waiting -= serve_inputs(axons, work.inputs, work.core[c], c, time, counts)
        axon = step_core(mesh, queues, lossy, probes, tables, work, counts, c, time)
        if probes is not None:
            probe_core(mesh, queues, probes, site, time)
        if axon >= 0:
            count_received(axons, c, axon, 1, counts)
            n_waiting -= 1
    for c in range(axons.n_sites):
        n_waiting -= serve_inputs(axons, work.inputs, work.core[c], c, NEVER, counts)
    if n_waiting != queues.now[N_LOST]:
        return np.int64(STUCK)
    last = queues.now[BUSY_UNTIL]
    for c in range(axons.n_sites):
        last = max(last, work.core[c].end)
    if last > end:
        return np.int64(TOO_LONG)
    if probes is not None:
        end_probes(probes, work.core, start, last, costs.shared)
    clock = queues.events.clock
    clock[0] = max(last, clock[0]) + mesh.timing.credit_ticks + mesh.timing.link_ticks
    return last - start
