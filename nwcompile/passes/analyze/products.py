"""Products: matrix products of spikes, which chips compute with one neuron for each product of two spikes."""

from collections.abc import Iterator

import numpy as np

from nwcompile.errors import Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import MatMul
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.network import Network
from nwcompile.passes.prepare.fold import constant_offset, linear_map, to_matrix


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
            yield Violation("product of spikes", where, f"counts up to {max(counts)}", "one spike a step", advice)
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
