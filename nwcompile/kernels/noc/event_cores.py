"""The cores of a chip in one micro-step, in Numba: when they send their messages and work on those that arrive.

A core has a send side (visits, updates, spikes, messages out) and a receive side (messages in, words, synops). They
run side by side, or share one unit; then receiving comes first, so that finite buffers always drain. The send side
stalls while its injection buffer is full, or drops the message; the receive side holds arriving flits in a finite
queue.
"""

import numpy as np

from nwcompile.kernels.cores.probes import (
    ENTRY,
    begin_watch,
    end_watch,
    note_core,
    note_injected,
    note_lost,
    note_ready,
    note_resumed,
    note_router,
    note_taken,
)
from nwcompile.kernels.cores.tables import (
    IO_IN,
    LOST_AT,
    LOST_EW,
    LOST_NS,
    LOST_OUT,
    LOST_TO,
    MESSAGES_IN,
    STUCK,
    TOO_LONG,
)
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.event_queue import NEVER, NOW, next_node, wake_at
from nwcompile.kernels.noc.event_router import look_at_router, pop, push, slot_free_at

SEND_NEXT, SENDING, TO_INJECT, SENT = 0, 1, 2, 3


@inlined
def look_at_core(m, q, w, costs, axons, box, p, counts, core, time):
    """Let a core do what it can at `time`; returns an axon whose message it starts to accumulate, or -1."""
    site = axons.site[core]
    served = np.int64(-1)
    busy = costs.shared and p.state[core] == SENDING and p.send_at[core] > time
    if p.receive_at[core] <= time and not busy:
        served = receive(m, q, w, costs, axons, box, p, core, site, time)
    elif not busy:
        wake_at(q.wheel, m.n_routers + site, p.receive_at[core])
    if p.state[core] == SENDING and p.send_at[core] <= time:
        p.state[core] = TO_INJECT if p.message[core] < box.first[core + 1] else SENT
        if p.state[core] == TO_INJECT:
            p.flit[core] = flits_of(m, axons, box, p.message[core])
            if w.is_on:
                note_ready(w, p, core, box.copies[p.message[core]], time)
        p.end[core] = max(p.end[core], p.send_at[core])
    if p.state[core] == TO_INJECT:
        inject(m, q, w, costs, axons, box, p, counts, core, site, time)
    if p.state[core] == SEND_NEXT:
        if not (costs.shared and p.receive_at[core] > time):
            k = p.message[core]
            work = box.tail[core]
            if k < box.first[core + 1]:
                work = box.work[k] if p.sent[core] == 0 else box.again[k]
            if w.is_on and costs.shared:
                note_resumed(w, p, core, time)
            p.send_at[core] = time + work
            p.state[core] = SENDING
            wake_at(q.wheel, m.n_routers + site, p.send_at[core])
    elif p.state[core] == SENDING:
        wake_at(q.wheel, m.n_routers + site, p.send_at[core])
    return served


@inlined
def receive(m, q, w, costs, axons, box, p, core, site, time):
    """Take the next whole message of the network (then, in a shared unit, of the input lines); -1 if none is there."""
    first = (m.n_routers * m.n_ports + site) * m.n_vcs
    router = site // m.per_router
    later = NEVER
    axon, entry = np.int64(-1), np.int64(-1)
    for k in range(1, m.n_vcs + 1):
        b = first + (p.turn[core] + k) % m.n_vcs
        while q.buffer[b].count > 0:
            slot = q.slot[b * m.depth + q.buffer[b].head]
            if slot.time > time:
                later = min(later, slot.time)
                break
            if slot.left == 1:
                if axon < 0:
                    axon = np.int64(box.axon[slot.message])
                    if box.to[slot.message] >= m.n_cores:
                        axon += slot.to
                    entry = np.int64(slot.entry)
                    pop(m, q, b, router, time)
                    p.turn[core] = b - first
                break
            pop(m, q, b, router, time)
    if axon < 0 and costs.shared and box.external[core] >= 0:
        axon = take_external(box, core)
    if axon >= 0:
        if w.is_on:
            note_taken(w, p, core, axons.row[axon].source, entry, time, axons.row[axon].ticks, costs)
        p.receive_at[core] = time + axons.row[axon].ticks
        p.end[core] = max(p.end[core], p.receive_at[core])
        has_more = costs.shared
        for b in range(first, first + m.n_vcs):
            has_more |= q.buffer[b].count > 0
        if has_more:
            later = min(later, p.receive_at[core])
    if later < NEVER:
        wake_at(q.wheel, m.n_routers + site, max(later, time + 1))
    return axon


