"""Axon types: check that each neuron of a core needs only one weight per type of its fan-in axons.

A core of TrueNorth has a binary crossbar: an axon reaches a neuron or not. Each of its 256 axons has one of 4 types,
and a neuron adds its own weight for the type (Merolla et al., Science 345, 2014, doi 10.1126/science.1254642).
"""

from collections.abc import Iterator

import numpy as np

from nwcompile.cost.axon_colors import colors_of_axons
from nwcompile.cost.traffic.wiring import axis_taps
from nwcompile.errors import Violation, first_places
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse, synapse_list
from nwcompile.ir.flat import cores_of_sources
from nwcompile.ir.network import Network


def axon_type_violations(network: Network, chip: Chip, core_of: np.ndarray, n_cores: int) -> Iterator[Violation]:
    """Yield cores whose weights need more axon types than the chip has; `core_of` int32[neuron] in layer order.

    Two axons may share a type unless some neuron reads both with different weights; zero weights are no synapses. This
    is a coloring of the axons. The used figure is the number of types of the best coloring found. A core is refused
    only if fewer types were proved impossible, or were not found in `MOST_TRIES`.
    """
    limit = chip.weights.axon_types
    if limit is None:
        return
    core_of = cores_of_sources(network, core_of)
    pre, post, weight = (np.concatenate(part) for part in zip(*_list_synapses(network, chip), strict=True))
    order = np.argsort(core_of[post], kind="stable")
    ends = np.searchsorted(core_of[post][order], np.arange(n_cores + 1))
    over = []
    for core in range(n_cores):
        mine = order[ends[core] : ends[core + 1]]
        used = n_types(_synapse_matrix(pre[mine], post[mine], weight[mine]), limit)
        if used > limit:
            over.append((used, core, post[mine]))
    over.sort(key=lambda entry: (-entry[0], entry[1]))
    places = first_places([f"core {core}" for _, core, _ in over], "core")
    for (used, _, neurons), place in zip(over, places, strict=False):
        layer = _main_layer(network, neurons)
        yield _type_excess(layer, f"{layer} -> {place}", used, limit)


def too_many_weights(network: Network, chip: Chip) -> list[Violation]:
    """List connections through which a neuron needs more axon types than the chip has, whatever the mapping.

    The used figure is a lower bound: a neuron needs a type for each different weight that it reads. Weights of a float
    network are rounded to the finest grid of their width, scaled to the largest weight. Connections with the same ends
    are skipped, because their weights add up.
    """
    limit, over = chip.weights.axon_types, []
    if limit is None:
        return []
    for c in network.connections:
        if isinstance(c, Dense | Conv2d | Sparse) and [e.source for e in network.into(c.target)].count(c.source) == 1:
            used = _most_weights(network, c, chip)
            if used > limit:
                over.append((used, c))
    places = first_places([f"{c.source} -> {c.target}" for _, c in over], "connection")
    return [
        _type_excess(c.target, place, f"{used} or more", limit) for (used, c), place in zip(over, places, strict=False)
    ]


def _most_weights(network: Network, connection: Connection, chip: Chip) -> int:
    """Return the largest number of different non-zero weights that a neuron reads; 0 if unknown.

    It is unknown if weights of a list add up, or if no neuron of a convolution reads the whole kernel.
    """
    weight, shape = np.asarray(connection.weight), network.node(connection.source).shape
    if isinstance(connection, Sparse):
        synapses = np.asarray(connection.post, np.int64) * int(np.prod(shape)) + np.asarray(connection.pre)
        if len(np.unique(synapses)) < len(synapses):
            return 0
    if isinstance(connection, Conv2d):
        taps = axis_taps(connection, shape)
        if tuple(int(n.max(initial=0)) for n in taps) != weight.shape[2:]:
            return 0
    if connection.is_integer:
        weight = effective_weight(weight, connection.exponent, chip.weights.effective_limit)
    elif np.any(weight):
        bits = getattr(connection, "weight_bits", None) or chip.weights.bits
        weight = np.rint(weight / np.abs(weight).max() * max((1 << (bits - 1)) - 1, 1))
    rows = (weight.reshape(len(weight), -1) if weight.ndim > 1 else weight[:, None]).astype(np.int64)
    of_row = np.asarray(connection.post, np.int64) if isinstance(connection, Sparse) else np.arange(len(rows))
    low, span = rows.min(initial=0), rows.max(initial=0) - rows.min(initial=0) + 1
    read = np.unique((of_row[:, None] * span + rows - low)[rows != 0])
    return int(np.bincount(read // span).max(initial=0))


def _type_excess(layer: str, where: str, used: int | str, limit: int) -> Violation:
    advice = f"give each neuron of {layer} at most {limit} weights, and inputs of one kind the same one"
    return Violation("axon types", where, used, limit, f"{advice}, or raise weights.axon_types")


def n_types(weights: np.ndarray, limit: int) -> int:
    """Return how many types the axons of `weights` int64[axon, neuron] need: at most `limit` if possible."""
    return int(colors_of_axons(weights, limit).max(initial=-1)) + 1


def _synapse_matrix(pre: np.ndarray, post: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the synapses as int64[axon, neuron] of the sources and targets that occur; parallel ones add up."""
    sources, row = np.unique(pre, return_inverse=True)
    targets, column = np.unique(post, return_inverse=True)
    matrix = np.zeros((len(sources), len(targets)), np.int64)
    np.add.at(matrix, (row.reshape(-1), column.reshape(-1)), weight)
    return matrix


def _list_synapses(network: Network, chip: Chip) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield sources, targets (as in `network.offsets`) and effective weights of every connection's synapses."""
    yield (np.zeros(0, np.int64),) * 3
    for c in network.connections:
        first_pre, first_post = network.offsets[c.source], network.offsets[c.target]
        pre, post, place = synapse_list(c, network.node(c.source).shape)
        weight = np.ravel(c.weight)[place]
        yield pre + first_pre, post + first_post, effective_weight(weight, c.exponent, chip.weights.effective_limit)


def _main_layer(network: Network, neurons: np.ndarray) -> str:
    """Return the layer of most of these neurons, which are numbered as in `network.offsets`."""
    starts = np.array([network.offsets[name] for name in network.layers])
    layer = np.searchsorted(starts, np.unique(neurons), side="right") - 1
    return network.layers[int(np.bincount(layer).argmax())]
