"""The ways of messages: through which output every router passes a message on, told by its destination alone.

Every way is known before anything runs, so hops and loads of links can be counted without simulating. Why no routing
can deadlock is said in docs/architecture.md; tests/ir/noc/test_routing.py looks for circles of channels.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nwcompile.errors import ChipError
from nwcompile.ir.flat import csr_offset

EAST, WEST, NORTH, SOUTH, HERE = range(5)
NO_WAY = 255
ANY, BEFORE, AFTER = range(3)  # channels a message may take: all, or those for before or after the way round a torus
LARGEST_DETOUR = 4096  # routers, of which up-down keeps a table of pairs
TURN_SHIFT, HOPS_BITS, NOWHERE = 16, 18, np.uint32(1 << 31)  # of `up_down`


@dataclass(frozen=True, eq=False)
class Grid:
    """The routers of a chip, numbered y * columns + x, and the links E, W, N, S that leave each."""

    columns: int
    rows: int
    is_torus: bool
    routing: str  # a key of `ROUTINGS`, or "up-down"
    neighbour: np.ndarray  # int64[router, 4]: where the links lead, -1 where there is none
    is_open: np.ndarray  # bool[router]

    @property
    def has_halves(self) -> bool:
        """Whether messages take the lower or the upper half of an output's channels, as `channels` says."""
        return self.is_torus and self.routing != "up-down"

    @cached_property
    def detours(self) -> tuple[np.ndarray, np.ndarray]:
        """`up_down` of this grid."""
        return up_down(self)


