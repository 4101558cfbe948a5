"""Nonlinear connections, which chips lack: max pooling of currents, and matrix products of spikes.

Layers can pool spikes or compare currents instead of a maximum. Chips compute a product with one neuron for each
product of two spikes.
"""

from collections.abc import Iterator

import numpy as np

from nwcompile.errors import Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, MatMul, MaxPool2d, pair
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import WeightGrid
from nwcompile.passes.prepare.fold import constant_offset, linear_map, to_matrix


def find_maxima(network: Network) -> list[MaxPool2d]:
    """Return the max-pooling connections."""
    return [c for c in network.connections if isinstance(c, MaxPool2d)]


def maximum_violations(network: Network) -> Iterator[Violation]:
    """Yield every remaining maximum of currents, with advice on how to pool spikes instead."""
    for pool in find_maxima(network):
        advice = "put the pooling behind a layer that spikes, or pool by the mean"
        if (layer := pooled_layer(network, pool)) is not None:
            advice = f"compile with approximate='pool' (--approximate pool: the spikes of {layer} are pooled instead)"
        yield Violation("pooling", f"{pool.source} -> {pool.target}", "a maximum of currents", "sums", advice)


def pooled_layer(network: Network, pool: MaxPool2d) -> str | None:
    """Return the layer whose spikes can be pooled instead of the currents of `pool`, or None.

    The layer must fire binary spikes, be driven by this maximum only, at most scaled per channel, and have identical
    neurons within a channel.
    """
    edges = network.out_of(pool.target)
    last: Connection
    if network.node(pool.target).neuron is not None:
        layer, last = pool.target, pool
    elif len(edges) == 1 and channel_scales(network, edges[0]) is not None:
        layer, last = edges[0].target, edges[0]
    else:
        return None
    node = network.node(layer)
    alone = network.into(layer) == (last,) and network.into(pool.target) == (pool,)
    delayed = any(c.aligned_delay for c in (pool, last))
    if pool.source not in network.nodes or not alone or delayed or layer not in network.built_in:
        return None
    sends_binary = node.neuron.fires and node.neuron.spikes == "binary"
    arrays = (np.asarray(getattr(node.neuron, name)) for name in NeuronSpec.NUMBERS if sends_binary)
    places = node.shape[1:]
    alike = [value.ndim == 0 or all(n == 1 for n in value.shape[-len(places) :]) for value in arrays]
    return layer if alike and all(alike) else None


def channel_scales(network: Network, edge: Connection) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the factor and shift of each channel if the connection only scales channels, else None."""
    n_channels = network.node(edge.source).shape[0]
    is_scale = isinstance(edge, Conv2d) and np.shape(edge.weight) == (n_channels, 1, 1, 1) == (edge.groups, 1, 1, 1)
    if not is_scale or pair(edge.stride) != (1, 1) or pair(edge.padding) != (0, 0):
        return None
    shift = np.zeros(n_channels, np.float32) if edge.bias is None else np.asarray(edge.bias, np.float32)
    return (np.asarray(edge.weight).reshape(-1), shift) if shift.size == n_channels else None


def comparable_layers(network: Network, chip: Chip, options: Options) -> tuple[str, ...]:
    """Return the layers of a normalized network behind a maximum of currents that the chip can compute exactly."""
    if not can_send_sums(chip, options):
        return ()
    layers = {layer: pool for pool in find_maxima(network) if (layer := pooled_layer(network, pool)) is not None}
    n_more = 0  # neurons of each maximum: one for each current, and one for each further current of a window
    for pool in layers.values():
        source, window = pool.window_taps(network.node(pool.source).shape)
        n_more += network.node(pool.source).n_neurons + len(source) - len(np.unique(window))
    has_room = count_neurons(network) + n_more <= int(chip.max_neurons.sum())
    return tuple(layers) if has_room else ()


def can_send_sums(chip: Chip, options: Options) -> bool:
    """Return whether the chip's neurons can send a sum, and others add such numbers with weights 1 and -1."""
    grid = WeightGrid.from_signs("mixed", chip.weights.bits, chip)
    ones = np.array([1.0, -1.0])
    can_send = {"multi", "bipolar"} <= {*chip.neuron.spikes} and chip.carries_message("graded")
    can_add = np.array_equal(grid.round_effective(ones, grid.finest), ones) and chip.fixed_point.overflow != "clip"
    return chip.neuron.programmable is True and can_send and can_add and options.on_multi_spike != "repeat"


def find_products(network: Network) -> list[MatMul]:
    """Return the matrix products of a network in topological order."""
    rank = {name: i for i, name in enumerate(network.order)}
    return sorted((c for c in network.connections if isinstance(c, MatMul)), key=lambda c: rank[c.target])


def n_with_pairs(network: Network) -> int:
    """Count the neurons of a network, with one more for each product of two entries that its MatMuls add up."""
    return count_neurons(network) + sum(product.n_products for product in find_products(network))


def product_violations(network: Network, chip: Chip) -> Iterator[Violation]:
    """Yield every remaining matrix product, with what a chip would need for it."""
    too_many = []
    for product in find_products(network):
        where = f"{product.source} -> {product.target}"
        counts = largest_counts(network, product)
        advice = "multiply the spikes of layers only, as they are or added up, one factor of them single spikes"
        if counts is None or min(counts) > 1:
            yield Violation("product of spikes", where, "a product of other numbers", "a product with spikes", advice)
        elif max(counts) > 1 and "multi" not in chip.neuron.spikes:
            advice = "use a chip whose neurons send counts, or attention by masks (nw.from_torch takes QKAttention)"
            yield Violation("product of spikes", where, f"counts up to {max(counts)}", "one spike per step", advice)
        else:
            too_many.append(where)
    if too_many:
        advice = (
            "use fewer tokens or features, or attention by masks; else it takes cores in which the spikes of one "
            "factor write the weights that those of the other read, which no chip file has"
        )
        where = too_many[0] if len(too_many) == 1 else f"{too_many[0]} and {len(too_many) - 1} more"
        needed = f"{n_with_pairs(network)} neurons, with one for every product of two,"
        yield Violation("product of spikes", where, needed, int(chip.max_neurons.sum()), advice)


def largest_counts(network: Network, product: MatMul) -> tuple[int, int] | None:
    """Return the largest count in the left and the right factor, or None if they may hold other numbers than counts."""
    largest = _largest_values(network, product.source)
    if largest is None:
        return None
    left, right = np.split(largest, [int(np.prod(product.left))])
    return int(left.max()), int(right.max())


def _largest_values(network: Network, name: str) -> np.ndarray | None:
    """Return the largest value of every entry of a node, float64[n], if it is a count of spikes, else None."""
    node = network.node(name)
    if name in network.inputs or node.neuron is not None:
        is_binary = node.neuron is not None and node.neuron.fires and node.neuron.message == "binary"
        return np.ones(node.n_neurons) if is_binary else None
    total = np.zeros(node.n_neurons)
    for c in network.into(name):
        source, shape = _largest_values(network, c.source), network.node(c.source).shape
        if source is None:
            return None
        if isinstance(c, MatMul):
            left, right, at = c.factor_indices()
            total += np.bincount(at, source[left] * source[right], node.n_neurons)
            continue
        constant = constant_offset(c, shape, node.shape) if c.is_linear else None
        weights = to_matrix(linear_map(c, shape, node.shape)) if c.is_linear else None
        if weights is None or (constant is not None and constant.any()):
            return None
        values = np.asarray(weights if isinstance(weights, np.ndarray) else weights.data)
        if (values < 0).any() or (values != np.trunc(values)).any():
            return None
        total += weights @ source
    return total
