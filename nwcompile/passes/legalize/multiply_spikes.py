"""Multiply spikes: compute a matrix product of spikes with stateless pair neurons, one for each product of two.

For two spikes, a pair neuron computes AND. For a count and a spike, it sends the count if there is a spike: the spike
weighs more than any count, and a bias of that size keeps the neuron silent without it. A factor of counts in front of a
product moves behind it.
"""

from math import prod

import numpy as np
from scipy.sparse import csr_array

from nwcompile.errors import FitError, Violation
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import MatMul, Scale, Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.nonlinear import find_products, largest_counts, n_with_pairs
from nwcompile.passes.legalize.resets import RELAY, relay_neuron, to_scalar_neuron
from nwcompile.passes.prepare.fold import linear_map, to_matrix
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim.reference.neuron_step import LayerState
from nwcompile.sim.reference.synaptic_sums import NO_LIMIT

PAIRS = "{}/pairs"  # Name of the pair neurons of a product node.
COUNTS = "{}/counts"  # Name of a product in front of its factor.
ROUNDING = 1e-6  # Relative difference between float32 weights that are the same factor times counts.


def multiply_spikes(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace every matrix product of spikes in a normalized network by pair neurons, if the chip has enough neurons.

    `estimate` refuses products that remain.
    """
    changes: list[Change] = []
    network = move_factors(network)
    if n_with_pairs(network) > int(chip.max_neurons.sum()):
        return network, changes
    for product in find_products(network):
        counts = largest_counts(network, product)
        if counts is None or min(counts) > 1:
            continue
        if max(counts) == 1 or "multi" in chip.neuron.spikes:
            network = _add_pairs(network, product, counts, relay_neuron(chip) or RELAY)
            how = f"{product.n_products} pair neurons, one for every product of two"
            changes.append(Change(product.target, "matrix product of spikes", "sums of spikes", how, EXACT))
    return (normalize(network) if changes else network), changes


def move_factors(network: Network) -> Network:
    """Multiply behind each product what multiplies its counts of spikes in front of it."""
    for product in find_products(network):
        moved = _move_factor(network, product)
        if moved is not None:
            return move_factors(normalize(moved))
    return network


def _move_factor(network: Network, product: MatMul) -> Network | None:
    """Return the network with whole weights into a product, and their factors behind it, or None if they are whole."""
    name, shape, edges = product.source, network.node(product.source).shape, network.into(product.source)
    if network.out_of(name) != (product,) or not all(c.is_linear for c in edges):
        return None
    maps = [csr_array(to_matrix(linear_map(c, network.node(c.source).shape, shape))).tocoo() for c in edges]
    is_right = np.arange(prod(shape)) >= prod(product.left)
    factors = [_common_factor(np.concatenate([m.data[is_right[m.row] == right] for m in maps])) for right in (0, 1)]
    if factors == [1.0, 1.0] or any(np.any(c.bias) for c in edges if c.bias is not None):
        return None
    factor = np.where(is_right, factors[1], factors[0])
    whole = [
        Sparse(c.source, name, pre=m.col, post=m.row, weight=np.rint(m.data / factor[m.row]), delay=c.delay)
        for c, m in zip(edges, maps, strict=True)
    ]
    counts = Node(COUNTS.format(network.free_name(product.target, COUNTS)), product.output_shape(shape))
    behind = [product.replace(target=counts.name), Scale(counts.name, product.target, scale=prod(factors), delay=0)]
    kept = [c for c in network.connections if c is not product and c not in edges]
    return Network(network.inputs, {**network.nodes, counts.name: counts}, (*kept, *whole, *behind))


def _common_factor(weights: np.ndarray) -> float:
    """Return the number of which all weights are positive multiples; 1 if there is none or they are whole already."""
    weights = weights[weights != 0]
    factor = float(weights[np.abs(weights).argmin()]) if weights.size else 1.0
    counts = weights / factor
    is_whole = factor > 0 and (weights == np.rint(weights)).all()
    return 1.0 if is_whole or (np.abs(counts - np.rint(counts)) > ROUNDING * counts).any() else factor


def verify_pairs(network: Network, chip: Chip) -> None:
    """Raise FitError unless all pair neurons of a fixed-point network multiply exactly, for any input."""
    for name in network.layers:
        edges = network.into(name)
        if name != PAIRS.format(name.removesuffix(PAIRS.format(""))) or not network.is_fixed:
            continue
        weights = np.concatenate([effective_weight(c.weight, c.exponent, NO_LIMIT).ravel() for c in edges])
        node, weights = network.node(name), weights[weights != 0]
        spec = to_scalar_neuron(node.neuron)
        silent, alone = (LayerState.from_spec(spec, weights.shape).step(k * weights) for k in (0, 1))
        if len(weights) == node.n_neurons and not silent.any() and (alone == 1).all():
            continue  # neurons times themselves, each with one synapse
        count = int(weights.min())
        spike = count << (int(weights.max()) // count).bit_length() - 1  # a count of the same neuron may be added to it
        largest = 1 if spec.spikes == "binary" else spike // count
        a, b = np.indices((largest + 1, 2)).reshape(2, -1)
        sent = LayerState.from_spec(spec, a.shape).step(a * count + b * (count if spec.spikes == "binary" else spike))
        if (sent != a * b).any():
            has, advice = f"counts of {chip.weights.bits} bits", "use fewer tokens or features, or more weight bits"
            raise FitError(chip.name, [Violation("product of spikes", name, f"counts to {largest}", has, advice)])


def _add_pairs(network: Network, product: MatMul, counts: tuple[int, int], relay: NeuronSpec) -> Network:
    name = PAIRS.format(network.free_name(product.target, PAIRS))
    largest = max(counts)
    above = 1 if largest == 1 else 1 << largest.bit_length()
    weights = [float(above if count < largest else 1) for count in counts]
    spec = relay.replace(threshold=1.5)
    if largest > 1:
        spec = relay.replace(threshold=1.0, spikes="multi", bias=0.5 - above)
    left, right, at = product.factor_indices()
    every = np.arange(len(at))
    gather = Sparse(
        product.source,
        name,
        pre=np.concatenate([left, right]),
        post=np.tile(every, 2),
        weight=np.repeat(np.asarray(weights, np.float32), len(every)),
        delay=product.delay,
    )
    add = Sparse(name, product.target, pre=every, post=at, weight=np.ones(len(every), np.float32))
    nodes = {**network.nodes, name: Node(name, (len(every),), spec)}
    kept = tuple(c for c in network.connections if c is not product)
    return Network(network.inputs, nodes, (*kept, gather, add))
