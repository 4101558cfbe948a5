"""The segmented ladder bus: its links, and the links that a message takes.

Parallel lanes run along the positions 0, 1, ...; on every lane a three-way switch at each position joins the segment on
the left, the segment on the right and the cores of the position (ADIONA: Huynh et al., A scalable dynamic segmented bus
interconnect for neuromorphic architectures, IEEE Embedded Systems Letters, doi 10.1109/LES.2024.3452551; MASS: Huynh et
al., Mapping and scheduling SNNs on segmented ladder bus architectures, JSA 169, 2025, arXiv 2506.11286). A transfer
takes the switches from its first to its last position on one lane, and the segments between them. Two transfers in a
slot that share a switch need two lanes. Changing lanes on the way would not help: intervals on a line fit on as many
lanes as the maximum that overlap at one switch (interval graphs are perfect).

Only the abstracts of both papers were available. Assumptions: a switch serves one transfer per slot. A core sends one
message and receives one message per slot, including messages to itself, which need no lane. A message goes to one core,
so a spike takes one transfer per destination. All slots are equally long, no shorter than an end-to-end transfer. All
positions are on one line.

Links are in the order of `Run.link_flits`: the segments, x to x + 1, summed over lanes; the switches of each position,
summed over lanes; then the injection port and the ejection port of every core. A flit is a transfer.
"""

from dataclasses import fields

import numpy as np

from nwcompile.errors import ChipError
from nwcompile.families.family import Family
from nwcompile.ir.flat import csr_groups, csr_offset

ERROR_CODE = "NW4003"
MOST_BUS_CORES = 1024  # every pair of cores has a queue
# Keys of `Noc` (nwcompile.ir.chip_sections) that do not apply to a bus, with the reason.
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


class SegmentedBus(Family):
    """Chips whose cores are joined by a segmented bus."""

    value = "segmented_bus"
    own_keys = ("noc.lanes", "noc.slot_cycles")
    silent_keys = MESH_KEYS
    has_routers = False

    def verify(self, chip, where: str) -> None:
        noc = chip.noc
        defaults = {f.name: f.default for f in fields(noc)}
        for key, reason in MESH_KEYS.items():
            if getattr(noc, key) != defaults[key]:
                raise ChipError(f"{where}: noc.{key}: a segmented bus has none, {reason}; leave it out")
        if noc.rows != 1:
            raise ChipError(
                f"{where}: noc.rows: {noc.rows} on a segmented bus, which has 1 row; raise noc.columns instead"
            )
        if noc.lanes is None:
            raise ChipError(f"{where}: noc.lanes: missing key; a segmented bus needs it")
        if chip.n_cores > MOST_BUS_CORES:
            raise ChipError(
                f"{where}: noc.columns: {chip.n_cores} cores on a segmented bus are above the largest supported, "
                f"{MOST_BUS_CORES}"
            )
        least = longest_transfer_cycles(noc)
        if noc.slot_cycles is not None and noc.slot_cycles < least:
            raise ChipError(
                f"{where}: noc.slot_cycles: {noc.slot_cycles} is too short for a transfer from end to end, which takes "
                f"{least}; raise it, or leave it out"
            )

    def link_cycles(self, chip) -> np.ndarray:
        """A link is in use for a slot."""
        return np.full(2 * chip.noc.columns - 1 + 2 * chip.n_cores, slot_cycles(chip.noc))

    def links_on_route(self, chip, here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return list_transfer_links(chip.noc.columns, chip.noc.cores_per_router, here, there)

    def link_busy(self, chip, link_flits: np.ndarray, n_free: int = 0) -> np.ndarray:
        """The lanes of a link share its transfers."""
        return link_flits.astype(np.int64) * chip.link_cycles // count_lanes(chip)

    def link_place(self, chip, link: int) -> tuple[int, int, str]:
        """Return position x, 0, and `segment` (from x to x + 1) or `switch`."""
        n_segments = chip.noc.columns - 1
        return (link, 0, "segment") if link < n_segments else (link - n_segments, 0, "switch")

    def link_name(self, chip, link: int) -> str:
        """Name a link that is not a core's port: `segment 3-4` or `switch 3`."""
        x, _, kind = self.link_place(chip, link)
        return f"segment {x}-{x + 1}" if kind == "segment" else f"switch {x}"


def count_lanes(chip) -> np.ndarray:
    """Return int64[link]: transfers that a link carries at once; 1 at the ports of cores."""
    side_by_side = np.ones(len(chip.link_cycles), np.int64)
    side_by_side[: -2 * chip.n_cores] = chip.noc.lanes
    return side_by_side


def slot_cycles(noc) -> int:
    """Return the NoC cycles of a slot of a bus (`noc` is a `Noc`)."""
    return noc.slot_cycles or longest_transfer_cycles(noc)


def list_transfer_links(columns: int, per_position: int, here, there) -> tuple[np.ndarray, np.ndarray]:
    """List the segments and switches of a transfer between each pair of physical cores, int[pair].

    Returns (offset int64[pair + 1], link int64[...]); pair k has links `link[offset[k]:offset[k + 1]]`. A message of a
    core to itself takes no link.
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
    """NoC cycles of a transfer from one end of a bus (`noc` is a `Noc`) to the other."""
    return noc.inject_cycles + (noc.columns - 1) * noc.hop_cycles_ew + noc.eject_cycles
