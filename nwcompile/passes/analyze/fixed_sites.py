"""Fixed sites: cores of a layer that the user put at sites, and the sites at which each core fits.

`pins` returns which core is fixed where; `split_to_sites` numbers cores, and splits those that are too large.
"""

import numpy as np

from nwcompile.errors import OptionError, shown, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import neuron_offsets
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.analyze import capacity

ERROR_CODE = "NW5005"
FREE = -1  # Index of a core that is not fixed.


def pins(network: Network, chip: Chip, core_of: dict[str, np.ndarray], n_cores: int, options: Options) -> np.ndarray:
    """Return int64[core]: the physical core at which `options.fixed_sites` fixes each, `FREE` for the others.

    The sites of a layer are assigned to its cores in order of their numbers. Raises OptionError, naming the layer, for
    unknown sites or layers, for more sites than the layer has cores, and for cores or sites that are fixed twice.
    """
    verify_sites(network, chip, options)
    pinned = np.full(n_cores, FREE, np.int64)
    for layer, sites in (options.fixed_sites or {}).items():
        cores = np.unique(core_of[layer])
        if len(sites) > len(cores):
            raise OptionError(f"fixed_sites: {len(sites)} sites for layer {layer!r}, which takes {len(cores)} cores")
        for core, site in zip(cores, sites, strict=False):
            where, index = _describe_site(layer, site), int(chip.site_index(np.array([site]))[0])
            if pinned[core] not in (FREE, index):
                raise OptionError(f"{where}: its core {core} is fixed at another site already")
            if index in pinned and pinned[core] == FREE:
                raise OptionError(f"{where} is fixed for another core already")
            pinned[core] = index
    return pinned


def verify_sites(network: Network, chip: Chip, options: Options) -> None:
    """Raise OptionError for a layer or site of `options.fixed_sites` that does not exist or is out of use."""
    ends = chip.noc.columns, chip.noc.rows, chip.noc.cores_per_router
    for layer, sites in (options.fixed_sites or {}).items():
        if layer not in network.layers:
            raise OptionError(f"fixed_sites: {unknown_choice('layer', layer, network.layers)}")
        for site in sites:
            if any(n >= end for n, end in zip(site, ends, strict=True)):
                last = ",".join(str(n - 1) for n in ends)
                raise OptionError(f"{_describe_site(layer, site)} is outside {chip.name}; the last site is {last}")
            if chip.max_neurons[chip.site_index(np.array([site]))[0]] == 0:
                raise OptionError(f"{_describe_site(layer, site)} is out of use on {chip.name}")


def _describe_site(layer: str, site: tuple[int, int, int]) -> str:
    return f"fixed_sites: site {shown(site, lambda given: ','.join(map(str, given)))} of layer {layer!r}"


def split_to_sites(network: Network, chip: Chip, cores: np.ndarray, options: Options) -> np.ndarray | None:
    """Return cores int32[neuron] such that the first cores of each fixed layer fit its sites, or None if impossible.

    Cores that fit a site are numbered so that they go there. If none fits, as many neurons of the layer as the site
    holds get a core of their own. `cores` int32[neuron] has no gaps; other cores are not checked.
    """
    if options.fixed_sites is None:
        return None
    limits, first = capacity.site_limits(chip), neuron_offsets(network)
    fixed = {name: np.zeros(len(cores), bool) for name, sites in options.fixed_sites.items() if sites}
    for name, is_member in fixed.items():
        is_member[first[name] : first[name] + network.node(name).n_neurons] = True
    pinned: list[int] = []
    for name, is_member in fixed.items():
        elsewhere = np.any([other for layer, other in fixed.items() if layer != name], axis=0)
        for site in chip.site_index(np.array(options.fixed_sites[name])):
            used = capacity.used_by_core(network, chip, cores, int(cores.max()) + 1)
            free = np.setdiff1d(cores[is_member], pinned)
            fits = (used[free] <= limits[site, : used.shape[1]]).all(1) & ~np.isin(free, cores[elsewhere])
            if fits.any():
                pinned.append(int(free[fits][used[free[fits], 0].argmax()]))
                continue
            if not len(free):
                return None
            if (split := _cut_core(network, chip, cores, is_member, free, limits[site])) is None:
                return None
            cores = split
            pinned.append(int(cores.max()))
    order = np.concatenate([pinned, np.setdiff1d(cores, pinned)]).astype(np.int64)
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order))
    return number[cores]


def _cut_core(network: Network, chip: Chip, cores, is_member, free: np.ndarray, limit: np.ndarray) -> np.ndarray | None:
    """Add a core with as many members of one of `free` as an empty core with `limit` holds."""
    n_members = np.bincount(cores[is_member], minlength=int(cores.max()) + 1)
    members = np.flatnonzero((cores == free[n_members[free].argmax()]) & is_member)
    held, smallest, largest = None, 1, min(len(members), int(limit[0]))
    while smallest <= largest:
        n = (smallest + largest + 1) // 2
        tried = cores.copy()
        tried[members[:n]] = cores.max() + 1
        used = capacity.used_by_core(network, chip, tried, int(tried.max()) + 1)[-1]
        if (used <= limit[: len(used)]).all():
            held, smallest = tried, n + 1
        else:
            largest = n - 1
    return held


def kinds_of_sites(limits: np.ndarray, used: np.ndarray, pinned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the kind of each site, int64[site], and which core fits each kind, bool[core, kind].

    `limits` int64[site, resource], `used` int64[core, resource], `pinned` as returned by `pins`. A site with a fixed
    core is a kind of its own: only that core fits it, and the core fits no other.
    """
    kinds, kind = np.unique(limits, axis=0, return_inverse=True)
    kind, width = kind.reshape(-1).copy(), used.shape[1]
    fits = np.all(used[:, None, :] <= kinds[None, :, :width], axis=2)
    fixed = np.flatnonzero(pinned != FREE)
    holds = fits[fixed, kind[pinned[fixed]]]
    fits[fixed] = False
    fits_fixed = np.zeros((len(used), len(fixed)), bool)
    fits_fixed[fixed, np.arange(len(fixed))] = holds
    kind[pinned[fixed]] = len(kinds) + np.arange(len(fixed))
    return kind, np.concatenate([fits, fits_fixed], 1)
