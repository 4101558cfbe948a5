"""Congestion: placer `routed`, which finds the shortest routes from several starts, then relieves the hottest link."""

import numpy as np

from nwcompile.cost.traffic.route_cost import link_weights
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.noc.routing import find_chip_crossings, list_route_links
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import link_load, placement
from nwcompile.passes.place.anneal import anneal_sites
from nwcompile.passes.place.chip_regions import region_sizes, sites_by_region
from nwcompile.passes.place.direct import hilbert_rank, place_by_hilbert, place_by_spectrum, row_major
from nwcompile.passes.place.problem import cores_at, placement_problem

LINK_WEIGHT = 0.1  # Weight of a flit on the hottest link relative to a message's hop, as in M-HySMap.
MAX_ROUTERS = 512  # Largest number of routers with a table of all routes: it grows with their square, to some 100 MB.
FOR_TIME = ("time", "edp")  # Objectives for which longer routes can pay off, because messages wait less.
MOVES_PER_SITE = 200  # Swaps per site that are tried to relieve the hottest link.
MAX_MOVES = 200_000  # The most such swaps, which take a second.


def place_by_routes(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Anneal sites from the best of several orders, then swap cores to relieve the hottest link.

    This method is ours. It starts from row-major, Hilbert or spectral order, that of regions, or the mapping's own. It
    minimizes `J = C_hop + 0.1 max_l L_l`, hops and flits of the hottest link, as M-HySMap (arXiv 2608.26223, by its
    re-implementation) without the variance, and with messages to each destination as they are sent. A flit between
    chips counts for as many as pass a link within a chip meanwhile. A swap recounts only the routes of its two cores.
    If messages wait in the network (`is_congested`) and time counts, cores are spread over as many routers as the
    barrier allows without taking longer. The same seed gives the same sites, unless `options.time_budget_s` limits the
    annealing. On more than `MAX_ROUTERS` routers links are not considered.
    """
    problem = placement_problem(mapping, network, chip, activity, options)
    if options.optimize in FOR_TIME and is_congested(problem, chip, activity):
        problem, start = spread_cores(problem, chip)
    else:
        placers = (row_major, place_by_hilbert, place_by_spectrum)
        starts = [chip.site_index(m(mapping, network, chip, activity, options).site_of) for m in placers]
        starts.append(chip.site_index(mapping.site_of))
        regions = region_sizes(chip, mapping.n_cores)
        if len(regions) > 1 and problem.fits.all():
            starts.append(sites_by_region(chip, regions, hilbert_rank(chip)))
        start = min(starts, key=lambda site_of: placement.routed_cost(problem, site_of))
    site_of = anneal_sites(problem, start, options)
    n_routers = chip.noc.columns * chip.noc.rows
    if n_routers <= MAX_ROUTERS and len(problem.other):
        table, load = all_routes(chip), np.zeros(4 * n_routers, np.int64)
        link_load.fill_links(problem, table, site_of, load)
        weight = LINK_WEIGHT * float(np.mean(link_weights(chip, options.optimize)[:2])) / int(table.need.min())
        n_moves = min(MAX_MOVES, MOVES_PER_SITE * chip.n_cores)
        state = np.array([options.seed], np.uint64)
        link_load.cool_links(problem, table, site_of, cores_at(site_of, chip.n_cores), state, n_moves, weight, load)
    return Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def is_congested(problem: placement.PlacementProblem, chip: Chip, activity: Activity) -> bool:
    """Return whether the mean core gets more messages per step than its router buffers, so that some wait in links.

    Only for chips with routers that give the cost of a barrier, without slower links between chips, on which every core
    may be at any site.
    """
    if (
        not chip.family.has_routers
        or chip.cost.barrier_cycles is None
        or chip.noc.chip_columns is not None
        or not problem.fits.all()
    ):
        return False
    n_each = problem.sent.sum() / (len(problem.start) - 1) / max(1, activity.n_steps * activity.n_samples)
    return bool(n_each * chip.noc.flits_per_message > chip.noc.buffer_flits * chip.noc.virtual_channels)


def spread_cores(problem: placement.PlacementProblem, chip: Chip) -> tuple[placement.PlacementProblem, np.ndarray]:
    """Return the problem with the fewest cores per router at no extra barrier cost, and initial sites int64[core]."""
    n_cores, n_ports = len(problem.start) - 1, chip.noc.cores_per_router
    least, largest = -(-n_cores // n_ports), min(n_cores, chip.noc.columns * chip.noc.rows)
    n_tiles = max(n for n in range(least, largest + 1) if chip.barrier_cycles(n) == chip.barrier_cycles(least))
    port, router = np.divmod(np.arange(-(-n_cores // n_tiles) * n_tiles), n_tiles)
    inside = router * n_ports + port
    kind = np.ones(len(problem.site_kind), np.int64)
    kind[inside] = 0
    return problem._replace(site_kind=kind, fits=np.tile([True, False], (n_cores, 1))), inside[:n_cores]


def all_routes(chip: Chip) -> link_load.Routes:
    """Return the links between every pair of open routers of a chip; none for routers out of use."""
    n = chip.noc.columns * chip.noc.rows
    at, to = np.divmod(np.arange(n * n), n)
    is_open = chip.grid.is_open[at] & chip.grid.is_open[to]
    offset, link = list_route_links(chip.grid, at[is_open], to[is_open])
    length = np.zeros(n * n, np.int64)
    length[is_open] = np.diff(offset)
    router = np.arange(chip.n_cores) // chip.noc.cores_per_router
    pair = np.repeat(np.arange(n * n), length)[np.argsort(link, kind="stable")]
    offset = csr_offset(np.bincount(link, minlength=4 * n))
    return link_load.Routes(
        offset=csr_offset(length), link=link, router=router, need=_link_needs(chip), pair_offset=offset, pair=pair
    )


def _link_needs(chip: Chip) -> np.ndarray:
    """Return int64[link]: how long a flit occupies each link (`cost.time.work.link_busy`), over their common divisor.

    All links within chips count alike, as their mean.
    """
    slow = find_chip_crossings(chip.grid, chip.noc.chip_columns, chip.noc.chip_rows).reshape(-1)
    if not slow.any() or slow.all():
        return np.ones(len(slow), np.int64)
    n_slots = chip.noc.buffer_flits * chip.noc.virtual_channels
    cycles = np.maximum(chip.link_cycles * n_slots, chip.link_latency)[: len(slow)]
    cycles = np.where(slow, cycles, np.rint(cycles[~slow].mean()).astype(np.int64))
    return cycles // np.gcd.reduce(cycles)
