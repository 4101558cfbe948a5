"""Hot loop that merges the routes of a message to several cores into a multicast tree (Numba)."""

import numpy as np

from nwcompile.ir.noc.routing import ANY, BEFORE, HERE
from nwcompile.kernels.jit import compiled


@compiled()
def merge_routes(offset, pair, core_port, route_offset, route_link, route_class, n_cores, n_ports):
    """Merge the routes of each group from their start: a router sends one copy through each of its outputs.

    offset: int64[group + 1] into pair: int32[destination]: router pair of its route, and core_port: int64[destination]:
    output at its end; route_offset: int64[pair + 1] into route_link: int64[...], router * 4 + direction, and
    route_class: uint8[...], ANY, BEFORE or AFTER. A copy is BEFORE if one of its routes is.
    Returns the arrays of `nwcompile.cost.traffic.multicast.Trees` in its order.
    """
    n_groups, longest = len(offset) - 1, 0
    for g in range(n_groups):
        longest = max(longest, offset[g + 1] - offset[g])
    order = np.arange(len(pair))  # destinations on the same branch are adjacent
    by_output = np.empty(longest, np.int64)
    output = np.empty(longest, np.int64)
    todo = np.empty((longest, 4), np.int64)  # routers to visit: begin and end in `order`, hops so far, branch to them
    number = np.zeros(n_ports, np.int64)
    place, reached = np.empty(n_ports, np.int64), np.empty(n_ports, np.int64)
    link_class = np.zeros(4, np.uint8)
    link_offset, root = np.zeros(n_groups + 1, np.int64), np.full(n_groups, -1, np.int64)
    n_most, n_links, n_branches = len(pair), 0, 0  # as many branches as if no routes were merged
    for way in pair:
        n_most += route_offset[way + 1] - route_offset[way]
    link, to, is_last = np.empty(n_most, np.int64), np.empty(n_most, np.int32), np.zeros(n_most, np.bool_)
    port, vc_class = np.empty(n_most, np.uint8), np.empty(n_most, np.uint8)
    for g in range(n_groups):
        n_todo = 0
        if offset[g] < offset[g + 1]:
            todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = offset[g], offset[g + 1], 0, -1
            root[g], n_todo = n_cores + n_branches, 1
        while n_todo:
            n_todo -= 1
            begin, end, n_hops, branch = todo[n_todo]
            if branch >= 0:
                to[branch] = n_cores + n_branches
            router = 0
            for i in range(begin, end):
                d = order[i]
                k = route_offset[pair[d]] + n_hops
                if k == route_offset[pair[d] + 1]:
                    p = core_port[d]
                    reached[p] = d - offset[g]
                else:
                    p, router = route_link[k] % 4, route_link[k] // 4
                    if number[p] == 0 or route_class[k] == BEFORE:
                        link_class[p] = route_class[k]
                number[p] += 1
                output[i - begin] = p
            first, first_branch = 0, n_branches
            for p in range(n_ports):
                if number[p] == 0:
                    continue
                place[p] = first
                first += number[p]
                port[n_branches] = p
                if p < HERE:
                    vc_class[n_branches] = link_class[p]
                    link[n_links] = router * 4 + p
                    n_links += 1
                    todo[n_todo, 0], todo[n_todo, 1] = begin + place[p], begin + first
                    todo[n_todo, 2], todo[n_todo, 3] = n_hops + 1, n_branches
                    n_todo += 1
                else:
                    vc_class[n_branches] = ANY
                    to[n_branches] = reached[p]
                n_branches += 1
                number[p] = 0
            is_last[n_branches - 1] = True
            if n_branches == first_branch + 1:  # their order is unchanged
                continue
            for i in range(begin, end):
                p = output[i - begin]
                by_output[place[p]] = order[i]
                place[p] += 1
            for i in range(begin, end):
                order[i] = by_output[i - begin]
        link_offset[g + 1] = n_links
    branches = to[:n_branches].copy(), port[:n_branches].copy(), vc_class[:n_branches].copy()
    return link_offset, link[:n_links].copy(), root, *branches, is_last[:n_branches].copy()
