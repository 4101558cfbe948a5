"""Place: logical cores to sites, so that messages take short routes."""

from dataclasses import replace

import numpy as np

from nwcompile import plugins
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import placement
from nwcompile.passes.analyze.fixed_sites import FREE, pins
from nwcompile.passes.place.anneal import anneal
from nwcompile.passes.place.baselines.local_search import force, hill_climb, pso
from nwcompile.passes.place.baselines.sub_mesh import neumap
from nwcompile.passes.place.chip_regions import on_fewest_chips
from nwcompile.passes.place.congestion import routed
from nwcompile.passes.place.problem import placement_problem
from nwcompile.passes.place.space_filling import hilbert, random, row_major
from nwcompile.passes.place.spectral import spectral

PLACERS = {
    "row-major": row_major,
    "random": random,
    "hilbert": hilbert,
    "spectral": spectral,
    "force": force,
    "pso": pso,
    "anneal": anneal,
    "hill-climb": hill_climb,
    "neumap": neumap,
    "routed": routed,
}


def place(mapping: Mapping, network: Network, chip: Chip, activity: Activity, options: Options) -> Mapping:
    """The mapping with its cores on the sites that `options.placer` finds, each at a site whose limits hold it.

    On a board of equal chips that is a rectangle of as few of them as hold the cores: see `on_fewest_chips`.
    `options.placer` names one of `PLACERS` or of a plugin, or is a callable of their signature: it takes the arguments
    of this function and gives a Mapping with the same `core_of`, cores of `options.fixed_sites` where they are. Raises
    OptionError for an unknown placer, and ModelError for what a callable gives that is not one.
    """
    method = options.placer
    if not callable(method):
        method = plugins.look_up(plugins.PLACERS, "placer", method, PLACERS)
    mapping.verify(network, chip)
    activity.verify(network)
    part, started = on_fewest_chips(mapping, chip, options)
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
    """Messages times the cost of their routes over all of `activity`, in `link_weights`: what placers make small."""
    problem = placement_problem(mapping, network, chip, activity, Options(optimize=optimize))
    return int(placement.routed_cost(problem, chip.site_index(mapping.site_of)))
