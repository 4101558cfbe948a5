"""Tables of a chip's segmented bus for the bus kernels."""

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.families.segmented_bus.chip import count_lanes, list_transfer_links, slot_cycles
from nwcompile.families.segmented_bus.kernel import (
    CONFLICTS,
    LANE_SLOTS,
    N_COUNTS,
    N_SUMS,
    PEAK_LANES,
    PEAK_QUEUE,
    SLOTS,
    TRANSFER,
    TRANSFERS,
    WAITED,
    WAITING_MESSAGE,
    Bus,
    BusTotals,
    Slot,
    Waiting,
    replay_bus,
)
from nwcompile.families.segmented_bus.kernel_cores import ARRIVED, RING, Arrivals, BusNetwork
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.program import Program
from nwcompile.ir.run import BusSchedule
from nwcompile.sim.cycle.axons import build_axon_tables
from nwcompile.sim.cycle.engine import Engine
from nwcompile.threads import run_alone

ERROR_CODE = "NW6201"
# Fields of BusSchedule and the indices of their counts.
COLUMNS = {
    "slots": SLOTS,
    "transfers": TRANSFERS,
    "waited": WAITED,
    "conflicts": CONFLICTS,
    "lane_slots": LANE_SLOTS,
    "peak_lanes": PEAK_LANES,
    "peak_queue": PEAK_QUEUE,
}


def build_bus(chip: Chip, site: np.ndarray, tick: int = 1) -> Bus:
    """Build the bus of a chip. A NoC cycle has `tick` ticks; `site` int[core] are the physical cores in use."""
    noc = chip.noc
    core = np.argsort(site).astype(np.int64)
    tap = np.empty_like(core)
    tap[core] = np.arange(len(core))
    at = site[core].astype(np.int64)
    position = at // noc.cores_per_router
    ports = 2 * noc.columns - 1 + at
    return Bus(
        lanes=int(count_lanes(chip)[0]),
        depth=noc.buffer_flits,
        slot_ticks=slot_cycles(noc) * tick,
        inject_ticks=noc.inject_cycles * tick,
        hop_ticks=noc.hop_cycles_ew * tick,
        eject_ticks=noc.eject_cycles * tick,
        per_position=noc.cores_per_router,
        position=position,
        first_tap=np.searchsorted(position, np.arange(noc.columns + 1)).astype(np.int64),
        tap=tap,
        core=core,
        port_link=np.stack([ports, ports + chip.n_cores], 1),
    )


def empty_queues(bus: Bus, n_links: int) -> Waiting:
    """Allocate the queues of a bus; `clear_bus` has to initialize them."""
    n, n_positions = len(bus.position), len(bus.first_tap) - 1
    words, position_words = -(-n // 64), -(-n_positions // 64)
    return Waiting(
        partner=np.zeros((2 * n, words), np.uint64),
        room=np.zeros((1, words), np.uint64),
        head=np.zeros((n, n), np.int32),
        tail=np.zeros((n, n), np.int32),
        entry=np.zeros(n * bus.depth, WAITING_MESSAGE),
        load=np.zeros(2 * n, np.int64),
        blocked=np.zeros(n, np.int64),
        room_at=np.zeros(n, np.int64),
        state=np.zeros(2, np.int64),
        slot=Slot(
            free=np.zeros((2, words), np.uint64),
            order=np.zeros(2 * n, np.int64),
            taken=np.zeros((bus.lanes, position_words), np.uint64),
            open=np.zeros((1, position_words), np.uint64),
            transfers=np.zeros(n, TRANSFER),
        ),
        totals=BusTotals(
            ends=np.zeros((2, n_positions + 1), np.int64),
            flits=np.zeros(n_links, np.int64),
            counts=np.zeros(N_COUNTS, np.int64),
        ),
    )


def send_on_bus(chip: Chip, time, src, size, dst, last: int) -> tuple[np.ndarray, ...]:
    """Send packets, one transfer each: (inject, arrive, hops: int64[packet], flits: int64[link]), times in cycles.

    Times are -1 for events after cycle `last`. Raises OptionError for packets longer than one transfer.
    """
    long = np.flatnonzero(size != 1)
    if long.size:
        raise OptionError(
            f"packet {long[0]} has {size[long[0]]} flits; on the segmented bus of {chip.name} every packet is one "
            "transfer, of 1 flit"
        )
    bus = build_bus(chip, np.arange(chip.n_cores))
    queued = empty_queues(bus, len(chip.link_cycles))
    order = np.lexsort((time, src))
    first = csr_offset(np.bincount(src, minlength=chip.n_cores))
    inject, arrive = np.full((2, len(time)), -1)
    interrupted, now, to = np.zeros(1, bool), time[order], dst[order]
    place = first[:-1].copy()
    run_alone(
        lambda: replay_bus(bus, queued, first, now, to, place, interrupted, inject, arrive, last + 1), interrupted
    )
    arrive[arrive > last] = -1
    sent = np.empty((2, len(time)), np.int64)
    sent[:, order] = inject, arrive
    return *sent, np.abs(bus.position[src] - bus.position[dst]), queued.totals.flits


class BusEngine(Engine):
    """The axons of a program and the segmented bus of its chip."""

    n_sums, n_peaks = N_SUMS, N_COUNTS - N_SUMS
    has_lockstep, slowest_hop = False, None
    replay = staticmethod(send_on_bus)

    def __init__(self, program: Program):
        self.chip, self.axons = program.chip, build_axon_tables(program, None)
        self.bus = build_bus(self.chip, self.axons.sites.site, self.chip.ticks[1])

    def idle_network(self, in_lockstep: bool, n_logged: int) -> BusNetwork:
        """Build a bus with idle cores."""
        n = len(self.bus.position)
        arrivals = Arrivals(np.zeros((n, self.bus.depth), ARRIVED), np.zeros(n, RING))
        return BusNetwork(self.bus, empty_queues(self.bus, len(self.chip.link_cycles)), arrivals)

    def name_counts(self, sums: np.ndarray, peaks: np.ndarray) -> dict[str, BusSchedule]:
        counts = np.concatenate([sums, peaks], 1)
        return {"bus": BusSchedule(**{name: counts[:, column] for name, column in COLUMNS.items()})}

    def queue_sizes(self) -> tuple[int, int]:
        return 2 * len(self.bus.tap), self.bus.depth

    def link_of_group(self) -> np.ndarray:
        """A group is a core's queue at its injection or ejection port."""
        return self.bus.port_link.T.reshape(-1)

    def links_between(self, here: int, there: int) -> list[tuple[int, float]]:
        """The ticks are those that a transfer occupies a link."""
        bus = self.bus
        n_positions = len(bus.first_tap) - 1
        _, links = list_transfer_links(n_positions, bus.per_position, np.array([here]), np.array([there]))
        inject, eject = 2 * n_positions - 1 + here, 2 * n_positions - 1 + n_positions * bus.per_position + there
        on_lanes = [(link, bus.slot_ticks / bus.lanes) for link in links.tolist()]
        return [(inject, float(bus.slot_ticks)), *on_lanes, (eject, float(bus.slot_ticks))]


ENGINE = BusEngine
