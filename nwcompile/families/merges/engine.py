"""Tables of a chip whose routers are merges, for kernel.py."""

import numpy as np

from nwcompile.errors import BackendError, OptionError
from nwcompile.families.merges.kernel import (
    CORE_EAST,
    CORE_WEST,
    EAST,
    EAST_NORTH,
    EAST_ON,
    EAST_SOUTH,
    HERE,
    HOST,
    MERGE,
    N_FIFOS,
    N_MERGES,
    NONE,
    NORTH,
    NORTH_HERE,
    NORTH_ON,
    PACKET,
    SOUTH,
    SOUTH_HERE,
    SOUTH_ON,
    STEP,
    WEST,
    WEST_NORTH,
    WEST_ON,
    WEST_SOUTH,
    MergeNetwork,
    Merges,
)
from nwcompile.ir.chip import Chip
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.tables import FanOut
from nwcompile.sim.cycle.axons import build_axon_tables
from nwcompile.sim.cycle.engine import Engine

# Each merge: its neighbor's FIFO that it reads, the direction of that neighbor (E, W, N, S as in ir/noc/routing.py),
# the FIFOs of its own router that it reads, and those that it writes.
WIRES = {
    EAST: (EAST_ON, 1, (CORE_EAST,), (EAST_ON, EAST_NORTH, EAST_SOUTH)),
    WEST: (WEST_ON, 0, (CORE_WEST,), (WEST_ON, WEST_NORTH, WEST_SOUTH)),
    NORTH: (NORTH_ON, 3, (EAST_NORTH, WEST_NORTH), (NORTH_ON, NORTH_HERE)),
    SOUTH: (SOUTH_ON, 2, (EAST_SOUTH, WEST_SOUTH), (SOUTH_ON, SOUTH_HERE)),
    HERE: (NONE, 0, (NORTH_HERE, SOUTH_HERE), ()),
}
ONWARD = {EAST_ON: 0, WEST_ON: 1, NORTH_ON: 2, SOUTH_ON: 3}  # FIFOs behind links, and the links' directions


def verify_packets(program: Program, fan_out: FanOut) -> None:
    """Raise BackendError for a neuron that sends more than one packet per spike."""
    n_packets = np.diff(fan_out.offset)
    n_packets[: len(program.core_of)][program.core_of < 0] = 0
    if (n_packets > 1).any():
        source = int(n_packets.argmax())
        raise BackendError(
            f"a spike is one packet on {program.chip.name}, and source {source} sends {n_packets[source]}; "
            "compile the network for this chip, with its core.max_neuron_destinations = 1"
        )


def refuse_packets(chip: Chip, *_) -> None:
    """Raise OptionError."""
    raise OptionError(
        f'{chip.name} has noc.router = "merges", whose packets can only be simulated together with a network',
        code="NW6201",
    )


class MergeEngine(Engine):
    """The axons of a program and the merges of its chip."""

    has_lockstep, slowest_hop = False, None
    replay = staticmethod(refuse_packets)

    def __init__(self, program: Program):
        self.chip, self.axons = program.chip, build_axon_tables(program, None)
        verify_packets(program, self.axons.fan_out)

    def idle_network(self, in_lockstep: bool, n_logged: int) -> MergeNetwork:
        """The first `n_logged` messages of a run are logged."""
        chip, n_messages = self.chip, len(self.axons.axons.row)
        n_routers = chip.noc.columns * chip.noc.rows
        source, sink = np.full((2, n_routers, N_MERGES, 3), NONE, np.int32)
        reader, link = np.zeros((n_routers, N_FIFOS), np.int32), np.full((n_routers, N_FIFOS), -1, np.int32)
        of_router, neighbor = np.arange(n_routers)[:, None] * N_FIFOS, chip.grid.neighbor
        for merge, (onward, direction, takes, gives) in WIRES.items():
            if onward != NONE:
                there = neighbor[:, direction]
                source[:, merge, 0] = np.where(there >= 0, there * N_FIFOS + onward, NONE)
                reader[there[there >= 0], onward] = np.flatnonzero(there >= 0)
            first = int(onward != NONE)
            source[:, merge, first : first + len(takes)] = of_router + np.array(takes)
            reader[:, list(takes)] = np.arange(n_routers)[:, None]
            sink[:, merge, : len(gives)] = of_router + np.array(gives, np.int32)
        source[0, EAST, 0] = HOST
        for fifo, direction in ONWARD.items():
            link[:, fifo] = np.arange(n_routers) * 4 + direction
        grid = Merges(
            columns=chip.noc.columns,
            source=source.reshape(-1, 3),
            sink=sink.reshape(-1, 3),
            reader=reader.reshape(-1),
            link=link.reshape(-1),
            slot=np.zeros((n_routers * N_FIFOS, chip.noc.buffer_flits), np.int32),
            head=np.zeros(n_routers * N_FIFOS, np.int32),
            count=np.zeros(n_routers * N_FIFOS, np.int32),
            merge=np.zeros(n_routers * N_MERGES, MERGE),
            held=np.zeros(n_routers, np.int32),
            active=np.zeros(n_routers, np.int32),
            is_active=np.zeros(n_routers, bool),
        )
        now = np.zeros(6, np.int64)
        now[STEP] = -1
        return MergeNetwork(
            grid=grid,
            now=now,
            flits=np.zeros(len(chip.link_cycles), np.int64),
            sent_at=np.zeros(n_messages, np.int64),
            sender=np.zeros(n_messages, np.int32),
            log=np.zeros(n_logged, PACKET),
        )


ENGINE = MergeEngine
