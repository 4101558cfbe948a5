"""A chip's segmented bus as the tables that the bus kernels take."""

from dataclasses import fields

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.noc.bus import link_count, stretches
from nwcompile.ir.run import BusSchedule
from nwcompile.kernels.noc.bus import (
    CONFLICTS,
    LANE_SLOTS,
    N_COUNTS,
    PEAK_LANES,
    PEAK_QUEUE,
    SLOTS,
    TRANSFERS,
    WAITED,
    Bus,
    Waiting,
    replay_on_bus,
)
from nwcompile.kernels.noc.bus_cores import BusCores
from nwcompile.sim.parallel import alone


def bus_of(chip: Chip, site: np.ndarray, tick: int = 1) -> Bus:
    """The bus of a chip, times in ticks of which a NoC cycle has `tick`; `site` int[core] are physical cores in use."""
    noc = chip.noc
    core = np.argsort(site).astype(np.int64)
    tap = np.empty_like(core)
    tap[core] = np.arange(len(core))
    at = site[core].astype(np.int64)
    position = at // noc.cores_per_router
    first_tap = np.searchsorted(position, np.arange(noc.columns + 1)).astype(np.int64)
    ports = link_count(noc.columns, chip.n_cores) - 2 * chip.n_cores + at
    return Bus(
        noc.lanes, noc.buffer_flits, chip.slot_cycles * tick, noc.inject_cycles * tick, noc.hop_cycles_ew * tick,
        noc.eject_cycles * tick, noc.cores_per_router, position, first_tap, tap, core,
        np.stack([ports, ports + chip.n_cores], 1),
    )  # fmt: skip


def waiting(bus: Bus, n_links: int) -> Waiting:
    """Empty queues, to be given to `clear` of bus first."""
    n, n_positions = len(bus.position), len(bus.first_tap) - 1
    words = -(-n // 64)
    return Waiting(
        *(np.zeros((rows, words), np.uint64) for rows in (2 * n, 2, 1)),
        *(np.zeros((n, n), np.int32) for _ in range(2)),
        np.zeros((n * bus.depth, 5), np.int64), *(np.zeros(size, np.int64) for size in (2 * n, 2 * n, n, n)),
        *(np.zeros((rows, -(-n_positions // 64)), np.uint64) for rows in (bus.lanes, 1)), np.zeros((n, 5), np.int64),
        np.zeros((2, n_positions + 1), np.int64), np.zeros(n_links, np.int64), np.zeros(N_COUNTS, np.int64),
        np.zeros(2, np.int64),
    )  # fmt: skip


def bus_cores(bus: Bus) -> BusCores:
    """The cores of a bus before they begin."""
    n = len(bus.position)
    return BusCores(np.zeros(n, np.int8), *(np.zeros(n, np.int64) for _ in range(6)),
                    np.zeros((n, bus.depth, 3), np.int64), np.zeros((n, 2), np.int64))  # fmt: skip


def schedule_of(parts: list[np.ndarray]) -> BusSchedule:
    """The schedules of a run, from `Record.bus` of some samples after the other."""
    of_all = np.array(parts)
    sums, peaks = of_all.sum(0), of_all.max(0)
    columns = (SLOTS, TRANSFERS, WAITED, CONFLICTS, LANE_SLOTS, PEAK_LANES, PEAK_QUEUE)
    return BusSchedule(*((peaks if c in (PEAK_LANES, PEAK_QUEUE) else sums)[:, c] for c in columns))


def summed_schedule(steps: BusSchedule) -> BusSchedule:
    """The schedules of many steps as that of one."""
    return BusSchedule(*(getattr(steps, f.name).max(keepdims=True) if f.name.startswith("peak") else
                         getattr(steps, f.name).sum(keepdims=True) for f in fields(BusSchedule)))  # fmt: skip


def links_on_bus(bus: Bus, here: int, there: int) -> list[tuple[int, float]]:
    """The links that a message takes from one physical core to another, and ticks that a transfer takes of each."""
    n_positions = len(bus.first_tap) - 1
    _, links = stretches(n_positions, bus.per_position, np.array([here]), np.array([there]))
    inject, eject = 2 * n_positions - 1 + here, 2 * n_positions - 1 + n_positions * bus.per_position + there
    on_lanes = [(link, bus.slot_ticks / bus.lanes) for link in links.tolist()]
    return [(inject, float(bus.slot_ticks)), *on_lanes, (eject, float(bus.slot_ticks))]


def send_on_bus(chip: Chip, time, src, size, dst, last: int) -> tuple[np.ndarray, ...]:
    """Send packets, each in one transfer: (inject, arrive, hops: int64[packet], flits: int64[link]), times in cycles.

    -1 for what has not happened by cycle `last`. Raises OptionError for packets longer than one transfer.
    """
    long = np.flatnonzero(size != 1)
    if long.size:
        raise OptionError(
            f"packet {long[0]} has {size[long[0]]} flits; on the segmented bus of {chip.name} every packet is one "
            "transfer, of 1 flit"
        )
    bus = bus_of(chip, np.arange(chip.n_cores))
    s = waiting(bus, len(chip.link_cycles))
    order = np.lexsort((time, src))
    first = csr_offset(np.bincount(src, minlength=chip.n_cores))
    found, sent = np.full((2, 2, len(time)), -1)
    interrupted, packets = np.zeros(1, bool), (time[order], dst[order])
    alone(lambda: replay_on_bus(bus, s, first, *packets, first[:-1].copy(), interrupted, *found, last + 1), interrupted)
    found[1, found[1] > last] = -1
    sent[:, order] = found
    return *sent, np.abs(bus.position[src] - bus.position[dst]), s.flits
