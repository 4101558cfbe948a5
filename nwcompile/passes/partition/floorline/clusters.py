"""Clusters: sets of neurons of one layer that a partitioner moves together, from whole layers down to single neurons.

A cluster of a map is a block of channels on a tile of pixels, and a tile is cut before channels are: neurons of one
pixel read the same sources, so that they share axons.
"""

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset, layer_numbers, neuron_places
from nwcompile.ir.network import Network
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.passes.fit import capacity


def fitting_clusters(
    network: Network,
    chip: Chip,
    load: np.ndarray,
    n_clusters: int,
    cluster_of: np.ndarray | None = None,
    per_core: int = 1,
) -> np.ndarray:
    """int64[neuron]: clusters that the largest core can hold, none with more than 1/`n_clusters` of all the load.

    `load` int64[neuron]. They are cut out of `cluster_of`, or of whole layers. Single neurons stay as they are,
    whatever they take. The largest core's neurons are those of `per_core` clusters or more.
    """
    if cluster_of is None:
        cluster_of = layer_numbers(network)
    fan, limit = capacity.fan_in(network, chip), capacity.site_limits(chip).max(0)
    while True:
        size = np.bincount(cluster_of)
        large = np.bincount(cluster_of, load) * n_clusters > load.sum()
        large |= size > limit[kernels.NEURONS] // per_core
        if not (large & (size > 1)).any():
            large |= ~_fit(fan, limit, cluster_of)
        if not (large & (size > 1)).any():
            return cluster_of
        cluster_of = split(network, cluster_of, large)


def split(network: Network, cluster_of: np.ndarray, which: np.ndarray) -> np.ndarray:
    """int64[neuron]: the clusters with those of `which` bool[cluster] halved, as far as they have two neurons or more.

    A cluster of several pixels is cut across its longer side, one of a single pixel between its channels. New clusters
    take the numbers from the last on; the first half keeps its cluster's.
    """
    members = np.flatnonzero(which[cluster_of])
    if not len(members):
        return cluster_of
    members = members[np.argsort(cluster_of[members], kind="stable")]
    position, n_clusters = neuron_places(network)[members], len(which)
    clusters, begin = np.unique(cluster_of[members], return_index=True)
    low, high = np.minimum.reduceat(position, begin), np.maximum.reduceat(position, begin)
    extent = high - low
    axis = np.where(extent[:, 1:].any(1), 1 + extent[:, 1:].argmax(1), 0)
    every = np.arange(len(clusters))
    middle = (low[every, axis] + high[every, axis]) // 2
    cut = extent[every, axis] > 0
    at = np.repeat(every, np.diff(begin, append=len(members)))
    second = members[cut[at] & (position[np.arange(len(members)), axis[at]] > middle[at])]
    new_cluster = np.zeros(n_clusters, np.int64)
    new_cluster[clusters] = n_clusters + np.cumsum(cut) - 1
    halved = cluster_of.copy()
    halved[second] = new_cluster[cluster_of[second]]
    return halved


def _fit(fan: kernels.SynapseTable, limit: np.ndarray, cluster_of: np.ndarray) -> np.ndarray:
    """bool[cluster]: whether an empty core of this limit int64[resource] holds each cluster."""
    start = csr_offset(np.bincount(cluster_of))
    demand, fits = np.zeros((len(cluster_of), 2), np.int64), np.zeros(len(start) - 1, bool)
    order = np.argsort(cluster_of, kind="stable")
    kernels.clusters_fit(fan, capacity.empty_core(fan), demand, start, order, limit, fits)
    return fits
