"""Networks cycle by cycle: which ones, and the tables for kernels/noc/lockstep_replay.py and lockstep_cores.py."""

import numpy as np

from nwcompile.kernels.cores.tables import AxonTable, Costs
from nwcompile.kernels.noc.lockstep_cores import Lockstep
from nwcompile.kernels.noc.lockstep_receive import N_NOW
from nwcompile.kernels.noc.lockstep_replay import SOURCE, Timed, replay_in_lockstep
from nwcompile.kernels.noc.lockstep_state import BUFFER, INPUT_BITS, LINK, OUTPUT, SLOT, TO_BITS, Calendar, Routers
from nwcompile.kernels.noc.lockstep_timers import alarms
from nwcompile.kernels.noc.mesh import Mesh
from nwcompile.sim.parallel import alone

LARGEST_CALENDAR = 1 << 24  # numbers
SLOWEST_LINK = 8  # cycles a flit; who waits for a link is looked at in each of them


def suits(mesh: Mesh) -> bool:
    """Whether flits can go cycle by cycle: no link takes long for one, latencies are short enough for a calendar."""
    return (
        mesh.cycle_ticks == 1
        and max(mesh.link_ticks, mesh.output["held"].max()) <= SLOWEST_LINK
        and mesh.n_cores < 1 << TO_BITS
        and _rows(mesh) * (len(mesh.output) + mesh.n_cores) * mesh.n_vcs <= LARGEST_CALENDAR
    )


def suits_cores(mesh: Mesh, axons: AxonTable, costs: Costs) -> bool:
    """Whether the cores of a chip can send and receive cycle by cycle, as kernels/noc/lockstep_cores.py does.

    Every message must be one flit in one channel that goes to one core, none be dropped, and receive sides must not
    wait for send sides. They must need some time for a message, else they could take several in a cycle, and no more
    than a word of a flit holds.
    """
    return (
        suits(mesh)
        and mesh.n_vcs == 1
        and len(mesh.branch) == 0
        and not costs.drops
        and not costs.shared
        and bool((axons.row["flits"] == 1).all() and (axons.row["ticks"] > 0).all())
        and int(axons.row["ticks"].max(initial=0)) < 1 << 32
    )


def cores_in_lockstep(mesh: Mesh, n_axons: int) -> Lockstep:
    """An idle network for the cores of a chip, which send no more than so many messages in a micro-step."""
    routers, _ = _routers(mesh)
    return Lockstep(routers, _calendar(mesh), alarms(mesh.n_cores), _links(mesh), np.zeros(N_NOW, np.int64),
                    np.zeros(n_axons, np.uint32))  # fmt: skip


def _links(mesh: Mesh) -> np.ndarray:
    """int64[output or source]: number of its link."""
    return np.concatenate([mesh.output["link"], mesh.inject_link])


def send(mesh: Mesh, n_links: int, time, src, size, to, last: int) -> tuple[np.ndarray, ...]:
    """Send packets as nwcompile.sim.cycle.noc.replay does: (inject[packet], arrive[packet], flits[link]).

    Bit for bit what nwcompile.kernels.noc.event_replay.replay finds, and several times as fast.
    """
    order = None
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable")
        time, src, size, to = time[order], src[order], size[order], to[order]
    inject, arrive = np.full((2, len(time)), -1)
    routers, source = _routers(mesh)
    packets = Timed(time, src, to, size, np.empty(len(time), np.int32), inject, arrive, np.zeros(1, bool))
    calendar = _calendar(mesh)
    alone(lambda: replay_in_lockstep(routers, calendar, packets, source, last), packets.interrupted)
    if order is not None:
        back = np.empty((2, len(time)), np.int64)
        back[:, order] = inject, arrive
        inject, arrive = back
    flits = np.zeros(n_links, np.int64)
    flits[_links(mesh)] = routers.output["sent"]
    return inject, arrive, flits


def _routers(mesh: Mesh) -> tuple[Routers, np.ndarray]:
    """The routers, empty and idle, and their sources."""
    given, n, n_ports, n_vcs = mesh.output, len(mesh.output), mesh.n_ports, mesh.n_vcs
    router, port = np.divmod(np.arange(n), n_ports)
    core = np.arange(mesh.n_cores)
    at, own = core // mesh.per_router, 4 + core % mesh.per_router
    output = np.zeros(n + mesh.n_cores, OUTPUT)
    output["free"] = (1 << n_vcs) - 1
    output["latency"] = np.concatenate([given["latency"], np.full(mesh.n_cores, mesh.inject_ticks)])
    output["first"][:n] = router * n_ports
    leads = np.concatenate([given["down"] >= 0, np.ones(mesh.n_cores, bool)])
    output["down"] = np.where(leads, np.concatenate([given["down"], (at * n_ports + own) * n_vcs]), 0)
    output["is_last"][:n] = port >= 4
    output["down_router"] = np.concatenate([np.where(leads[:n] & (port < 4), given["down_node"], 0), at])
    output["down_input"] = np.concatenate([given["down_input"], own * n_vcs])
    buffer = np.zeros((n + mesh.n_cores) * n_vcs, BUFFER)
    buffer["head"] = buffer["place"] = np.arange(len(buffer)) * mesh.depth
    buffer["input"][: n * n_vcs] = np.repeat(port, n_vcs)
    for v in range(n_vcs):
        buffer["sender"][output["down"][leads] + v] = np.flatnonzero(leads) << INPUT_BITS | v
    source = np.zeros(mesh.n_cores, SOURCE)
    source["packet"] = -1
    every, lower = (1 << n_vcs) - 1, (1 << mesh.upper) - 1
    link = np.zeros(n + mesh.n_cores, LINK)
    link["cycles"][:n] = given["held"]
    routers = Routers(
        n_ports, n_vcs, n, mesh.depth, mesh.is_speculative, mesh.route_ticks, mesh.credit_ticks, mesh.link_ticks,
        mesh.route, bool(max(mesh.link_ticks, given["held"].max()) > 1), lower < every,
        np.array([every, lower, every - lower], np.uint64), output, buffer,
        np.zeros(len(buffer) * mesh.depth, SLOT), link,
    )  # fmt: skip
    return routers, source


def _rows(mesh: Mesh) -> int:
    """Cycles that a calendar must reach ahead, as a power of two."""
    longest = max(int(mesh.output["latency"].max()), mesh.inject_ticks) + mesh.credit_ticks + mesh.route_ticks + 1
    return max(8, 1 << longest.bit_length())  # `Calendar.used_words` has 8 in a word


def _calendar(mesh: Mesh) -> Calendar:
    rows, n_outputs, n_channels = _rows(mesh), len(mesh.output), (len(mesh.output) + mesh.n_cores) * mesh.n_vcs
    used = np.zeros(rows, np.uint8)
    asks, wakes = np.empty((rows, n_channels), np.uint32), np.empty((rows, n_channels), np.uint32)
    return Calendar(
        asks, np.zeros(rows, np.int64), wakes, np.zeros(rows, np.int64), used, used.view(np.uint64),
        np.empty(n_outputs + 1, np.uint32), np.empty(mesh.n_cores + 1, np.uint32),
    )  # fmt: skip
