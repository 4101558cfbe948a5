"""Approximate: layers whose neurons the chip lacks get its nearest ones, refitted, layer after layer.

All of it happens on integers. The network comes quantized as on an ideal chip that has every neuron feature; weights
stay as they are, and of a layer that cannot be so, features, threshold and leak change. Layers before it have been
changed already when it is fitted, so that it makes good what they have lost.
"""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.legalization import APPROXIMATE, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.emit.emit import fold_bias
from nwcompile.passes.legalize.driven import DrivenLayer
from nwcompile.passes.legalize.nearest import Feature, nearest_network
from nwcompile.passes.legalize.price import Price, price_of
from nwcompile.passes.legalize.refit import Refitted, refit
from nwcompile.passes.legalize.samples import as_many, split
from nwcompile.sim.sequence.run import trace

NOT_FITTED = (
    "no calibration samples: the nearest neurons keep threshold and leak, and what they change is not known; give "
    "calibration samples to have them refitted and their price measured"
)
NOT_PRICED = "one calibration sample: what the approximation costs is not known; give 2 or more, better 50"


@dataclass(frozen=True)
class Approximated:
    """The fixed-point network with the chip's nearest neurons, a Change a layer, what all of them cost, and warnings.

    `factors`: of each changed layer what its thresholds and its leak were multiplied by (`Refitted`).
    """

    network: Network
    changes: list[Change]
    price: Price | None
    warnings: list[str]
    factors: dict[str, Refitted]


def approximate(
    network: Network, chip: Chip, options: Options, inputs: dict | None, labels: np.ndarray | None = None
) -> Approximated:
    """A quantized network as `options.approximate` allows it to be; the network itself where nothing need change.

    `inputs`: samples `[B, T, *shape]` of every input, or None; `labels` int[B]. Raises LossError if the price is above
    `options.max_loss`.
    """
    ideal = folded(network)
    bare, features_of = nearest_network(ideal, chip, options)
    if not features_of:
        return Approximated(network, [], None, [], {})
    if inputs is None:
        changes = [_change(name, features, None, None) for name, features in features_of.items()]
        return Approximated(bare, changes, None, [NOT_FITTED], {})
    n_samples = len(next(iter(inputs.values())))
    fitting, held = split(n_samples)
    changed, fits = _refitted(ideal, bare, features_of, chip, _only(inputs, fitting))
    price = (
        price_of(ideal, changed, _only(inputs, held), None if labels is None else labels[held]) if len(held) else None
    )
    changes = [
        _change(name, features, fits[name], price.of(name) if price else None) for name, features in features_of.items()
    ]
    return Approximated(changed, changes, price, [] if price else [NOT_PRICED], fits)


def folded(network: Network) -> Network:
    """The fixed-point network with the biases of its connections in its neurons."""
    nodes = {name: fold_bias(network, node) for name, node in network.nodes.items()}
    edges = tuple(c if c.bias is None else c.replace(bias=None) for c in network.connections)
    return Network(network.inputs, nodes, edges)


def _only(inputs: dict, samples: np.ndarray) -> dict:
    return {name: array[samples] for name, array in inputs.items()}


def _refitted(
    ideal: Network, bare: Network, features_of: dict[str, list[Feature]], chip: Chip, inputs: dict
) -> tuple[Network, dict[str, Refitted]]:
    """The network with every changed layer fitted to its ideal spikes, sources before their targets.

    Over connections that point back, spikes of the ideal network arrive.
    """
    n_steps = next(iter(inputs.values())).shape[1]
    updates = n_steps * max(ideal.node(name).n_neurons for name in ideal.layers)
    kept = as_many(np.arange(len(next(iter(inputs.values())))), updates)
    inputs = _only(inputs, kept)
    wanted = trace(ideal, inputs, keep_states=False)[0]
    sent = {**inputs, **wanted}
    nodes, fits = dict(bare.nodes), {}
    for name in ideal.layers:
        layer = DrivenLayer(bare, name, sent)
        if name in features_of:
            fits[name] = refit(layer, nodes[name].neuron, wanted[name], chip)
            nodes[name] = Node(name, nodes[name].shape, fits[name].neuron)
        sent[name] = layer.spikes(nodes[name].neuron)
    return Network(bare.inputs, nodes, bare.connections), fits


def as_float(network: Network, chip: Chip, options: Options, factors: dict[str, Refitted]) -> Network:
    """The normalized float network with the chip's nearest neurons, at thresholds and leaks as they were fitted."""
    near = nearest_network(network, chip, options)[0]
    nodes = dict(near.nodes)
    for name, fit in factors.items():
        spec = nodes[name].neuron
        threshold = np.asarray(spec.threshold, np.float64) * fit.threshold_factor
        nodes[name] = Node(name, nodes[name].shape, _with_leak(spec.replace(threshold=threshold), fit.leak_factor))
    return Network(near.inputs, nodes, near.connections)


def _with_leak(spec: NeuronSpec, leak: float | None) -> NeuronSpec:
    """A float neuron whose membrane loses `leak` times as much in a step, or `leak` where it lost nothing."""
    if leak is None:
        return spec
    if spec.membrane == "euler":  # v + k (v_leak - v + r i) as a linear membrane, whose leak does not scale its input
        k = np.asarray(spec.k, np.float64)
        gain, constant = k * np.asarray(spec.r), k * np.asarray(spec.v_leak)
        spec = spec.replace(membrane="linear", beta=1 - k, gain=gain, leak=constant, k=0.0, r=1.0, v_leak=0.0)
    lost = 1 - np.asarray(spec.beta, np.float64)
    return spec.replace(beta=1 - np.minimum(lost * leak if np.any(lost) else leak, 1.0))


def _change(name: str, features: list[Feature], fit: Refitted | None, price: dict | None) -> Change:
    how = "features only" if fit is None else f"threshold x {fit.threshold_factor:.3g}{_leak(fit)}"
    was, has = (", ".join(dict.fromkeys(getattr(f, side) for f in features)) for side in ("was", "has"))
    return Change(layer=name, was=was, has=has, how=how, label=APPROXIMATE, price=price)


def _leak(fit: Refitted) -> str:
    return "" if fit.leak_factor is None else f", leak x {fit.leak_factor:.3g}"
