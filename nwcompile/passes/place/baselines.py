"""Baselines: placers of papers, kept for comparison: springs, hill climbing, a particle swarm, a sub-mesh."""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import local_search, placement
from nwcompile.passes.place.anneal import anneal_sites
from nwcompile.passes.place.direct import place_by_hilbert
from nwcompile.passes.place.problem import cores_at, placement_problem, seat_cores

# Share of the pairs under tension that are swapped before forces are recomputed; more would undo one another.
TENSEST_SHARE = 0.3
MAX_SWEEPS = 100  # Maximum sweeps of a hill climb; on the benchmarks' nets it ends long before.
N_PARTICLES = 30  # Placements of a swarm: the usual number of particle swarm optimization.
N_FLIGHTS = 200  # Iterations of the swarm; on the benchmarks' nets the best placement changes little after them.
# Chances of a random site, of the particle's best, and of the best of all; otherwise a core stays.
CHANCES = (0.02, 0.2, 0.2)


def place_by_force(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Place cores along a Hilbert curve, then swap them between neighboring routers while that lowers the tension.

    The force-directed placement of Jin et al. (ASPLOS'23, doi 10.1145/3582016.3582038): connections pull like springs,
    and the pairs of neighbors under most tension are swapped. Assumed, because the paper was not accessible: the
    potential is messages times route costs, and the `TENSEST_SHARE` share of pairs is swapped at a time.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    site_of = chip.site_index(place_by_hilbert(mapping, network, chip, activity, options).site_of)
    core_at, pairs = cores_at(site_of, chip.n_cores), neighboring_sites(chip)
    gain = np.zeros(len(pairs), np.int64)
    while True:
        local_search.tensions(problem, site_of, core_at, pairs, gain)
        order = np.argsort(-gain, kind="stable")[: int(np.ceil(TENSEST_SHARE * np.count_nonzero(gain > 0)))]
        if local_search.relax(problem, site_of, core_at, pairs[order]) == 0:
            return Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def neighboring_sites(chip: Chip) -> np.ndarray:
    """Return int64[pair, 2]: the sites at both ends of every link, each port with each, every pair once."""
    ports, neighbor = np.arange(chip.noc.cores_per_router), chip.grid.neighbor
    router, direction = np.nonzero(neighbor >= 0)
    ends = np.stack([router, neighbor[router, direction]], 1)
    ends = np.unique(np.sort(ends, 1), axis=0) * len(ports)
    both = np.stack(np.meshgrid(ports, ports, indexing="ij"), -1).reshape(-1, 2)
    return (ends[:, None] + both).reshape(-1, 2)


def hill_climb(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Place cores by hill climbing: each core in turn moves where it saves most, until none can save anything.

    After the cluster mapping of MASS (arXiv 2506.11286), which climbs on energy and path crossings of a segmented
    ladder bus. Assumed: crossings have no counterpart on a routed network, so the cost is that of all routes; cores
    move in an order that the seed draws again for every sweep, `MAX_SWEEPS` at most.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    site_of, rng = chip.site_index(mapping.site_of), np.random.default_rng(options.seed)
    core_at = cores_at(site_of, chip.n_cores)
    for _ in range(MAX_SWEEPS):
        if local_search.climb(problem, site_of, core_at, rng.permutation(mapping.n_cores)) == 0:
            break
    return Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def place_by_swarm(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Place cores by particle swarm optimization, never worse than at the start.

    After SpiNePlacer of SpiNeMap (Balaji et al., IEEE TVLSI 28(1), 2020, arXiv 1909.01843); particle swarms are due to
    Kennedy and Eberhart (ICNN 1995). Assumed, because the paper's parameters were not accessible: `N_PARTICLES`
    placements, the first the given one and the others random, move `N_FLIGHTS` times; a velocity is the `CHANCES` that
    a core swaps to its site in the best placements so far.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    state, start = np.array([options.seed], np.uint64), chip.site_index(mapping.site_of)
    sites = np.tile(start, (N_PARTICLES, 1))
    cores = np.tile(cores_at(start, chip.n_cores), (N_PARTICLES, 1))
    for site_of, core_at in zip(sites[1:], cores[1:], strict=True):
        placement.shuffle(problem, site_of, core_at, state)
    cost = np.array([placement.routed_cost(problem, site_of) for site_of in sites])
    own_best, own_cost, best = sites.copy(), cost.copy(), sites[cost.argmin()].copy()
    for _ in range(N_FLIGHTS):
        local_search.fly(problem, sites, cores, own_best, own_cost, best, state, np.array(CHANCES), cost)
    return Mapping(mapping.core_of, chip.sites[best], mapping.note)


def place_by_neumap(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Anneal sites within the smallest corner square of the chip that holds all cores.

    After NeuMap (Xiao et al., Sensors 22(19):7248, 2022), of which only the abstract was accessible: a meta-heuristic
    searches for the best core of every cluster in a reduced space. Assumed: the space is such a square, the
    meta-heuristic is simulated annealing, and it minimizes messages times route costs. Cores that the square cannot
    hold, or that `fixed_sites` fixes, stay outside.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    ring = chip.sites[:, :2].max(1)
    usable = np.asarray(problem.fits.any(0))[problem.site_kind]
    side = np.searchsorted(np.cumsum(np.bincount(ring, usable)), mapping.n_cores)
    outside = (ring > side).astype(float)
    start = seat_cores(problem, chip.site_index(mapping.site_of), np.arange(mapping.n_cores), lambda core: outside)
    closed = outside.astype(bool)
    closed[start] = False
    kinds = np.where(closed, problem.fits.shape[1], problem.site_kind)
    nobody = np.zeros((len(problem.fits), 1), bool)
    reduced = problem._replace(site_kind=kinds, fits=np.concatenate([problem.fits, nobody], 1))
    return Mapping(mapping.core_of, chip.sites[anneal_sites(reduced, start, options)], mapping.note)
