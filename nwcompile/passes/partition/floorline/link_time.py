"""Link time: how long the busiest link of every step takes, for units on cores at sites, before there are axons."""

import numpy as np

from nwcompile.cost.time.work import link_busy
from nwcompile.ir.chip import Chip
from nwcompile.ir.noc.routing import between_chips, ports
from nwcompile.kernels.mapping import link_flits
from nwcompile.kernels.mapping.cluster_state import TIME, Demand, Loads

AT_ONCE = 1 << 22  # outputs that are looked up at once


def link_cycles(demand: Demand, loads: Loads, chip: Chip, site: np.ndarray, is_even: bool = False) -> np.ndarray:
    """int64[step]: core cycles that the busiest link takes for the messages of units on cores at `site` int64[core].

    As `cost.time.work` has it, but for payloads and the messages of input lines, which are left out. `is_even`:
    before cores are placed; links from one chip to another share their flits evenly, and no others count. The chip has
    routers.
    """
    flits = _flits(demand, loads, chip, site).T * chip.noc.flits_per_message
    core_ticks, noc_ticks = chip.ticks
    return link_busy(chip, _shared(flits, chip) if is_even else flits).max(1) * noc_ticks // core_ticks


def time_with_links(demand: Demand, loads: Loads, chip: Chip, site: np.ndarray, is_even: bool = False) -> int:
    """Cycles of all steps together, each as long as its busiest core or link; see `link_cycles`."""
    waits = np.maximum(link_cycles(demand, loads, chip, site, is_even) - loads.top, 0)
    return int(loads.total[TIME] + waits.sum())


def _flits(demand: Demand, loads: Loads, chip: Chip, site: np.ndarray) -> np.ndarray:
    """int64[link, step]: messages over every link."""
    n_mesh, router = 4 * len(chip.grid.is_open), site // chip.noc.cores_per_router
    routers, to = np.unique(router, return_inverse=True)
    atom, reader = np.nonzero(loads.n_rows.T > 0)
    offset = np.searchsorted(atom, np.arange(len(demand.atom_size) + 1))
    ends = n_mesh + np.stack([site, chip.n_cores + site])
    flits = np.zeros((n_mesh + 2 * chip.n_cores, demand.send.shape[1]), np.int64)
    link_flits.add_flits(
        demand, loads, offset, reader, router, to.reshape(-1), _ports(chip, routers), chip.grid.neighbor, ends,
        chip.noc.multicast == "tree", flits,
    )  # fmt: skip
    return flits


def _ports(chip: Chip, routers: np.ndarray) -> np.ndarray:
    """uint8[router, ...]: the output of every router of the chip for messages to each of `routers`."""
    own = np.arange(len(chip.grid.is_open))[:, None]
    parts = np.array_split(own, 1 + own.size * len(routers) // AT_ONCE)
    return np.concatenate([ports(chip.grid, part, routers) for part in parts])


def _shared(flits: np.ndarray, chip: Chip) -> np.ndarray:
    """int64[step, link]: what links from one chip to another carry if they share it evenly, and nothing elsewhere."""
    noc, grid = chip.noc, chip.grid
    router, direction = np.nonzero(between_chips(grid, noc.chip_columns, noc.chip_rows))
    y, x = np.divmod(router, grid.columns)
    tile = y // (noc.chip_rows or grid.rows) * grid.columns + x // (noc.chip_columns or grid.columns)
    side = np.unique(tile * 4 + direction, return_inverse=True)[1].reshape(-1)
    link, shared = router * 4 + direction, np.zeros_like(flits)
    total = np.zeros((int(side.max(initial=-1)) + 1, len(flits)), np.int64)
    np.add.at(total, side, flits.T[link])
    shared.T[link] = (total // np.bincount(side)[:, None])[side]
    return shared
