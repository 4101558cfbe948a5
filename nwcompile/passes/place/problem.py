"""Placement problem: the messages between cores, the costs of their routes, and the sites at which each core fits."""

import numpy as np

from nwcompile.cost.traffic.destinations import core_messages, count_flows
from nwcompile.cost.traffic.io_sites import io_ends
from nwcompile.cost.traffic.route_cost import RouteCost, route_cost
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset, flat_cores, join_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.noc.routing import count_hops
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import placement
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.fixed_sites import kinds_of_sites, pins


def placement_problem(
    mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options
) -> placement.PlacementProblem:
    """Build the PlacementProblem of a mapping's cores, with route costs for `options.optimize` and fixed sites.

    Routes are those of the chip's routing, including detours around faults, slow links between chips, and routes from
    and to io.sites. Raises OptionError for an objective that the chip's file has no figures for.
    """
    n_cores, core_of = mapping.n_cores, flat_cores(network, mapping)
    usage = capacity.count_usage(network, chip, join_layers(network, mapping.core_of), n_cores)
    targets = usage.destinations
    pair, messages = core_messages(targets, count_flows(network, targets, core_of, activity), n_cores)
    moving = (pair[:, 0] != pair[:, 1]) & (pair[:, 0] >= 0)
    ends = np.concatenate([pair[moving], pair[moving][:, ::-1]]).astype(np.int64)
    key, inverse = np.unique(ends[:, 0] * n_cores + ends[:, 1], return_inverse=True)
    both = np.zeros((2, len(key)), np.int64)
    np.add.at(both, (np.repeat([0, 1], moving.sum()), inverse.reshape(-1)), np.tile(messages[moving], 2))
    start = csr_offset(np.bincount(key // n_cores, minlength=n_cores))
    pinned = pins(network, chip, mapping.core_of, n_cores, options)
    costs = route_cost(chip, options.optimize)
    router = np.arange(chip.n_cores) // chip.noc.cores_per_router
    site_kind, fits = kinds_of_sites(capacity.site_limits(chip), usage.by_core, pinned)
    return placement.PlacementProblem(
        start=start,
        other=key % n_cores,
        sent=both[0],
        received=both[1],
        site_xy=costs.xy[router],
        along_x=costs.along_x,
        along_y=costs.along_y,
        outside=_io_messages(network, pair, messages, core_of, n_cores, activity),
        io_cost=_io_costs(chip, costs),
        site_kind=site_kind,
        fits=fits,
    )


def _io_messages(network: Network, pair, messages, core_of: np.ndarray, n_cores: int, activity: Activity) -> np.ndarray:
    """Return int64[2, core]: messages of input lines to each core, and spikes of output layers from it.

    `pair`, `messages`: as returned by `core_messages`.
    """
    outside = np.zeros((2, n_cores), np.int64)
    of_lines = pair[:, 0] < 0
    outside[0, pair[of_lines, 1]] = messages[of_lines]
    for name in network.outputs:
        first = network.offsets[name]
        cores = core_of[first : first + network.node(name).n_neurons]
        np.add.at(outside[1], cores, activity.counts[name].sum(0, dtype=np.int64))
    return outside


def _io_costs(chip: Chip, costs: RouteCost) -> np.ndarray:
    """Return int64[2, site]: route costs from and to each site's io site (`cost.traffic.io_sites`); 0 without."""
    if not len(chip.io_cores):
        return np.zeros((2, chip.n_cores), np.int64)
    come, leave = (cores[:, None] // chip.noc.cores_per_router for cores in io_ends(chip))
    routers, both_ways = np.arange(len(chip.grid.is_open)), []
    for ends in ((come, routers), (routers, leave)):
        nearest = count_hops(chip.grid, *ends).sum(-1).argmin(0)
        both_ways.append(costs.between_routers(*ends)[nearest, routers])
    return np.repeat(both_ways, chip.noc.cores_per_router, axis=1)


def cores_at(site_of: np.ndarray, n_sites: int) -> np.ndarray:
    """Return int64[site]: the core at each site, -1 for none; `site_of` int64[core]."""
    core_at = np.full(n_sites, -1)
    core_at[site_of] = np.arange(len(site_of))
    return core_at


def seat_cores(problem: placement.PlacementProblem, start: np.ndarray, order: np.ndarray, dislike) -> np.ndarray:
    """Assign to each core in `order` the free site that it dislikes least; return int64[core], always legal.

    `dislike(core)` returns a number for every site. A core swaps with the core at its new site, if both fit and that
    core has not been seated yet. `start` int64[core] must be legal; a core that finds nothing better stays there.
    """
    site_of, core_at = start.copy(), cores_at(start, len(problem.site_kind))
    seated = np.zeros(len(core_at), bool)
    for a in order:
        there = problem.fits[core_at, problem.site_kind[site_of[a]]] | (core_at < 0)
        legal = ~seated & problem.fits[a, problem.site_kind] & (there | (core_at == a))
        site = int(np.where(legal, dislike(a), np.inf).argmin())
        if site != site_of[a]:
            placement.swap(site_of, core_at, a, site)
        seated[site_of[a]] = True
    return site_of
