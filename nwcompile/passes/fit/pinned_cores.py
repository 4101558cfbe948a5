"""Pinned cores: cores numbered, and cut where they are too large, so that those of `fixed_sites` fit at their sites."""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.fit import capacity


def cut_to_sites(network: Network, chip: Chip, cores: np.ndarray, options: Options) -> np.ndarray | None:
    """Cores int32[neuron] in which the first cores of each layer of `options.fixed_sites` fit its sites; None: no way.

    Those that fit a site as they are get the numbers that send them there. Where none does, as much of the layer as the
    site holds leaves one for a core of its own. `cores` int32[neuron] has no gaps; whether all others fit some site is
    not looked at.
    """
    if options.fixed_sites is None:
        return None
    limits, first = capacity.site_limits(chip), capacity.neuron_offsets(network)
    fixed = {name: np.zeros(len(cores), bool) for name, sites in options.fixed_sites.items() if sites}
    for name, own in fixed.items():
        own[first[name] : first[name] + network.node(name).n_neurons] = True
    pinned: list[int] = []
    for name, own in fixed.items():
        elsewhere = np.any([other for layer, other in fixed.items() if layer != name], axis=0)
        for site in chip.site_index(np.array(options.fixed_sites[name])):
            used = capacity.used_by_core(network, chip, cores, int(cores.max()) + 1)
            free = np.setdiff1d(cores[own], pinned)
            fits = (used[free] <= limits[site, : used.shape[1]]).all(1) & ~np.isin(free, cores[elsewhere])
            if fits.any():
                pinned.append(int(free[fits][used[free[fits], 0].argmax()]))
                continue
            if not len(free):
                return None
            cores = _cut(network, chip, cores, own, free, limits[site])
            if cores is None:
                return None
            pinned.append(int(cores.max()))
    order = np.concatenate([pinned, np.setdiff1d(cores, pinned)]).astype(np.int64)
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order))
    return number[cores]


def _cut(network: Network, chip: Chip, cores, own, free: np.ndarray, limit: np.ndarray) -> np.ndarray | None:
    """The cores with one more, of as many of the neurons `own` of one of `free` as an empty core of `limit` holds."""
    n_own = np.bincount(cores[own], minlength=int(cores.max()) + 1)
    members = np.flatnonzero((cores == free[n_own[free].argmax()]) & own)
    held, least, most = None, 1, min(len(members), int(limit[0]))
    while least <= most:
        n = (least + most + 1) // 2
        tried = cores.copy()
        tried[members[:n]] = cores.max() + 1
        used = capacity.used_by_core(network, chip, tried, int(tried.max()) + 1)[-1]
        if (used <= limit[: len(used)]).all():
            held, least = tried, n + 1
        else:
            most = n - 1
    return held