def grid(noc, where: str) -> Grid:
    """The routers of a `Noc` (of nwcompile.ir.chip_sections) without its faults.

    Raises ChipError, beginning with `where`, for faults that cannot be, that leave no way between two routers, or that
    the routing has no way around; and for a routing that could deadlock on a torus.
    """
    columns, rows, faults = noc.columns, noc.rows, noc.faults or ()
    own = np.arange(columns * rows)
    to = np.stack([own % columns, own // columns], 1)[:, None] + np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    around = to % [columns, rows]
    neighbour = around[:, :, 1] * columns + around[:, :, 0]
    exists = (neighbour != own[:, None]) & ((noc.topology == "torus") | (around == to).all(2))
    neighbour = np.where(exists, neighbour, -1)
    is_open = np.ones(columns * rows, bool)
    for a, b in [_ends(text, columns, rows, neighbour, where) for text in faults]:
        if a == b:
            is_open[a] = False
        else:
            neighbour[a, neighbour[a] == b] = -1
            neighbour[b, neighbour[b] == a] = -1
    neighbour[~is_open] = -1
    neighbour[(neighbour >= 0) & ~is_open[neighbour]] = -1
    found = Grid(columns, rows, noc.topology == "torus", noc.routing, neighbour, is_open)
    _verify(found, bool(faults), where)
    return found


def _ends(text: str, columns: int, rows: int, neighbour: np.ndarray, where: str) -> tuple[int, int]:
    """The routers that a faulty link joins; twice the same for a faulty router."""
    match = re.fullmatch(r"(\d{1,4}),(\d{1,4})(?:-(\d{1,4}),(\d{1,4}))?", text)
    if match is None:
        raise ChipError(f'{where}: noc.faults: expected routers like "1,0" and links like "1,0-2,0", got {text!r}')
    first, second = match.group(1, 2), match.group(3, 4)
    ends = []
    for x, y in (first, second if second[0] else first):
        if int(x) >= columns or int(y) >= rows:
            last = f"{columns - 1},{rows - 1}"
            raise ChipError(f"{where}: noc.faults: there is no router {x},{y}; the last one is {last}")
        ends.append(int(y) * columns + int(x))
    if second[0] and ends[1] not in neighbour[ends[0]]:
        raise ChipError(f"{where}: noc.faults: there is no link {text}; a link joins two neighbours")
    return ends[0], ends[1]


def _verify(g: Grid, has_faults: bool, where: str) -> None:
    """Raise ChipError unless every open router has a way to every other."""
    if g.routing != "up-down":
        if has_faults:
            raise ChipError(f'{where}: noc.faults: {g.routing!r} has no detours; set noc.routing = "up-down"')
        if g.is_torus and g.routing not in ("xy", "yx"):
            raise ChipError(
                f'{where}: noc.routing: {g.routing!r} could deadlock on a torus; use "xy", "yx" or "up-down"'
            )
        return
    if len(g.is_open) > LARGEST_DETOUR:
        raise ChipError(
            f'{where}: noc.routing: "up-down" keeps a table of all ways; {len(g.is_open)} routers are above the '
            f"largest supported, {LARGEST_DETOUR}"
        )
    if not g.is_open.any():
        raise ChipError(f"{where}: noc.faults: no router is left; take some out")
    level = _levels(g)
    lost = np.flatnonzero(g.is_open & (level < 0))
    if lost.size:
        ends = [f"{r % g.columns},{r // g.columns}" for r in (int(np.argmax(g.is_open)), int(lost[0]))]
        raise ChipError(
            f"{where}: noc.faults: no way is left from router {ends[0]} to router {ends[1]}; leave a link between "
            "them, or add the routers that are cut off"
        )


def _levels(g: Grid) -> np.ndarray:
    """int64[router]: hops from the first open router, -1 where there is no way."""
    level = np.full(len(g.is_open), -1)
    reached = np.array([np.argmax(g.is_open)])
    depth = 0
    while reached.size:
        level[reached] = depth
        ahead = np.unique(g.neighbour[reached])
        reached = ahead[(ahead >= 0) & (level[ahead] < 0)]
        depth += 1
    return level


def between_chips(g: Grid, chip_columns: int | None, chip_rows: int | None) -> np.ndarray:
    """bool[router, 4]: links that join two chips of so many columns and rows of routers each (None: all of them)."""
    own = np.arange(len(g.is_open))
    chip = np.stack([own % g.columns // (chip_columns or g.columns), own // g.columns // (chip_rows or g.rows)], 1)
    return (chip[g.neighbour] != chip[:, None]).any(2) & (g.neighbour >= 0)


def up_down(g: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Ways that first go up, toward the first open router, and then down: (port uint8[at, to], way uint32[at, to]).

    `way` counts the links of the way from bit `HOPS_BITS` on, and those east-west among them below; 0 if there is none.

    Up*/down* routing (Schroeder et al., Autonet, SRC report 59, 1990), up meaning nearer to the first open router, or
    as near and of a lower number. A message goes down as soon as a way down leads to its destination, the shortest,
    and until then up, so the router and the destination tell the output. Without faults a mesh has shortest ways.
    Of ways as long, destinations with an even x + y take the last in the order E, W, N, S, and the others the first.
    """
    level, n = _levels(g), len(g.is_open)
    order = [int(r) for r in np.lexsort((np.arange(n), level)) if level[r] >= 0]
    rank = np.full(n, -1)
    rank[order] = np.arange(len(order))
    port, way = np.full((n, n), NO_WAY, np.uint8), np.full((n, n), NOWHERE, np.uint32)
    takes_last = (np.arange(n) % g.columns + np.arange(n) // g.columns) % 2 == 0
    turn = np.arange(4)[:, None] ^ 3 * takes_last  # the least of them goes first
    link = (1 << HOPS_BITS | turn << TURN_SHIFT | (np.arange(4) < 2)[:, None]).astype(np.uint32)

    def extend(at: int, goes_up: bool) -> None:
        best = np.full(n, NOWHERE, np.uint32)
        for p, to in enumerate(g.neighbour[at]):
            if to >= 0 and (rank[to] < rank[at]) == goes_up:
                np.minimum(best, way[to] + link[p], out=best)
        new = (way[at] == NOWHERE) & (best < NOWHERE)
        port[at] = np.where(new, (best >> TURN_SHIFT & 3) ^ 3 * takes_last, port[at])
        way[at] = np.where(new, best & ~np.uint32(3 << TURN_SHIFT), way[at])

    for at in reversed(order):
        port[at, at], way[at, at] = HERE, 0
        extend(at, False)
    for at in order:
        extend(at, True)
    way[way == NOWHERE] = 0
    return port, way


def offsets(g: Grid, at, to) -> tuple[np.ndarray, np.ndarray]:
    """Hops from router to router along x and along y, negative west and south; round a torus the shorter way.

    Where both ways round are as long, it is east, or north. `at` and `to` are broadcast.
    """
    dx, dy = to % g.columns - at % g.columns, to // g.columns - at // g.columns
    if g.is_torus:
        dx, dy = dx % g.columns, dy % g.rows
        dx, dy = dx - g.columns * (2 * dx > g.columns), dy - g.rows * (2 * dy > g.rows)
    return dx, dy


def ports(g: Grid, at, to) -> np.ndarray:
    """uint8: the output (E, W, N, S or `HERE`) of router `at` for messages to router `to`; both are broadcast."""
    at, to = np.asarray(at), np.asarray(to)
    if g.routing == "up-down":
        return g.detours[0][at, to]
    dx, dy = offsets(g, at, to)
    along_x = (dx != 0) & ((dy == 0) | ROUTINGS[g.routing](at % g.columns, dx, np.abs(dy)))
    across = np.where(dx > 0, EAST, WEST), np.where(dy > 0, NORTH, SOUTH)
    return np.where((dx == 0) & (dy == 0), HERE, np.where(along_x, *across)).astype(np.uint8)


def _west_first(x, dx, height):
    """Glass and Ni, The turn model, ISCA 1992: all hops west come first; of the others the longer rest goes first."""
    return (dx < 0) | (dx >= height)


def _odd_even(x, dx, height):
    """Chiu, The odd-even turn model, IEEE TPDS 11(7), 2000, figure 4, without the exception for the source's column.

    From the east a message turns in odd columns only, and never one hop before an even one; to the west it leaves a
    column only where that is even. Where both outputs are allowed, the longer rest goes first.
    """
    is_odd = x % 2 == 1
    east = ~is_odd | ((dx > 1) & (dx >= height))
    return np.where(dx > 0, east, is_odd | (-dx >= height))


ROUTINGS: dict[str, Callable] = {
    "xy": lambda x, dx, height: np.ones(dx.shape, bool),
    "yx": lambda x, dx, height: np.zeros(dx.shape, bool),
    "west-first": _west_first,
    "odd-even": _odd_even,
}


def channels(g: Grid, at, to) -> np.ndarray:
    """uint8: the channels that a message to `to` may take from router `at` on: ANY, BEFORE or AFTER.

    On a torus the lower half of the channels belongs to messages that have yet to go round, from the last router to the
    first or back, in the direction they now go, and the upper half to those that have not (Dally and Seitz, Deadlock-
    free message routing, IEEE Trans. Computers 36(5), 1987).
    """
    at, to = np.asarray(at), np.asarray(to)
    if not g.has_halves:
        return np.full(np.broadcast_shapes(at.shape, to.shape), ANY, np.uint8)
    port = ports(g, at, to)
    dx, dy = to % g.columns - at % g.columns, to // g.columns - at // g.columns
    goes_round = np.choose(np.minimum(port, SOUTH), [dx < 0, dx > 0, dy < 0, dy > 0])
    return np.where(port == HERE, ANY, np.where(goes_round, BEFORE, AFTER)).astype(np.uint8)


def hops(g: Grid, at, to) -> np.ndarray:
    """int64[..., 2]: links east-west and north-south on the way from router `at` to router `to`; both are broadcast."""
    at, to = np.asarray(at), np.asarray(to)
    if g.routing == "up-down":
        way = g.detours[1][at, to].astype(np.int64)
        along_x = way & (1 << TURN_SHIFT) - 1
        return np.stack([along_x, (way >> HOPS_BITS) - along_x], -1)
    return np.abs(np.stack(offsets(g, at, to), -1)).astype(np.int64)


def ways(g: Grid, at: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The links on the way of each pair of routers, in order: (offset int64[pair + 1], link int64[...]).

    A link is router * 4 + direction.
    """
    length = hops(g, at, to).sum(-1)
    offset = csr_offset(length)
    link = np.empty(offset[-1], np.int64)
    now = np.array(at, np.int64)
    for k in range(int(length.max(initial=0))):
        moving = np.flatnonzero(length > k)
        port = ports(g, now[moving], to[moving])
        link[offset[moving] + k] = now[moving] * 4 + port
        now[moving] = g.neighbour[now[moving], port]
    return offset, link
