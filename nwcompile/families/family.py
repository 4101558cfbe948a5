"""Family: the answers of a chip family to all other code. Those here are the answers of a mesh or torus of routers."""

from collections.abc import Mapping

import numpy as np

from nwcompile.ir.noc.routing import list_route_links

DIRECTIONS = ("E", "W", "N", "S")


class Family:
    """A kind of chip. Chips of a family have `value` at `key`; a family overrides what differs from a mesh."""

    key: str = "noc.topology"
    value: str | None = "mesh"
    own_keys: tuple[str, ...] = ()  # keys of a chip file that only this family has
    silent_keys: Mapping[str, str] = {}  # keys of `noc` that it lacks, with the reason; they must have their defaults
    has_routers = True  # routers with buffers behind links, in which flits wait
    has_barrier = True  # a barrier that ends a step for all cores at once
    has_own_times = False  # step times that depend on neither `cost` nor the mapping
    loses_late: str | None = None  # why messages are lost though no buffer drops them
    outputs_need_destinations = False  # a spike that leaves the chip takes a destination of its neuron

    def has_member(self, chip) -> bool:
        """Whether a Chip belongs to the family."""
        return chip.value(self.key) == self.value

    def verify(self, chip, where: str) -> None:
        """Raise ChipError, naming the key, for a combination of a Chip's keys that the family cannot have."""

    def refuse_run(self, chip, profile: bool, totals: bool) -> str | None:
        """Return why no such run can be simulated cycle by cycle; None if it can."""
        return None

    def entries(self, chip) -> np.ndarray:
        """Return int64[site]: for each of io.sites the physical core at whose port messages of input lines enter."""
        return chip.io_cores

    def link_cycles(self, chip) -> np.ndarray:
        """Return int64[link]: NoC cycles that a flit occupies each link; in the order of cost/traffic/link_flits.py."""
        noc, of_link = chip.noc, np.full(4 * len(chip.grid.is_open) + 2 * chip.n_cores, chip.noc.link_cycles_per_flit)
        of_link[chip.links_between_chips] = noc.chip_link_cycles_per_flit or noc.link_cycles_per_flit
        return of_link

    def links_on_route(self, chip, here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the links between pairs of physical cores, without the cores' own ports: (offset, link)."""
        per = chip.noc.cores_per_router
        return list_route_links(chip.grid, here // per, there // per)

    def link_busy(self, chip, link_flits: np.ndarray, n_free: int = 0) -> np.ndarray:
        """Return int64[H, link]: lower bound in NoC cycles on the time of each link for its flits.

        `n_free` of the flits count only until they have left the link, not until it is free again. Without a barrier
        this is the last flit of each sample: cores continue once it has arrived.

        The bound is the time of the link for its flits one after another, or their hop latencies divided by the buffer
        slots behind the link, if that is more: a flit occupies its slot from when the link takes it until it moves on
        (Little, Oper. Res. 9(3), 1961: flits at a place = rate x time there). So a link to another chip, with its long
        hops, may pass far fewer flits than it has cycles for.
        """
        flits = link_flits.astype(np.int64)
        n_slots = chip.noc.buffer_flits * chip.noc.virtual_channels
        held = flits * chip.link_cycles - n_free * np.maximum(chip.link_cycles - chip.link_latency, 0)
        return np.maximum(held, flits * chip.link_latency // n_slots)

    def link_place(self, chip, link: int) -> tuple[int, int, str]:
        """Return the router (x, y) of a link id, and its direction E, W, N, S; not for the cores' own links."""
        y, x = divmod(link // 4, chip.noc.columns)
        return x, y, DIRECTIONS[link % 4]

    def link_name(self, chip, link: int) -> str:
        """Name a link that is not a core's own: `(1, 0) E`."""
        x, y, kind = self.link_place(chip, link)
        return f"({x}, {y}) {kind}"
