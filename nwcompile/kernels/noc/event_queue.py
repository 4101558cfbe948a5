"""What is to be looked at, and when: a wheel of sets of nodes for times near by, a tree for those far off, in Numba.

Setting a bit costs the same however many nodes there are; time that nobody waits for is skipped.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import bit, lowest
from nwcompile.kernels.jit import inlined

NEVER = np.int64(1) << 62
NOW = 0
MOST_SLOTS = 1 << 12


class Wheel(NamedTuple):
    """Node n waits in slot `time % n_slots` as bit n % 64 of word n // 64; `n_slots` is a power of two."""

    words: np.ndarray  # uint64[slot, word]
    groups: np.ndarray  # uint64[slot, group]: which words of 64 hold a node
    slots: np.ndarray  # uint64[slot // 64]: which slots hold a node
    far: np.ndarray  # int64[2 * leaves]: tree of the times beyond the wheel, by node
    clock: np.ndarray  # int64[1]: the present time


def wheel(n_nodes: int, n_ticks: int) -> Wheel:
    """An empty wheel for that many nodes, whose near times reach `n_ticks` ahead, or as far as MOST_SLOTS do."""
    n_slots = min(max(64, 1 << int(n_ticks).bit_length()), MOST_SLOTS)
    n_words = (n_nodes + 63) // 64
    leaves = 1 << max(n_nodes - 1, 1).bit_length()
    sets = [np.zeros(shape, np.uint64) for shape in ((n_slots, n_words), (n_slots, (n_words + 63) // 64))]
    return Wheel(*sets, np.zeros(n_slots // 64, np.uint64), np.full(2 * leaves, NEVER), np.zeros(1, np.int64))


@inlined
def wake_at(w, node, time):
    """Look at `node` at `time`, the present or later."""
    n_slots = w.words.shape[0]
    if time - w.clock[NOW] < n_slots:
        slot = time & (n_slots - 1)
        w.words[slot, node >> 6] |= bit(node & 63)
        w.groups[slot, node >> 12] |= bit((node >> 6) & 63)
        w.slots[slot >> 6] |= bit(slot & 63)
        return
    i = w.far.shape[0] // 2 + node
    while i >= 1 and w.far[i] > time:
        w.far[i] = time
        i >>= 1


@inlined
def next_node(w):
    """(time, node) of a node to look at, the earliest; (NEVER, -1) if there is none. It is taken out."""
    slot = w.clock[NOW] & (w.words.shape[0] - 1)
    if not w.slots[slot >> 6] & bit(slot & 63):
        if not advance(w):
            return NEVER, np.int64(-1)
        slot = w.clock[NOW] & (w.words.shape[0] - 1)
    group = np.int64(0)
    while w.groups[slot, group] == 0:
        group += 1
    word = (group << 6) + np.int64(lowest(w.groups[slot, group]))
    bits = w.words[slot, word]
    node = (word << 6) + np.int64(lowest(bits))
    bits &= bits - np.uint64(1)
    w.words[slot, word] = bits
    if bits == 0:
        w.groups[slot, group] &= w.groups[slot, group] - np.uint64(1)
        if w.groups[slot, group] == 0 and is_empty(w, slot):
            w.slots[slot >> 6] &= ~bit(slot & 63)
    return w.clock[NOW], node


@inlined
def is_empty(w, slot):
    rest = np.uint64(0)
    for group in range(w.groups.shape[1]):
        rest |= w.groups[slot, group]
    return rest == 0


@inlined
def advance(w):
    """Go on to the next time at which a node waits; False if there is none."""
    n_slots, here = w.words.shape[0], w.clock[NOW]
    near = NEVER
    start = here & (n_slots - 1)
    n_words = n_slots >> 6
    for k in range(n_words + 1):
        word = ((start >> 6) + k) % n_words
        bits = w.slots[word]
        if k == 0:
            bits &= ~(bit(start & 63) - np.uint64(1))
        if bits != 0:
            near = here + (((word << 6) + np.int64(lowest(bits)) - start) & (n_slots - 1))
            break
    time = min(near, w.far[1])
    if time == NEVER:
        return False
    w.clock[NOW] = time
    while w.far[1] - time < n_slots:
        due = w.far[1]
        wake_at(w, take_far(w), due)
    return True


@inlined
def take_far(w):
    """Take the earliest node out of the tree."""
    leaves = w.far.shape[0] // 2
    time = w.far[1]
    i = np.int64(1)
    while i < leaves:
        i = 2 * i if w.far[2 * i] == time else 2 * i + 1
    node = i - leaves
    w.far[i] = NEVER
    i >>= 1
    while i >= 1:
        w.far[i] = min(w.far[2 * i], w.far[2 * i + 1])
        i >>= 1
    return node


@inlined
def forget(w):
    """Nobody waits, and it is time 0."""
    for slot in range(w.words.shape[0]):
        if w.slots[slot >> 6] & bit(slot & 63):
            for word in range(w.words.shape[1]):
                w.words[slot, word] = 0
            for group in range(w.groups.shape[1]):
                w.groups[slot, group] = 0
    for word in range(w.slots.shape[0]):
        w.slots[word] = 0
    if w.far[1] < NEVER:
        for i in range(w.far.shape[0]):
            w.far[i] = NEVER
    w.clock[NOW] = 0
