"""A matrix product of spikes as pair neurons, which keep nothing: one for every product of two that is added up.

Of two spikes a pair neuron tells whether both are there (AND). Of a count and a spike it sends the count if the spike
is there: the spike weighs more than any count, and a bias of that size keeps the neuron silent without it.
"""

import numpy as np

from nwcompile.errors import FitError, Violation
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import MatMul, Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.products import largest_counts, n_with_pairs, products
from nwcompile.passes.legalize.relay_neuron import RELAY, relay_neuron, scalar
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim.reference.neuron_step import LayerState
from nwcompile.sim.reference.synaptic_sums import NO_LIMIT

PAIRS = "{}/pairs"  # The pair neurons of the product that a node holds.


def multiply_spikes(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """A normalized network in which every matrix product of spikes is pair neurons, if the chip has so many.

    What is left is refused by `estimate`.
    """
    changes: list[Change] = []
    if n_with_pairs(network) > int(chip.max_neurons.sum()):
        return network, changes
    for product in products(network):
        counts = largest_counts(network, product)
        if counts is None or min(counts) > 1:
            continue
        if max(counts) == 1 or "multi" in chip.neuron.spikes:
            network = _with_pairs(network, product, counts, relay_neuron(chip) or RELAY)
            how = f"{product.n_products} pair neurons, one for every product of two"
            changes.append(Change(product.target, "matrix product of spikes", "sums of spikes", how, EXACT))
    return (normalize(network) if changes else network), changes


def verify_pairs(network: Network, chip: Chip) -> None:
    """Raise FitError unless all pair neurons of a fixed-point network multiply in integers, whatever arrives."""
    for name in network.layers:
        edges = network.into(name)
        if name != PAIRS.format(name.removesuffix(PAIRS.format(""))) or not network.is_fixed:
            continue
        weights = np.concatenate([effective_weight(c.weight, c.exponent, NO_LIMIT).ravel() for c in edges])
        spec = scalar(network.node(name).neuron)
        spike, count = int(weights.max()), int(weights.min())
        largest = 1 if spec.spikes == "binary" else spike // count
        a, b = np.indices((largest + 1, 2)).reshape(2, -1)
        sent = LayerState.cleared(spec, a.shape).step(a * count + b * (count if spec.spikes == "binary" else spike))
        if (sent != a * b).any():
            bits = chip.weights.bits
            advice = "use fewer tokens or features, or more weight bits"
            raise FitError(
                chip.name, [Violation("product of spikes", name, f"counts to {largest}", f"{bits} bits", advice)]
            )


def _with_pairs(network: Network, product: MatMul, counts: tuple[int, int], relay: NeuronSpec) -> Network:
    name = PAIRS.format(product.target)
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
