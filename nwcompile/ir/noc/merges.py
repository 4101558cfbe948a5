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

MERGES = "merges"  # value of noc.router
HOST_ROUTER = 0  # router that messages of input lines enter
BEFORE_SCAN_CYCLES = 1  # cycles of a step before the first slot is visited
CLEAR_CYCLES = 2  # cycles from the last slot until the axons are cleared, which ends a step
# Keys that do not apply to such routers, with the reason; they must have their defaults.
MERGE_KEYS = {
    "cores_per_router": "each has one core",
    "virtual_channels": "FIFOs are joined by merges",
    "flits_per_message": "a packet is one message",
    "payload_flits": "a packet is one message",
    "on_full": "who would fill a full FIFO waits",
    "max_step_cycles": "packets cannot wait for each other in a circle",
    "credit_cycles": "a merge sees whether a FIFO is full",
    "route_cycles": "a merge reads the way in the packet",
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
