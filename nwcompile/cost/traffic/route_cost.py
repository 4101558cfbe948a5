"""Route cost: the cost of a message's route for an objective, with detours and slow links between chips."""

from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.noc.routing import find_chip_crossings, find_ports

ERROR_CODE = "NW5006"
LARGEST_WEIGHT = 10_000  # Ratios of link costs up to this one are kept exactly as whole numbers.


class RouteCost(NamedTuple):
    """Route costs: from router a to b `along_x[x[a], x[b]] + along_y[y[a], y[b]]`; the columns of `xy` are x and y.

    Without faults, all rows have the same costs along x, and all columns along y. With faults, x is the router itself.
    """

    xy: np.ndarray  # int64[router, 2]
    along_x: np.ndarray  # int64[x, x]
    along_y: np.ndarray  # int64[y, y]

    def between_routers(self, a, b) -> np.ndarray:
        """Return int64: cost of the routes from routers `a` to routers `b`, which are broadcast."""
        (ax, ay), (bx, by) = np.moveaxis(self.xy[a], -1, 0), np.moveaxis(self.xy[b], -1, 0)
        return self.along_x[ax, bx] + self.along_y[ay, by]


def link_weights(chip: Chip, optimize: str) -> tuple[int, int, int, int]:
    """Return the costs of links east-west, north-south, and of both kinds between chips, as proportional integers.

    `optimize` is that of Options. `traffic` counts links. `energy` counts the chip's energy of a hop, and of a
    message's flits between chips. The others count a message's cycles: those of a hop, and the extra cycles of its
    flits on a link between chips. Raises OptionError for `energy` on a chip without hop energies.
    """
    noc = chip.noc
    ew: float = 1
    ns: float = 1
    slow: tuple = (1, 1)
    if optimize == "energy":
        energy = chip.energy
        if energy.hop_ew_pj is None or energy.hop_ns_pj is None:
            raise OptionError(
                f"optimize='energy' needs energy.hop_ew_pj and energy.hop_ns_pj, which {chip.name} does not give; "
                "use optimize='time' or 'traffic'"
            )
        ew, ns = energy.hop_ew_pj, energy.hop_ns_pj
        link_pj = noc.flits_per_message * (energy.chip_link_pj or 0.0)
        slow = ew + link_pj, ns + link_pj
    elif optimize != "traffic":
        ew, ns = noc.hop_cycles_ew, noc.hop_cycles_ns
        slower_cycles = (noc.chip_link_cycles_per_flit or noc.link_cycles_per_flit) - noc.link_cycles_per_flit
        more = noc.flits_per_message * slower_cycles
        slow = (noc.chip_hop_cycles or ew) + more, (noc.chip_hop_cycles or ns) + more
    return _whole_weights(ew, ns, *slow)


def route_cost(chip: Chip, optimize: str) -> RouteCost:
    """Compute the RouteCost of a chip for an objective of Options, in units of `link_weights`."""
    grid, (ew, ns, slow_ew, slow_ns) = chip.grid, link_weights(chip, optimize)
    n = len(grid.is_open)
    slow = find_chip_crossings(grid, chip.noc.chip_columns, chip.noc.chip_rows)
    link_cost = np.where(slow, [slow_ew, slow_ew, slow_ns, slow_ns], [ew, ew, ns, ns]).astype(np.int64)
    if chip.noc.routing == "up-down":
        xy = np.stack([np.arange(n), np.zeros(n, np.int64)], 1)
        return RouteCost(xy, _cost_table(grid, np.arange(n), link_cost), np.zeros((1, 1), np.int64))
    xy = np.stack([np.arange(n) % grid.columns, np.arange(n) // grid.columns], 1)
    row, column = np.arange(grid.columns), np.arange(grid.rows) * grid.columns
    return RouteCost(xy, _cost_table(grid, row, link_cost), _cost_table(grid, column, link_cost))


def _cost_table(grid, routers: np.ndarray, link_cost: np.ndarray) -> np.ndarray:
    """Return int64[at, to]: cost of the routes between some routers; these routes use no other routers."""
    to = np.arange(len(routers))
    position = np.full(len(grid.is_open), -1)
    position[routers] = to
    port = find_ports(grid, routers[:, None], routers)
    has_link, at = port < 4, (routers[:, None], np.minimum(port, 3))
    cost = np.where(has_link, link_cost[at], 0)  # of the first 1, 2, 4, ... links of each route
    after = np.where(has_link, position[grid.neighbor[at]], to[:, None])  # the router behind these links
    for _ in range(len(routers).bit_length()):
        cost += cost[after, to]
        after = after[after, to]
    return cost


def _whole_weights(*weights: float) -> tuple:
    """Scale weights to integers without a common divisor: exact up to a ratio of LARGEST_WEIGHT, else rounded."""
    parts = [Fraction(str(w)) for w in weights]
    least = min((p for p in parts if p), default=Fraction(1))
    parts = [(p / least).limit_denominator(LARGEST_WEIGHT) for p in parts]
    scale = lcm(*(p.denominator for p in parts))
    if scale > LARGEST_WEIGHT:
        parts, scale = [Fraction(round(p * LARGEST_WEIGHT)) for p in parts], 1
    whole = [int(p * scale) for p in parts]
    common = gcd(*whole) or 1
    return tuple(w // common for w in whole)
