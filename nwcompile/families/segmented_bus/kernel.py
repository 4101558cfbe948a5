"""The segmented ladder bus in Numba: choose the messages of each slot, and their lanes.

In a slot each core sends at most one transfer and receives at most one, and transfers on one lane use disjoint ranges
of switches (chip.py). Slots are filled in order, without knowledge of later messages. A port is one direction of
a core, out or in. The port with most waiting messages is served first, with the longest transfer that finds a free
lane, then the next port. Remaining ports take messages of a core to itself, which need no lane.

Serving busy ports first keeps the schedule close to its lower bound, the load of the busiest port or switch. Plain bin
packing, longest transfer first, can take 1.3 times as long (tests/families/segmented_bus/test_kernel.py). MASS packs
spikes into slots too (arXiv 2506.11286); its abstract does not give the order.

Work grows with messages times lanes. A tap is the position of a core on the bus; taps number the cores in use.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import ONE, bit, first_of_both, last_of_both
from nwcompile.kernels.jit import inlined, kernel

OUT, IN = range(2)  # Directions of a port: out of a core, and into it.
FREE = 0  # of Waiting.state: first free entry of `entry`
N_WAITING = 1  # of Waiting.state: number of waiting messages
# Indices of BusTotals.counts; in a StepRecord, the columns of `sums`, then those of `peaks`.
SLOTS = 0  # slots with a transfer
TRANSFERS = 1  # transfers over lanes, without those of a core to itself
WAITED = 2  # transfers that did not go in the first slot after their arrival
CONFLICTS = 3  # transfers whose core, while they waited, was free to send to a free core but found no lane
LANE_SLOTS = 4  # lanes in use, summed over slots
PEAK_LANES = 5  # maximum lanes in use in a slot
PEAK_QUEUE = 6  # maximum messages waiting in a core
N_COUNTS = 7
N_SUMS = PEAK_LANES

WAITING_MESSAGE = np.dtype(
    [
        ("message", np.int64),
        ("next", np.int64),  # next message of its queue, or next free entry
        ("since", np.int64),  # when it joined the queue
        ("blocked_then", np.int64),  # `blocked` of its core when it joined the queue
        ("note", np.int64),  # index of Probes.entry
    ],
    align=True,
)
TRANSFER = np.dtype(
    [
        ("source", np.int64),  # source tap
        ("target", np.int64),  # target tap
        ("lane", np.int64),  # -1: of a core to itself
        ("message", np.int64),
        ("note", np.int64),  # as in WAITING_MESSAGE
    ],
    align=True,
)


class Bus(NamedTuple):
    """Constants of the bus. Links are numbered as in chip.py."""

    lanes: int
    depth: int  # messages in a core's queue, which exists once per direction
    slot_ticks: int
    inject_ticks: int
    hop_ticks: int
    eject_ticks: int
    per_position: int  # cores per position, used or not
    position: np.ndarray  # int64[tap]
    first_tap: np.ndarray  # int64[position + 1]
    tap: np.ndarray  # int64[logical core]
    core: np.ndarray  # int64[tap]: logical core
    port_link: np.ndarray  # int64[tap, 2]: injection, ejection


class Slot(NamedTuple):
    """State of the slot that is being filled; sets are bits of words."""

    free: np.ndarray  # uint64[2, word]: taps that may still send, and taps that may still receive
    order: np.ndarray  # int64[2 * tap]: ports 2a (out) and 2a + 1 (in), sorted by load
    taken: np.ndarray  # uint64[lane, word of positions]: switches in use
    open: np.ndarray  # uint64[1, word of positions]: positions whose switch is free on some lane
    transfers: np.ndarray  # TRANSFER[tap]: transfers of this slot


class BusTotals(NamedTuple):
    """Counters of a run."""

    ends: np.ndarray  # int64[2, position + 1]: transfers that begin less those that end, for segments and for switches
    flits: np.ndarray  # int64[link]
    counts: np.ndarray  # int64[N_COUNTS]


class Waiting(NamedTuple):
    """Messages that wait for a slot, one queue per pair of taps; sets are bits of words."""

    partner: np.ndarray  # uint64[2 * tap, word]: row 2a: targets of tap a's messages; 2a + 1: sources of its messages
    room: np.ndarray  # uint64[1, word]: taps that may receive in the next slot
    head: np.ndarray  # int32[tap, tap]: first entry of a queue, -1: empty
    tail: np.ndarray  # int32[tap, tap]: last entry of a queue
    entry: np.ndarray  # WAITING_MESSAGE[place]
    load: np.ndarray  # int64[2 * tap]: messages that wait to leave tap a, and to reach tap a
    blocked: np.ndarray  # int64[tap]: slots in which it was free to send to a free tap but found no lane
    room_at: np.ndarray  # int64[tap]: when its full queue last got room
    state: np.ndarray  # int64[2]: FREE, N_WAITING
    slot: Slot
    totals: BusTotals


@kernel
def clear_bus(bus, waiting):
    """Clear the state of an interrupted run: no message waits, every tap has room."""
    n_taps = bus.position.shape[0]
    waiting.partner[:] = 0
    waiting.head[:] = -1
    waiting.load[:] = 0
    waiting.room[:] = 0
    for a in range(n_taps):
        waiting.room[0, a >> 6] |= bit(a & 63)
    for e in range(waiting.entry.shape[0]):
        waiting.entry[e].next = e + 1
    waiting.state[FREE] = 0
    waiting.state[N_WAITING] = 0
    start_counting(bus, waiting)


@kernel
def start_counting(bus, waiting):
    """Reset counts, links and the order of the ports."""
    waiting.totals.counts[:] = 0
    waiting.totals.flits[:] = 0
    waiting.totals.ends[:] = 0
    waiting.blocked[:] = 0
    waiting.room_at[:] = 0
    for port in range(waiting.slot.order.shape[0]):
        waiting.slot.order[port] = port


@inlined
def count_slots(counts, sums, peaks):
    """Add the counts of a micro-step to those of its step; peaks take the maximum."""
    for i in range(N_SUMS):
        sums[i] += counts[i]
    for i in range(N_SUMS, N_COUNTS):
        peaks[i - N_SUMS] = max(peaks[i - N_SUMS], counts[i])


@inlined
def has_room(bus, waiting, a):
    """Whether the queue of tap `a` has room for a message."""
    return waiting.load[2 * a] < bus.depth


@inlined
def enqueue(bus, waiting, a, b, k, note, time):
    """Append message k to the queue from tap `a` to tap `b`; `note` is stored with it."""
    e = waiting.state[FREE]
    waiting.state[FREE] = waiting.entry[e].next
    waiting.entry[e].message = k
    waiting.entry[e].note = note
    waiting.entry[e].next = -1
    waiting.entry[e].since = time
    waiting.entry[e].blocked_then = waiting.blocked[a]
    if waiting.head[a, b] < 0:
        waiting.head[a, b] = e
        waiting.partner[2 * a, b >> 6] |= bit(b & 63)
        waiting.partner[2 * b + 1, a >> 6] |= bit(a & 63)
    else:
        waiting.entry[waiting.tail[a, b]].next = e
    waiting.tail[a, b] = e
    waiting.load[2 * a] += 1
    waiting.load[2 * b + 1] += 1
    waiting.state[N_WAITING] += 1
    waiting.totals.counts[PEAK_QUEUE] = max(waiting.totals.counts[PEAK_QUEUE], waiting.load[2 * a])


@inlined
def dequeue(bus, waiting, a, b, time):
    """Remove the first message from tap `a` to tap `b`; returns its entry, which is free afterwards."""
    e = np.int64(waiting.head[a, b])
    waiting.head[a, b] = waiting.entry[e].next
    if waiting.head[a, b] < 0:
        waiting.partner[2 * a, b >> 6] &= ~bit(b & 63)
        waiting.partner[2 * b + 1, a >> 6] &= ~bit(a & 63)
    if waiting.load[2 * a] == bus.depth:
        waiting.room_at[a] = time + 1  # the slot has begun without the message that arrives now
    waiting.entry[e].next = waiting.state[FREE]
    waiting.state[FREE] = e
    waiting.load[2 * a] -= 1
    waiting.load[2 * b + 1] -= 1
    waiting.state[N_WAITING] -= 1
    return e


@inlined
def sort_ports(waiting):
    """Sort ports by falling load, stably. Insertion sort suits: the order changes little from slot to slot."""
    for i in range(1, waiting.slot.order.shape[0]):
        port = waiting.slot.order[i]
        j = i
        while j > 0 and waiting.load[waiting.slot.order[j - 1]] < waiting.load[port]:
            waiting.slot.order[j] = waiting.slot.order[j - 1]
            j -= 1
        waiting.slot.order[j] = port


@inlined
def reach(bus, waiting, lane, at):
    """First and last position that position `at` can reach on a lane; (0, -1) if its switch is in use."""
    last = bus.first_tap.shape[0] - 2
    low, high = np.int64(0), last
    if waiting.slot.taken[lane, at >> 6] >> np.uint64(at & 63) & ONE != 0:
        return np.int64(0), np.int64(-1)
    low = last_of_both(waiting.slot.taken, lane, waiting.slot.taken, lane, np.int64(0), at) + 1
    high = first_of_both(waiting.slot.taken, lane, waiting.slot.taken, lane, at, last)
    return low, high - 1 if high >= 0 else last


@inlined
def longest_transfer(bus, waiting, port):
    """The other end and the lane of the longest transfer over lanes that a port can make in this slot; -1: none."""
    a, other = port >> 1, 1 - (port & 1)
    at, n_taps = bus.position[a], bus.position.shape[0]
    low, high = at, at
    for lane in range(bus.lanes):
        left, right = reach(bus, waiting, lane, at)
        if left <= right:
            low, high = min(low, left), max(high, right)
    best, length = np.int64(-1), np.int64(-1)
    if a + 1 < n_taps:
        b = last_of_both(waiting.partner, port, waiting.slot.free, other, a + 1, bus.first_tap[high + 1] - 1)
        if b >= 0:
            best, length = b, bus.position[b] - at
    if a > 0:
        b = first_of_both(waiting.partner, port, waiting.slot.free, other, bus.first_tap[low], a - 1)
        if b >= 0 and at - bus.position[b] > length:
            best = b
    if best >= 0:
        first, last = min(at, bus.position[best]), max(at, bus.position[best])
        for lane in range(bus.lanes):
            left, right = reach(bus, waiting, lane, at)
            if left <= first and last <= right:
                return best, np.int64(lane)
    return np.int64(-1), np.int64(-1)


@inlined
def take_lane(bus, waiting, lane, one, other):
    """Mark the switches between two positions as used on a lane."""
    first, last = min(one, other), max(one, other)
    for word in range(first >> 6, (last >> 6) + 1):
        from_here = ~np.uint64(0) << np.uint64(max(first - (word << 6), 0))
        waiting.slot.taken[lane, word] |= from_here & ~np.uint64(0) >> np.uint64(63 - min(last - (word << 6), 63))
        waiting.slot.open[0, word] = ~np.uint64(0)
        for other_lane in range(bus.lanes):
            waiting.slot.open[0, word] &= waiting.slot.taken[other_lane, word]
        waiting.slot.open[0, word] = ~waiting.slot.open[0, word]
    waiting.totals.ends[0, first] += 1
    waiting.totals.ends[0, last] -= 1
    waiting.totals.ends[1, first] += 1
    waiting.totals.ends[1, last + 1] -= 1


@inlined
def transfer(bus, waiting, a, b, lane, n_moved, time):
    """Send the first message from tap `a` to tap `b` in this slot."""
    waiting.slot.free[OUT, a >> 6] &= ~bit(a & 63)
    waiting.slot.free[IN, b >> 6] &= ~bit(b & 63)
    e = dequeue(bus, waiting, a, b, time)
    if lane >= 0:
        take_lane(bus, waiting, lane, bus.position[a], bus.position[b])
        waiting.totals.counts[TRANSFERS] += 1
        waiting.totals.counts[WAITED] += waiting.entry[e].since <= time - bus.slot_ticks
        waiting.totals.counts[CONFLICTS] += waiting.entry[e].blocked_then < waiting.blocked[a]
    waiting.totals.flits[bus.port_link[a, OUT]] += 1
    waiting.totals.flits[bus.port_link[b, IN]] += 1
    moved = waiting.slot.transfers[n_moved]
    moved.source = a
    moved.target = b
    moved.lane = lane
    moved.message = waiting.entry[e].message
    moved.note = waiting.entry[e].note


@kernel
def fill_slot(bus, waiting, time):
    """Choose the transfers of the slot that begins at `time`, into `waiting.slot.transfers`. Returns their number."""
    sort_ports(waiting)
    waiting.slot.taken[:] = 0
    waiting.slot.open[:] = ~np.uint64(0)
    for word in range(waiting.slot.free.shape[1]):
        waiting.slot.free[OUT, word] = ~np.uint64(0)
        waiting.slot.free[IN, word] = waiting.room[0, word]
    n_moved, lanes = 0, np.int64(0)
    for i in range(waiting.slot.order.shape[0]):
        port = waiting.slot.order[i]
        direction, a = port & 1, port >> 1
        at = bus.position[a]
        if waiting.load[port] == 0 or waiting.slot.open[0, at >> 6] & bit(at & 63) == 0:
            continue
        if waiting.slot.free[direction, a >> 6] & bit(a & 63) != 0:
            b, lane = longest_transfer(bus, waiting, port)
            if b >= 0:
                if direction == IN:
                    a, b = b, a
                transfer(bus, waiting, a, b, lane, n_moved, time)
                lanes = max(lanes, lane + 1)
                n_moved += 1
    for a in range(bus.position.shape[0]):
        word, itself = a >> 6, bit(a & 63)
        if waiting.load[2 * a] == 0 or waiting.slot.free[OUT, word] & itself == 0:
            continue
        if waiting.partner[2 * a, word] & waiting.slot.free[IN, word] & itself != 0:
            transfer(bus, waiting, a, a, np.int64(-1), n_moved, time)
            n_moved += 1
            continue
        for other in range(waiting.slot.free.shape[1]):
            if waiting.partner[2 * a, other] & waiting.slot.free[IN, other] != 0:
                waiting.blocked[a] += 1
                break
    waiting.totals.counts[SLOTS] += n_moved > 0
    waiting.totals.counts[LANE_SLOTS] += lanes
    waiting.totals.counts[PEAK_LANES] = max(waiting.totals.counts[PEAK_LANES], lanes)
    return n_moved


@inlined
def arrival(bus, time, a, b):
    """When a transfer of the slot that begins at `time` reaches its core."""
    hops = abs(bus.position[a] - bus.position[b])
    return time + bus.inject_ticks + hops * bus.hop_ticks + bus.eject_ticks


@inlined
def add_up_links(bus, waiting):
    """Compute the flits of segments and switches from the ends of transfers."""
    n_positions = bus.first_tap.shape[0] - 1
    segments, switches = np.int64(0), np.int64(0)
    for x in range(n_positions):
        segments += waiting.totals.ends[0, x]
        switches += waiting.totals.ends[1, x]
        if x < n_positions - 1:
            waiting.totals.flits[x] = segments
        waiting.totals.flits[n_positions - 1 + x] = switches


@kernel
def replay_bus(bus, waiting, first, time, target, at, interrupted, inject, arrive, last):
    """Send packets over an idle bus until all have arrived, or until tick `last`.

    first: int64[tap + 1], time, target: int64[packet]: packets of each tap in the order of time, and their target taps.
    at: int64[tap]: first packet of each tap. interrupted: bool[1]: set from outside to stop before the next slot.
    Writes inject, arrive: int64[packet]: the start of the slot and the arrival. A packet waits outside while the queue
    of its tap is full. Arriving packets are received immediately.
    """
    clear_bus(bus, waiting)
    clock = np.int64(0)
    while clock < last and not interrupted[0]:
        soonest = last
        for a in range(at.shape[0]):
            while at[a] < first[a + 1] and time[at[a]] <= clock and has_room(bus, waiting, a):
                enqueue(bus, waiting, a, target[at[a]], at[a], -1, max(time[at[a]], waiting.room_at[a]))
                at[a] += 1
            if at[a] < first[a + 1]:
                soonest = min(soonest, max(time[at[a]], clock + 1))
        n_moved = np.int64(0)
        if waiting.state[N_WAITING] > 0:
            n_moved = fill_slot(bus, waiting, clock)
        for i in range(n_moved):
            moved = waiting.slot.transfers[i]
            inject[moved.message] = clock
            arrive[moved.message] = arrival(bus, clock, moved.source, moved.target)
        if n_moved > 0:
            clock += bus.slot_ticks
        else:
            clock += (soonest - clock + bus.slot_ticks - 1) // bus.slot_ticks * bus.slot_ticks
    add_up_links(bus, waiting)
