"""Route cost: what the route of a message costs for an objective, detours and slow links between chips included."""

from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.noc.routing import find_chip_crossings, find_ports
from nwcompile.kernels.mapping import traffic

ERROR_CODE = "NW5006"
LARGEST_WEIGHT = 10_000  # Ratios of link costs up to this one are kept exactly as whole numbers.


class RouteCost(NamedTuple):
    """The route from router a to b costs `along_x[x[a], x[b]] + along_y[y[a], y[b]]`; columns of `xy` are x and y.

    Without faults the links of a column's or row's routes are alike everywhere; with faults x is the router itself.
    """

    xy: np.ndarray  # int64[router, 2]
    along_x: np.ndarray  # int64[x, x]
    along_y: np.ndarray  # int64[y, y]

    def between(self, a, b) -> np.ndarray:
        """int64: cost of the routes from routers `a` to routers `b`; both are broadcast."""
        (ax, ay), (bx, by) = np.moveaxis(self.xy[a], -1, 0), np.moveaxis(self.xy[b], -1, 0)
        return self.along_x[ax, bx] + self.along_y[ay, by]


def link_weights(chip: Chip, optimize: str) -> tuple[int, int, int, int]:
    """Cost of a link east-west, north-south, and of both kinds between chips, as whole numbers in proportion.

    `optimize` is that of Options: `traffic` counts links, `energy` the chip's energy of a hop, and of the flits of a
    message between chips. The others count a
    message's cycles: of a hop and, beyond what a link within a chip takes, of its flits. Raises OptionError for
    `energy` on a chip that gives no hop energies.
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
    return _whole(ew, ns, *slow)


def route_cost(chip: Chip, optimize: str) -> RouteCost:
    """The RouteCost of a chip for an objective of Options, in `link_weights`."""
    grid, (ew, ns, slow_ew, slow_ns) = chip.grid, link_weights(chip, optimize)
    n = len(grid.is_open)
    slow = find_chip_crossings(grid, chip.noc.chip_columns, chip.noc.chip_rows)
    link_cost = np.where(slow, [slow_ew, slow_ew, slow_ns, slow_ns], [ew, ew, ns, ns]).astype(np.int64)
    if chip.noc.routing == "up-down":
        xy = np.stack([np.arange(n), np.zeros(n, np.int64)], 1)
        return RouteCost(xy, _table(grid, np.arange(n), link_cost), np.zeros((1, 1), np.int64))
    xy = np.stack([np.arange(n) % grid.columns, np.arange(n) // grid.columns], 1)
    row, column = np.arange(grid.columns), np.arange(grid.rows) * grid.columns
    return RouteCost(xy, _table(grid, row, link_cost), _table(grid, column, link_cost))


def _table(grid, routers: np.ndarray, link_cost: np.ndarray) -> np.ndarray:
    """int64[at, to]: cost of the routes among some routers whose routes stay among them."""
    position = np.full(len(grid.is_open), -1)
    position[routers] = np.arange(len(routers))
    cost = np.zeros((len(routers), len(routers)), np.int64)
    port = find_ports(grid, routers[:, None], routers)
    traffic.route_costs(port, routers.astype(np.int64), position, grid.neighbor.astype(np.int64), link_cost, cost)
    return cost


def _whole(*weights: float) -> tuple:
    """The weights as whole numbers without a common divisor: exact up to a largest ratio, else rounded to it."""
    parts = [Fraction(str(w)) for w in weights]
    least = min((p for p in parts if p), default=Fraction(1))
    parts = [(p / least).limit_denominator(LARGEST_WEIGHT) for p in parts]
    scale = lcm(*(p.denominator for p in parts))
    if scale > LARGEST_WEIGHT:
        parts, scale = [Fraction(round(p * LARGEST_WEIGHT)) for p in parts], 1
    whole = [int(p * scale) for p in parts]
    common = gcd(*whole) or 1
    return tuple(w // common for w in whole)
