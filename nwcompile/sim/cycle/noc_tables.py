"""A chip's network on chip as the tables that the router kernels take."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.noc.routing import HERE, ports, vc_classes
from nwcompile.ir.noc.trees import Trees
from nwcompile.kernels.noc.event_queue import wheel
from nwcompile.kernels.noc.mesh import BRANCH, BUFFER, OUTPUT, PORT_BITS, SLOT, Mesh, Queues


def fabric(chip: Chip, tick: int = 1) -> tuple[Mesh, int]:
    """The routers of a chip, times in ticks of which a NoC cycle has `tick`, and the number of links."""
    noc, g = chip.noc, chip.grid
    n_routers, n_ports = noc.columns * noc.rows, 4 + noc.cores_per_router
    router, port = np.divmod(np.arange(n_routers * n_ports), n_ports)
    core = router * noc.cores_per_router + port - 4
    neighbour = g.neighbor[router, np.minimum(port, 3)]
    inside = neighbour >= 0
    is_local = port >= 4
    receive = (n_routers * n_ports + core) * noc.virtual_channels
    down = np.where(is_local, receive, (neighbour * n_ports + (port ^ 1)) * noc.virtual_channels)
    down = np.where(is_local | inside, down, -1)
    node = np.where(is_local, n_routers + core, np.where(inside, neighbour, -1))
    entry = np.where(is_local, 0, (port ^ 1) * noc.virtual_channels)
    link = np.where(is_local, 4 * n_routers + chip.n_cores + core, router * 4 + port)
    output = np.zeros(len(port), OUTPUT)
    for name, values in (("down", down), ("down_node", node), ("latency", chip.link_latency[link] * tick),
                         ("link", link), ("up_node", node), ("down_input", entry),
                         ("held", chip.link_cycles[link] * tick)):  # fmt: skip
        output[name] = values
    table = Mesh(
        n_routers, n_ports, noc.virtual_channels, noc.buffer_flits, noc.speculative, tick, noc.route_cycles * tick,
        noc.link_cycles_per_flit * tick, noc.inject_cycles * tick, noc.credit_cycles * tick, noc.cores_per_router,
        chip.n_cores, output, 4 * n_routers + np.arange(chip.n_cores), route_table(chip), np.zeros(0, BRANCH),
        noc.virtual_channels // 2 if g.has_datelines else noc.virtual_channels,
    )  # fmt: skip
    return table, 4 * n_routers + 2 * chip.n_cores


def planted(m: Mesh, t: Trees) -> Mesh:
    """The routers with the branches of multicast trees."""
    branch = np.zeros(len(t.to), BRANCH)
    branch["to"], branch["route"], branch["is_last"] = t.to, t.port | t.vc_class << PORT_BITS, t.is_last
    return m._replace(branch=branch)


def route_table(chip: Chip) -> np.ndarray:
    """uint8[router, core]: the output port toward each core and the channels to take, as `Mesh.route` has them.

    Without detours they follow from the router's column, that of the core and the height between them.
    """
    g, own = chip.grid, np.arange(chip.noc.cores_per_router)
    n = len(g.is_open)
    table = np.empty((n, n, len(own)), np.uint8)
    if g.routing == "up-down":
        table[:] = g.detours[0][:, :, None]
    else:
        x, height, to_x = np.ogrid[: g.columns, 1 - g.rows : g.rows, : g.columns]
        at, to = np.maximum(-height, 0) * g.columns + x, np.maximum(height, 0) * g.columns + to_x
        toward = ports(g, at, to) | vc_classes(g, at, to) << PORT_BITS
        for router in range(n):
            y, column = divmod(router, g.columns)
            table[router] = toward[column, g.rows - 1 - y : 2 * g.rows - 1 - y].reshape(n, 1)
    here = np.flatnonzero(g.is_open)
    table[here, here] = HERE + own
    return table.reshape(n, chip.n_cores)


def queues(m: Mesh, n_links: int) -> Queues:
    """Empty buffers of the routers."""
    n_cores, n_ports = len(m.inject_link), m.n_ports
    n_buffers = (len(m.output) + n_cores) * m.n_vcs
    longest = (
        max(m.output["latency"].max(), m.inject_ticks, m.output["held"].max(), m.credit_ticks, m.link_ticks)
        + m.route_ticks
        + m.cycle_ticks
    )
    sets = [np.zeros(n_ports, np.uint64) for _ in range(4)]
    return Queues(
        np.zeros(n_buffers, BUFFER), np.zeros(n_buffers * m.depth, SLOT), m.output.copy(),
        np.zeros(m.n_routers, np.uint64), wheel(m.n_routers + n_cores, longest), np.zeros(n_links, np.int64),
        np.zeros(1, np.int64), *sets[:3], np.zeros((n_ports, n_ports), np.int64), sets[3], np.zeros(m.n_vcs, np.int64),
    )  # fmt: skip
