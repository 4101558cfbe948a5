"""Striped: a partitioner that deals the clusters of every layer round-robin over the cores, so each has a part of it.

It is the simplest way to balance the cores within each step (DESIGN 7), and not from a paper. Neighboring neurons of a
map spike together; here they do so on different cores.
"""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.passes.partition.graph_partition import fit_parts
from nwcompile.passes.partition.logical_cores import LogicalCores


def cut_stripes(network: Network, chip: Chip, activity: Activity, options: Options, n_bands: int = 1) -> LogicalCores:
    """Deal the pixels of a map, each with `n_bands` separate bands of its channels, over the cores in turn.

    With one band all channels of a pixel stay together; with two there are twice as many messages for better balance.
    """
    cluster = striped_clusters(network, n_bands)

    def parts_for(limits: np.ndarray) -> np.ndarray:
        return _take_turns(limits[:, kernels.NEURONS], int(cluster.max()) + 1)[cluster]

    method = "striped" if n_bands == 1 else "striped-halves"
    return fit_parts(network, chip, activity, options, method, parts_for)


def striped_clusters(network: Network, n_bands: int) -> np.ndarray:
    """Return int64[neuron]: the cluster of every neuron, numbered through all layers.

    A cluster of a map [C, ...] is one band of the channels of a pixel, pixel after pixel and the bands of each in
    order; in a layer of one axis every neuron is a cluster.
    """
    parts, n_clusters = [], 0
    for name in network.layers:
        shape = network.node(name).shape
        channels, pixels = (shape[0], int(np.prod(shape[1:]))) if len(shape) > 1 else (1, int(np.prod(shape)))
        bands = min(n_bands, channels)
        band = np.arange(channels) * bands // channels
        parts.append((np.arange(pixels)[None] * bands + band[:, None]).reshape(-1) + n_clusters)
        n_clusters += pixels * bands
    return np.concatenate(parts)


def _take_turns(room: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return int32[cluster]: the core of each turn, with turns in proportion to cores' `room` int64[core], evenly.

    Equal cores take turns. Turn j of a core of weight w comes at time (j + 1) / w.
    """
    if (room == room[0]).all():
        return (np.arange(n_clusters) % len(room)).astype(np.int32)
    share = room / room.sum()
    n_turns = np.ceil(share * n_clusters).astype(np.int64) + 1
    core = np.repeat(np.arange(len(room)), n_turns)
    turn = np.arange(len(core)) - np.repeat(np.cumsum(n_turns) - n_turns, n_turns) + 1
    order = np.lexsort((core, turn / np.maximum(share, 1e-12)[core]))
    return core[order][:n_clusters].astype(np.int32)
