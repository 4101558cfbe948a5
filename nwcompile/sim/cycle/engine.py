"""Engines: how the cycle backend moves the messages of a program. Here for routers; chip families have their own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nwcompile.cost.traffic.multicast import multicast_trees
from nwcompile.families import load_part
from nwcompile.ir.chip import Chip
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.tables import Costs
from nwcompile.kernels.cycle import EventNetwork
from nwcompile.kernels.noc.mesh import PORT_BITS, Mesh, route_to
from nwcompile.sim.cycle.axons import build_axon_tables
from nwcompile.sim.cycle.lockstep import cores_fit_lockstep, lockstep_network
from nwcompile.sim.cycle.noc_tables import add_trees, build_mesh, build_queues


class Engine:
    """The axons of a program and its network on chip: the routers of a mesh or torus, by events or in lockstep."""

    has_lockstep = True  # if the program fits it
    n_sums = n_peaks = 0  # columns of `sums` and `peaks` of a StepRecord
    run_steps: Callable | None = None  # simulates whole samples (`ChipRun.run_job`); None: kernels.cycle.run_samples
    replay: Callable | None = None  # sends packets without a network (`noc.replay_packets`); None: over routers

    def __init__(self, program: Program):
        trees = multicast_trees(program) if program.chip.noc.multicast == "tree" else None
        self.chip, self.axons = program.chip, build_axon_tables(program, trees)
        mesh = build_mesh(self.chip, self.chip.ticks[1])
        self.mesh = mesh if trees is None else add_trees(mesh, trees.trees)

    @property
    def slowest_hop(self) -> int | None:
        """Ticks of a flit over the slowest link, without overlap; None if the network cannot run forever."""
        timing, output = self.mesh.timing, self.mesh.output
        hop = int(output["latency"].max() + output["held"].max()) + timing.credit_ticks + timing.route_ticks
        return hop + timing.inject_ticks + timing.link_ticks + 4 * timing.cycle_ticks

    def fits_lockstep(self, costs: Costs) -> bool:
        """Whether the lockstep engine can simulate the program."""
        return self.has_lockstep and cores_fit_lockstep(self.mesh, self.axons.axons, costs)

    def idle_network(self, in_lockstep: bool, n_logged: int) -> NamedTuple:
        """Build an idle network, of a type of `kernels.cycle.ENGINES`; engines with a log keep `n_logged` packets."""
        if in_lockstep:
            return lockstep_network(self.mesh, len(self.axons.axons.row))
        return EventNetwork(self.mesh, build_queues(self.mesh))

    def name_counts(self, sums: np.ndarray, peaks: np.ndarray) -> dict[str, Any]:
        """Return the fields of a Run from the further counts of its steps."""
        return {}

    def queue_sizes(self) -> tuple[int, int]:
        """Return the number of buffer groups that a profile watches, and the flits that each holds."""
        return len(self.mesh.output) + self.mesh.n_cores, self.mesh.n_vcs * self.mesh.depth

    def link_of_group(self) -> np.ndarray:
        """Return int64[group]: the link to the buffers of each router input, then of each core; -1: none."""
        mesh = self.mesh
        link = np.full(len(mesh.output) + mesh.n_cores, -1, np.int64)
        there = mesh.output["down"] >= 0
        link[mesh.output["down"][there] // mesh.n_vcs] = mesh.output["link"][there]
        router, local_port = np.divmod(np.arange(mesh.n_cores), mesh.per_router)
        link[router * mesh.n_ports + 4 + local_port] = mesh.inject_link
        return link

    def links_between(self, here: int, there: int) -> list[tuple[int, float]]:
        """Return the links of a message between two physical cores, the cores' own included, and their ticks per flit.

        `there` may be a branch, as in mesh.SLOT; then the result has all links of the tree.
        """
        mesh = self.mesh
        links: list = [(int(mesh.inject_link[here]), mesh.timing.link_ticks)]
        todo = [(here // mesh.per_router, there)]
        while todo:
            router, to = todo.pop()
            for route, onward in _next_branches(mesh, router, to):
                output = mesh.output[router * mesh.n_ports + (route & ((1 << PORT_BITS) - 1))]
                links.append((int(output["link"]), int(output["held"])))
                if output["down_node"] < mesh.n_routers:
                    todo.append((int(output["down_node"]), onward))
        return links


def find_engine(chip: Chip) -> type[Engine]:
    """Return the engine of a chip's family."""
    part = load_part(chip.family, "engine")
    return Engine if part is None else part.ENGINE


def _next_branches(mesh: Mesh, router: int, to: int) -> list[tuple[int, int]]:
    """Return the next hops of a message at a router: (route as in RouteTable, `to` of the copy), one or more."""
    if to < mesh.n_cores:
        return [(int(route_to.py_func(mesh.routes, router, to)), to)]
    rows = mesh.branch[to - mesh.n_cores :]
    return [(int(row["route"]), int(row["to"])) for row in rows[: 1 + int(np.argmax(rows["is_last"]))]]
