"""The cores of a chip with a segmented bus in one micro-step, in Numba: slots instead of event_cores.py's routers.

Finished messages of a core wait in a queue for their slots; the send side stalls while it is full. Arriving messages
wait in a queue of the same depth; nobody sends to a core while it is full. All cores run up to the beginning of a slot,
then the slot is filled. Slots in which nothing can change are skipped.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.families.segmented_bus.kernel import (
    N_WAITING,
    Bus,
    Waiting,
    add_up_links,
    arrival,
    enqueue,
    fill_slot,
    has_room,
    start_counting,
)
from nwcompile.kernels.bits import bit
from nwcompile.kernels.cores.probes import (
    begin_probes,
    end_probes,
    probe_flight,
    probe_held,
    probe_injected,
    probe_ready,
    probe_resumed,
    probe_taken,
)
from nwcompile.kernels.cores.receive_side import count_received, take_input_message
from nwcompile.kernels.cores.send_side import begin_cores, count_sent, has_message, work_before_next
from nwcompile.kernels.cores.tables import SEND_NEXT, STUCK, TOO_LONG
from nwcompile.kernels.jit import inlined, part
from nwcompile.kernels.noc.event_queue import NEVER

# CORE.phase after SEND_NEXT.
FINISHED = 1  # The next message is finished, or will be at the end of its work, and waits for the queue.
SENT = 2  # The send side has no message left; its last work may still run.

ARRIVED = np.dtype(
    [
        ("message", np.int64),
        ("time", np.int64),  # when it arrived
        ("note", np.int64),  # index of Probes.entry
    ],
    align=True,
)
RING = np.dtype(
    [
        ("first", np.int64),  # place of the oldest message
        ("count", np.int64),  # messages in the ring
        ("next_at", np.int64),  # when the core next acts by itself
    ],
    align=True,
)


class Arrivals(NamedTuple):
    """Messages that have arrived at each core and wait in a ring to be received."""

    arrived: np.ndarray  # ARRIVED[core, place]
    ring: np.ndarray  # RING[core]


class BusNetwork(NamedTuple):
    """A bus with cores as sources and sinks."""

    bus: Bus
    waiting: Waiting
    arrivals: Arrivals

    @property
    def flits(self) -> np.ndarray:
        """int64[link]: transfers of the last micro-step."""
        return self.waiting.totals.flits


@part
def run_bus(net, probes, tables, work, counts):
    """Run send, bus and receive until nothing moves, as `event_cores.run_events`; the micro-step begins at time 0.

    The totals of `net.waiting` are those of this micro-step. Returns the ticks until the last unit and slot end, STUCK
    if messages cannot move, or TOO_LONG.
    """
    bus, waiting, rings = net.bus, net.waiting, net.arrivals.ring
    axons, costs, inputs = tables.axons, tables.costs, work.inputs
    start_counting(bus, waiting)
    begin_cores(work, axons.n_sites, np.int64(0))
    for c in range(axons.n_sites):
        work.core[c].send_at = 0
        rings[c].first = 0
        rings[c].count = 0
        rings[c].next_at = 0
    if probes is not None:
        begin_probes(probes, inputs, axons.n_sites, np.int64(0), costs.shared)
        for group in range(probes.group.shape[0]):
            probes.group[group].since = 0
    time, last, soonest, longest = np.int64(0), np.int64(0), NEVER, costs.longest_step or NEVER
    while last <= longest:
        soonest = NEVER
        for c in range(axons.n_sites):
            if rings[c].next_at <= time:
                if costs.shared:
                    rings[c].next_at = run_shared(net, probes, tables, work, c, time, counts)
                else:
                    sends = run_send_side(net, probes, tables, work, c, time)
                    receives = run_receive_side(net, probes, tables, work, c, time, counts)
                    rings[c].next_at = min(sends, receives)
            soonest = min(soonest, rings[c].next_at)
        n_moved = np.int64(0)
        if waiting.state[N_WAITING] > 0:
            n_moved = fill_slot(bus, waiting, time)
        for i in range(n_moved):
            deliver_transfer(net, probes, work, waiting.slot.transfers[i], time)
        if probes is not None:
            probe_flight(probes, time)
        if n_moved > 0:
            time += bus.slot_ticks
            last = time
        elif soonest <= longest and soonest < NEVER:
            time += (soonest - time + bus.slot_ticks - 1) // bus.slot_ticks * bus.slot_ticks
        else:
            break
    add_up_links(bus, waiting)
    n_open = 0
    for c in range(axons.n_sites):
        n_open += work.core[c].phase != SENT or rings[c].count > 0 or inputs.first[c] >= 0
        last = max(last, work.core[c].end)
    if last > longest or longest < soonest < NEVER:
        return np.int64(TOO_LONG)
    if n_open > 0:
        return np.int64(STUCK)
    if probes is not None:
        end_probes(probes, work.core, np.int64(0), last, costs.shared)
    return last


@inlined
def deliver_transfer(net, probes, work, moved, time):
    """Move a message of the slot that begins at `time` from the sender's queue to the receiver's."""
    bus, waiting, rings = net.bus, net.waiting, net.arrivals.ring
    a, b = moved.source, moved.target
    source, target = bus.core[a], bus.core[b]
    ring, depth = rings[target], net.arrivals.arrived.shape[1]
    arrived = net.arrivals.arrived[target, (ring.first + ring.count) % depth]
    arrived.message = moved.message
    arrived.time = arrival(bus, time, a, b)
    arrived.note = moved.note
    ring.count += 1
    if ring.count == depth:
        waiting.room[0, b >> 6] &= ~bit(b & 63)
    ring.next_at = min(ring.next_at, arrived.time)
    if work.core[source].phase == FINISHED:
        rings[source].next_at = min(rings[source].next_at, max(work.core[source].send_at, time))
    if probes is not None:
        probe_held(probes, a, waiting.load[2 * a], time)
        probe_held(probes, bus.tap.shape[0] + b, ring.count, time)


@inlined
def send_message(net, probes, tables, work, c, time):
    """Put the finished message of core `c` into the queue."""
    core, bus = work.core[c], net.bus
    k = core.message
    message = work.outbox.message[k]
    entry = np.int64(-1)
    if probes is not None:
        entry = probes.core[c].entry
    target = tables.axons.row[message.axon].core
    enqueue(bus, net.waiting, bus.tap[c], bus.tap[target], k, entry, time)
    count_sent(work.outbox, core)
    core.phase = SEND_NEXT
    if probes is not None:
        probe_injected(probes, core, c, message.to, time, tables.costs.shared)
        probe_held(probes, bus.tap[c], net.waiting.load[2 * bus.tap[c]], time)


@inlined
def begin_work(probes, work, c, time):
    """Start the work of core `c` on its next message, or after its last one; returns when that work ends."""
    core = work.core[c]
    core.send_at = time + work_before_next(work.outbox, core, c)
    core.end = max(core.end, core.send_at)
    core.phase = SENT
    if has_message(work.outbox, core, c):
        core.phase = FINISHED
        if probes is not None:
            probe_ready(probes, core, c, 1, core.send_at)
    return core.send_at


@inlined
def run_send_side(net, probes, tables, work, c, until):
    """Let the send side do all work that begins by `until`; returns when it continues (NEVER: not by itself)."""
    core = work.core[c]
    a, time = net.bus.tap[c], core.send_at
    while time <= until:
        if core.phase == FINISHED:
            if not has_room(net.bus, net.waiting, a):
                return NEVER
            time = max(time, net.waiting.room_at[a])
            send_message(net, probes, tables, work, c, time)
        elif core.phase == SEND_NEXT:
            time = begin_work(probes, work, c, time)
        else:
            return NEVER
    return time if core.phase != SENT else NEVER


@inlined
def take_arrived(net, probes, c, time):
    """Remove the oldest message that has arrived; returns its number and its index of Probes.entry."""
    ring, b = net.arrivals.ring[c], net.bus.tap[c]
    arrived = net.arrivals.arrived[c, ring.first]
    ring.first = (ring.first + 1) % net.arrivals.arrived.shape[1]
    ring.count -= 1
    net.waiting.room[0, b >> 6] |= bit(b & 63)
    if probes is not None:
        probe_held(probes, net.bus.tap.shape[0] + b, ring.count, time)
    return arrived.message, arrived.note


@inlined
def receive_next(net, probes, tables, work, c, time, counts):
    """Receive a message that has arrived by `time`, else one of the input; returns False if there is none."""
    core, ring = work.core[c], net.arrivals.ring[c]
    entry = np.int64(-1)
    if ring.count > 0 and net.arrivals.arrived[c, ring.first].time <= time:
        k, entry = take_arrived(net, probes, c, time)
        axon = np.int64(work.outbox.message[k].axon)
    elif work.inputs.first[c] >= 0:
        axon = np.int64(take_input_message(work.inputs, c))
    else:
        return False
    row = tables.axons.row[axon]
    if probes is not None:
        probe_taken(probes, core, c, row.source, entry, time, row.ticks, tables.costs.shared)
    core.receive_at = time + row.ticks
    core.end = max(core.end, core.receive_at)
    count_received(tables.axons, c, axon, 1, counts)
    return True


@inlined
def run_receive_side(net, probes, tables, work, c, until, counts):
    """Let a separate receive side do all work that begins by `until`; returns when it continues, as `run_send_side`."""
    core, ring = work.core[c], net.arrivals.ring[c]
    time = core.receive_at
    while time <= until:
        if receive_next(net, probes, tables, work, c, time, counts):
            time = core.receive_at
        elif ring.count > 0:
            time = net.arrivals.arrived[c, ring.first].time
        else:
            return NEVER
    return time if ring.count > 0 or work.inputs.first[c] >= 0 else NEVER


@inlined
def run_shared(net, probes, tables, work, c, until, counts):
    """`run_send_side` and `run_receive_side` of a unit that sends and receives; it receives first."""
    core, ring, a = work.core[c], net.arrivals.ring[c], net.bus.tap[c]
    time = max(core.send_at, core.receive_at)
    while time <= until:
        if core.phase == FINISHED and has_room(net.bus, net.waiting, a):
            time = max(time, net.waiting.room_at[a])
            send_message(net, probes, tables, work, c, time)
        elif receive_next(net, probes, tables, work, c, time, counts):
            time = core.receive_at
        elif core.phase == SEND_NEXT:
            if probes is not None:
                probe_resumed(probes, core, c, time)
            time = begin_work(probes, work, c, time)
        elif ring.count > 0:
            time = net.arrivals.arrived[c, ring.first].time
        else:
            time = NEVER
    return time
