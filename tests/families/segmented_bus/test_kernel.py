"""The scheduler of the segmented bus: it does what it says, nothing crosses, and few slots are wasted."""

import numpy as np
import pytest

from nwcompile.families.segmented_bus import kernel as kernels
from nwcompile.families.segmented_bus.engine import build_bus, empty_queues
from nwcompile.families.segmented_bus.kernel import SLOTS, TRANSFERS, clear_bus, fill_slot
from nwcompile.kernels.jit import kernel
from tests.families.segmented_bus.naive_bus import fault, filled, least_slots
from tests.made.buses import bus_chip

FIELDS = ["source", "target", "lane", "message"]
PATTERNS = ("uniform", "neighbors", "hotspot", "layers")


@kernel
def enqueue(b, s, source, target, k):
    """Message k waits from time 0 on."""
    kernels.enqueue(b, s, source, target, k, -1, 0)


@kernel
def add_up_links(b, s):
    kernels.add_up_links(b, s)


def bus(columns, lanes, cores_per_router=1, cores=None):
    """A bus whose taps are all cores, or those given."""
    chip = bus_chip(noc__columns=columns, noc__lanes=lanes, noc__cores_per_router=cores_per_router,
                    noc__buffer_flits=64)  # fmt: skip
    return build_bus(chip, np.arange(chip.n_cores) if cores is None else np.array(cores))