@inlined
def flits_of(m, axons, box, k):
    """Flits of message k; of a tree it is one."""
    return np.int32(1) if box.to[k] >= m.n_cores else axons.row[box.axon[k]].flits


@inlined
def take_external(box, core):
    """The axon of the next input message that waits at a core."""
    axon = box.external[core]
    box.left[axon] -= 1
    if box.left[axon] == 0:
        box.external[core] = box.after[axon]
    return axon


@inlined
def inject(m, q, w, costs, axons, box, p, counts, core, site, time):
    """Put the next flit of the message into the router's buffer if there is room and the link is free.

    Where a chip drops messages, one whose head finds no room is lost. (SpiNNaker's cores may do so: their
    spin1_send_mc_packet fails while the queue for sending is full, spin1_api.h of spinnaker_tools.)
    """
    node = m.n_routers + site
    if p.inject_at[core] > time:
        wake_at(q.wheel, node, p.inject_at[core])
        return
    router, port = site // m.per_router, 4 + site % m.per_router
    first = (router * m.n_ports + port) * m.n_vcs
    k = p.message[core]
    soonest, buffer = NEVER, np.int64(-1)
    is_head = p.flit[core] == flits_of(m, axons, box, k)
    for v in range(1, m.n_vcs + 1) if is_head else range(1):
        b = first + (p.channel[core] + v) % m.n_vcs
        when = slot_free_at(m, q, b)
        if when <= time:
            buffer = b
            break
        soonest = min(soonest, when)
    if buffer < 0:
        if costs.drops and is_head:
            lose(m, w, axons, box, p, counts, core, k)
        elif soonest < NEVER:
            wake_at(q.wheel, node, soonest)
        return
    p.channel[core] = buffer - first
    entry = w.core[core, ENTRY] if w.is_on else -1
    i = port * m.n_vcs + buffer - first
    push(m, q, buffer, router, i, k, box.to[k], p.flit[core], entry, time + m.inject_ticks)
    p.inject_at[core] = time + m.link_ticks
    q.busy_until[0] = max(q.busy_until[0], p.inject_at[core])
    q.flits[m.inject_link[site]] += 1
    p.flit[core] -= 1
    if p.flit[core] == 0:
        if w.is_on:
            note_injected(w, p, core, box.to[k], time, costs.shared)
        send_next(box, p, core, k)
    else:
        wake_at(q.wheel, node, p.inject_at[core])


@inlined
def send_next(box, p, core, k):
    """A core is done with message k, and goes on with its next copy or the next message."""
    p.sent[core] += 1
    if p.sent[core] == box.times[k]:
        p.message[core] += 1
        p.sent[core] = 0
    p.state[core] = SEND_NEXT


@inlined
def lose(m, w, axons, box, p, counts, core, k):
    """Drop message k of a core, and count what is lost with it."""
    counts[core, LOST_AT] += 1
    is_own = False
    for copy in range(box.copies[k]):
        row = axons.row[box.axon[k] + copy]
        counts[row.core, LOST_TO] += 1
        if row.core >= axons.n_cores:
            counts[core, LOST_OUT] += 1
        else:
            is_own = core < axons.n_cores
    if is_own:
        source = axons.row[box.axon[k]].source
        if box.to[k] >= m.n_cores:
            counts[core, LOST_EW] += axons.leaves[source, 1]
            counts[core, LOST_NS] += axons.leaves[source, 2]
        else:
            counts[core, LOST_EW] += axons.row[box.axon[k]].hops_ew
            counts[core, LOST_NS] += axons.row[box.axon[k]].hops_ns
    p.lost[0] += box.copies[k]
    box.lost[k] += 1
    if w.is_on:
        note_lost(w, core)
    send_next(box, p, core, k)


