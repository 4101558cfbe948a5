"""Routers of FIFOs joined by fixed-priority merges, without channels, as in RANC.

Source: Mack et al., IEEE TCAD 41(1), 2022, doi 10.1109/TCAD.2020.3038151, and the published RTL of that design.

Packets go along x first, then along y. Each router has five merges. Each passes a packet every 2 cycles and takes its
inputs by fixed priority: east and west (the neighbor, then the core's own FIFO), north and south (the neighbor, then
packets that turn from the east, then from the west), and the core (from the north, then from the south). A merge waits
while any FIFO behind it is full. FIFOs hold `noc.buffer_flits` packets.

Messages of input lines enter the western port of router 0,0, one per cycle, after all other work of the step. Spikes of
output layers leave at the one site of `io.sites`. A core's scan waits while a FIFO that it fills is full. A packet that
reaches its core in the cycle in which the core clears its axons is lost.
"""

from dataclasses import fields
from typing import Any

import numpy as np

from nwcompile.errors import ChipError
from nwcompile.families.family import Family
from nwcompile.ir.chip_sections import MAY_LACK_CYCLES

ERROR_CODE = "NW4003"
HOST_ROUTER = 0  # router that messages of input lines enter
BEFORE_SCAN_CYCLES = 1  # cycles of a step before the first slot is visited
CLEAR_CYCLES = 2  # cycles from the last slot until the axons are cleared, which ends a step
# Keys that do not apply to such routers, with the reason; they must have their defaults.
MERGE_KEYS = {
    "cores_per_router": "each has one core",
    "virtual_channels": "FIFOs are joined by merges",
    "flits_per_message": "a packet is one message",
    "payload_flits": "a packet is one message",
    "on_full": "a sender waits while a FIFO is full",
    "max_step_cycles": "packets cannot wait for each other in a circle",
    "credit_cycles": "a merge sees whether a FIFO is full",
    "route_cycles": "the route is in the packet",
    "speculative": "merges have a fixed order",
    "multicast": "a packet goes to one core",
    "topology": "packets of a mesh only turn once",
    "routing": "packets go along x first",
    "faults": "there is one way only",
    "chip_columns": "the grid is on one chip",
    "chip_rows": "the grid is on one chip",
    "chip_hop_cycles": "the grid is on one chip",
    "chip_link_cycles_per_flit": "the grid is on one chip",
}
# Times in NoC cycles: per hop, between packets, and (inject + eject) from a spike to its own core.
MERGE_CYCLES = {
    "hop_cycles_ew": 2,
    "hop_cycles_ns": 2,
    "link_cycles_per_flit": 2,
    "inject_cycles": 2,
    "eject_cycles": 4,
}
# Costs of such a chip that need not be 0.
SCAN_CYCLES = ("visit_cycles", "instruction_cycles", "barrier_cycles", *MAY_LACK_CYCLES)


class MergeRouters(Family):
    """Chips whose routers are FIFOs joined by merges; the only cost of their cores is the scan."""

    key, value = "noc.router", "merges"
    silent_keys = MERGE_KEYS
    loses_late = "they came when their core cleared its axons"
    outputs_need_destinations = True

    def verify(self, chip, where: str) -> None:
        noc, cost = chip.noc, chip.cost
        defaults = {f.name: f.default for f in fields(noc)}
        for key, reason in MERGE_KEYS.items():
            if getattr(noc, key) != defaults[key]:
                raise ChipError(f'{where}: noc.{key}: with noc.router = "merges" there is none, {reason}; leave it out')
        barrier = {"1": BEFORE_SCAN_CYCLES + CLEAR_CYCLES}
        wanted: dict[str, Any] = {f"noc.{key}": cycles for key, cycles in MERGE_CYCLES.items()}
        free = [f"cost.{f.name}" for f in fields(cost) if f.name.endswith("_cycles") and f.name not in SCAN_CYCLES]
        wanted |= dict.fromkeys(free, 0)
        wanted |= {"noc.cycle_ns": chip.core.cycle_ns, "cost.visits": "all", "cost.barrier_cycles": barrier}
        for key, value in wanted.items():
            if chip.value(key) != value:
                raise ChipError(f'{where}: {key}: with noc.router = "merges" it is {value}, not {chip.value(key)}')
        if cost.visit_cycles is None or cost.visit_cycles < 2:
            raise ChipError(
                f'{where}: cost.visit_cycles: noc.router = "merges" needs 2 or more, not {cost.visit_cycles}'
            )
        if len(chip.io.sites or ()) != 1:
            raise ChipError(f'{where}: io.sites: noc.router = "merges" needs the one place where spikes leave')

    def refuse_run(self, chip, profile: bool, totals: bool) -> str | None:
        if not profile:
            return None
        return (
            f'profiles follow flits through channels or over a bus; {chip.name} has noc.router = "merges"; '
            "use `nwcompile export --to ranc`, which writes when each packet is sent and arrives"
        )

    def entries(self, chip) -> np.ndarray:
        """Messages enter from outside the grid."""
        return np.array([HOST_ROUTER])
