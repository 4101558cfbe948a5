"""What the bus kernels must do, written slowly and plainly: filling slots, and checking them."""

from itertools import combinations


def filled(bus, waiting: list[tuple[int, int]], order: list[tuple[int, int]], room) -> list[tuple[int, int, int]]:
    """The transfers (from, to, lane) of the next slot.

    `waiting`: (from, to) of the messages, in any order; `order`: ports (tap, 0 out or 1 in), sorted here in place;
    `room`: taps that may receive.
    """
    load = {(a, d): sum(pair[d] == a for pair in waiting) for a, d in order}
    order.sort(key=lambda port: -load[port])
    free = [set(range(len(bus.position))), set(room)]
    taken: list[set[int]] = [set() for _ in range(bus.lanes)]
    moved = []
    for a, d in order:
        found = []
        for b in {pair[1 - d] for pair in waiting if pair[d] == a} & free[1 - d] - {a}:
            stretch = switches(bus, a, b)
            lanes = [lane for lane in range(bus.lanes) if not stretch & taken[lane]]
            if lanes:
                found.append((len(stretch), b > a, b if b > a else -b, b, lanes[0], stretch))
        if found and a in free[d]:
            _, _, _, b, lane, stretch = max(found)
            taken[lane] |= stretch
            moved.append((a, b, lane) if d == 0 else (b, a, lane))
            free[0].discard(moved[-1][0])
            free[1].discard(moved[-1][1])
    return moved + [(a, a, -1) for a in range(len(bus.position)) if (a, a) in waiting and a in free[0] & free[1]]


def switches(bus, a: int, b: int) -> set[int]:
    """Positions of the switches that a transfer between two taps takes."""
    ends = sorted((int(bus.position[a]), int(bus.position[b])))
    return set(range(ends[0], ends[1] + 1))


def fault(bus, moved: list[tuple[int, int, int]]) -> str | None:
    """What is wrong with the transfers of a slot; None: nothing."""
    for (a, b, lane), (c, d, other) in combinations(moved, 2):
        if a == c or b == d:
            return f"{a}->{b} and {c}->{d} share a port"
        if lane == other and lane >= 0 and switches(bus, a, b) & switches(bus, c, d):
            return f"{a}->{b} and {c}->{d} cross on lane {lane}"
    outside = [lane for a, b, lane in moved if not (lane == -1 if a == b else 0 <= lane < bus.lanes)]
    return f"lane {outside[0]}" if outside else None


def least_slots(bus, pairs: list[tuple[int, int]]) -> int:
    """The fewest slots that hold these messages, by trying all ways to share them out."""
    n = len(pairs)
    fits = [_fits(bus, [pairs[k] for k in range(n) if members >> k & 1]) for members in range(1 << n)]
    least = [0] + [n] * ((1 << n) - 1)
    for members in range(1, 1 << n):
        part = members
        while part:
            if fits[part]:
                least[members] = min(least[members], 1 + least[members & ~part])
            part = (part - 1) & members
    return least[-1]


def _fits(bus, pairs: list[tuple[int, int]]) -> bool:
    """Whether one slot holds these messages: ports once each, and no more stretches over a switch than lanes."""
    if len({a for a, _ in pairs}) < len(pairs) or len({b for _, b in pairs}) < len(pairs):
        return False
    over = [x for a, b in pairs if a != b for x in switches(bus, a, b)]
    return all(over.count(x) <= bus.lanes for x in set(over))
