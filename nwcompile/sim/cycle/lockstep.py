"""The lockstep engine: which networks it supports, and the tables for its kernels, kernels/noc/lockstep_*.py."""

import numpy as np

from nwcompile.kernels.cores.tables import Axons, Costs
from nwcompile.kernels.noc.lockstep_cores import Lockstep, LockstepNetwork
from nwcompile.kernels.noc.lockstep_replay import SOURCE, TimedPackets, replay_lockstep
from nwcompile.kernels.noc.lockstep_router import N_NOW
from nwcompile.kernels.noc.lockstep_state import (
    BUFFER,
    LINK,
    OUTPUT,
    SLOT,
    TO_BITS,
    Agenda,
    Routers,
    VirtualChannels,
    idle_timers,
)
from nwcompile.kernels.noc.mesh import Mesh
from nwcompile.sim.cycle.noc_tables import n_links
from nwcompile.threads import run_alone

LARGEST_AGENDA = 1 << 24  # Requests in an agenda: 64 MiB.
SLOWEST_LINK = 8  # Cycles per flit. Waiting inputs are polled in each cycle, which would dominate on slower links.


def fits_lockstep(mesh: Mesh) -> bool:
    """Whether the engine supports this network: links are fast, and latencies short enough for an agenda."""
    return (
        mesh.timing.cycle_ticks == 1
        and _slowest_link(mesh) <= SLOWEST_LINK
        and mesh.n_cores < 1 << TO_BITS
        and _agenda_rows(mesh) * (len(mesh.output) + mesh.n_cores) * mesh.n_vcs <= LARGEST_AGENDA
    )


def cores_fit_lockstep(mesh: Mesh, axons: Axons, costs: Costs) -> bool:
    """Whether kernels/noc/lockstep_cores.py can simulate the cores of a chip.

    Every message must be one flit in one channel to one core, none may be dropped, and receive sides must not wait for
    send sides. A receive side must take at least one tick per message, else it could take several in a cycle, and no
    more ticks than a word of a flit holds.
    """
    return (
        fits_lockstep(mesh)
        and mesh.n_vcs == 1
        and len(mesh.branch) == 0
        and not costs.drops
        and not costs.shared
        and bool((axons.row["flits"] == 1).all() and (axons.row["ticks"] > 0).all())
        and int(axons.row["ticks"].max(initial=0)) < 1 << 32
    )


def lockstep_network(mesh: Mesh, n_axons: int) -> LockstepNetwork:
    """Build an idle network for the cores of a chip, which send at most `n_axons` messages in a micro-step."""
    net = Lockstep(
        routers=_build_routers(mesh),
        agenda=_build_agenda(mesh),
        link=_link_numbers(mesh),
        now=np.zeros(N_NOW, np.int64),
        ticks=np.zeros(n_axons, np.uint32),
    )
    return LockstepNetwork(net, _build_links(mesh), np.zeros(n_links(mesh), np.int64))


def send_in_lockstep(mesh: Mesh, time, src, size, to, last: int) -> tuple[np.ndarray, ...]:
    """Send packets like nwcompile.sim.cycle.noc.replay_packets: (inject[packet], arrive[packet], flits[link]).

    The result equals nwcompile.kernels.noc.event_replay.replay_events bit for bit, several times as fast.
    """
    order = None
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable")
        time, src, size, to = time[order], src[order], size[order], to[order]
    packets = TimedPackets(
        time=time,
        src=src,
        to=to,
        size=size,
        after=np.empty(len(time), np.int32),
        inject=np.full(len(time), -1),
        arrive=np.full(len(time), -1),
        interrupted=np.zeros(1, bool),
    )
    sources = np.zeros(mesh.n_cores, SOURCE)
    sources["packet"] = -1
    routers, links, vcs, agenda = _build_routers(mesh), _build_links(mesh), _virtual_channels(mesh), _build_agenda(mesh)
    run_alone(lambda: replay_lockstep(routers, links, vcs, agenda, packets, sources, last), packets.interrupted)
    inject, arrive = packets.inject, packets.arrive
    if order is not None:
        back = np.empty((2, len(time)), np.int64)
        back[:, order] = inject, arrive
        inject, arrive = back
    flits = np.zeros(n_links(mesh), np.int64)
    flits[_link_numbers(mesh)] = routers.output["sent"]
    return inject, arrive, flits