def pattern(kind, n, count, rng):
    """`count` pairs (from, to) of taps 0..n-1."""
    source = rng.integers(0, n, count)
    target = {
        "uniform": lambda: rng.integers(0, n, count),
        "neighbors": lambda: np.clip(source + rng.integers(-2, 3, count), 0, n - 1),
        "hotspot": lambda: np.where(rng.random(count) < 0.4, n // 2, rng.integers(0, n, count)),
        "layers": lambda: n // 2 + rng.integers(0, n - n // 2, count),
    }[kind]()
    return [(int(a), int(b)) for a, b in zip(source, target, strict=True)]


def queued(b, pairs):
    """Messages 0, 1, ... that wait from time 0 on."""
    s = empty_queues(b, 4 * len(b.first_tap) + 2 * len(b.position))
    clear_bus(b, s)
    for k, (source, target) in enumerate(pairs):
        enqueue(b, s, source, target, k)
    return s


def slots_of(b, s):
    """All slots until nothing waits: lists of (from, to, lane, message)."""
    slots = []
    while True:
        n = fill_slot(b, s, len(slots) * b.slot_ticks)
        if n == 0:
            return slots
        slots.append(s.slot.transfers[:n][FIELDS].tolist())


def lower_bound(b, pairs):
    """Slots that the busiest port, or the busiest switch over all lanes, needs."""
    ports = np.bincount([a for a, _ in pairs]).max(), np.bincount([t for _, t in pairs]).max()
    over = np.zeros(len(b.first_tap), int)
    for a, t in pairs:
        if a != t:
            low, high = sorted((b.position[a], b.position[t]))
            over[low : high + 1] += 1
    return max(*ports, -(-over.max() // b.lanes))


@pytest.mark.parametrize(
    ("columns", "cores_per_router", "lanes", "cores"),
    [(1, 3, 2, None), (5, 1, 1, None), (6, 2, 2, None), (9, 1, 4, [8, 0, 3, 5]), (70, 1, 3, None), (40, 2, 2, None)],
)
@pytest.mark.parametrize("kind", PATTERNS)
def test_fill_slot_serves_busy_ports_first_and_nothing_crosses(columns, cores_per_router, lanes, cores, kind):
    b, rng = bus(columns, lanes, cores_per_router, cores), np.random.default_rng(columns)
    n = len(b.position)
    pairs = pattern(kind, n, 2 * n + 6, rng)
    left, order, room = list(pairs), [(a, d) for a in range(n) for d in (0, 1)], set(range(n))
    s = queued(b, pairs)
    slots = slots_of(b, s)
    assert s.totals.counts[SLOTS] == len(slots)
    for slot in slots:
        assert [row[:3] for row in slot] == filled(b, left, order, room)
        assert fault(b, [row[:3] for row in slot]) is None
        for a, t, _, _ in slot:
            left.remove((a, t))
    assert not left
    messages = [row[3] for slot in slots for row in slot]
    assert sorted(messages) == list(range(len(pairs)))
    for pair in set(pairs):  # messages of a pair keep their order
        own = [k for k in messages if pairs[k] == pair]
        assert own == sorted(own)
    assert s.totals.counts[TRANSFERS] == sum(a != t for a, t in pairs)


def test_fault_finds_crossings_and_shared_ports():
    b = bus(6, 2)
    assert fault(b, [(0, 2, 0), (3, 5, 0), (1, 4, 1)]) is None
    assert fault(b, [(0, 2, 0), (2, 5, 0)]) == "0->2 and 2->5 cross on lane 0"  # both need the switch of position 2
    assert fault(b, [(0, 2, 0), (5, 2, 1)]) == "0->2 and 5->2 share a port"
    assert fault(b, [(0, 2, 2)]) == "lane 2"


def test_fill_slot_sends_nothing_to_a_core_without_room():
    b = bus(6, 4)
    s = queued(b, [(0, 3), (1, 4), (2, 3)])
    s.room[0, 0] = 0b010111  # taps 0, 1, 2 and 4
    assert fill_slot(b, s, 0) == 1
    assert s.slot.transfers[0][["source", "target"]].tolist() == (1, 4)
    s.room[0, 0] = 0b111111
    assert fill_slot(b, s, b.slot_ticks) == 1 and s.slot.transfers[0]["target"] == 3


def test_links_count_every_segment_switch_and_port():
    b = bus(4, 2)
    s = queued(b, [(0, 2), (3, 1), (1, 1)])
    slots_of(b, s)
    add_up_links(b, s)
    assert s.totals.flits[:3].tolist() == [1, 2, 1]  # segments 0-1, 1-2, 2-3
    assert s.totals.flits[3:7].tolist() == [1, 2, 2, 1]  # switches 0..3
    assert s.totals.flits[7:11].tolist() == [1, 1, 0, 1] and s.totals.flits[11:15].tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize("kind", PATTERNS)
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_schedules_are_within_a_tenth_of_their_lower_bound(kind, lanes):
    """Ports and switches bound any schedule; 16 cores, about 40 messages each."""
    b, rng = bus(16, lanes), np.random.default_rng(lanes)
    pairs = pattern(kind, 16, 640, rng)
    n_slots = len(slots_of(b, queued(b, pairs)))
    assert lower_bound(b, pairs) <= n_slots <= 1.1 * lower_bound(b, pairs) + 1


def test_schedules_of_few_messages_are_a_slot_above_the_optimum_at_most():
    rng, found, best = np.random.default_rng(5), 0, 0
    for _ in range(60):
        b = bus(int(rng.integers(3, 8)), int(rng.integers(1, 4)))
        pairs = pattern("uniform", len(b.position), 8, rng)
        least, n_slots = least_slots(b, pairs), len(slots_of(b, queued(b, pairs)))
        assert lower_bound(b, pairs) <= least <= n_slots <= least + 1
        found, best = found + n_slots, best + least
    assert found <= 1.03 * best


@pytest.mark.parametrize("seed", range(3))
def test_schedules_are_shorter_than_longest_transfer_first(seed):
    """Plain bin packing, longest first, takes 1.17 to 1.30 times as many slots here."""
    b = bus(16, 8)
    pairs = pattern("uniform", 16, 320, np.random.default_rng(seed))
    n_slots = len(slots_of(b, queued(b, pairs)))
    assert 1.15 * n_slots < _longest_first(b, pairs) < 1.35 * n_slots


def _longest_first(b, pairs):
    """Slots that a first fit in order of falling length takes."""
    slots: list[list[tuple[int, int, int]]] = []
    for a, t in sorted(pairs, key=lambda pair: -abs(pair[0] - pair[1])):
        choices = [-1] if a == t else range(b.lanes)
        for slot in slots:
            lane = next((lane for lane in choices if fault(b, [*slot, (a, t, lane)]) is None), None)
            if lane is not None:
                slot.append((a, t, lane))
                break
        else:
            slots.append([(a, t, choices[0])])
    return len(slots)
