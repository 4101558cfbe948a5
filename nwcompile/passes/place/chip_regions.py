"""Zones: the cores, and with them the units of neurons, that go to one chip where several are joined by slower links.

Neurons near one another on a map send to one another, so a zone takes one tile of every map: only what lies along its
edges sends to other chips. Ours; tiles are made as a k-d tree cuts points (Bentley, Comm. ACM 18(9), 1975).
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import layer_numbers
from nwcompile.ir.network import Network
from nwcompile.ir.noc.routing import between_chips
from nwcompile.passes.fit import capacity
from nwcompile.passes.partition.floorline.clusters import places
from nwcompile.passes.place.space_filling import z_rank

FEWEST_CORES = 16  # of a zone; if any chip has fewer, all are taken as one


def zone_sizes(chip: Chip, n_cores: int) -> np.ndarray:
    """int64[zone]: how many of `n_cores` go to each of as few chips as hold them, alike as far as these are.

    One zone of all where links between chips are not slower, where cores have different limits, or where chips or zones
    would be smaller than `FEWEST_CORES`.
    """
    upto = _upto(chip)
    if n_cores > upto[-1]:
        return np.array([n_cores])
    upto = upto[: 1 + int(np.searchsorted(upto, n_cores))]
    sizes = np.diff(n_cores * upto // upto[-1], prepend=0)
    return sizes if sizes.min() >= FEWEST_CORES else np.array([n_cores])


def whole_chips(chip: Chip, n_cores: int) -> int:
    """`n_cores`, or beyond one chip of several that are joined by slower links, all cores of as many as tile well.

    That is the next power of two of chips, which lie in a rectangle where a board has such sides, or all of them.
    """
    upto = _upto(chip)
    n_chips = 1 << int(np.searchsorted(upto[:-1], n_cores)).bit_length()
    return n_cores if n_cores <= upto[0] else int(upto[min(n_chips, len(upto)) - 1])


def twice_the_cores(chip: Chip, n_cores: int) -> int:
    """Twice as many cores, but first all of one chip, and then twice as many chips: see `whole_chips`."""
    one = int(_upto(chip)[0])
    return min(2 * n_cores, one) if n_cores < one else whole_chips(chip, n_cores + 1)


def sites_by_zone(chip: Chip, sizes: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """int64[core]: sites of cores in the order of zones, those of one chip by their `rank` int64[site]."""
    chips = _sites_of_chips(chip)
    return np.concatenate([s[np.argsort(rank[s], kind="stable")][:n] for s, n in zip(chips, sizes, strict=False)])


def unit_zones(network: Network, load: np.ndarray, unit_of: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """int64[unit]: the zone of every unit, zones being tiles of each layer with loads in proportion to their sizes.

    `load` int64[neuron], `unit_of` int64[neuron]. A layer is cut across its longer side, and where there is one pixel,
    between channels, or neurons, in order.
    """
    size = np.bincount(unit_of)
    place = np.stack([np.bincount(unit_of, axis) / size for axis in places(network).T], 1)
    heavy, zone = np.bincount(unit_of, load), np.zeros(len(size), np.int64)
    layer = layer_numbers(network)
    of_unit = layer[np.unique(unit_of, return_index=True)[1]]
    for k in range(len(network.layers)):
        _cut(zone, np.flatnonzero(of_unit == k), place, heavy, sizes, 0)
    return zone


def _cut(zone: np.ndarray, own: np.ndarray, place, heavy, sizes: np.ndarray, first: int) -> None:
    """Set the zones, `first` and those after it, of the units `own`, whose middles are place: float64[unit, 3]."""
    if len(sizes) == 1 or not len(own):
        zone[own] = first
        return
    half, extent = len(sizes) // 2, np.ptp(place[own], axis=0)
    axis = 1 + int(extent[1:].argmax()) if extent[1:].any() else 0
    order = own[np.argsort(place[own, axis], kind="stable")]
    weight = heavy[order] if heavy[order].any() else np.ones(len(order))
    middle = np.cumsum(weight) - weight / 2
    n = int((middle < weight.sum() * sizes[:half].sum() / sizes.sum()).sum())
    _cut(zone, order[:n], place, heavy, sizes[:half], first)
    _cut(zone, order[n:], place, heavy, sizes[half:], first + half)


def _upto(chip: Chip) -> np.ndarray:
    """int64[chip]: usable cores of the first 1, 2, .. chips; of all as one where zones are no use, see `zone_sizes`.

    So either every number of whole chips has zones or none has: only then can the times with links be compared.
    """
    limits = capacity.site_limits(chip)[chip.is_usable]
    n_each = np.array([len(sites) for sites in _sites_of_chips(chip)])
    is_one = not _is_slower_between(chip) or not (limits == limits[0]).all() or n_each.min() < FEWEST_CORES
    return np.array([len(limits)]) if is_one else np.cumsum(n_each)


def _is_slower_between(chip: Chip) -> bool:
    """Whether a flit takes longer, or keeps its link for longer, between chips than within."""
    if chip.is_bus:
        return False
    slow = between_chips(chip.grid, chip.noc.chip_columns, chip.noc.chip_rows).reshape(-1)
    each = np.stack([chip.link_latency, chip.link_cycles])[:, : len(slow)]
    return bool(slow.any() and not slow.all() and (each[:, slow].max(1) > each[:, ~slow].max(1)).any())


def _sites_of_chips(chip: Chip) -> list[np.ndarray]:
    """The usable sites of every chip, chips in Z-order: neighbors in it are near one another."""
    noc, (x, y) = chip.noc, chip.sites[:, :2].astype(np.int64).T
    code = z_rank(x // (noc.chip_columns or noc.columns), y // (noc.chip_rows or noc.rows))
    usable = np.flatnonzero(chip.is_usable)
    return [usable[code[usable] == c] for c in np.unique(code[usable])]
