"""Parts of a fan-in: neurons that send sums into a layer, and the connections to and from them.

Small layers are cut as lists of synapses (`split_fan_in`). Where such a list would take gigabytes, connections stay
symbolic. Sources with equal weights everywhere, such as the pixels of a mean, are added up before one synapse reads
them. Other sources are cut into channel groups, and one grouped convolution adds up all of them.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.memory import row_bits, synapse_bits
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.program import SPARSE
from nwcompile.ir.resources import IN_AXONS, NEURONS, SYNAPSE_BITS
from nwcompile.passes.quantize.sums.send_sums import connect_signed

FEWER = 2  # Sources are added up before they are read if this leaves at most one in FEWER.
MOST_GROUPS = 16  # With more groups, sending neurons cost more than the rows of synapses that they save.


class Part(NamedTuple):
    """A further layer, whose neurons send sums of their inputs, and the connection that reads them."""

    shape: tuple[int, ...]
    into: list[Connection]
    out: Connection


def connect_sums(network: Network, source: str, target: str, pre: np.ndarray, post: np.ndarray, chip: Chip) -> Sparse:
    """Return synapses of weight 1 by which a target's neurons add up those of a source, float in a float network."""
    edge = connect_signed(source, target, pre, post, np.ones(len(pre)), chip)
    return edge if network.is_fixed else edge.replace(weight=np.ones(len(pre), np.float32), exponent=0)


def symbolic_part(network: Network, edge: Dense | Conv2d, part: str, limits: np.ndarray, chip: Chip) -> Part | None:
    """Return the neurons that sum up a connection for its layer, as layer `part`, without a list of its synapses.

    `limits`: int64[resource] of a core. Returns None if no number of groups is within them.
    """
    merged = _sum_equal_sources(network, edge, part, chip) if isinstance(edge, Dense) else None
    return merged or _sum_groups(network, edge, part, limits, chip)


def _sum_equal_sources(network: Network, edge: Dense, part: str, chip: Chip) -> Part | None:
    """Use a neuron for each set of sources with the same weights into all targets; None if there are many sets."""
    weight = np.asarray(edge.weight)
    first, of_source = _equal_columns(weight)
    if FEWER * len(first) > weight.shape[1]:
        return None
    sums = connect_sums(network, edge.source, part, np.arange(weight.shape[1]), of_source, chip)
    reads = edge.replace(source=part, weight=np.ascontiguousarray(weight[:, first]), bias=None, delay=0)
    return Part((len(first),), [sums.replace(delay=edge.aligned_delay)], reads)


def _equal_columns(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of each set of equal columns of weight [row, column], and each column's set, int64[column]."""
    mixed = np.random.default_rng(0).random(len(weight)) @ weight  # columns can only be equal if their sums are
    rounded = np.round(mixed, 6)  # the order of summation differs between columns
    _, first, of_column = np.unique(rounded, return_index=True, return_inverse=True)
    of_column = of_column.reshape(-1)
    if not (weight == weight[:, first][:, of_column]).all():
        return np.arange(weight.shape[1]), np.arange(weight.shape[1])
    return first, of_column


def _sum_groups(network: Network, edge: Dense | Conv2d, part: str, limits: np.ndarray, chip: Chip) -> Part | None:
    """Repeat every neuron of the layer for each group of source channels, all in one grouped convolution."""
    n_target = network.node(edge.target).n_neurons
    n_groups = _best_groups(edge, n_target, limits, chip)
    if n_groups is None:
        return None
    grouped = _group_convolution(edge, n_groups)
    shape = grouped.output_shape(network.node(edge.source).shape)
    every = np.arange(prod(shape))
    return Part(
        shape,
        [grouped.replace(target=part, bias=None, delay=edge.aligned_delay)],
        connect_sums(network, part, edge.target, every, every % n_target, chip),
    )


def _best_groups(edge: Dense | Conv2d, n_target: int, limits: np.ndarray, chip: Chip) -> int | None:
    """Return the number of groups that needs the fewest cores, by synapse rows and neurons; None if none fits.

    A row of one synapse takes a header, and few neurons per core make many such rows.
    """
    weight = np.shape(edge.weight)
    channels, taps = weight[1], prod(weight[2:])
    bits = synapse_bits(edge, SPARSE, chip)
    n = np.arange(1, weight[0] + 1)
    cores: dict[int, float] = {}
    for n_groups in range(1, min(channels, MOST_GROUPS) + 1 if getattr(edge, "groups", 1) == 1 else 2):
        n_rows = channels // n_groups * taps
        n_held = int(np.count_nonzero(n_rows * row_bits(n, bits, chip) <= limits[SYNAPSE_BITS]))
        if channels % n_groups == 0 and n_rows <= limits[IN_AXONS] and n_held:
            cores[n_groups] = n_groups * (weight[0] / n_held + n_target / limits[NEURONS])
    return min(cores, key=lambda n_groups: (cores[n_groups], n_groups), default=None)


def _group_convolution(edge: Dense | Conv2d, n_groups: int) -> Conv2d:
    """Return a convolution that sums each group of source channels separately, group after group."""
    weight = np.asarray(edge.weight)
    n_out, n_in, *kernel = weight.shape
    kernel = kernel or [1, n_in // n_groups]
    block = weight.reshape(n_out, n_groups, -1).swapaxes(0, 1)
    if isinstance(edge, Conv2d):
        wide = block.reshape(n_groups * n_out, n_in // n_groups, *kernel)
        return edge.replace(weight=wide, groups=n_groups * edge.groups)
    return Conv2d(
        edge.source,
        edge.target,
        weight=block.reshape(n_groups * n_out, 1, *kernel),
        groups=n_groups,
        exponent=edge.exponent,
        sign_mode=edge.sign_mode,
        weight_bits=edge.weight_bits,
        source_shape=(n_groups, *kernel),
    )
