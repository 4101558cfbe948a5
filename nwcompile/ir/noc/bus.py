"""The segmented ladder bus: its links, and which of them a message needs.

Parallel lanes run along the positions 0, 1, ...; on every lane a three-way switch at each position joins the segment to
the left, the segment to the right and the cores that hang there (ADIONA: Huynh et al., A scalable dynamic segmented bus
interconnect for neuromorphic architectures, IEEE Embedded Systems Letters, doi 10.1109/LES.2024.3452551; MASS: Huynh et
al., Mapping and scheduling SNNs on segmented ladder bus architectures, JSA 169, 2025, arXiv 2506.11286). A transfer
takes the switches from its first to its last position on one lane, and so the segments between them: two transfers of a
slot whose stretches share a switch need two lanes. To change lanes on the way would not help, because stretches of a
line fit on as many lanes as ever lie over one switch (interval graphs are perfect).

Of both papers only the abstracts could be read. Assumed: a switch serves one transfer a slot; a core sends one message
a slot and takes one, its own to itself included, which need no lane; a message goes to one core, so a spike takes a
transfer to each; all slots are as long, and no shorter than a transfer from end to end; positions lie in one line.

Links in the order of `Run.link_flits`: the segments, x to x + 1, of all lanes together; the switches of each position,
of all lanes together; then the injection and the ejection port of every core. A flit is a transfer.
"""

import numpy as np

from nwcompile.ir.flat import csr_groups, csr_offset

SEGMENTED_BUS = "segmented_bus"  # of noc.topology
MOST_BUS_CORES = 1024  # every pair of them has a queue
# keys of `Noc` (of nwcompile.ir.chip) that say nothing about a bus, and those that say nothing about a mesh or torus
MESH_KEYS = {
    "virtual_channels": "a transfer has its lane to itself",
    "multicast": "a transfer goes to one core",
    "flits_per_message": "a transfer is one message",
    "payload_flits": "a transfer is one message, its payload included",
    "hop_cycles_ns": "nothing goes north or south",
    "link_cycles_per_flit": "noc.slot_cycles says how long a transfer takes",
    "credit_cycles": "its switches have no buffers",
    "route_cycles": "routes are scheduled",
    "speculative": "routes are scheduled",
    "on_full": "its queues stall what would enter them",
    "routing": "there is one route along the lanes",
    "faults": "faulty lanes and switches are not modeled",
    "chip_columns": "a bus is on one chip",
    "chip_rows": "a bus is on one chip",
    "chip_hop_cycles": "a bus is on one chip",
    "chip_link_cycles_per_flit": "a bus is on one chip",
}
BUS_KEYS = ("lanes", "slot_cycles")


def link_count(columns: int, n_cores: int) -> int:
    """Links of a bus with so many positions and cores."""
    return 2 * columns - 1 + 2 * n_cores


def list_transfer_links(columns: int, per_position: int, here, there) -> tuple[np.ndarray, np.ndarray]:
    """The segments and switches that a transfer takes between each pair of physical cores, int[pair].

    Gives (offset int64[pair + 1], link int64[...]): those of pair k are `link[offset[k]:offset[k + 1]]`. A message of a
    core to itself takes none.
    """
    at, to = here // per_position, there // per_position
    low, n_segments = np.minimum(at, to).astype(np.int64), np.abs(at - to).astype(np.int64)
    length = np.where(here == there, 0, 2 * n_segments + 1)
    offset = csr_offset(length)
    pair = csr_groups(offset)
    k = np.arange(offset[-1]) - offset[pair]
    is_segment = k < n_segments[pair]
    first = np.where(is_segment, 0, columns - 1 - n_segments[pair])
    return offset, first + low[pair] + k


def longest_transfer_cycles(noc) -> int:
    """NoC cycles of a transfer from one end of a bus (a `Noc` of nwcompile.ir.chip) to the other."""
    return noc.inject_cycles + (noc.columns - 1) * noc.hop_cycles_ew + noc.eject_cycles
