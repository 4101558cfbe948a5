"""The cores of a chip with a segmented bus in one micro-step, in Numba: event_cores.py with slots in place of routers.

A core's finished messages wait in a queue for their slots; while it is full the send side stalls. What arrives waits in
a queue as long, and while that is full nobody sends to the core. All cores are brought up to the beginning of a slot,
then the slot is filled; slots in which nothing could change are skipped.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import bit
from nwcompile.kernels.cores.probes import (
    ENTRY,
    begin_watch,
    end_watch,
    note_flight,
    note_held,
    note_injected,
    note_ready,
    note_resumed,
    note_taken,
)
from nwcompile.kernels.cores.tables import STUCK, TOO_LONG
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.bus import (
    CARRIED,
    FROM,
    N_WAITING,
    NOTED,
    TO,
    add_up_links,
    arrives,
    fill_slot,
    has_room,
    start_counting,
    wait,
)
from nwcompile.kernels.noc.event_cores import count_received, take_external

NEXT_PIECE, FINISHED, SENT = 0, 1, 2  # of BusCores.state; FINISHED: a message that is, or when its work ends will be
NEVER = np.int64(1) << 62


class BusCores(NamedTuple):
    """Where each core stands, by logical core."""

    state: np.ndarray  # int8[core]
    message: np.ndarray  # int64[core]: the message being sent
    sent: np.ndarray  # int64[core]: how often it was sent already
    send_at: np.ndarray  # int64[core]: when the send side's work ends, or ended
    receive_at: np.ndarray  # int64[core]: when the receive side's work ends, or ended
    end: np.ndarray  # int64[core]: when it finished its last work
    next_at: np.ndarray  # int64[core]: when it does the next thing by itself
    arrived: np.ndarray  # int64[core, place, 3]: message, when it arrived, its entry of Watch.entry: a ring
    ring: np.ndarray  # int64[core, 2]: first place, how many


@kernel
def move_on_bus(bus, s, w, costs, axons, box, p, counts):
    """Run send, bus and receive until all is quiet, as `move_messages` does; the micro-step begins at time 0.

    counts: as in `move_messages`, added to. s.counts and s.flits are those of this micro-step. Returns the ticks until
    the last unit and slot end, STUCK if messages are, or TOO_LONG.
    """
    n_cores = axons.site.shape[0]
    start_counting(bus, s)
    for core in range(n_cores):
        p.state[core] = NEXT_PIECE
        p.message[core] = box.first[core]
        p.sent[core] = 0
        p.send_at[core] = 0
        p.receive_at[core] = 0
        p.end[core] = 0
        p.next_at[core] = 0
        p.ring[core, :] = 0
    if w.is_on:
        begin_watch(w, axons, box, np.int64(0), costs.shared)
        w.since[:] = 0
    time, last, soonest, longest = np.int64(0), np.int64(0), NEVER, costs.longest_step or NEVER
    while last <= longest:
        soonest = NEVER
        for core in range(n_cores):
            if p.next_at[core] <= time:
                if costs.shared:
                    p.next_at[core] = shared_until(bus, s, w, costs, axons, box, p, core, time, counts)
                else:
                    sends = send_until(bus, s, w, axons, box, p, core, time)
                    receives = receive_until(bus, s, w, costs, axons, box, p, core, time, counts)
                    p.next_at[core] = min(sends, receives)
            soonest = min(soonest, p.next_at[core])
        n_moved = np.int64(0)
        if s.state[N_WAITING] > 0:
            n_moved = fill_slot(bus, s, time)
        for i in range(n_moved):
            deliver_transfer(bus, s, w, p, s.moved[i], time)
        if w.is_on:
            note_flight(w, time)
        if n_moved > 0:
            time += bus.slot_ticks
            last = time
        elif soonest <= longest and soonest < NEVER:
            time += (soonest - time + bus.slot_ticks - 1) // bus.slot_ticks * bus.slot_ticks
        else:
            break
    add_up_links(bus, s)
    n_open = 0
    for core in range(n_cores):
        n_open += p.state[core] != SENT or p.ring[core, 1] > 0 or box.external[core] >= 0
        last = max(last, p.end[core])
    if last > longest or longest < soonest < NEVER:
        return np.int64(TOO_LONG)
    if n_open > 0:
        return np.int64(STUCK)
    if w.is_on:
        end_watch(w, p, np.int64(0), last, costs.shared)
    return last


@inlined
def deliver_transfer(bus, s, w, p, moved, time):
    """A transfer of the slot that begins at `time` leaves the sender's queue and has a place in the receiver's."""
    a, b = moved[FROM], moved[TO]
    source, core = bus.core[a], bus.core[b]
    depth, arrival = p.arrived.shape[1], arrives(bus, time, a, b)
    place = (p.ring[core, 0] + p.ring[core, 1]) % depth
    p.arrived[core, place, 0] = moved[CARRIED]
    p.arrived[core, place, 1] = arrival
    p.arrived[core, place, 2] = moved[NOTED]
    p.ring[core, 1] += 1
    if p.ring[core, 1] == depth:
        s.room[0, b >> 6] &= ~bit(b & 63)
    p.next_at[core] = min(p.next_at[core], arrival)
    if p.state[source] == FINISHED:
        p.next_at[source] = min(p.next_at[source], max(p.send_at[source], time))
    if w.is_on:
        note_held(w, a, s.load[2 * a], time)
        note_held(w, bus.tap.shape[0] + b, p.ring[core, 1], time)


@inlined
def send_message(bus, s, w, shared, axons, box, p, core, time):
    """The message that is finished takes its place in the queue."""
    k = p.message[core]
    entry = w.core[core, ENTRY] if w.is_on else -1
    wait(bus, s, bus.tap[core], bus.tap[axons.row[box.axon[k]].core], k, entry, time)
    p.sent[core] += 1
    if p.sent[core] == box.times[k]:
        p.message[core] += 1
        p.sent[core] = 0
    p.state[core] = NEXT_PIECE
    if w.is_on:
        note_injected(w, p, core, box.to[k], time, shared)
        note_held(w, bus.tap[core], s.load[2 * bus.tap[core]], time)


@inlined
def begin_piece(w, box, p, core, time):
    """Work on the next message, or on what comes after the last one; returns when it ends."""
    k = p.message[core]
    is_message = k < box.first[core + 1]
    work = box.tail[core]
    if is_message:
        work = box.work[k] if p.sent[core] == 0 else box.again[k]
    p.state[core] = FINISHED if is_message else SENT
    p.send_at[core] = time + work
    p.end[core] = max(p.end[core], time + work)
    if w.is_on and is_message:
        note_ready(w, p, core, 1, time + work)
    return time + work


@inlined
def send_until(bus, s, w, axons, box, p, core, until):
    """Let the send side do what begins by `until`; returns when it goes on (NEVER: not by itself)."""
    a, time = bus.tap[core], p.send_at[core]
    while time <= until:
        if p.state[core] == FINISHED:
            if not has_room(bus, s, a):
                return NEVER
            time = max(time, s.room_at[a])
            send_message(bus, s, w, False, axons, box, p, core, time)
        elif p.state[core] == NEXT_PIECE:
            time = begin_piece(w, box, p, core, time)
        else:
            return NEVER
    return time if p.state[core] != SENT else NEVER


@inlined
def take_arrived(bus, s, w, p, core, time):
    """The message that arrived first, and its entry of Watch.entry; its place is free then."""
    depth, first = p.arrived.shape[1], p.ring[core, 0]
    k, entry = p.arrived[core, first, 0], p.arrived[core, first, 2]
    p.ring[core, 0] = (first + 1) % depth
    p.ring[core, 1] -= 1
    b = bus.tap[core]
    s.room[0, b >> 6] |= bit(b & 63)
    if w.is_on:
        note_held(w, bus.tap.shape[0] + b, p.ring[core, 1], time)
    return k, entry


@inlined
def receive_next(bus, s, w, costs, axons, box, p, core, time, counts):
    """Receive a message that has arrived at `time`, else one of the input; False if there is none."""
    entry, axon = np.int64(-1), np.int64(-1)
    if p.ring[core, 1] > 0 and p.arrived[core, p.ring[core, 0], 1] <= time:
        k, entry = take_arrived(bus, s, w, p, core, time)
        axon = np.int64(box.axon[k])
    elif box.external[core] >= 0:
        axon = take_external(box, core)
    else:
        return False
    row = axons.row[axon]
    if w.is_on:
        note_taken(w, p, core, row.source, entry, time, row.ticks, costs)
    p.receive_at[core] = time + row.ticks
    p.end[core] = max(p.end[core], p.receive_at[core])
    count_received(axons, core, axon, 1, counts)
    return True


@inlined
def receive_until(bus, s, w, costs, axons, box, p, core, until, counts):
    """Let a receive side of its own do what begins by `until`; returns when it goes on (NEVER: not by itself)."""
    time = p.receive_at[core]
    while time <= until:
        if receive_next(bus, s, w, costs, axons, box, p, core, time, counts):
            time = p.receive_at[core]
        elif p.ring[core, 1] > 0:
            time = p.arrived[core, p.ring[core, 0], 1]
        else:
            return NEVER
    return time if p.ring[core, 1] > 0 or box.external[core] >= 0 else NEVER


@inlined
def shared_until(bus, s, w, costs, axons, box, p, core, until, counts):
    """The same for a unit that sends and receives, receiving first."""
    a, time = bus.tap[core], max(p.send_at[core], p.receive_at[core])
    while time <= until:
        if p.state[core] == FINISHED and has_room(bus, s, a):
            time = max(time, s.room_at[a])
            send_message(bus, s, w, True, axons, box, p, core, time)
        elif receive_next(bus, s, w, costs, axons, box, p, core, time, counts):
            time = p.receive_at[core]
        elif p.state[core] == NEXT_PIECE:
            if w.is_on:
                note_resumed(w, p, core, time)
            time = begin_piece(w, box, p, core, time)
        elif p.ring[core, 1] > 0:
            time = p.arrived[core, p.ring[core, 0], 1]
        else:
            time = NEVER
    return time
