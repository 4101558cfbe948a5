"""Nonlinear connections, which chips lack: max pooling of currents, and matrix products of spikes.

Layers can pool spikes or compare currents instead of a maximum. Chips compute a product with one neuron for each
product of two spikes.
"""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from nwcompile.errors import Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, MatMul, MaxPool2d, pair
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import WeightGrid
from nwcompile.passes.analyze.state_range import multiply_bounds
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
    if not can_send_sums(chip, options.on_multi_spike):
        return ()
    of_currents = (pool for pool in find_maxima(network) if not sends_spikes(network, pool.source))
    layers = {layer: pool for pool in of_currents if (layer := pooled_layer(network, pool)) is not None}
    n_more = 0  # neurons of each maximum: one for each current, and one for each further current of a window
    for pool in layers.values():
        source, window = pool.window_taps(network.node(pool.source).shape)
        n_more += network.node(pool.source).n_neurons + len(source) - len(np.unique(window))
    has_room = count_neurons(network) + n_more <= int(chip.max_neurons.sum())
    return tuple(layers) if has_room else ()


def can_send_sums(chip: Chip, on_multi_spike: str) -> bool:
    """Return whether the chip's neurons can send a sum, and others add such numbers with weights 1 and -1."""
    grid = WeightGrid.from_signs("mixed", chip.weights.bits, chip)
    ones = np.array([1.0, -1.0])
    can_send = {"multi", "bipolar"} <= {*chip.neuron.spikes} and chip.carries_message("graded")
    can_add = np.array_equal(grid.round_effective(ones, grid.finest), ones) and chip.fixed_point.overflow != "clip"
    return chip.neuron.programmable is True and can_send and can_add and on_multi_spike != "repeat"


def sends_spikes(network: Network, name: str) -> bool:
    """Return whether a node is a layer that sends at most one spike per neuron and step."""
    neuron = network.node(name).neuron
    return neuron is not None and neuron.fires and neuron.message == "binary"


def find_products(network: Network) -> list[MatMul]:
    """Return the matrix products of a network in topological order."""
    rank = {name: i for i, name in enumerate(network.order)}
    return sorted((c for c in network.connections if isinstance(c, MatMul)), key=lambda c: rank[c.target])


def n_with_pairs(network: Network) -> int:
    """Count the neurons of a network, with one more for each product of two entries that its MatMuls add up."""
    return count_neurons(network) + sum(product.n_products for product in find_products(network))


def product_violations(network: Network, chip: Chip, on_multi_spike: str) -> Iterator[Violation]:
    """Yield every remaining matrix product, with what a chip would need for it."""
    too_many = []
    for product in find_products(network):
        where = f"{product.source} -> {product.target}"
        counts = largest_counts(network, product)
        advice = "multiply the spikes of layers only, as they are or added up, one factor of them single spikes"
        is_gated = counts is None and gated_factor(network, product) is not None
        if is_gated and can_send_sums(chip, on_multi_spike) and n_with_pairs(network) <= chip.max_neurons.sum():
            advice = "train it in float and compile it; training in integers has no such products"
            yield Violation("product of spikes", where, "currents times spikes", "counts times spikes", advice)
            continue
        if is_gated and not can_send_sums(chip, on_multi_spike):
            advice = "use a chip whose neurons are programs and send signed numbers, such as loihi2 or spinnaker2"
            advice = "leave out on_multi_spike='repeat'" if on_multi_spike == "repeat" else advice
            yield Violation("product of spikes", where, "currents times spikes", "counts times spikes", advice)
        elif not is_gated and (counts is None or min(counts) > 1):
            yield Violation("product of spikes", where, "a product of other numbers", "a product with spikes", advice)
        elif counts is not None and max(counts) > 1 and "multi" not in chip.neuron.spikes:
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
    left, right = (float(part.max()) for part in _split_factors(network, product))
    return None if np.isinf([left, right]).any() else (int(left), int(right))


def gated_factor(network: Network, product: MatMul) -> bool | None:
    """Return whether the right factor is the currents, if one is sums of weighted spikes and the other single spikes.

    None for other products. The currents have to be sums of single spikes, so that a message is proved to hold them.
    """
    edges = network.into(product.source)
    if not all(c.is_linear and sends_spikes(network, c.source) for c in edges):
        return None
    left, right = (float(part.max()) for part in _split_factors(network, product))
    return left <= 1 if max(left, right) == np.inf and min(left, right) <= 1 else None


def _split_factors(network: Network, product: MatMul) -> list[np.ndarray]:
    return np.split(_largest_values(network, product.source), [int(np.prod(product.left))])


def _largest_values(network: Network, name: str) -> np.ndarray:
    """Return the largest value of every entry of a node, float64[n]; infinity if it may be no count of spikes."""
    node = network.node(name)
    if name in network.inputs or node.neuron is not None:
        return np.full(node.n_neurons, 1.0 if sends_spikes(network, name) else np.inf)
    total = np.zeros(node.n_neurons)
    for c in network.into(name):
        source, shape = _largest_values(network, c.source), network.node(c.source).shape
        if isinstance(c, MatMul):
            left, right, at = c.factor_indices()
            total += np.bincount(at, multiply_bounds(source[left], source[right]), node.n_neurons)
            continue
        if not c.is_linear:
            return np.full(node.n_neurons, np.inf)
        weights = csr_array(to_matrix(linear_map(c, shape, node.shape)))
        weights.eliminate_zeros()
        constant = constant_offset(c, shape, node.shape)
        is_other = np.zeros(node.n_neurons, bool) if constant is None else constant != 0
        not_counts = (weights.data < 0) | (weights.data != np.trunc(weights.data))
        is_other |= np.bincount(weights.tocoo().row[not_counts], minlength=node.n_neurons) > 0
        total += np.where(is_other, np.inf, weights @ source)
    return total
