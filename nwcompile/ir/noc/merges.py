"""Routers without channels: FIFOs joined by merges of fixed priority, as in RANC (Mack et al., IEEE TCAD 41(1), 2022,
doi 10.1109/TCAD.2020.3038151, and the published RTL of that design).

Packets go along x first, then along y. Each router has five merges, each of which passes a packet every 2 cycles:
eastward and westward (out of the neighbor there and out of the core's own FIFO), northward and southward (out of the
neighbor, then what turns from the east, then from the west), and into the core (from the north, then from the south).
Who is named first goes first. A merge waits while any FIFO behind it is full. FIFOs hold `noc.buffer_flits` packets.

Messages of input lines come from outside, into the western port of router 0,0, one a cycle, when all else of the step
is done; spikes of output layers leave at the one place of `io.sites`. A core's scan waits while a FIFO that it fills is
full. A packet that reaches its core in the one cycle in which that clears what its axons heard is lost.
"""

MERGES = "merges"  # of noc.router
HOST_ROUTER = 0  # where messages of input lines come in
BEFORE_SCAN_CYCLES = 1  # of a step, before the first slot is visited
CLEAR_CYCLES = 2  # after the last slot, until the axons are cleared: no step is over before
# Keys that say nothing about such routers, with what does; they stay as they are when not given.
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
# What merges take, in NoC cycles: from a spike to its core, without a hop, inject and eject; each hop; between packets.
MERGE_CYCLES = {
    "hop_cycles_ew": 2,
    "hop_cycles_ns": 2,
    "link_cycles_per_flit": 2,
    "inject_cycles": 2,
    "eject_cycles": 4,
}
