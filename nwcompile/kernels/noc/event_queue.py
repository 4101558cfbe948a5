"""The event queue in Numba: a timing wheel of node sets for near times, and a tree for far ones.

Setting a bit costs the same for any number of nodes. Times without events are skipped.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import bit, lowest
from nwcompile.kernels.jit import inlined

NEVER = np.int64(1) << 62  # Later than any time of a run; the sum of two does not overflow.
MAX_SLOTS = 1 << 12  # Slots of a wheel: most latencies are shorter, and 4096 sets of nodes still fit into a cache.


class EventQueue(NamedTuple):
    """Sets of nodes by time. Node n at `time` is bit n % 64 of word n // 64 in slot time % n_slots, a power of two."""

    words: np.ndarray  # uint64[slot, word]
    groups: np.ndarray  # uint64[slot, group]: which words of 64 hold a node
    slots: np.ndarray  # uint64[slot // 64]: which slots hold a node
    far: np.ndarray  # int64[2 * leaves]: tree of the times beyond the wheel, one leaf per node
    clock: np.ndarray  # int64[1]: the current time


def event_queue(n_nodes: int, n_ticks: int) -> EventQueue:
    """An empty queue for `n_nodes` nodes. Its wheel reaches `n_ticks` ahead, at most MAX_SLOTS."""
    n_slots = min(max(64, 1 << int(n_ticks).bit_length()), MAX_SLOTS)
    n_words = (n_nodes + 63) // 64
    leaves = 1 << max(n_nodes - 1, 1).bit_length()
    return EventQueue(
        words=np.zeros((n_slots, n_words), np.uint64),
        groups=np.zeros((n_slots, (n_words + 63) // 64), np.uint64),
        slots=np.zeros(n_slots // 64, np.uint64),
        far=np.full(2 * leaves, NEVER),
        clock=np.zeros(1, np.int64),
    )


@inlined
def wake_at(events, node, time):
    """Schedule `node` at `time`, which is now or later."""
    n_slots = events.words.shape[0]
    if time - events.clock[0] < n_slots:
        slot = time & (n_slots - 1)
        events.words[slot, node >> 6] |= bit(node & 63)
        events.groups[slot, node >> 12] |= bit((node >> 6) & 63)
        events.slots[slot >> 6] |= bit(slot & 63)
        return
    i = events.far.shape[0] // 2 + node
    while i >= 1 and events.far[i] > time:
        events.far[i] = time
        i >>= 1


@inlined
def next_node(events):
    """Remove the earliest node from the queue; returns (time, node), or (NEVER, -1) if the queue is empty."""
    slot = events.clock[0] & (events.words.shape[0] - 1)
    if not events.slots[slot >> 6] & bit(slot & 63):
        if not advance(events):
            return NEVER, np.int64(-1)
        slot = events.clock[0] & (events.words.shape[0] - 1)
    group = np.int64(0)
    while events.groups[slot, group] == 0:
        group += 1
    word = (group << 6) + np.int64(lowest(events.groups[slot, group]))
    bits = events.words[slot, word]
    node = (word << 6) + np.int64(lowest(bits))
    bits &= bits - np.uint64(1)
    events.words[slot, word] = bits
    if bits == 0:
        events.groups[slot, group] &= events.groups[slot, group] - np.uint64(1)
        if events.groups[slot, group] == 0 and is_empty(events, slot):
            events.slots[slot >> 6] &= ~bit(slot & 63)
    return events.clock[0], node


@inlined
def is_empty(events, slot):
    rest = np.uint64(0)
    for group in range(events.groups.shape[1]):
        rest |= events.groups[slot, group]
    return rest == 0


@inlined
def advance(events):
    """Advance the clock to the next scheduled time; returns False if there is none."""
    n_slots, here = events.words.shape[0], events.clock[0]
    near = NEVER
    start = here & (n_slots - 1)
    n_words = n_slots >> 6
    for k in range(n_words + 1):
        word = ((start >> 6) + k) % n_words
        bits = events.slots[word]
        if k == 0:
            bits &= ~(bit(start & 63) - np.uint64(1))
        if bits != 0:
            near = here + (((word << 6) + np.int64(lowest(bits)) - start) & (n_slots - 1))
            break
    time = min(near, events.far[1])
    if time == NEVER:
        return False
    events.clock[0] = time
    while events.far[1] - time < n_slots:
        due = events.far[1]
        wake_at(events, take_far(events), due)
    return True


@inlined
def take_far(events):
    """Remove the earliest node from the tree and return it."""
    leaves = events.far.shape[0] // 2
    time = events.far[1]
    i = np.int64(1)
    while i < leaves:
        i = 2 * i if events.far[2 * i] == time else 2 * i + 1
    node = i - leaves
    events.far[i] = NEVER
    i >>= 1
    while i >= 1:
        events.far[i] = min(events.far[2 * i], events.far[2 * i + 1])
        i >>= 1
    return node


@inlined
def clear_events(events):
    """Empty the queue and set the clock to 0."""
    for slot in range(events.words.shape[0]):
        if events.slots[slot >> 6] & bit(slot & 63):
            for word in range(events.words.shape[1]):
                events.words[slot, word] = 0
            for group in range(events.groups.shape[1]):
                events.groups[slot, group] = 0
    for word in range(events.slots.shape[0]):
        events.slots[word] = 0
    if events.far[1] < NEVER:
        for i in range(events.far.shape[0]):
            events.far[i] = NEVER
    events.clock[0] = 0
