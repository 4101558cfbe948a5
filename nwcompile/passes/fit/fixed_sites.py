"""Fixed sites: cores of a layer that a person has put at sites of their choice, and which core may go where at all."""

import numpy as np

from nwcompile.errors import OptionError, shown, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options

FREE = -1


def pins(network: Network, chip: Chip, core_of: dict[str, np.ndarray], n_cores: int, options: Options) -> np.ndarray:
    """int64[core]: the physical core at which each is fixed by `options.fixed_sites`, `FREE` for the others.

    The sites of a layer are for its cores in the order of their numbers. Raises OptionError, naming the layer, for
    sites or layers that are not there, for more sites than the layer has cores, and for what is fixed twice.
    """
    verify_sites(network, chip, options)
    pinned = np.full(n_cores, FREE, np.int64)
    for layer, sites in (options.fixed_sites or {}).items():
        cores = np.unique(core_of[layer])
        if len(sites) > len(cores):
            raise OptionError(f"fixed_sites: {len(sites)} sites for layer {layer!r}, which takes {len(cores)} cores")
        for core, site in zip(cores, sites, strict=False):
            where, index = _named(layer, site), int(chip.site_index(np.array([site]))[0])
            if pinned[core] not in (FREE, index):
                raise OptionError(f"{where}: its core {core} is fixed at another site already")
            if index in pinned and pinned[core] == FREE:
                raise OptionError(f"{where} is fixed for another core already")
            pinned[core] = index
    return pinned


def verify_sites(network: Network, chip: Chip, options: Options) -> None:
    """Raise OptionError for a layer or site of `options.fixed_sites` that is not there, or out of use."""
    ends = chip.noc.columns, chip.noc.rows, chip.noc.cores_per_router
    for layer, sites in (options.fixed_sites or {}).items():
        if layer not in network.layers:
            raise OptionError(f"fixed_sites: {unknown_choice('layer', layer, network.layers)}")
        for site in sites:
            if any(n >= end for n, end in zip(site, ends, strict=True)):
                last = ",".join(str(n - 1) for n in ends)
                raise OptionError(f"{_named(layer, site)} is outside {chip.name}; the last site is {last}")
            if chip.limit("max_neurons")[chip.site_index(np.array([site]))[0]] == 0:
                raise OptionError(f"{_named(layer, site)} is out of use on {chip.name}")


def _named(layer: str, site: tuple[int, int, int]) -> str:
    return f"fixed_sites: site {shown(site, _text)} of layer {layer!r}"


def _text(site: tuple[int, int, int]) -> str:
    return ",".join(map(str, site))


def kinds_of_sites(limits: np.ndarray, used: np.ndarray, pinned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sites sorted into kinds, int64[site], and which core fits each kind, bool[core, kind].

    `limits` int64[site, resource], `used` int64[core, resource], `pinned` as of `pins`. A site at which a core is fixed
    is a kind of its own, which holds that core alone, and the core no other.
    """
    kinds, kind = np.unique(limits, axis=0, return_inverse=True)
    kind, width = kind.reshape(-1).copy(), used.shape[1]
    fits = np.all(used[:, None, :] <= kinds[None, :, :width], axis=2)
    fixed = np.flatnonzero(pinned != FREE)
    holds = fits[fixed, kind[pinned[fixed]]]
    fits[fixed] = False
    own = np.zeros((len(used), len(fixed)), bool)
    own[fixed, np.arange(len(fixed))] = holds
    kind[pinned[fixed]] = len(kinds) + np.arange(len(fixed))
    return kind, np.concatenate([fits, own], 1)
