"""How the message of a spike reaches several cores: one message to each, or one that forks in the routers."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.cost.traffic.trees import Trees, trees
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_entries, csr_offset
from nwcompile.ir.noc.routing import count_hops
from nwcompile.ir.program import Program
from nwcompile.kernels.mapping import traffic


class MulticastTrees(NamedTuple):
    """Multicast trees of a program; sources on one core with the same destination cores share a tree."""

    tree_of: np.ndarray  # int64[source]: -1 for input lines, neurons without axons, and those that are left out
    home: np.ndarray  # int64[tree]: logical core of its sources
    offset: np.ndarray  # int64[tree + 1]: into `core`
    core: np.ndarray  # int64[...]: logical destination cores of each tree, ascending
    trees: Trees


class SpikeFanout(NamedTuple):
    """What one spike of each source sends from its core, without io.sites; nothing of input lines."""

    messages: np.ndarray  # int64[source]
    hops: np.ndarray  # int64[source, 2]: east-west, north-south


def can_fork(chip: Chip) -> bool:
    """Whether messages of this chip may fork: in routers, and of one flit, whatever they carry."""
    return not chip.is_bus and chip.noc.flits_per_message == 1 and chip.noc.payload_flits == 0


# The last trees of a program, which does not change, and the activity whose neurons they are for, None: all.
_known: WeakKeyDictionary[Program, tuple[Activity | None, MulticastTrees]] = WeakKeyDictionary()


def multicast_trees(program: Program, activity: Activity | None = None) -> MulticastTrees:
    """The trees by which the spikes of a program's neurons reach their cores; made once for a program.

    With an `activity`, neurons that do not spike in it may be left out: often most of them.
    """
    known = _known.get(program)
    if known is None or known[0] not in (None, activity):
        known = _known[program] = activity, _made(program, activity)
    return known[1]


def _made(program: Program, activity: Activity | None) -> MulticastTrees:
    axons, chip, core_of = program.axons, program.chip, program.core_of
    if activity is not None:
        sends = np.concatenate([activity.counts[name].any(0) for name in program.network.offsets])
        core_of = np.where(sends, core_of, -1)
    tree_of = np.full(len(axons.offset) - 1, -1)  # sources of one core and set of destination cores share a tree
    first = traffic.same_destinations(axons.offset, axons.core, core_of, tree_of)
    offset = csr_offset(np.diff(axons.offset)[first])
    core = axons.core[csr_entries(axons.offset, first)].astype(np.int64)
    home = core_of[first].astype(np.int64)
    site = chip.site_index(program.mapping.site_of)
    links_and_branches = trees(chip.grid, chip.noc.cores_per_router, site[home], offset, site[core])
    return MulticastTrees(tree_of, home, offset, core, links_and_branches)


def hops_of_axons(program: Program) -> np.ndarray:
    """int64[axon, 2]: hops east-west and north-south of a message of each axon; none for input lines."""
    axon_pair, along = _hops_of_pairs(program)
    return np.concatenate([along, np.zeros((1, 2), np.int64)])[axon_pair]  # -1, of an input line, is the last


def _hops_of_pairs(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """The pair of cores of every axon, int32[axon], and each pair's hops, int64[pair, 2]."""
    chip = program.chip
    router = chip.site_index(program.mapping.site_of) // chip.noc.cores_per_router
    axon_pair, pair = core_pairs(program.axons, program.core_of, program.mapping.n_cores)
    return axon_pair, np.asarray(count_hops(chip.grid, router[pair[:, 0]], router[pair[:, 1]]), np.int64)


def spike_fanout(program: Program, multicast: str | None = None, activity: Activity | None = None) -> SpikeFanout:
    """What the spikes of each source send, "unicast" or by "tree"; None: as the chip does.

    With an `activity`, of neurons that do not spike in it nothing may be told.
    """
    axons, n = program.axons, len(program.core_of)
    if (multicast or program.chip.noc.multicast) == "tree":
        fan_out = multicast_trees(program, activity)
        has_tree = fan_out.tree_of >= 0
        along = np.zeros((n, 2), np.int64)
        along[has_tree] = fan_out.trees.hops[fan_out.tree_of[has_tree]]
        return SpikeFanout(has_tree.astype(np.int64), along)
    along = np.zeros((n, 2), np.int64)
    traffic.add_hops(axons.offset, *_hops_of_pairs(program), along)
    return SpikeFanout(np.where(program.core_of >= 0, np.diff(axons.offset), 0), along)
