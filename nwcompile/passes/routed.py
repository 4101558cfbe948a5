"""Placer `routed`: the shortest ways from several starts, then the hottest link cooled."""

import numpy as np

from nwcompile.cost.way_cost import link_weights
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.routing import ways
from nwcompile.kernels import cpu_links, cpu_place
from nwcompile.passes.anneal import anneal
from nwcompile.passes.ground import cores_at, ground
from nwcompile.passes.space_filling import hilbert
from nwcompile.passes.spectral import spectral

LINK_WEIGHT = 0.1  # of a flit on the hottest link against a message's hop: the weights of M-HySMap
MOST_ROUTERS = 512  # of which a table of all ways is kept
MOVES_PER_SITE, LARGEST_MOVES = 200, 200_000


def routed(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Sites by annealing from the best of row-major, Hilbert and spectral order, then swaps that cool the hottest link.

    Ours. What it makes small is `J = C_hop + 0.1 max_l L_l`, hops and flits of the hottest link, as M-HySMap (arXiv
    2608.26223, by its re-implementation) without the variance, and with messages to each destination as they are sent;
    a swap recounts the ways of its two cores only. The same seed gives the same sites, unless `options.time_budget_s`
    is set, for as long as the annealing may go on. On more than `MOST_ROUTERS` routers links are left as they are.
    """
    known = ground(mapping, network, chip, activity, options)
    starts = [mapping, *(m(mapping, network, chip, activity, options) for m in (hilbert, spectral))]
    start = min(starts, key=lambda m: cpu_place.routed_cost(known, chip.site_index(m.site_of)))
    placed = anneal(start, network, chip, activity, options)
    n_routers = chip.noc.columns * chip.noc.rows
    if n_routers > MOST_ROUTERS or not len(known.other):
        return placed
    table = all_ways(chip)
    site_of, load = chip.site_index(placed.site_of), np.zeros(4 * n_routers, np.int64)
    cpu_links.fill_links(known, table, site_of, load)
    weight = LINK_WEIGHT * float(np.mean(link_weights(chip, options.optimise)[:2]))
    n_moves = min(LARGEST_MOVES, MOVES_PER_SITE * chip.n_cores)
    state = np.array([options.seed], np.uint64)
    cpu_links.cool_links(known, table, site_of, cores_at(site_of, chip.n_cores), state, n_moves, weight, load)
    return Mapping(mapping.core_of, chip.sites[site_of], mapping.note)


def all_ways(chip: Chip) -> cpu_links.Ways:
    """The links between every pair of open routers of a chip; none where one is out of use."""
    n = chip.noc.columns * chip.noc.rows
    at, to = np.divmod(np.arange(n * n), n)
    is_open = chip.grid.is_open[at] & chip.grid.is_open[to]
    offset, link = ways(chip.grid, at[is_open], to[is_open])
    length = np.zeros(n * n, np.int64)
    length[is_open] = np.diff(offset)
    router = np.arange(chip.n_cores) // chip.noc.cores_per_router
    return cpu_links.Ways(np.concatenate([[0], np.cumsum(length)]), link, router)
