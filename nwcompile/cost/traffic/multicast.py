"""Multicast: a spike reaches several cores as one message to each, or as one message that forks in the routers.

A tree merges the routes of single messages: they share their beginning, and the message forks where they diverge. Every
copy follows the route of a message to one of its destinations, so a tree adds no new turns.
"""

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_entries, csr_groups, csr_offset
from nwcompile.ir.noc.routing import HERE, Grid, count_hops, list_route_links, vc_classes
from nwcompile.ir.program import Program
from nwcompile.kernels.mapping import traffic
from nwcompile.kernels.mapping.trees import merge_routes


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees, one per group, as links and as the branches in routers.

    The branches of a message in a router are consecutive; it arrives with the number of the first. If `to` is below the
    chip's `n_cores`, it is no branch: the message has reached the destination of that number in its group.
    """

    offset: np.ndarray  # int64[group + 1]: into `link`
    link: np.ndarray  # int64[...]: router * 4 + direction, one for each copy that goes over it
    root: np.ndarray  # int64[group]: first branch in the source's router, plus n_cores; -1: no destinations
    to: np.ndarray  # int32[branch]: first branch in the next router plus n_cores, or the place among the destinations
    port: np.ndarray  # uint8[branch]: output: E, W, N, S, or HERE + port of a core
    vc_class: np.ndarray  # uint8[branch]: virtual channels of the output: ANY, BEFORE or AFTER
    is_last: np.ndarray  # bool[branch]: last branch of the message in that router

    @property
    def hops(self) -> np.ndarray:
        """int64[group, 2]: links east-west and north-south of each tree."""
        group = csr_groups(self.offset)
        n_links = np.zeros((len(self.root), 2), np.int64)
        np.add.at(n_links, (group, self.link % 4 // 2), 1)
        return n_links


class MulticastTrees(NamedTuple):
    """Multicast trees of a program; sources on one core with the same destination cores share a tree."""

    tree_of: np.ndarray  # int64[source]: -1 for input lines, neurons without axons, and omitted neurons
    home: np.ndarray  # int64[tree]: logical core of its sources
    offset: np.ndarray  # int64[tree + 1]: into `core`
    core: np.ndarray  # int64[...]: logical destination cores of each tree, ascending
    trees: Trees


class SpikeFanout(NamedTuple):
    """Messages and hops of one spike of each source, without io.sites; 0 for input lines."""

    messages: np.ndarray  # int64[source]
    hops: np.ndarray  # int64[source, 2]: east-west, north-south


def can_fork(chip: Chip) -> bool:
    """Whether messages of this chip can fork: it has routers, and every message is one flit."""
    return chip.family.has_routers and chip.noc.flits_per_message == 1 and chip.noc.payload_flits == 0


# The last trees of each (immutable) program, and the activity whose neurons they cover; None: all neurons.
_known: WeakKeyDictionary[Program, tuple[Activity | None, MulticastTrees]] = WeakKeyDictionary()


def multicast_trees(program: Program, activity: Activity | None = None) -> MulticastTrees:
    """Return the trees by which the spikes of a program's neurons reach their cores; they are cached per program.

    With an `activity`, neurons that do not spike in it, often most of them, may be omitted.
    """
    known = _known.get(program)
    if known is None or known[0] not in (None, activity):
        known = _known[program] = activity, _build_trees(program, activity)
    return known[1]


def _build_trees(program: Program, activity: Activity | None) -> MulticastTrees:
    axons, chip, core_of = program.axons, program.chip, program.core_of
    if activity is not None:
        sends = np.concatenate([activity.counts[name].any(0) for name in program.network.offsets])
        core_of = np.where(sends, core_of, -1)
    tree_of = np.full(len(axons.offset) - 1, -1)  # sources on one core with the same destination cores share a tree
    first = traffic.same_destinations(axons.offset, axons.core, core_of, tree_of)
    offset = csr_offset(np.diff(axons.offset)[first])
    core = axons.core[csr_entries(axons.offset, first)].astype(np.int64)
    home = core_of[first].astype(np.int64)
    site = chip.site_index(program.mapping.site_of)
    links_and_branches = build_trees(chip.grid, chip.noc.cores_per_router, site[home], offset, site[core])
    return MulticastTrees(tree_of, home, offset, core, links_and_branches)


def hops_of_axons(program: Program) -> np.ndarray:
    """Return int64[axon, 2]: hops east-west and north-south of a message of each axon; 0 for input lines."""
    axon_pair, along = _hops_of_pairs(program)
    return np.concatenate([along, np.zeros((1, 2), np.int64)])[axon_pair]  # -1 (input line) selects the last row


def _hops_of_pairs(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Return the pair of cores of every axon, int32[axon], and each pair's hops, int64[pair, 2]."""
    chip = program.chip
    router = chip.site_index(program.mapping.site_of) // chip.noc.cores_per_router
    axon_pair, pair = core_pairs(program.axons, program.core_of, program.mapping.n_cores)
    return axon_pair, np.asarray(count_hops(chip.grid, router[pair[:, 0]], router[pair[:, 1]]), np.int64)


def spike_fanout(program: Program, multicast: str | None = None, activity: Activity | None = None) -> SpikeFanout:
    """Return messages and hops per spike of each source, by "unicast" or "tree"; None: as the chip does.

    With an `activity`, neurons that do not spike in it may have zeros.
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


def build_trees(grid: Grid, per_router: int, source: np.ndarray, offset: np.ndarray, to: np.ndarray) -> Trees:
    """Build the trees from physical cores `source` int[group] to the physical cores `to[offset[k] : offset[k + 1]]`.

    `per_router` is the number of cores per router. The destinations of a group are distinct.
    """
    n_routers = len(grid.is_open)
    router, core = np.divmod(np.asarray(to, np.int64), per_router)
    at = np.asarray(source, np.int64) // per_router
    order = np.argsort(at, kind="stable")
    start = np.searchsorted(at[order], np.arange(n_routers + 1))
    pair = np.empty(len(to), np.int32)
    first, there = traffic.pairs_of_axons(order, start, offset, router.astype(np.int32), n_routers, pair)
    route_offset, route_link = list_route_links(grid, csr_groups(first), there)
    route_class = vc_classes(grid, route_link // 4, np.repeat(there, np.diff(route_offset)))
    n_cores, n_ports = n_routers * per_router, HERE + per_router
    link_offset, link, root, branch_to, port, vc_class, is_last = merge_routes(
        offset, pair, HERE + core, route_offset, route_link, route_class, n_cores, n_ports
    )
    return Trees(offset=link_offset, link=link, root=root, to=branch_to, port=port, vc_class=vc_class, is_last=is_last)
