"""A chip's network on chip as the tables that the router kernels take."""

import numpy as np

from nwcompile.cost.traffic.trees import Trees
from nwcompile.ir.chip import Chip
from nwcompile.ir.noc.routing import HERE, ports, vc_classes
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
    Timing,
)


def mesh_of(chip: Chip, tick: int = 1) -> Mesh:
    """The routers of a chip, times in ticks of which a NoC cycle has `tick`."""
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
        route=route_table(chip),
        branch=np.zeros(0, BRANCH),
    )


def n_links(mesh: Mesh) -> int:
    """How many links there are: four of each router, then injection and ejection of each core."""
    return 4 * mesh.n_routers + 2 * mesh.n_cores


def with_trees(mesh: Mesh, trees: Trees) -> Mesh:
    """The routers with the branches of multicast trees."""
    branch = np.zeros(len(trees.to), BRANCH)
    branch["to"] = trees.to
    branch["route"] = trees.port | trees.vc_class << PORT_BITS
    branch["is_last"] = trees.is_last
    return mesh._replace(branch=branch)


def route_table(chip: Chip) -> np.ndarray:
    """uint8[router, core]: the output port toward each core and the channels to take, as `Mesh.route` has them.

    Without detours they follow from the router's column, that of the core and the height between them.
    """
    grid, local_port = chip.grid, np.arange(chip.noc.cores_per_router)
    n = len(grid.is_open)
    table = np.empty((n, n, len(local_port)), np.uint8)
    if grid.routing == "up-down":
        table[:] = grid.detours[0][:, :, None]
    else:
        x, height, to_x = np.ogrid[: grid.columns, 1 - grid.rows : grid.rows, : grid.columns]
        at = np.maximum(-height, 0) * grid.columns + x
        to = np.maximum(height, 0) * grid.columns + to_x
        toward = ports(grid, at, to) | vc_classes(grid, at, to) << PORT_BITS
        for router in range(n):
            y, column = divmod(router, grid.columns)
            table[router] = toward[column, grid.rows - 1 - y : 2 * grid.rows - 1 - y].reshape(n, 1)
    here = np.flatnonzero(grid.is_open)
    table[here, here] = HERE + local_port
    return table.reshape(n, chip.n_cores)


def queues(mesh: Mesh) -> Queues:
    """Empty buffers of the routers."""
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
