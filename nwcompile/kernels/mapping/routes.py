"""Hot loop of routing costs: what every way costs, link by link (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled


@compiled()
def way_costs(port, router, position, neighbour, link_cost, cost):
    """Set cost: int64[at, to] to the sum of the links' costs on each way between some routers; 0 where there is none.

    port: uint8[at, to], above 3 for no link; router: int64[at], the routers that `at` and `to` count, closed under
    ways; position: int64[router], their reverse; neighbour: int64[router, 4]; link_cost: int64[router, 4].
    """
    n = len(router)
    path = np.empty(n, np.int64)
    for to in range(n):
        known = np.zeros(n, np.bool_)
        known[to] = True
        for start in range(n):
            at = np.int64(start)
            length = 0
            while not known[at] and port[at, to] < 4:
                path[length] = at
                length += 1
                at = position[neighbour[router[at], port[at, to]]]
            for i in range(length - 1, -1, -1):
                before = path[i]
                p = port[before, to]
                cost[before, to] = link_cost[router[before], p] + cost[position[neighbour[router[before], p]], to]
                known[before] = True
