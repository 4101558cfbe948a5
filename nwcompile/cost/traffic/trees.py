"""Multicast trees: one message to several cores follows the merged routes of single messages.

The routes from a core to its destinations share their common beginning; the message forks where the routes diverge.
Every copy follows the route of a message to one of its destinations, so a tree adds no new turns.
"""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.flat import csr_groups
from nwcompile.ir.noc.routing import HERE, Grid, list_route_links, vc_classes
from nwcompile.kernels.mapping import traffic
from nwcompile.kernels.mapping.trees import merge_routes


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees, one per group, as links and as the branches in routers.

    The branches of a message in a router are consecutive; it arrives with the number of the first. A `to` below
    `n_cores` (of the chip) is no branch: the message has reached the destination of that number in its group.
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
