"""The network on chip without a spiking network: replay lists of packets, or generate load."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.time.work import link_name
from nwcompile.errors import OptionError, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset, csr_sums
from nwcompile.ir.noc.routing import count_hops
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.event_replay import Packets, Sources, replay_events
from nwcompile.kernels.noc.mesh import Mesh
from nwcompile.memory import verify_room
from nwcompile.sim.cycle.engine import find_engine
from nwcompile.sim.cycle.lockstep import fits_lockstep, send_in_lockstep
from nwcompile.sim.cycle.noc_tables import build_mesh, build_queues
from nwcompile.threads import run_alone

ERROR_CODE = "NW6201"
PATTERNS = ("uniform", "transpose", "neighbor", "hotspot")
MAX_SIZE_FLITS = 1 << 16  # Sums of flits of all packets in flight stay within 32 bits.
MAX_TIME_CYCLES = 1 << 48  # Latencies can be added without overflow of 64 bits.
CHUNK_CYCLES = 1 << 14  # Cycles per draw of packets: 130 MB of random numbers for 1024 cores.
CHUNK_PAIRS = 1 << 17  # Pairs of cores whose routes are in memory at once: 200 MB on a mesh of 64 x 64.
PACKET_BYTES = 80  # A lower bound for a generated packet: 91 were measured with 43 million packets.
MOST_GROWTH = 1.5  # The latency is stable if its mean in the second half of the window is at most 1.5 times the first.
LATENCIES_LONG = 50  # Shortest conclusive window, in mean latencies.
RELAXATIONS_LONG = 20  # Shortest conclusive window, in Q^2 / S of `_is_stable`: 2.5 relaxation times of the queues.
# The network is saturated if Q^2 exceeds SATURATED * S * (cycles passed): 2.4 standard deviations of the backlog of a
# queue at exactly its capacity.
SATURATED = 6.0


@dataclass(frozen=True, eq=False)
class Replay:
    """Result of replaying a list of packets, in the given order; times in NoC cycles."""

    inject: np.ndarray  # int64[packet]: when its head left the source; -1: not yet
    arrive: np.ndarray  # int64[packet]: when its tail reached the sink; -1: not yet
    hops: np.ndarray  # int64[packet]: links between routers on its route
    link_flits: np.ndarray  # int64[link]: flits carried, links numbered as in `Run.link_flits`


@dataclass(frozen=True)
class Load:
    """Result of a generated load.

    Loads are flits per core and cycle, within the measured cycles. `mean_latency`: cycles from the creation of a
    measured packet to the arrival of its tail, with the time at the source; None unless stable. `stable`: True if the
    latency settles within a window that is long enough, False if packets wait ever longer, None if there are too few
    cycles to decide. `bottleneck`: the busiest link, if not stable. `link_load`: share of all cycles in which each link
    was busy.
    """

    pattern: str
    n_packets: int
    offered: float
    accepted: float
    mean_latency: float | None
    stable: bool | None
    bottleneck: str | None
    link_load: dict[str, float]


def replay_packets(chip: Chip, time, src, dst, size, last: int = int(NEVER)) -> Replay:
    """Send packets of `size[k]` flits, created at cycle `time[k]` in core `src[k]`, to core `dst[k]`.

    Cores are physical, numbered like sites: router * cores_per_router + port. A source sends its packets ordered by
    time, then as given, one flit per cycle; a sink takes every flit at once. The replay ends when all packets have
    arrived, or at cycle `last`. Raises OptionError for invalid packets.
    """
    if chip.noc.on_full == "drop":
        raise OptionError(f"packets wait at their source, and {chip.name} has noc.on_full = 'drop'; set it to 'stall'")
    time, src, dst, size = _verify_packets(chip, time, src, dst, size)
    if (replay := find_engine(chip).replay) is not None:
        return Replay(*replay(chip, time, src, size, dst, last))
    mesh = build_mesh(chip)
    if fits_lockstep(mesh):
        inject, arrive, flits = send_in_lockstep(mesh, time, src, size, dst, last)
    else:
        order = np.lexsort((time, src))
        inject, arrive = np.full((2, len(time)), -1)
        inject[order], arrive[order], flits = send_by_events(
            mesh, time[order], src[order], size[order], dst[order], 1, last
        )
    return Replay(inject, arrive, _links_on_route(chip, src, dst), flits)


def send_by_events(mesh: Mesh, time, src, size, to, n_deliveries, last: int) -> tuple[np.ndarray, ...]:
    """Send packets sorted by source and time: (inject[packet], arrive[delivery], flits[link])."""
    network = build_queues(mesh)
    counts = np.broadcast_to(n_deliveries, len(time))
    packets = Packets(
        first=csr_offset(np.bincount(src, minlength=mesh.n_cores)),
        time=time,
        size=size,
        to=to.astype(np.int32),
        inject=np.full(len(time), -1),
        arrive=np.full(counts.sum(), -1),
        delivery=np.cumsum(counts) - counts,
        interrupted=np.zeros(1, bool),
    )
    sources = Sources(*np.zeros((4, mesh.n_cores), np.int64))
    run_alone(lambda: replay_events(mesh, network, packets, sources, last), packets.interrupted)
    return packets.inject, packets.arrive, network.flits


def _links_on_route(chip: Chip, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return int64[packet]: links between routers on its route, by table if packets outnumber pairs of routers."""
    n, per_router = len(chip.grid.is_open), chip.noc.cores_per_router
    at, to = (src, dst) if per_router == 1 else (src // per_router, dst // per_router)
    if len(at) < n * n:
        return count_hops(chip.grid, at, to).sum(-1)
    router = np.arange(n)
    return count_hops(chip.grid, router[:, None], router).sum(-1).reshape(-1)[at * n + to]


def _verify_packets(chip: Chip, time, src, dst, size) -> tuple[np.ndarray, ...]:
    """Return the columns of a list of packets as int64[packet]. Raises OptionError for invalid packets."""
    time, src, dst, size = (
        _whole_numbers(name, values) for name, values in (("time", time), ("src", src), ("dst", dst), ("size", size))
    )
    for name, values, low, high in (
        ("time", time, 0, MAX_TIME_CYCLES),
        ("src", src, 0, chip.n_cores - 1),
        ("dst", dst, 0, chip.n_cores - 1),
        ("size", size, 1, MAX_SIZE_FLITS),
    ):
        if values.shape != time.shape:
            raise OptionError(f"packets: {len(values)} values of {name} for {len(time)} of time; give one a packet")
        if values.size and (values.min() < low or values.max() > high):
            bad = np.flatnonzero((values < low) | (values > high))
            raise OptionError(
                f"packet {bad[0]}: {name} {values[bad[0]]} is outside {low}..{high} "
                f"({chip.name} has {chip.n_cores} cores)"
            )
    is_open = np.repeat(chip.grid.is_open, chip.noc.cores_per_router)
    if not is_open.all() and not (is_open[src] & is_open[dst]).all():
        closed = np.flatnonzero(~is_open[src] | ~is_open[dst])
        raise OptionError(f"packet {closed[0]}: core {src[closed[0]]} or {dst[closed[0]]} is at a router of noc.faults")
    return time, src, dst, size


def offer_load(
    chip: Chip, pattern: str, offered: float, flits: int = 1, warmup: int = 1000, cycles: int = 10000, seed: int = 0
) -> Load:
    """Offer `offered` flits per core and cycle in packets of `flits`; measure packets created after `warmup` cycles.

    Each core creates a packet with probability offered / flits in every cycle, independently (Bernoulli). Patterns, on
    the grid of cores (x, y) with one core per router: `uniform` any core, the source included; `transpose` (y, x);
    `neighbor` (x + 1, y + 1) with wrap-around; `hotspot` always the core at (columns // 2, rows // 2). The load
    continues while the measured packets arrive, at most for `cycles` more. Raises OptionError, and
    NotEnoughMemoryError if the packets do not fit in memory.
    """
    verify_load(chip, pattern, offered, flits, warmup, cycles, seed)
    rng = np.random.default_rng(seed)
    time, src = _draw_packets(rng, warmup + 2 * cycles, chip.n_cores, offered / flits)
    dst = _draw_destinations(pattern, chip, src, rng)
    last = warmup + 2 * cycles
    done = replay_packets(chip, time, src, dst, np.full(len(time), flits), last)
    measured = (time >= warmup) & (time < warmup + cycles)
    if not measured.any():
        raise OptionError(
            f"no packet was made in {cycles} measured cycles: load {offered:g} in packets of {flits} flits makes "
            f"{offered / flits * chip.n_cores * cycles:.2g} on average; raise the load, or measure more cycles"
        )
    within = (done.arrive >= warmup) & (done.arrive < warmup + cycles)
    per = flits / (chip.n_cores * cycles)
    made, accepted = measured.sum() * per, within.sum() * per
    stable = _is_stable(chip, time, src, dst, done, flits, warmup, cycles)
    latency = float((done.arrive - time)[measured].mean()) if stable else None
    busy = chip.family.link_busy(chip, done.link_flits)
    busiest = None if stable else link_name(chip, int(np.argmax(busy)))
    return Load(
        pattern=pattern,
        n_packets=int(measured.sum()),
        offered=float(made),
        accepted=float(accepted),
        mean_latency=latency,
        stable=stable,
        bottleneck=busiest,
        link_load={
            link_name(chip, link): min(float(busy[link] / last), 1.0) for link in np.flatnonzero(done.link_flits)
        },
    )


def verify_load(chip: Chip, pattern: str, offered: float, flits: int, warmup: int, cycles: int, seed: int) -> None:
    """Raise OptionError or NotEnoughMemoryError if `offer_load` cannot make this load."""
    noc = chip.noc
    if pattern not in PATTERNS:
        raise OptionError(unknown_choice("traffic", pattern, PATTERNS))
    if noc.cores_per_router != 1:
        raise OptionError(
            f"traffic needs one core per router; {chip.name} has noc.cores_per_router={noc.cores_per_router}; take a "
            "chip like mesh_def, or --set noc.cores_per_router=1"
        )
    if not chip.grid.is_open.all():
        raise OptionError(
            f"traffic goes to every core; {chip.name} has routers out of use, take them out of noc.faults"
        )
    if pattern == "transpose" and noc.columns != noc.rows:
        raise OptionError(f"traffic transpose needs a square mesh; {chip.name} has {noc.columns} x {noc.rows} routers")
    for name, value, lowest, highest in (
        ("flits", flits, 1, MAX_SIZE_FLITS),
        ("warmup", warmup, 0, MAX_TIME_CYCLES),
        ("cycles", cycles, 1, MAX_TIME_CYCLES),
        ("seed", seed, 0, None),
    ):
        if value < lowest:
            raise OptionError(f"{name} {value} must be a whole number >= {lowest}")
        if highest is not None and value > highest:
            raise OptionError(f"{name} {value} is above the largest supported, {highest}")
    if not 0 < offered / flits <= 1:
        raise OptionError(
            f"load {offered:g} must be above 0 and at most {flits}, one packet of {flits} flits per cycle"
        )
    n_packets = offered / flits * chip.n_cores * (warmup + 2 * cycles)
    work = f"load {offered:g} on {chip.n_cores} cores in {warmup + 2 * cycles} cycles, {n_packets:.3g} packets,"
    verify_room(work, int(PACKET_BYTES * n_packets), lambda _: "lower the load, or measure fewer cycles (--cycles)")


def _is_stable(chip: Chip, time, src, dst, done: Replay, flits: int, warmup: int, cycles: int) -> bool | None:
    """Decide `Load.stable` for packets of `flits`, sent on an initially idle network for `warmup` + 2 `cycles`.

    Q is the root mean square, over packets, of the mean waiting time of their source. S is the time of a link per
    packet. A queue with mean wait W and service time S relaxes in about 8 W^2 / S cycles, and a queue at its capacity
    grows to sqrt(S t) in t cycles (Brownian limits: Abate and Whitt, Adv. Appl. Probab. 19, 1987). So Q^2 / S measures
    whether a window is long, whatever the network.
    """
    arrived = done.arrive >= 0
    if not arrived.any():
        return None
    latency = np.where(arrived, done.arrive, warmup + 2 * cycles) - time  # a lower bound
    wait = latency if not chip.family.has_routers else latency - _route_cycles(chip, src, dst, done.hops)
    wait = wait - wait[arrived].min()
    measured = (time >= warmup) & (time < warmup + cycles)
    of_source = np.bincount(src[measured], minlength=chip.n_cores)
    mean_wait = np.bincount(src[measured], wait[measured], chip.n_cores) / np.maximum(of_source, 1)
    forgets = float((mean_wait**2 * of_source).sum() / of_source.sum()) / (flits * int(chip.link_cycles.max()))
    if forgets >= SATURATED * (warmup + cycles):
        return False
    late = time[measured] >= warmup + cycles / 2
    if late.all() or not late.any() or not arrived[measured].all():
        return None
    halves = latency[measured][~late].mean(), latency[measured][late].mean()
    is_long = cycles >= max(LATENCIES_LONG * latency[measured].mean(), RELAXATIONS_LONG * forgets)
    return True if is_long and halves[1] <= MOST_GROWTH * halves[0] else None


def _route_cycles(chip: Chip, src: np.ndarray, dst: np.ndarray, n_hops: np.ndarray) -> np.ndarray:
    """Return int64[packet]: latency in cycles of the `n_hops` links between routers on its route."""
    n, latency = chip.n_cores, chip.link_latency
    between_routers = latency[: len(latency) - 2 * n]
    if (between_routers == latency[0]).all():
        return n_hops * latency[0]
    pairs, of_packet = np.unique(src * n + dst, return_inverse=True)
    cycles = np.empty(len(pairs), np.int64)
    for first in range(0, len(pairs), CHUNK_PAIRS):
        part = slice(first, first + CHUNK_PAIRS)
        offset, link = chip.family.links_on_route(chip, pairs[part] // n, pairs[part] % n)
        cycles[part] = csr_sums(offset, latency[link])
    return cycles[of_packet.reshape(-1)]


def _whole_numbers(name: str, values) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or not (array.dtype.kind in "iuf" or array.size == 0):
        raise OptionError(f"packets: {name} must be a list of whole numbers")
    if np.issubdtype(array.dtype, np.floating) and (array != np.trunc(array)).any():
        raise OptionError(f"packets: {name} must be whole numbers")
    return array.astype(np.int64)


def _draw_packets(rng, n_cycles: int, n_cores: int, chance: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw when and where packets are created, in the order of time. Drawing in chunks of cycles limits the memory."""
    parts = [
        np.nonzero(rng.random((min(CHUNK_CYCLES, n_cycles - first), n_cores)) < chance) + np.array([[first], [0]])
        for first in range(0, n_cycles, CHUNK_CYCLES)
    ]
    time, src = np.concatenate(parts, 1)
    return time, src


def _draw_destinations(pattern: str, chip: Chip, src: np.ndarray, rng) -> np.ndarray:
    columns, rows = chip.noc.columns, chip.noc.rows
    x, y = src % columns, src // columns
    if pattern == "uniform":
        return rng.integers(0, chip.n_cores, len(src))
    if pattern == "transpose":
        return x * columns + y
    if pattern == "neighbor":
        return (y + 1) % rows * columns + (x + 1) % columns
    return np.full(len(src), rows // 2 * columns + columns // 2)
