"""Placement problem: the messages between cores, what their routes cost, and which core may go where."""

import numpy as np

from nwcompile.cost.traffic.destinations import core_messages, destinations, flows, rows_by_source
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
    """The PlacementProblem of a mapping's cores: routes cost as `options.optimize` says, some cores have fixed sites.

    Routes are those of the chip's routing, detours round faults and slow links between chips included, and those from
    and to io.sites. Raises OptionError for an objective that the chip's file has no figures for.
    """
    n_cores, core_of = mapping.n_cores, flat_cores(network, mapping)
    targets = destinations(network, rows_by_source(network, core_of), n_cores)
    pair, messages = core_messages(targets, flows(network, targets, core_of, activity), n_cores)
    moving = (pair[:, 0] != pair[:, 1]) & (pair[:, 0] >= 0)
    ends = np.concatenate([pair[moving], pair[moving][:, ::-1]]).astype(np.int64)
    key, inverse = np.unique(ends[:, 0] * n_cores + ends[:, 1], return_inverse=True)
    both = np.zeros((2, len(key)), np.int64)
    np.add.at(both, (np.repeat([0, 1], moving.sum()), inverse.reshape(-1)), np.tile(messages[moving], 2))
    start = csr_offset(np.bincount(key // n_cores, minlength=n_cores))
    of_neuron = join_layers(network, mapping.core_of)
    used = capacity.used_by_core(network, chip, of_neuron, n_cores)
    pinned = pins(network, chip, mapping.core_of, n_cores, options)
    costs = route_cost(chip, options.optimize)
    router = np.arange(chip.n_cores) // chip.noc.cores_per_router
    site_kind, fits = kinds_of_sites(capacity.site_limits(chip), used, pinned)
    return placement.PlacementProblem(
        start=start,
        other=key % n_cores,
        sent=both[0],
        received=both[1],
        site_xy=costs.xy[router],
        along_x=costs.along_x,
        along_y=costs.along_y,
        outside=_outside(network, pair, messages, core_of, n_cores, activity),
        io_cost=_io_costs(chip, costs),
        site_kind=site_kind,
        fits=fits,
    )


def _outside(network: Network, pair, messages, core_of: np.ndarray, n_cores: int, activity: Activity) -> np.ndarray:
    """int64[2, core]: messages of input lines to each core, and spikes of output layers from it.

    `pair`, `messages`: as `core_messages` gives them.
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
    """int64[2, site]: cost of the routes from and to the io site of each site (`cost.traffic.io_sites`); 0 without."""
    if not len(chip.io_cores):
        return np.zeros((2, chip.n_cores), np.int64)
    come, leave = (cores[:, None] // chip.noc.cores_per_router for cores in io_ends(chip))
    routers, both_ways = np.arange(len(chip.grid.is_open)), []
    for ends in ((come, routers), (routers, leave)):
        nearest = count_hops(chip.grid, *ends).sum(-1).argmin(0)
        both_ways.append(costs.between(*ends)[nearest, routers])
    return np.repeat(both_ways, chip.noc.cores_per_router, axis=1)


def cores_at(site_of: np.ndarray, n_sites: int) -> np.ndarray:
    """int64[site]: the core at each site, -1 where none is; `site_of` int64[core]."""
    core_at = np.full(n_sites, -1)
    core_at[site_of] = np.arange(len(site_of))
    return core_at


def seat(problem: placement.PlacementProblem, start: np.ndarray, order: np.ndarray, dislike) -> np.ndarray:
    """int64[core]: sites given to the cores in `order`, to each the free one that it dislikes least; legal throughout.

    `dislike(core)` gives a number for every site. Each core changes places with who is at its site, if both fit and
    neither has been seated; `start` int64[core] must be legal, and is kept by a core that finds nothing better.
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