@inlined
def count_received(axons, core, axon, times, counts):
    """Count messages that `core` received, all of one axon; those that a gate takes leave the chip."""
    if core >= axons.n_cores:
        return
    row, count = axons.row[axon], counts[core]
    count[0] += row.dense * times
    count[1] += row.sparse * times
    count[2] += row.conv * times
    count[3] += (row.dense + row.sparse + row.conv) * times
    count[4] += row.words * times
    count[MESSAGES_IN] += times
    if row.source < axons.n_lines and axons.site.shape[0] > axons.n_cores:
        count[IO_IN] += times


@inlined
def serve_inputs(axons, box, p, core, until, counts):
    """Receive the input messages whose turn comes before `until`; returns how many.

    A receive side of its own is never idle while input messages wait, and is told of every message from the network,
    so what it did in between can be caught up with when something else happens.
    """
    served = 0
    while box.external[core] >= 0 and p.receive_at[core] < until:
        axon = take_external(box, core)
        p.receive_at[core] += axons.row[axon].ticks
        p.end[core] = max(p.end[core], p.receive_at[core])
        count_received(axons, core, axon, 1, counts)
        served += 1
    return served


@inlined
def begin_cores(axons, box, p, start):
    """All cores begin a micro-step at `start`; returns how many messages (copies of trees) are to be taken in it."""
    n_cores, n_waiting = axons.site.shape[0], np.int64(0)
    for k in range(box.first[n_cores]):
        n_waiting += box.times[k] * box.copies[k]
        box.lost[k] = 0
    for core in range(n_cores):
        p.state[core] = SEND_NEXT
        p.message[core] = box.first[core]
        p.sent[core] = 0
        p.inject_at[core] = start
        p.receive_at[core] = start
        p.end[core] = start
        e = box.external[core]
        while e >= 0:
            n_waiting += box.left[e]
            e = box.after[e]
    return n_waiting


@kernel
def move_messages(m, q, w, costs, axons, box, p, counts):
    """Run send, network and receive until all is quiet; counts what arrives per core, and marks what is dropped.

    counts: int64[core and gate, N_COUNTS, or N_COUNTS_LOST where messages are dropped], added to.
    Time goes on from step to step, so that a network that is empty needs no clearing: the step begins when the clock
    of q.wheel says. Returns the ticks until the last unit and link fall idle, STUCK if messages are, or TOO_LONG.
    """
    n_cores, start = axons.site.shape[0], q.wheel.clock[NOW]
    q.busy_until[0] = start
    p.lost[0] = 0
    n_waiting = begin_cores(axons, box, p, start)
    for core in range(n_cores):
        wake_at(q.wheel, m.n_routers + axons.site[core], start)
    if w.is_on:
        begin_watch(w, axons, box, start, costs.shared)
    end = start + (costs.longest_step or 2 * (costs.longest_idle + n_waiting * costs.longest_message))
    while True:
        time, node = next_node(q.wheel)
        if node < 0:
            break
        if time > end:  # nodes may be looked at though all messages are there
            for core in range(0 if costs.shared else n_cores):
                n_waiting -= serve_inputs(axons, box, p, core, time, counts)
            if n_waiting > p.lost[0]:
                return np.int64(TOO_LONG)
        if node < m.n_routers:
            look_at_router(m, q, node, time)
            if w.is_on:
                note_router(m, q, w, node, time)
            continue
        core = axons.core_at[node - m.n_routers]
        if not costs.shared:
            n_waiting -= serve_inputs(axons, box, p, core, time, counts)
        axon = look_at_core(m, q, w, costs, axons, box, p, counts, core, time)
        if w.is_on:
            note_core(m, q, w, axons.site[core], time)
        if axon >= 0:
            count_received(axons, core, axon, 1, counts)
            n_waiting -= 1
    for core in range(n_cores):
        n_waiting -= serve_inputs(axons, box, p, core, NEVER, counts)
    if n_waiting != p.lost[0]:
        return np.int64(STUCK)
    last = q.busy_until[0]
    for core in range(n_cores):
        last = max(last, p.end[core])
    if last > end:
        return np.int64(TOO_LONG)
    if w.is_on:
        end_watch(w, p, start, last, costs.shared)
    q.wheel.clock[NOW] = max(last, q.wheel.clock[NOW]) + m.credit_ticks + m.link_ticks
    return last - start