def _link_numbers(mesh: Mesh) -> np.ndarray:
    """Return int64[output or source]: number of its link."""
    return np.concatenate([mesh.output["link"], mesh.inject_link])


def _slowest_link(mesh: Mesh) -> int:
    """Return the cycles per flit of the slowest link or crossbar input."""
    return int(max(mesh.timing.link_ticks, mesh.output["held"].max()))


def _build_links(mesh: Mesh) -> np.ndarray | None:
    """Return LINK[output or source]; None if every link takes a flit per cycle."""
    if _slowest_link(mesh) == 1:
        return None
    links = np.zeros(len(mesh.output) + mesh.n_cores, LINK)
    links["cycles"][: len(mesh.output)] = mesh.output["held"]
    return links


def _virtual_channels(mesh: Mesh) -> VirtualChannels | None:
    """Return the virtual channels of each dateline class; None if there is only one channel."""
    if mesh.n_vcs == 1:
        return None
    both, before = (1 << mesh.n_vcs) - 1, (1 << mesh.dateline_vc) - 1
    return VirtualChannels(before < both, np.array([both, before, both - before], np.uint64))


def _build_routers(mesh: Mesh) -> Routers:
    """Build idle routers with empty buffers."""
    given, n, n_ports, n_vcs = mesh.output, len(mesh.output), mesh.n_ports, mesh.n_vcs
    router, port = np.divmod(np.arange(n), n_ports)
    core = np.arange(mesh.n_cores)
    at, local_port = core // mesh.per_router, 4 + core % mesh.per_router
    output = np.zeros(n + mesh.n_cores, OUTPUT)
    output["free"] = (1 << n_vcs) - 1
    output["latency"] = np.concatenate([given["latency"], np.full(mesh.n_cores, mesh.timing.inject_ticks)])
    output["first"][:n] = router * n_ports
    leads = np.concatenate([given["down"] >= 0, np.ones(mesh.n_cores, bool)])
    output["down"] = np.where(leads, np.concatenate([given["down"], (at * n_ports + local_port) * n_vcs]), 0)
    output["is_last"][:n] = port >= 4
    output["down_router"] = np.concatenate([np.where(leads[:n] & (port < 4), given["down_node"], 0), at])
    output["down_input"] = np.concatenate([given["down_input"], local_port * n_vcs])
    buffer = np.zeros((n + mesh.n_cores) * n_vcs, BUFFER)
    buffer["head"] = buffer["place"] = np.arange(len(buffer)) * mesh.depth
    buffer["in_port"][: n * n_vcs] = np.repeat(port, n_vcs)
    for v in range(n_vcs):
        buffer["sender"][output["down"][leads] + v] = np.flatnonzero(leads)
    return Routers(
        n_ports=n_ports,
        n_vcs=n_vcs,
        n_outputs=n,
        depth=mesh.depth,
        is_speculative=mesh.timing.is_speculative,
        route_cycles=mesh.timing.route_ticks,
        credit_cycles=mesh.timing.credit_ticks,
        link_cycles=mesh.timing.link_ticks,
        routes=mesh.routes,
        output=output,
        buffer=buffer,
        slot=np.zeros(len(buffer) * mesh.depth, SLOT),
    )


def _agenda_rows(mesh: Mesh) -> int:
    """Return how many cycles an agenda must look ahead, as a power of two."""
    timing = mesh.timing
    longest = max(int(mesh.output["latency"].max()), timing.inject_ticks) + timing.credit_ticks + timing.route_ticks + 1
    return max(8, 1 << longest.bit_length())  # few rows make short blocks of timers


def _build_agenda(mesh: Mesh) -> Agenda:
    rows, n_outputs = _agenda_rows(mesh), len(mesh.output)
    n_senders = n_outputs + mesh.n_cores
    return Agenda(
        asks=np.empty((rows, n_senders * mesh.n_vcs), np.uint32),
        count=np.zeros(rows, np.int64),
        used=np.zeros((rows + 63) // 64, np.uint64),
        outputs=np.empty(n_outputs + 1, np.uint32),
        sources=np.empty(mesh.n_cores + 1, np.uint32),
        timers=idle_timers(n_senders),
    )
