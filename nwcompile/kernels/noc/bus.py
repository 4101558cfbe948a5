"""The segmented ladder bus in Numba: which of the waiting messages go in a slot, and on which lanes.

What a slot may hold: from each core one transfer, to each core one, and none where two stretches of switches on a lane
overlap (ir/noc/bus.py). Slots are filled one after the other, so nothing need be known of messages to come. In a
slot the port (a core's way out, or in) with most messages waiting is served first, with the longest transfer for which
a lane is free, then the next; ports that are left take messages of a core to itself, which need no lane.

Serving busy ports first keeps the schedule near its lower bound, the busiest port's or switch's load: plain bin
packing, longest transfer first, can take 1.3 times as long (tests/kernels/noc/test_bus.py). MASS packs spikes into
slots too (arXiv 2506.11286), in an order that its abstract does not tell.

Work grows with messages times lanes. A tap is a core's place on the bus: cores in use are numbered along it.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import ONE, bit, first_of_both, last_of_both
from nwcompile.kernels.jit import inlined, kernel

OUT, IN = 0, 1
MESSAGE, NEXT, SINCE, BLOCKED_THEN, NOTE = 0, 1, 2, 3, 4  # columns of Waiting.entry
FREE, N_WAITING = 0, 1  # of Waiting.state
FROM, TO, LANE, CARRIED, NOTED = 0, 1, 2, 3, 4  # columns of Waiting.moved
# of Waiting.counts, and columns of `Record.bus`
SLOTS = 0  # slots in which anything was transferred
TRANSFERS = 1  # over lanes: those of a core to itself are not
WAITED = 2  # of them, those that did not go in the first slot after they came
CONFLICTS = 3  # of them, those whose core, free to send to a free core, found no lane in a slot while they waited
LANE_SLOTS = 4  # lanes in use, added up over the slots
PEAK_LANES = 5  # most lanes in use in a slot
PEAK_QUEUE = 6  # most messages waiting in a core
N_COUNTS = 7


class Bus(NamedTuple):
    """What does not change. Links are numbered as nwcompile/ir/noc/bus.py says."""

    lanes: int
    depth: int  # messages that a core's queue holds, one for each direction
    slot_ticks: int
    inject_ticks: int
    hop_ticks: int
    eject_ticks: int
    per_position: int  # cores, in use or not
    position: np.ndarray  # int64[tap]
    first_tap: np.ndarray  # int64[position + 1]
    tap: np.ndarray  # int64[logical core]
    core: np.ndarray  # int64[tap]: logical core
    port_link: np.ndarray  # int64[tap, 2]: injection, ejection


class Waiting(NamedTuple):
    """The messages that wait for a slot, in a queue for each pair of taps; sets are bits of words."""

    partner: np.ndarray  # uint64[2 * tap, word]: row 2a: to whom tap a has messages; 2a + 1: who has messages for it
    free: np.ndarray  # uint64[2, word]: taps that may still send, and receive, in this slot
    room: np.ndarray  # uint64[1, word]: taps that may receive in the next slot
    head: np.ndarray  # int32[tap, tap]: first entry of a queue, -1 none
    tail: np.ndarray  # int32[tap, tap]
    entry: np.ndarray  # int64[place, 5]: message, next entry, when it came, how often its core was blocked before, note
    load: np.ndarray  # int64[2 * tap]: messages that wait to leave tap a, and to reach it
    order: np.ndarray  # int64[2 * tap]: ports 2a (out) and 2a + 1 (in), by load
    blocked: np.ndarray  # int64[tap]: slots in which it was free to send to a free tap but no lane was
    room_at: np.ndarray  # int64[tap]: when its full queue last got room
    taken: np.ndarray  # uint64[lane, word of positions]: switches in use in this slot
    open: np.ndarray  # uint64[1, word of positions]: positions that have a switch free on a lane
    moved: np.ndarray  # int64[tap, 5]: the transfers of this slot
    ends: np.ndarray  # int64[2, position + 1]: stretches that begin, less those that end: of segments, of switches
    flits: np.ndarray  # int64[link]
    counts: np.ndarray  # int64[N_COUNTS]
    state: np.ndarray  # int64[2]


@kernel
def clear(bus, s):
    """Forget what an interrupted run left: no message waits, every tap has room."""
    n_taps = bus.position.shape[0]
    s.partner[:] = 0
    s.head[:] = -1
    s.load[:] = 0
    s.room[:] = 0
    for a in range(n_taps):
        s.room[0, a >> 6] |= bit(a & 63)
    for e in range(s.entry.shape[0]):
        s.entry[e, NEXT] = e + 1
    s.state[FREE] = 0
    s.state[N_WAITING] = 0
    start_counting(bus, s)


@kernel
def start_counting(bus, s):
    """Counts, links and the order of the ports begin anew."""
    s.counts[:] = 0
    s.flits[:] = 0
    s.ends[:] = 0
    s.blocked[:] = 0
    s.room_at[:] = 0
    for port in range(s.order.shape[0]):
        s.order[port] = port


@inlined
def has_room(bus, s, a):
    """Whether one more message may wait in tap `a`."""
    return s.load[2 * a] < bus.depth


@inlined
def wait(bus, s, a, b, k, note, time):
    """Message k waits in tap `a` to go to tap `b`; `note` goes with it."""
    e = s.state[FREE]
    s.state[FREE] = s.entry[e, NEXT]
    s.entry[e, MESSAGE] = k
    s.entry[e, NOTE] = note
    s.entry[e, NEXT] = -1
    s.entry[e, SINCE] = time
    s.entry[e, BLOCKED_THEN] = s.blocked[a]
    if s.head[a, b] < 0:
        s.head[a, b] = e
        s.partner[2 * a, b >> 6] |= bit(b & 63)
        s.partner[2 * b + 1, a >> 6] |= bit(a & 63)
    else:
        s.entry[s.tail[a, b], NEXT] = e
    s.tail[a, b] = e
    s.load[2 * a] += 1
    s.load[2 * b + 1] += 1
    s.state[N_WAITING] += 1
    s.counts[PEAK_QUEUE] = max(s.counts[PEAK_QUEUE], s.load[2 * a])


@inlined
def leave(bus, s, a, b, time):
    """The first message from tap `a` to tap `b` goes; returns its entry, which is free then."""
    e = np.int64(s.head[a, b])
    s.head[a, b] = s.entry[e, NEXT]
    if s.head[a, b] < 0:
        s.partner[2 * a, b >> 6] &= ~bit(b & 63)
        s.partner[2 * b + 1, a >> 6] &= ~bit(a & 63)
    if s.load[2 * a] == bus.depth:
        s.room_at[a] = time + 1  # the slot has begun without the message that comes now
    s.entry[e, NEXT] = s.state[FREE]
    s.state[FREE] = e
    s.load[2 * a] -= 1
    s.load[2 * b + 1] -= 1
    s.state[N_WAITING] -= 1
    return e


@inlined
def sort_ports(s):
    """Ports with most messages first, those with as many as they were (insertion: little changes from slot to slot)."""
    for i in range(1, s.order.shape[0]):
        port = s.order[i]
        j = i
        while j > 0 and s.load[s.order[j - 1]] < s.load[port]:
            s.order[j] = s.order[j - 1]
            j -= 1
        s.order[j] = port


@inlined
def reach(bus, s, lane, at):
    """The first and last position that position `at` can reach on a lane; (0, -1) if its switch is in use."""
    last = bus.first_tap.shape[0] - 2
    low, high = np.int64(0), last
    if s.taken[lane, at >> 6] >> np.uint64(at & 63) & ONE != 0:
        return np.int64(0), np.int64(-1)
    low = last_of_both(s.taken, lane, s.taken, lane, np.int64(0), at) + 1
    high = first_of_both(s.taken, lane, s.taken, lane, at, last)
    return low, high - 1 if high >= 0 else last


@inlined
def longest(bus, s, port):
    """The other end of the longest transfer over lanes that a port can make in this slot, and its lane; -1: none."""
    a, other = port >> 1, 1 - (port & 1)
    at, n_taps = bus.position[a], bus.position.shape[0]
    low, high = at, at
    for lane in range(bus.lanes):
        left, right = reach(bus, s, lane, at)
        if left <= right:
            low, high = min(low, left), max(high, right)
    best, length = np.int64(-1), np.int64(-1)
    if a + 1 < n_taps:
        b = last_of_both(s.partner, port, s.free, other, a + 1, bus.first_tap[high + 1] - 1)
        if b >= 0:
            best, length = b, bus.position[b] - at
    if a > 0:
        b = first_of_both(s.partner, port, s.free, other, bus.first_tap[low], a - 1)
        if b >= 0 and at - bus.position[b] > length:
            best = b
    if best >= 0:
        first, last = min(at, bus.position[best]), max(at, bus.position[best])
        for lane in range(bus.lanes):
            left, right = reach(bus, s, lane, at)
            if left <= first and last <= right:
                return best, np.int64(lane)
    return np.int64(-1), np.int64(-1)


@inlined
def take_lane(bus, s, lane, one, other):
    """The switches between two positions are in use on a lane."""
    first, last = min(one, other), max(one, other)
    for word in range(first >> 6, (last >> 6) + 1):
        from_here = ~np.uint64(0) << np.uint64(max(first - (word << 6), 0))
        s.taken[lane, word] |= from_here & ~np.uint64(0) >> np.uint64(63 - min(last - (word << 6), 63))
        s.open[0, word] = ~np.uint64(0)
        for other_lane in range(bus.lanes):
            s.open[0, word] &= s.taken[other_lane, word]
        s.open[0, word] = ~s.open[0, word]
    s.ends[0, first] += 1
    s.ends[0, last] -= 1
    s.ends[1, first] += 1
    s.ends[1, last + 1] -= 1


@inlined
def transfer(bus, s, a, b, lane, n_moved, time):
    """Tap `a` sends the first message that it has for tap `b` in this slot."""
    s.free[OUT, a >> 6] &= ~bit(a & 63)
    s.free[IN, b >> 6] &= ~bit(b & 63)
    e = leave(bus, s, a, b, time)
    if lane >= 0:
        take_lane(bus, s, lane, bus.position[a], bus.position[b])
        s.counts[TRANSFERS] += 1
        s.counts[WAITED] += s.entry[e, SINCE] <= time - bus.slot_ticks
        s.counts[CONFLICTS] += s.entry[e, BLOCKED_THEN] < s.blocked[a]
    s.flits[bus.port_link[a, OUT]] += 1
    s.flits[bus.port_link[b, IN]] += 1
    s.moved[n_moved, FROM], s.moved[n_moved, TO], s.moved[n_moved, LANE] = a, b, lane
    s.moved[n_moved, CARRIED], s.moved[n_moved, NOTED] = s.entry[e, MESSAGE], s.entry[e, NOTE]


@kernel
def fill_slot(bus, s, time):
    """Choose the transfers of the slot that begins at `time`: rows of s.moved. Returns how many."""
    sort_ports(s)
    s.taken[:] = 0
    s.open[:] = ~np.uint64(0)
    for word in range(s.free.shape[1]):
        s.free[OUT, word] = ~np.uint64(0)
        s.free[IN, word] = s.room[0, word]
    n_moved, lanes = 0, np.int64(0)
    for i in range(s.order.shape[0]):
        port = s.order[i]
        direction, a = port & 1, port >> 1
        at = bus.position[a]
        if s.load[port] == 0 or s.open[0, at >> 6] & bit(at & 63) == 0:
            continue
        if s.free[direction, a >> 6] & bit(a & 63) != 0:
            b, lane = longest(bus, s, port)
            if b >= 0:
                if direction == IN:
                    a, b = b, a
                transfer(bus, s, a, b, lane, n_moved, time)
                lanes = max(lanes, lane + 1)
                n_moved += 1
    for a in range(bus.position.shape[0]):
        word, own = a >> 6, bit(a & 63)
        if s.load[2 * a] == 0 or s.free[OUT, word] & own == 0:
            continue
        if s.partner[2 * a, word] & s.free[IN, word] & own != 0:
            transfer(bus, s, a, a, np.int64(-1), n_moved, time)
            n_moved += 1
            continue
        for other in range(s.free.shape[1]):
            if s.partner[2 * a, other] & s.free[IN, other] != 0:
                s.blocked[a] += 1
                break
    s.counts[SLOTS] += n_moved > 0
    s.counts[LANE_SLOTS] += lanes
    s.counts[PEAK_LANES] = max(s.counts[PEAK_LANES], lanes)
    return n_moved


@inlined
def arrives(bus, time, a, b):
    """When a transfer of the slot that begins at `time` reaches its core."""
    hops = abs(bus.position[a] - bus.position[b])
    return time + bus.inject_ticks + hops * bus.hop_ticks + bus.eject_ticks


@inlined
def add_up_links(bus, s):
    """Flits of segments and switches from the stretches that began and ended."""
    n_positions = bus.first_tap.shape[0] - 1
    segments, switches = np.int64(0), np.int64(0)
    for x in range(n_positions):
        segments += s.ends[0, x]
        switches += s.ends[1, x]
        if x < n_positions - 1:
            s.flits[x] = segments
        s.flits[n_positions - 1 + x] = switches


@kernel
def replay_on_bus(bus, s, first, time, target, at, interrupted, inject, arrive, last):
    """Send packets over an idle bus; ends when all have arrived, or at tick `last`.

    first: int64[tap + 1], time, target: int64[packet]: the packets of each tap, by time, and the taps that they go to;
    at: int64[tap], the first packet of each to begin with; interrupted: bool[1], set from outside to end before the
    next slot. Writes inject, arrive: int64[packet], the beginning of the slot and the arrival. A packet waits outside
    while the queue of its tap is full; what arrives is taken at once.
    """
    clear(bus, s)
    clock = np.int64(0)
    while clock < last and not interrupted[0]:
        soonest = last
        for a in range(at.shape[0]):
            while at[a] < first[a + 1] and time[at[a]] <= clock and has_room(bus, s, a):
                wait(bus, s, a, target[at[a]], at[a], -1, max(time[at[a]], s.room_at[a]))
                at[a] += 1
            if at[a] < first[a + 1]:
                soonest = min(soonest, max(time[at[a]], clock + 1))
        n_moved = np.int64(0)
        if s.state[N_WAITING] > 0:
            n_moved = fill_slot(bus, s, clock)
        for i in range(n_moved):
            k = s.moved[i, CARRIED]
            inject[k] = clock
            arrive[k] = arrives(bus, clock, s.moved[i, FROM], s.moved[i, TO])
        if n_moved > 0:
            clock += bus.slot_ticks
        else:
            clock += (soonest - clock + bus.slot_ticks - 1) // bus.slot_ticks * bus.slot_ticks
    add_up_links(bus, s)
