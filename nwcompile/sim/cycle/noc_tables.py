"""Tables of a chip's network on chip for the router kernels."""

import numpy as np

from nwcompile.cost.traffic.multicast import Trees
from nwcompile.ir.chip import Chip
from nwcompile.ir.noc.routing import HERE, find_ports, vc_classes
from nwcompile.kernels.noc.event_queue import event_queue
from nwcompile.kernels.noc.mesh import (
    BRANCH,
    BUFFER,
    OUTPUT,
    PORT_BITS,
    REQUEST,
    SLOT,
    Allocation,
    Mesh,
    Queues,
    RouteTable,
    Timing,
)


def build_mesh(chip: Chip, tick: int = 1) -> Mesh:
    """Build the routers of a chip; a NoC cycle has `tick` ticks."""
    noc, grid = chip.noc, chip.grid
    n_routers, n_ports, n_vcs = noc.columns * noc.rows, 4 + noc.cores_per_router, noc.virtual_channels
    router, port = np.divmod(np.arange(n_routers * n_ports), n_ports)
    core = router * noc.cores_per_router + port - 4
    neighbor = grid.neighbor[router, np.minimum(port, 3)]
    is_inside = neighbor >= 0
    is_local = port >= 4
    receive_queue = (n_routers * n_ports + core) * n_vcs
    down = np.where(is_local, receive_queue, (neighbor * n_ports + (port ^ 1)) * n_vcs)
    node = np.where(is_local, n_routers + core, np.where(is_inside, neighbor, -1))
    link = np.where(is_local, 4 * n_routers + chip.n_cores + core, router * 4 + port)
    output = np.zeros(len(port), OUTPUT)
    output["down"] = np.where(is_local | is_inside, down, -1)
    output["down_node"] = node
    output["up_node"] = node
    output["down_input"] = np.where(is_local, 0, (port ^ 1) * n_vcs)
    output["link"] = link
    output["latency"] = chip.link_latency[link] * tick
    output["held"] = chip.link_cycles[link] * tick
    return Mesh(
        n_routers=n_routers,
        n_ports=n_ports,
        n_vcs=n_vcs,
        depth=noc.buffer_flits,
        per_router=noc.cores_per_router,
        n_cores=chip.n_cores,
        dateline_vc=n_vcs // 2 if grid.has_datelines else n_vcs,
        timing=Timing(
            is_speculative=noc.speculative,
            cycle_ticks=tick,
            route_ticks=noc.route_cycles * tick,
            link_ticks=noc.link_cycles_per_flit * tick,
            inject_ticks=noc.inject_cycles * tick,
            credit_ticks=noc.credit_cycles * tick,
        ),
        output=output,
        inject_link=4 * n_routers + np.arange(chip.n_cores),
        routes=route_table(chip),
        branch=np.zeros(0, BRANCH),
    )


def n_links(mesh: Mesh) -> int:
    """Return the number of links: four per router, then injection and ejection of each core."""
    return 4 * mesh.n_routers + 2 * mesh.n_cores


def add_trees(mesh: Mesh, trees: Trees) -> Mesh:
    """Add the branches of multicast trees to the routers."""
    branch = np.zeros(len(trees.to), BRANCH)
    branch["to"] = trees.to
    branch["route"] = trees.port | trees.vc_class << PORT_BITS
    branch["is_last"] = trees.is_last
    return mesh._replace(branch=branch)


def route_table(chip: Chip) -> RouteTable:
    """Build the table of routes from every router to every core.

    Without detours, a route depends only on the distances east and north, and on the parity of the router's column.
    Such a table takes 8 bytes per core.
    """
    grid, per_router = chip.grid, chip.noc.cores_per_router
    columns, rows, n = grid.columns, grid.rows, len(grid.is_open)
    at, core = np.arange(n), np.arange(chip.n_cores)
    to, local_port = np.divmod(core, per_router)
    if grid.routing == "up-down":
        toward, from_router, to_core = grid.up_down_tables[0], at * chip.n_cores, core
    else:
        is_odd, dy, dx = np.ogrid[:2, 1 - rows : rows, 1 - columns : columns]
        x = np.maximum(-dx, 0)  # the first column with a router at this distance, or the next one
        here = np.maximum(-dy, 0) * columns + x + (x + is_odd) % 2
        there = here + dy * columns + dx
        toward = find_ports(grid, here, there) | vc_classes(grid, here, there) << PORT_BITS
        width = (2 * columns - 1) * per_router
        y, x = np.divmod(at, columns)
        from_router = (x % 2 * (2 * rows - 1) + rows - 1 - y) * width + (columns - 1 - x) * per_router
        to_core = to // columns * width + to % columns * per_router + local_port
    route = np.repeat(toward, per_router).astype(np.uint8)
    in_use = np.flatnonzero(grid.is_open[to])
    route[from_router[to[in_use]] + to_core[in_use]] = HERE + local_port[in_use]
    return RouteTable(from_router.astype(np.int32), to_core.astype(np.int32), route)


def build_queues(mesh: Mesh) -> Queues:
    """Build empty buffers of the routers."""
    n_buffers = (len(mesh.output) + mesh.n_cores) * mesh.n_vcs
    timing = mesh.timing
    longest = max(
        mesh.output["latency"].max(),
        mesh.output["held"].max(),
        timing.inject_ticks,
        timing.credit_ticks,
        timing.link_ticks,
    )
    return Queues(
        buffer=np.zeros(n_buffers, BUFFER),
        slot=np.zeros(n_buffers * mesh.depth, SLOT),
        output=mesh.output.copy(),
        filled=np.zeros(mesh.n_routers, np.uint64),
        flits=np.zeros(n_links(mesh), np.int64),
        now=np.zeros(2, np.int64),
        events=event_queue(mesh.n_routers + mesh.n_cores, longest + timing.route_ticks + timing.cycle_ticks),
        allocation=Allocation(
            request=np.zeros(mesh.n_ports, REQUEST),
            asking=np.zeros((mesh.n_ports, mesh.n_ports), np.int64),
            offer=np.zeros(mesh.n_vcs, np.int64),
        ),
    )
