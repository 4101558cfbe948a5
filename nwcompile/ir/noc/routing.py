"""Routes of messages: the output of a router for a message depends only on the message's destination.

Every route is known before simulation, so hops and link loads can be counted without simulating. docs/decisions/noc.md
shows that no routing can deadlock; tests/ir/noc/test_routing.py searches for cycles of channels.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nwcompile.errors import ChipError
from nwcompile.ir.flat import csr_offset

EAST, WEST, NORTH, SOUTH, HERE = range(5)
NO_PORT = 255  # No route exists. This is the largest uint8; ports are far below it.
# Virtual channel class of a message: all channels, or on a torus those before or after its dateline.
ANY, BEFORE, AFTER = range(3)
MAX_UP_DOWN_ROUTERS = 4096  # The up-down tables need 5 bytes per pair of routers, 80 MiB for this many.
# A route in an up-down table is one uint32, and the smallest one is best: number of links from bit HOPS_BITS up, then
# two bits for ties between equally long routes, and below TURN_SHIFT the number of its links east-west.
TURN_SHIFT = 16  # The links east-west of a route fit 16 bits: it has at most 4096 routers.
HOPS_BITS = 18  # The two bits above TURN_SHIFT number the four outputs.
NOWHERE = np.uint32(1 << 31)  # No route; above every possible route.


@dataclass(frozen=True, eq=False)
class Grid:
    """Routers of a chip, numbered y * columns + x, and the links E, W, N, S that leave each."""

    columns: int
    rows: int
    is_torus: bool
    routing: str  # a key of `ROUTINGS`, or "up-down"
    neighbor: np.ndarray  # int64[router, 4]: router at the end of each link, -1 without a link
    is_open: np.ndarray  # bool[router]

    @property
    def has_datelines(self) -> bool:
        """Whether a message may take only one half of an output's virtual channels (`vc_classes`)."""
        return self.is_torus and self.routing != "up-down"

    @cached_property
    def up_down_tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Port and route tables of `build_up_down_tables`."""
        return build_up_down_tables(self)


def build_grid(noc, where: str) -> Grid:
    """Build the grid of a `Noc` (nwcompile.ir.chip_sections) without its faulty routers and links.

    Raises ChipError, which begins with `where`, for faults of routers or links that do not exist, that leave no route
    between two routers, or that the routing cannot avoid, and for a routing that could deadlock on a torus.
    """
    columns, rows, faults = noc.columns, noc.rows, noc.faults or ()
    router = np.arange(columns * rows)
    to = np.stack([router % columns, router // columns], 1)[:, None] + np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    around = to % [columns, rows]
    neighbor = around[:, :, 1] * columns + around[:, :, 0]
    exists = (neighbor != router[:, None]) & ((noc.topology == "torus") | (around == to).all(2))
    neighbor = np.where(exists, neighbor, -1)
    is_open = np.ones(columns * rows, bool)
    for a, b in [_parse_fault(text, columns, rows, neighbor, where) for text in faults]:
        if a == b:
            is_open[a] = False
        else:
            neighbor[a, neighbor[a] == b] = -1
            neighbor[b, neighbor[b] == a] = -1
    neighbor[~is_open] = -1
    neighbor[(neighbor >= 0) & ~is_open[neighbor]] = -1
    grid = Grid(
        columns=columns,
        rows=rows,
        is_torus=noc.topology == "torus",
        routing=noc.routing,
        neighbor=neighbor,
        is_open=is_open,
    )
    _verify_routes(grid, bool(faults), where)
    return grid


def _parse_fault(text: str, columns: int, rows: int, neighbor: np.ndarray, where: str) -> tuple[int, int]:
    """Parse a fault into the two routers of a link; both are the same for a faulty router."""
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
    if second[0] and ends[1] not in neighbor[ends[0]]:
        raise ChipError(f"{where}: noc.faults: there is no link {text}; a link joins two neighbors")
    return ends[0], ends[1]


def _verify_routes(grid: Grid, has_faults: bool, where: str) -> None:
    """Raise ChipError unless every open router has a route to every other one."""
    if grid.routing != "up-down":
        if has_faults:
            raise ChipError(f'{where}: noc.faults: {grid.routing!r} has no detours; set noc.routing = "up-down"')
        if grid.is_torus and grid.routing not in ("xy", "yx"):
            raise ChipError(
                f'{where}: noc.routing: {grid.routing!r} could deadlock on a torus; use "xy", "yx" or "up-down"'
            )
        return
    if len(grid.is_open) > MAX_UP_DOWN_ROUTERS:
        raise ChipError(
            f'{where}: noc.routing: "up-down" keeps a table of all routes; {len(grid.is_open)} routers are above the '
            f"largest supported, {MAX_UP_DOWN_ROUTERS}"
        )
    if not grid.is_open.any():
        raise ChipError(f"{where}: noc.faults: no router is left; take some out")
    level = _compute_levels(grid)
    lost = np.flatnonzero(grid.is_open & (level < 0))
    if lost.size:
        ends = [f"{r % grid.columns},{r // grid.columns}" for r in (int(np.argmax(grid.is_open)), int(lost[0]))]
        raise ChipError(
            f"{where}: noc.faults: no route is left from router {ends[0]} to router {ends[1]}; leave a link between "
            "them, or add the routers that are cut off"
        )


def _compute_levels(grid: Grid) -> np.ndarray:
    """int64[router]: hops from the first open router, -1 if there is no route."""
    level = np.full(len(grid.is_open), -1)
    reached = np.array([np.argmax(grid.is_open)])
    depth = 0
    while reached.size:
        level[reached] = depth
        ahead = np.unique(grid.neighbor[reached])
        reached = ahead[(ahead >= 0) & (level[ahead] < 0)]
        depth += 1
    return level


def find_chip_crossings(grid: Grid, chip_columns: int | None, chip_rows: int | None) -> np.ndarray:
    """bool[router, 4]: links between two chips of `chip_columns` x `chip_rows` routers each (None: all routers)."""
    router = np.arange(len(grid.is_open))
    chip_x = router % grid.columns // (chip_columns or grid.columns)
    chip_y = router // grid.columns // (chip_rows or grid.rows)
    chip = np.stack([chip_x, chip_y], 1)
    return (chip[grid.neighbor] != chip[:, None]).any(2) & (grid.neighbor >= 0)


def build_up_down_tables(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Build the tables of up*/down* routing: (port uint8[at, to], route uint32[at, to]).

    `route` has the number of links from bit `HOPS_BITS` up and the links east-west among them below; 0 without a route.

    In up*/down* routing (Schroeder et al., Autonet, SRC report 59, 1990) up means toward the first open router: nearer
    to it, or equally near with a lower number. A message goes up until some route down leads to its destination, then
    down the shortest one. So router and destination determine the output. Without faults the routes of a mesh are
    shortest. Among equally long routes, destinations with even x + y take the last one in the order E, W, N, S, and the
    others the first one.
    """
    level, n = _compute_levels(grid), len(grid.is_open)
    order = [int(r) for r in np.lexsort((np.arange(n), level)) if level[r] >= 0]
    rank = np.full(n, -1)
    rank[order] = np.arange(len(order))
    port, route = np.full((n, n), NO_PORT, np.uint8), np.full((n, n), NOWHERE, np.uint32)
    takes_last = (np.arange(n) % grid.columns + np.arange(n) // grid.columns) % 2 == 0
    turn = np.arange(4)[:, None] ^ 3 * takes_last  # the smallest goes first
    link = (1 << HOPS_BITS | turn << TURN_SHIFT | (np.arange(4) < 2)[:, None]).astype(np.uint32)

    def extend_routes(at: int, goes_up: bool) -> None:
        best = np.full(n, NOWHERE, np.uint32)
        for p, to in enumerate(grid.neighbor[at]):
            if to >= 0 and (rank[to] < rank[at]) == goes_up:
                np.minimum(best, route[to] + link[p], out=best)
        new = (route[at] == NOWHERE) & (best < NOWHERE)
        port[at] = np.where(new, (best >> TURN_SHIFT & 3) ^ 3 * takes_last, port[at])
        route[at] = np.where(new, best & ~np.uint32(3 << TURN_SHIFT), route[at])

    for at in reversed(order):
        port[at, at], route[at, at] = HERE, 0
        extend_routes(at, False)
    for at in order:
        extend_routes(at, True)
    route[route == NOWHERE] = 0
    return port, route


def hop_offsets(grid: Grid, at, to) -> tuple[np.ndarray, np.ndarray]:
    """Hops from router `at` to router `to` along x and y, negative west and south; on a torus the shorter way.

    If both ways around are equally long, it is east or north. `at` and `to` are broadcast.
    """
    dx, dy = to % grid.columns - at % grid.columns, to // grid.columns - at // grid.columns
    if grid.is_torus:
        dx, dy = dx % grid.columns, dy % grid.rows
        dx, dy = dx - grid.columns * (2 * dx > grid.columns), dy - grid.rows * (2 * dy > grid.rows)
    return dx, dy


def find_ports(grid: Grid, at, to) -> np.ndarray:
    """uint8: output (E, W, N, S or `HERE`) of router `at` for messages to router `to`; both are broadcast."""
    at, to = np.asarray(at), np.asarray(to)
    if grid.routing == "up-down":
        return grid.up_down_tables[0][at, to]
    dx, dy = hop_offsets(grid, at, to)
    along_x = (dx != 0) & ((dy == 0) | ROUTINGS[grid.routing](at % grid.columns, dx, np.abs(dy)))
    across = np.where(dx > 0, EAST, WEST), np.where(dy > 0, NORTH, SOUTH)
    return np.where((dx == 0) & (dy == 0), HERE, np.where(along_x, *across)).astype(np.uint8)


def _west_first(x, dx, height):
    """West-first routing: all hops west first, then along the axis with more hops left.

    Source: Glass and Ni, The turn model, ISCA 1992.
    """
    return (dx < 0) | (dx >= height)


def _odd_even(x, dx, height):
    """Odd-even routing: eastbound messages turn in odd columns only, westbound messages in even columns only.

    An eastbound message must turn one hop before an even destination column. If both outputs are allowed, the axis with
    more hops left goes first. Source: Chiu, The odd-even turn model, IEEE TPDS 11(7), 2000, figure 4, without the
    exception for the source's column.
    """
    is_odd = x % 2 == 1
    east = ~is_odd | ((dx > 1) & (dx >= height))
    return np.where(dx > 0, east, is_odd | (-dx >= height))


# They may use only the parity of x: `route_table` of sim/cycle/noc_tables.py relies on it.
ROUTINGS: dict[str, Callable] = {
    "xy": lambda x, dx, height: np.ones(dx.shape, bool),
    "yx": lambda x, dx, height: np.zeros(dx.shape, bool),
    "west-first": _west_first,
    "odd-even": _odd_even,
}


def vc_classes(grid: Grid, at, to) -> np.ndarray:
    """uint8: class of virtual channels for a message to `to` leaving router `at`: ANY, BEFORE or AFTER.

    The dateline of a torus is between the last router and the first. The lower half of the channels is for messages
    that have yet to cross it in their current direction, and the upper half for all others (Dally and Seitz,
    Deadlock-free message routing, IEEE Trans. Computers 36(5), 1987).
    """
    at, to = np.asarray(at), np.asarray(to)
    if not grid.has_datelines:
        return np.full(np.broadcast_shapes(at.shape, to.shape), ANY, np.uint8)
    port = find_ports(grid, at, to)
    dx, dy = to % grid.columns - at % grid.columns, to // grid.columns - at // grid.columns
    crosses_dateline = np.choose(np.minimum(port, SOUTH), [dx < 0, dx > 0, dy < 0, dy > 0])
    return np.where(port == HERE, ANY, np.where(crosses_dateline, BEFORE, AFTER)).astype(np.uint8)


def count_hops(grid: Grid, at, to) -> np.ndarray:
    """int64[..., 2]: links east-west and north-south from router `at` to router `to`; both are broadcast."""
    at, to = np.asarray(at), np.asarray(to)
    if grid.routing == "up-down":
        route = grid.up_down_tables[1][at, to].astype(np.int64)
        along_x = route & (1 << TURN_SHIFT) - 1
        return np.stack([along_x, (route >> HOPS_BITS) - along_x], -1)
    return np.abs(np.stack(hop_offsets(grid, at, to), -1)).astype(np.int64)


def list_route_links(grid: Grid, at: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """List the links on the route of each pair of routers, in order: (offset int64[pair + 1], link int64[...]).

    A link is numbered router * 4 + direction.
    """
    length = count_hops(grid, at, to).sum(-1)
    offset = csr_offset(length)
    link = np.empty(offset[-1], np.int64)
    now = np.array(at, np.int64)
    for k in range(int(length.max(initial=0))):
        moving = np.flatnonzero(length > k)
        port = find_ports(grid, now[moving], to[moving])
        link[offset[moving] + k] = now[moving] * 4 + port
        now[moving] = grid.neighbor[now[moving], port]
    return offset, link
