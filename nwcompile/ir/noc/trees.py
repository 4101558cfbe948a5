"""Multicast trees: one message to several cores takes the routes of single messages, as one where they run together.

The routes from a core to its destinations are merged from their beginning on: copies part where the routes part.
Every copy goes where a message to one of its destinations would go, so a tree uses no turn that single messages do not.
"""

from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np

from nwcompile.ir.flat import csr_groups, csr_offset
from nwcompile.ir.noc.routing import ANY, BEFORE, HERE, Grid, ports, vc_classes

BLOCK_DESTINATIONS = 1 << 20  # Of trees that are made at once: some 200 MiB while they are.


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees, one a group, as their links and as the branches that routers take.

    The branches of a message in a router are consecutive; it arrives with the number of the first. Below `n_cores` (of
    the chip) `to` is no branch: the message has reached the core of that number among its group's destinations.
    """

    offset: np.ndarray  # int64[group + 1]: into `link`
    link: np.ndarray  # int64[...]: router * 4 + direction, one for each copy that goes over it
    root: np.ndarray  # int64[group]: first branch in the source's router, plus n_cores; -1: no destinations
    to: np.ndarray  # int32[branch]: first branch in the next router plus n_cores, or the place among the destinations
    port: np.ndarray  # uint8[branch]: output: E, W, N, S, or HERE + port of a core
    vc_class: np.ndarray  # uint8[branch]: which channels of it: ANY, BEFORE or AFTER
    is_last: np.ndarray  # bool[branch]: of the message in that router

    @property
    def hops(self) -> np.ndarray:
        """int64[group, 2]: links east-west and north-south of each tree."""
        group = csr_groups(self.offset)
        n_links = np.zeros((len(self.root), 2), np.int64)
        np.add.at(n_links, (group, self.link % 4 // 2), 1)
        return n_links


def trees(grid: Grid, per_router: int, source: np.ndarray, offset: np.ndarray, to: np.ndarray) -> Trees:
    """The trees from physical cores `source` int[group] to the physical cores `to[offset[k] : offset[k + 1]]`.

    `per_router` is the number of cores at a router. Destinations of a group are different from each other. Many trees
    are made some at a time, as much more is held while routes are followed than is left of them.
    """
    cuts, n_cores = _cuts(offset), len(grid.is_open) * per_router
    parts, n_branches = [], 0
    for first, end in pairwise(cuts):
        ends = offset[first : end + 1]
        made = _some_trees(grid, per_router, source[first:end], ends - ends[0], to[ends[0] : ends[-1]])
        to_branch = made.to + np.where(made.to >= n_cores, n_branches, 0).astype(np.int32)
        root = made.root + np.where(made.root >= 0, n_branches, 0)
        parts.append(replace(made, to=to_branch, root=root))
        n_branches += len(made.to)
    if len(parts) == 1:
        return parts[0]
    n_links = np.concatenate([np.diff(part.offset) for part in parts])
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Trees)}
    return Trees(**{**columns, "offset": csr_offset(n_links)})


def _cuts(offset: np.ndarray) -> list[int]:
    """Where to cut groups with destinations `offset` into parts of BLOCK_DESTINATIONS, or of one group; 0 .. groups."""
    cuts, n_groups = [0], len(offset) - 1
    while cuts[-1] < n_groups:
        fitting = int(np.searchsorted(offset, offset[cuts[-1]] + BLOCK_DESTINATIONS, "right")) - 1
        cuts.append(min(max(fitting, cuts[-1] + 1), n_groups))
    return cuts if n_groups else [0, 0]


def _some_trees(grid: Grid, per_router: int, source: np.ndarray, offset: np.ndarray, to: np.ndarray) -> Trees:
    """`trees` of some groups, all at once."""
    n_groups, n_cores = len(source), len(grid.is_open) * per_router
    group = csr_groups(offset)
    place = np.arange(len(to)) - np.repeat(offset[:-1], np.diff(offset))
    router, port_of_core = np.divmod(np.asarray(to, np.int64), per_router)
    node = group.copy()  # of the tree, that each route has reached; a group's root has the number of the group
    at = np.asarray(source, np.int64)[group] // per_router
    n_nodes, moving, parts = n_groups, np.arange(len(to)), []
    while moving.size:
        port = ports(grid, at[moving], router[moving])
        vc_class = vc_classes(grid, at[moving], router[moving])
        done = port == HERE
        here, port, vc_class, moving = moving[done], port[~done], vc_class[~done], moving[~done]
        parts.append(
            (node[here], HERE + port_of_core[here], np.full(len(here), ANY), place[here], group[here], at[here])
        )
        edge, first, edge_of_route = np.unique(node[moving] * 4 + port, return_index=True, return_inverse=True)
        edge_of_route = edge_of_route.reshape(-1)
        child, start = n_nodes + np.arange(len(edge)), at[moving[first]]
        taken = np.where(np.bincount(edge_of_route, vc_class == BEFORE, len(edge)) > 0, BEFORE, vc_class[first])
        parts.append((edge // 4, edge % 4, taken, n_cores + child, group[moving[first]], start))
        node[moving] = child[edge_of_route]
        at[moving] = grid.neighbor[start, edge % 4][edge_of_route]
        n_nodes += len(edge)
    return _numbered(n_groups, n_cores, n_nodes, parts)


def _numbered(n_groups: int, n_cores: int, n_nodes: int, parts: list) -> Trees:
    """The Trees of branches (node, port, vc_class, to, group, router); `to` of a link is n_cores + the next node."""
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)] if parts else [np.zeros(0, np.int64)] * 6
    node, port, vc_class, to, group, router = columns
    order = np.lexsort((port, node))
    node, port, vc_class, to, group, router = (column[order] for column in columns)
    first = np.searchsorted(node, np.arange(n_nodes))
    is_link = port < HERE
    to[is_link] = n_cores + first[to[is_link] - n_cores]
    by_group = np.flatnonzero(is_link)[np.argsort(group[is_link], kind="stable")]
    counts = np.bincount(group[is_link], minlength=n_groups)
    has_tree = np.isin(np.arange(n_groups), node)
    return Trees(
        offset=csr_offset(counts),
        link=(router * 4 + port)[by_group],
        root=np.where(has_tree, n_cores + first[:n_groups], -1),
        to=to.astype(np.int32),
        port=port.astype(np.uint8),
        vc_class=vc_class.astype(np.uint8),
        is_last=np.append(node[1:] != node[:-1], True)[: len(node)],
    )
