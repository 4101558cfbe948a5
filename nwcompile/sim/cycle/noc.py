"""The network on chip by itself: lists of packets, or generated load, without a spiking network."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nwcompile.cost.time.work import link_busy, link_name
from nwcompile.errors import OptionError, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.noc.routing import hops
from nwcompile.ir.noc.trees import trees
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.event_replay import Packets, Sources
from nwcompile.kernels.noc.event_replay import replay as run_packets
from nwcompile.kernels.noc.mesh import Mesh
from nwcompile.sim.cycle.bus import send_on_bus
from nwcompile.sim.cycle.lockstep import send as send_in_lockstep
from nwcompile.sim.cycle.lockstep import suits
from nwcompile.sim.cycle.noc_tables import fabric, planted, queues
from nwcompile.sim.parallel import alone

PATTERNS = ("uniform", "transpose", "neighbor", "hotspot")
LARGEST_SIZE = 1 << 16
LARGEST_TIME = 1 << 48
CHUNK = 1 << 14  # cycles that packets are drawn for at once
KEEPS_UP = 0.95  # of the offered load, that a network which is not saturated accepts at least


@dataclass(frozen=True, eq=False)
class Replay:
    """What became of a list of packets, in the order given; times in NoC cycles."""

    inject: np.ndarray  # int64[packet]: when its head left the source; -1: it has not
    arrive: np.ndarray  # int64[packet]: when its tail reached the sink; -1: it has not
    hops: np.ndarray  # int64[packet]: links between routers on its way
    link_flits: np.ndarray  # int64[link]: flits carried, links numbered as in `Run.link_flits`


@dataclass(frozen=True)
class Load:
    """How a network took a generated load.

    Loads are flits per core and cycle, within the measured cycles. `mean_latency`: cycles from the making of a measured
    packet to the arrival of its tail, waiting at the source included; None where not all arrived. `stable`: all did,
    and at least 95 % of the offered load was accepted. `bottleneck`: the busiest link, where it is not stable.
    """

    pattern: str
    n_packets: int
    offered: float
    accepted: float
    mean_latency: float | None
    stable: bool
    bottleneck: str | None


def replay(chip: Chip, time, src, dst, size, last: int = NEVER) -> Replay:
    """Send packets of `size[k]` flits, made at cycle `time[k]` in core `src[k]`, to core `dst[k]`.

    Cores are physical, numbered as sites are: router * cores_per_router + port. A source sends its packets in order of
    time, then as given, one flit a cycle; a sink takes what arrives. Ends when all have arrived, or at cycle `last`. On
    a segmented bus a packet is one transfer of 1 flit. Raises OptionError for packets that cannot be.
    """
    if chip.noc.on_full == "drop":
        raise OptionError(f"packets wait at their source, and {chip.name} has noc.on_full = 'drop'; set it to 'stall'")
    time, src, dst, size = _verified(chip, time, src, dst, size)
    if chip.is_bus:
        return Replay(*send_on_bus(chip, time, src, size, dst, last))
    mesh, n_links = fabric(chip)
    if suits(mesh):
        inject, arrive, flits = send_in_lockstep(mesh, n_links, time, src, size, dst, last)
    else:
        order = np.lexsort((time, src))
        inject, arrive = np.full((2, len(time)), -1)
        inject[order], arrive[order], flits = _send(mesh, n_links, *(a[order] for a in (time, src, size, dst)), 1, last)
    return Replay(inject, arrive, _links_on_way(chip, src, dst), flits)


def replay_trees(chip: Chip, time, src, dst: Sequence, last: int = NEVER) -> Replay:
    """Send packets of one flit, made at cycle `time[k]` in core `src[k]`, each to all cores of the list `dst[k]`.

    They take the trees of ir.noc.trees. `Replay.arrive` is int64[delivery], packet by packet in the order of its
    list; `hops` counts each link of a tree once. The cores of a list are different from each other. Otherwise as
    `replay`. Raises OptionError.
    """
    if chip.is_bus:
        raise OptionError(f"trees fork in routers, and {chip.name} has a segmented bus; send a packet to each core")
    lists = [_whole("dst", cores) for cores in dst]
    length = np.array([len(cores) for cores in lists], np.int64)
    to = np.concatenate([np.zeros(0, np.int64), *lists])
    time, src = _whole("time", time), _whole("src", src)
    if not len(time) == len(src) == len(lists):
        raise OptionError(f"packets: {len(time)} times, {len(src)} sources and {len(lists)} lists; give one a packet")
    _verified(chip, *(np.repeat(a, length) for a in (time, src)), to, np.ones(len(to)))
    for k, cores in enumerate(lists):
        if not len(cores) or len(np.unique(cores)) < len(cores):
            raise OptionError(f"packet {k}: its {len(cores)} destinations must be one or more different cores")
    mesh, n_links = fabric(chip)
    offset = csr_offset(length)
    found = trees(chip.grid, chip.noc.cores_per_router, src, offset, to)
    order = np.lexsort((time, src))
    inject = np.full(len(time), -1)
    inject[order], arrived, flits = _send(
        planted(mesh, found), n_links, time[order], src[order], np.ones(len(time), np.int64), found.root[order],
        length[order], last,
    )  # fmt: skip
    arrive = np.empty(len(to), np.int64)
    if len(order):
        arrive[np.concatenate([np.arange(offset[k], offset[k + 1]) for k in order])] = arrived
    return Replay(inject, arrive, found.hops.sum(1), flits)


def _send(mesh: Mesh, n_links: int, time, src, size, to, n_deliveries, last: int) -> tuple[np.ndarray, ...]:
    """Send packets that are sorted by source and time: (inject[packet], arrive[delivery], flits[link])."""
    q = queues(mesh, n_links)
    counts = np.broadcast_to(n_deliveries, len(time))
    delivery = np.cumsum(counts) - counts
    n_cores = len(mesh.inject_link)
    first = csr_offset(np.bincount(src, minlength=n_cores))
    inject, arrive = np.full(len(time), -1), np.full(counts.sum(), -1)
    packets = Packets(first, time, size, to.astype(np.int32), inject, arrive, delivery, np.zeros(1, bool))
    sources = Sources(*np.zeros((4, n_cores), np.int64))
    alone(lambda: run_packets(mesh, q, packets, sources, last), packets.interrupted)
    return inject, arrive, q.flits


def _links_on_way(chip: Chip, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """int64[packet]: links between routers on its way; looked up where there are more packets than pairs of routers."""
    n, per_router = len(chip.grid.is_open), chip.noc.cores_per_router
    at, to = (src, dst) if per_router == 1 else (src // per_router, dst // per_router)
    if len(at) < n * n:
        return hops(chip.grid, at, to).sum(-1)
    own = np.arange(n)
    return hops(chip.grid, own[:, None], own).sum(-1).reshape(-1)[at * n + to]


def _verified(chip: Chip, time, src, dst, size) -> tuple[np.ndarray, ...]:
    """The columns of a list of packets as int64[packet]; raises OptionError for packets that cannot be."""
    time, src, dst, size = (_whole(name, values) for name, values in
                            (("time", time), ("src", src), ("dst", dst), ("size", size)))  # fmt: skip
    for name, values, low, high in (("time", time, 0, LARGEST_TIME), ("src", src, 0, chip.n_cores - 1),
                                    ("dst", dst, 0, chip.n_cores - 1), ("size", size, 1, LARGEST_SIZE)):  # fmt: skip
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


def load(
    chip: Chip, pattern: str, offered: float, flits: int = 1, warmup: int = 1000, cycles: int = 10000, seed: int = 0
) -> Load:
    """Offer `offered` flits per core and cycle in packets of `flits`, and measure those made after `warmup` cycles.

    Each core makes a packet with probability offered / flits in every cycle, independently (Bernoulli). Patterns, on
    the grid of cores (x, y), which needs one core a router: `uniform` any core, itself too; `transpose` (y, x);
    `neighbor` (x + 1, y + 1), going round; `hotspot` all to the core at (columns // 2, rows // 2). Load is kept up
    while the measured packets arrive, for as long again at most. Raises OptionError.
    """
    noc = chip.noc
    if pattern not in PATTERNS:
        raise OptionError(unknown_choice("traffic", pattern, PATTERNS))
    if noc.cores_per_router != 1:
        raise OptionError(
            f"traffic needs one core a router; {chip.name} has noc.cores_per_router={noc.cores_per_router}"
        )
    if not chip.grid.is_open.all():
        raise OptionError(
            f"traffic goes to every core; {chip.name} has routers out of use, take them out of noc.faults"
        )
    if pattern == "transpose" and noc.columns != noc.rows:
        raise OptionError(f"traffic transpose needs a square mesh; {chip.name} has {noc.columns} x {noc.rows} routers")
    for name, value, least, most in (("flits", flits, 1, LARGEST_SIZE), ("warmup", warmup, 0, LARGEST_TIME),
                                     ("cycles", cycles, 1, LARGEST_TIME), ("seed", seed, 0, None)):  # fmt: skip
        if value < least:
            raise OptionError(f"{name} {value} must be a whole number >= {least}")
        if most is not None and value > most:
            raise OptionError(f"{name} {value} is above the largest supported, {most}")
    if not 0 < offered / flits <= 1:
        raise OptionError(f"load {offered:g} must be above 0 and at most {flits}, one packet of {flits} flits a cycle")
    rng = np.random.default_rng(seed)
    time, src = _made(rng, warmup + 2 * cycles, chip.n_cores, offered / flits)
    dst = _destinations(pattern, chip, src, rng)
    last = warmup + 2 * cycles
    done = replay(chip, time, src, dst, np.full(len(time), flits), last)
    measured = (time >= warmup) & (time < warmup + cycles)
    if not measured.any():
        raise OptionError(
            f"no packet was made in {cycles} measured cycles: load {offered:g} in packets of {flits} flits makes "
            f"{offered / flits * chip.n_cores * cycles:.2g} on average; raise the load, or measure more cycles"
        )
    within = (done.arrive >= warmup) & (done.arrive < warmup + cycles)
    per = flits / (chip.n_cores * cycles)
    made, accepted = measured.sum() * per, within.sum() * per
    arrived = done.arrive[measured] >= 0
    stable = bool(arrived.all() and accepted >= KEEPS_UP * made - 3 * np.sqrt(made * per))
    latency = float((done.arrive - time)[measured].mean()) if stable else None
    busiest = None if stable else link_name(chip, int(np.argmax(link_busy(chip, done.link_flits))))
    return Load(pattern, int(measured.sum()), float(made), float(accepted), latency, stable, busiest)


def _whole(name: str, values) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or not (array.dtype.kind in "iuf" or array.size == 0):
        raise OptionError(f"packets: {name} must be a list of whole numbers")
    if np.issubdtype(array.dtype, np.floating) and (array != np.trunc(array)).any():
        raise OptionError(f"packets: {name} must be whole numbers")
    return array.astype(np.int64)


def _made(rng, n_cycles: int, n_cores: int, chance: float) -> tuple[np.ndarray, np.ndarray]:
    """When and where packets are made, in the order of time; drawn for some cycles after the other, for memory."""
    parts = [np.nonzero(rng.random((min(CHUNK, n_cycles - first), n_cores)) < chance) + np.array([[first], [0]])
             for first in range(0, n_cycles, CHUNK)]  # fmt: skip
    time, src = np.concatenate(parts, 1)
    return time, src


def _destinations(pattern: str, chip: Chip, src: np.ndarray, rng) -> np.ndarray:
    columns, rows = chip.noc.columns, chip.noc.rows
    x, y = src % columns, src // columns
    if pattern == "uniform":
        return rng.integers(0, chip.n_cores, len(src))
    if pattern == "transpose":
        return x * columns + y
    if pattern == "neighbor":
        return (y + 1) % rows * columns + (x + 1) % columns
    return np.full(len(src), rows // 2 * columns + columns // 2)
