"""Chip regions: the cores, and their clusters, that go to one chip if slower links join several chips.

Neighboring neurons of a map exchange spikes, so a region takes one tile of every map, and only its edges send to other
chips. This method is ours; tiles are cut as in a k-d tree (Bentley, Comm. ACM 18(9), 1975).
"""

from dataclasses import replace

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import chip_size, count_chips, fewest_chips
from nwcompile.ir.flat import layer_numbers, neuron_places
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.noc.routing import find_chip_crossings
from nwcompile.ir.options import Options
from nwcompile.passes.analyze import capacity
from nwcompile.passes.place.direct import z_rank

FEWEST_CORES = 16  # of a region; if any chip has fewer, all chips count as one


def region_sizes(chip: Chip, n_cores: int) -> np.ndarray:
    """Return int64[region]: how many of `n_cores` go to each of the fewest chips that hold them, as evenly as possible.

    There is one region if links between chips are not slower, if cores have different limits, or if chips or regions
    would be smaller than `FEWEST_CORES`.
    """
    upto = _cores_upto(chip)
    if n_cores > upto[-1]:
        return np.array([n_cores])
    upto = upto[: 1 + int(np.searchsorted(upto, n_cores))]
    sizes = np.diff(n_cores * upto // upto[-1], prepend=0)
    return sizes if sizes.min() >= FEWEST_CORES else np.array([n_cores])


def whole_chips(chip: Chip, n_cores: int) -> int:
    """Return `n_cores` if one chip holds them or `region_sizes` gives one region, else all cores of several chips.

    Their number is a power of two, so that they form a rectangle if the board has such sides, or that of all chips.
    """
    upto = _cores_upto(chip)
    n_chips = 1 << int(np.searchsorted(upto[:-1], n_cores)).bit_length()
    return n_cores if n_cores <= upto[0] else int(upto[min(n_chips, len(upto)) - 1])


def twice_the_cores(chip: Chip, n_cores: int) -> int:
    """Return twice as many cores: first up to all of one chip, then twice as many chips; see `whole_chips`."""
    one = int(_cores_upto(chip)[0])
    return min(2 * n_cores, one) if n_cores < one else whole_chips(chip, n_cores + 1)


def take_fewest_chips(mapping: Mapping, chip: Chip, options: Options) -> tuple[Chip, Mapping]:
    """Return the part of a board on which a mapping is placed, the fewest chips that hold it, and the mapping on it.

    The part is a rectangle; its sites are the board's with equal coordinates (x, y, port). Chip and mapping stay
    unchanged if the whole board is needed, or if placement depends on the rest of it: sites found together with the
    cores (`optimize="traffic"`) or fixed, io.sites, faults, a torus, cores with different limits, a user's placer.
    """
    noc, limits = chip.noc, capacity.site_limits(chip)
    is_bound = options.optimize == "traffic" or options.fixed_sites or chip.io.sites or noc.faults or mapping.visit
    n_x, n_y = fewest_chips(noc, mapping.n_cores)
    if (n_x, n_y) == count_chips(noc) or is_bound or callable(options.placer) or noc.topology != "mesh":
        return chip, mapping
    if not (limits == limits[0]).all():
        return chip, mapping
    columns, rows = chip_size(noc)
    size = {"noc.columns": min(n_x * columns, noc.columns), "noc.rows": min(n_y * rows, noc.rows)}
    part = chip.replace(size)
    return part, replace(mapping, site_of=part.sites[: mapping.n_cores])


def sites_by_region(chip: Chip, sizes: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return int64[core]: sites of cores in the order of regions, within a chip by their `rank` int64[site]."""
    chips = _sites_of_chips(chip)
    return np.concatenate([s[np.argsort(rank[s], kind="stable")][:n] for s, n in zip(chips, sizes, strict=False)])


def cluster_regions(network: Network, load: np.ndarray, cluster_of: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return int64[cluster]: the region of every cluster: tiles of each layer with loads in proportion to `sizes`.

    `load` int64[neuron], `cluster_of` int64[neuron]. A layer is cut across its longer side; if it has one pixel,
    between channels or neurons in order.
    """
    size = np.bincount(cluster_of)
    place = np.stack([np.bincount(cluster_of, axis) / size for axis in neuron_places(network).T], 1)
    heavy, region = np.bincount(cluster_of, load), np.zeros(len(size), np.int64)
    layer = layer_numbers(network)
    of_unit = layer[np.unique(cluster_of, return_index=True)[1]]
    for k in range(len(network.layers)):
        _cut_regions(region, np.flatnonzero(of_unit == k), place, heavy, sizes, 0)
    return region


def _cut_regions(region: np.ndarray, some: np.ndarray, place, heavy, sizes: np.ndarray, first: int) -> None:
    """Set the regions, numbered from `first`, of some clusters; `place` float64[cluster, 3] has their centers."""
    if len(sizes) == 1 or not len(some):
        region[some] = first
        return
    half, extent = len(sizes) // 2, np.ptp(place[some], axis=0)
    axis = 1 + int(extent[1:].argmax()) if extent[1:].any() else 0
    order = some[np.argsort(place[some, axis], kind="stable")]
    weight = heavy[order] if heavy[order].any() else np.ones(len(order))
    middle = np.cumsum(weight) - weight / 2
    n = int((middle < weight.sum() * sizes[:half].sum() / sizes.sum()).sum())
    _cut_regions(region, order[:n], place, heavy, sizes[:half], first)
    _cut_regions(region, order[n:], place, heavy, sizes[half:], first + half)


def _cores_upto(chip: Chip) -> np.ndarray:
    """Return int64[chip]: usable cores of the first 1, 2, .. chips; one entry if `region_sizes` gives one region.

    So either every number of whole chips has regions or none has. Otherwise times with links could not be compared.
    """
    limits = capacity.site_limits(chip)[chip.is_usable]
    n_each = np.array([len(sites) for sites in _sites_of_chips(chip)])
    is_one = not _is_slower_between(chip) or not (limits == limits[0]).all() or n_each.min() < FEWEST_CORES
    return np.array([len(limits)]) if is_one else np.cumsum(n_each)


def _is_slower_between(chip: Chip) -> bool:
    """Return whether a flit takes longer, or occupies its link for longer, between chips than within one."""
    if not chip.family.has_routers:
        return False
    slow = find_chip_crossings(chip.grid, chip.noc.chip_columns, chip.noc.chip_rows).reshape(-1)
    if not slow.any() or slow.all():
        return False
    figures = np.stack([chip.link_latency, chip.link_cycles])[:, : len(slow)]
    return bool((figures[:, slow].max(1) > figures[:, ~slow].max(1)).any())


def _sites_of_chips(chip: Chip) -> list[np.ndarray]:
    """Return the usable sites of every chip, chips in Z-order, so that neighbors in order are close to one another."""
    noc, (x, y) = chip.noc, chip.sites[:, :2].astype(np.int64).T
    code = z_rank(x // (noc.chip_columns or noc.columns), y // (noc.chip_rows or noc.rows))
    usable = np.flatnonzero(chip.is_usable)
    by_chip = usable[np.argsort(code[usable], kind="stable")]
    return np.split(by_chip, 1 + np.flatnonzero(np.diff(code[by_chip])))
