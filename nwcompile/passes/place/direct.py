"""Direct: placers without a search: row-major order, a random order, the Hilbert curve, the slowest eigenvectors."""

import numpy as np
from scipy.sparse import csr_array

from nwcompile.cost.traffic.destinations import count_flows, find_destinations, rows_by_source
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_entries, csr_groups, flat_cores
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import local_search, placement
from nwcompile.passes.place.problem import cores_at, placement_problem, seat_cores

N_ROUNDS = 500  # spectral: rounds of orthogonal iteration
DIGITS = 9  # spectral: of coordinates, so that identical cores have equal ones


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


def place_by_spectrum(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Place cores at the sites nearest to the two slowest eigenvectors of the messages' hypergraph, the busiest first.

    The spectral placement of Ronzani and Silvano (arXiv 2601.16118): a neuron's core and those it sends to are a
    hyperedge weighted by its messages, L_ij = -sum w / sqrt(w_i w_j), and the two eigenvectors of L after the trivial
    one, scaled to the chip, are the coordinates of cores. Assumed: the nearest free site takes a core; eigenvectors by
    `N_ROUNDS` of orthogonal iteration from random vectors that the seed draws, the same for any number of threads.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    together = _shared_messages(mapping, network, chip, activity)
    start, weight = chip.site_index(mapping.site_of), np.asarray(together.sum(1)).reshape(-1)
    if not weight.any():
        return mapping
    at = _slowest_waves(together, weight, options.seed)
    low, high = at.min(1, keepdims=True), at.max(1, keepdims=True)
    scaled = np.divide(at - low, high - low, out=np.full_like(at, 0.5), where=high > low)
    wanted = scaled * np.array([[chip.noc.columns - 1], [chip.noc.rows - 1]])
    xy = chip.sites[:, :2].T.astype(float)
    busiest_first = np.lexsort((np.arange(len(weight)), -weight))
    site_of = seat_cores(problem, start, busiest_first, lambda core: ((xy - wanted[:, core, None]) ** 2).sum(0))
    return Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def _shared_messages(mapping: Mapping, network: Network, chip: Chip, activity: Activity) -> csr_array:
    """Return float64[core, core], sparse: messages of neurons whose hyperedge holds both cores; diagonal 0."""
    core_of, n_cores = flat_cores(network, mapping), mapping.n_cores
    targets = find_destinations(network, rows_by_source(network, core_of), n_cores)
    flow = count_flows(network, targets, core_of, activity)
    inside = flow.home >= 0
    source_class, home, sent = (a[inside] for a in flow)
    length = np.diff(targets.offset)[source_class]
    core = np.concatenate([home, targets.core[csr_entries(targets.offset, source_class)]])
    source = np.concatenate([np.arange(len(home)), np.repeat(np.arange(len(home)), length)])
    holds = csr_array((np.ones(len(core)), (core, source)), shape=(n_cores, len(sent)))
    holds.data = np.minimum(holds.data, 1)
    together = (holds * sent[None].astype(float)) @ holds.T
    together.setdiag(0)
    together.eliminate_zeros()
    return together.tocsr()


def _slowest_waves(together: csr_array, weight: np.ndarray, seed: int) -> np.ndarray:
    """Return float64[2, core]: the two slowest eigenvectors, the largest component of each positive."""
    root = np.sqrt(weight / weight.sum())
    scale = np.sqrt(np.maximum(weight, 1e-300))
    rows = csr_groups(together.indptr)
    normal = together.data / (scale[rows] * scale[together.indices])
    values = np.random.default_rng(seed).standard_normal((2, len(weight)))
    edges = together.indptr.astype(np.int64), together.indices.astype(np.int64), normal
    local_search.smooth(*edges, root, values, N_ROUNDS)
    values /= np.where(weight > 0, np.maximum(root, 1e-150), 1.0)  # of D^-1 A: identical cores get equal coordinates
    sign = np.sign(np.take_along_axis(values, np.abs(values).argmax(1)[:, None], 1))
    return np.round(values * np.where(sign == 0, 1.0, sign), DIGITS)
