"""Space filling: placers without a search: row-major order, a random order, and the order of the Hilbert curve."""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import placement
from nwcompile.passes.place.problem import cores_at, placement_problem, seat_cores


def row_major(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Keep the sites of `partition`: port fastest, then x, then y, as far as unequal and fixed cores allow."""
    return mapping


def place_randomly(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Draw random sites from the seed, a baseline for any method; uniform over all placements if cores are equal."""
    problem = placement_problem(mapping, network, chip, activity, options)
    site_of = chip.site_index(mapping.site_of)
    state = np.array([options.seed], np.uint64)
    placement.shuffle(problem, site_of, cores_at(site_of, chip.n_cores), state)
    return Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def place_by_hilbert(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Place the cores in order along a Hilbert curve through the routers, so that neighbors in order stay neighbors.

    The initial placement of Jin et al. (ASPLOS'23, doi 10.1145/3582016.3582038). Cores are numbered by their first
    neuron, and layers are in topological order. Assumed, because the paper's treatment of rectangles was not
    accessible: the curve of the enclosing square of side 2^n, without its routers outside the chip.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    start, rank = chip.site_index(mapping.site_of), hilbert_rank(chip)
    site_of = seat_cores(problem, start, np.arange(mapping.n_cores), lambda core: rank)
    return Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def hilbert_rank(chip: Chip) -> np.ndarray:
    """Return int64[site]: each site's rank on the Hilbert curve (Math. Annalen 38, 1891), ports in order."""
    x, y = chip.sites[:, 0].astype(np.int64), chip.sites[:, 1].astype(np.int64)
    side = 1 << (max(chip.noc.columns, chip.noc.rows) - 1).bit_length()
    rank = np.zeros(len(x), np.int64)
    while side > 1:
        half = side // 2
        right, upper = x >= half, y >= half
        rank = 4 * rank + np.where(right, np.where(upper, 2, 3), np.where(upper, 1, 0))
        x, y = x % half, y % half
        turned, mirrored = ~upper, ~upper & right
        x, y = np.where(mirrored, half - 1 - x, x), np.where(mirrored, half - 1 - y, y)
        x, y = np.where(turned, y, x), np.where(turned, x, y)
        side = half
    return rank * chip.noc.cores_per_router + chip.sites[:, 2]


def z_rank(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return int64: the rank of each point x, y on a Z-order curve (Morton, IBM, 1966); both int64 and 0 or more."""
    rank = np.zeros(len(x), np.int64)
    for b in range(int(max(x.max(initial=0), y.max(initial=0))).bit_length()):
        rank |= (x >> b & 1) << 2 * b | (y >> b & 1) << 2 * b + 1
    return rank
