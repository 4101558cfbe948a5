"""Place: assign logical cores to sites, so that messages take short routes."""

from dataclasses import replace

import numpy as np

from nwcompile import plugins
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels import jit
from nwcompile.kernels.mapping import placement
from nwcompile.passes.analyze.fixed_sites import FREE, pins
from nwcompile.passes.place.anneal import anneal
from nwcompile.passes.place.baselines import hill_climb, place_by_force, place_by_neumap, place_by_swarm
from nwcompile.passes.place.chip_regions import take_fewest_chips
from nwcompile.passes.place.congestion import place_by_routes
from nwcompile.passes.place.direct import place_by_hilbert, place_by_spectrum, place_randomly, row_major
from nwcompile.passes.place.problem import placement_problem

PLACERS = {
    "row-major": row_major,
    "random": place_randomly,
    "hilbert": place_by_hilbert,
    "spectral": place_by_spectrum,
    "force": place_by_force,
    "pso": place_by_swarm,
    "anneal": anneal,
    "hill-climb": hill_climb,
    "neumap": place_by_neumap,
    "routed": place_by_routes,
}


def place(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """Return the mapping with its cores at the sites that `options.placer` finds, each at a site whose limits hold it.

    On a board of equal chips, only a rectangle of the fewest chips that hold the cores is used (`take_fewest_chips`).
    `options.placer` names one of `PLACERS` or of a plugin, or is a callable with their signature: it takes the
    arguments of this function and returns a Mapping with the same `core_of`, with cores of `options.fixed_sites` at
    their sites. Raises OptionError for an unknown placer, and ModelError if a callable returns anything else.
    """
    jit.wait_for(jit.PLACEMENT)
    method = options.placer
    if not callable(method):
        method = plugins.look_up(plugins.PLACERS, "placer", method, PLACERS)
    mapping.verify(network, chip)
    activity.verify(network)
    part, started = take_fewest_chips(mapping, chip, options)
    placed = method(started, network, part, activity, options)
    if not isinstance(placed, Mapping):
        raise ModelError(f"placer: gave {type(placed).__name__}, not a Mapping")
    placed.verify(network, chip)
    if any(not np.array_equal(placed.core_of[name], mapping.core_of[name]) for name in network.layers):
        raise ModelError("placer: moved neurons to other cores; a placer gives the same core_of with other sites")
    pinned = pins(network, chip, placed.core_of, placed.n_cores, options)
    moved = np.flatnonzero((pinned != FREE) & (chip.site_index(placed.site_of) != pinned))
    if len(moved):
        site = tuple(chip.sites[pinned[moved[0]]].tolist())
        raise ModelError(f"placer: core {moved[0]} is not at site {site}, where fixed_sites has it")
    return placed if placed.visit else replace(placed, visit=mapping.visit)


def routed_cost(mapping: Mapping, network: Network, chip: Chip, activity: Activity, optimize: str) -> int:
    """Return the objective of placers: messages times route costs over all of `activity`, in `link_weights`."""
    problem = placement_problem(mapping, network, chip, activity, Options(optimize=optimize))
    return int(placement.routed_cost(problem, chip.site_index(mapping.site_of)))
