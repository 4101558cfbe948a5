"""Clusters: sets of neurons of one layer that a partitioner moves together, from whole layers down to single neurons.

A cluster of a map is a block of channels on a tile of pixels. Tiles are cut before channels, because neurons of one
pixel read the same sources and so share axons.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset, layer_numbers, neuron_places
from nwcompile.ir.network import Network
from nwcompile.kernels.mapping import clusters
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.passes.analyze import capacity


def fitting_clusters(
    network: Network,
    chip: Chip,
    load: np.ndarray,
    n_clusters: int,
    cluster_of: np.ndarray | None = None,
    per_core: int = 1,
    is_checked: bool = True,
) -> np.ndarray:
    """Return int64[neuron]: clusters that the largest core holds, none with more than 1/`n_clusters` of all the load.

    `load` int64[neuron]. They are cut out of `cluster_of`, or of whole layers. Single neurons may exceed both limits.
    The largest core holds the neurons of at least `per_core` clusters and, if `is_checked`, all else that one needs.
    """
    if cluster_of is None:
        cluster_of = layer_numbers(network)
    limit, place = capacity.site_limits(chip).max(0), neuron_places(network)
    fan = capacity.fan_in(network, chip) if is_checked else None
    known_size = np.zeros(0, np.int64)  # of clusters that a core is known to hold, 0 for others
    while True:
        size = np.bincount(cluster_of)
        large = np.bincount(cluster_of, load) * n_clusters > load.sum()
        large |= size > limit[kernels.NEURONS] // per_core
        if fan is not None and not (large & (size > 1)).any():
            known_size = np.concatenate([known_size, np.zeros(len(size) - len(known_size), np.int64)])
            fits = _core_holds(fan, limit, cluster_of, size != known_size)
            known_size = size * fits
            large |= ~fits
        if not (large & (size > 1)).any():
            return cluster_of
        cluster_of = halve_clusters(place, cluster_of, large)


def halve_clusters(place: np.ndarray, cluster_of: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return int64[neuron]: the clusters with those of `which` bool[cluster] halved, if they have two neurons or more.

    `place` int64[neuron, 3]: of `neuron_places`. A cluster of several pixels is cut across its longer side, one of a
    single pixel between its channels. The first half keeps its cluster's number; new clusters are numbered after the
    last one.
    """
    low, high = np.full((len(which), 3), np.iinfo(np.int64).max), np.full((len(which), 3), -1)
    clusters.add_to_boxes(place, cluster_of, low, high)
    extent = high - low
    axis = np.where(extent[:, 1:].any(1), 1 + extent[:, 1:].argmax(1), 0)
    every = np.arange(len(which))
    is_cut = which & (extent[every, axis] > 0)
    members = np.flatnonzero(is_cut[cluster_of])
    cluster = cluster_of[members]
    middle = (low[every, axis] + high[every, axis]) // 2
    is_second = place[members, axis[cluster]] > middle[cluster]
    halved = cluster_of.copy()
    halved[members[is_second]] = (len(which) - 1 + np.cumsum(is_cut))[cluster[is_second]]
    return halved


def _core_holds(fan: kernels.SynapseTable, limit: np.ndarray, cluster_of: np.ndarray, is_new: np.ndarray) -> np.ndarray:
    """Return bool[cluster]: whether an empty core with this limit int64[resource] holds each cluster; old ones fit.

    `is_new` bool[cluster].
    """
    members = np.flatnonzero(is_new[cluster_of])
    order = members[np.argsort(cluster_of[members], kind="stable")]
    start = csr_offset(np.bincount(cluster_of[members], minlength=len(is_new)))
    demand, fits = np.zeros((len(cluster_of), 2), np.int64), np.zeros(len(is_new), bool)
    kernels.clusters_fit(fan, capacity.empty_core(fan), demand, start, order, limit, fits)
    return fits
