"""Approximate: replace neurons that the chip lacks by its nearest ones and refit them, layer by layer.

This happens on integers. The network comes quantized as for an ideal chip with every neuron feature. Weights stay, and
features, threshold and leak of unsupported layers change. Layers before a fitted layer have already been changed, so
the fit compensates for their losses.
"""

from dataclasses import dataclass, replace

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.manifest import APPROXIMATE, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.readout import Readout
from nwcompile.passes.legalize.pool_spikes import FULL, find_relays
from nwcompile.passes.quantize.approximate.ideal import DrivenLayer, PooledLayer, ideal_trace, pooled_layers
from nwcompile.passes.quantize.approximate.nearest import Feature, nearest_network
from nwcompile.passes.quantize.approximate.nearest_program import (
    FittedProgram,
    float_neuron,
    refit_program,
    refit_readout,
)
from nwcompile.passes.quantize.approximate.price import Price, measure_price, split_samples, thin_samples
from nwcompile.passes.quantize.approximate.refit import Refitted, refit
from nwcompile.sim.reference.synaptic_sums import fold_biases

ERROR_CODE = "NW5002"
NOT_FITTED = (
    "no calibration samples: the nearest neurons keep threshold and leak, and what they change is not known; give "
    "calibration samples to have them refitted and their price measured"
)
NOT_PRICED = "one calibration sample: what the approximation costs is not known; give 2 or more, better 50"


@dataclass(frozen=True)
class Approximated:
    """The fixed-point network whose unsupported neurons are replaced by the chip's closest ones.

    `changes`: one for each such layer. `price`: how many spikes and answers they change on samples. `factors`: for
    each of them, the factors of its thresholds and its leak (`Refitted`).
    """

    network: Network
    changes: list[Change]
    price: Price | None
    warnings: list[str]
    factors: dict[str, Refitted]

    def price_changes(self, changes: list[Change]) -> list[Change]:
        """Return earlier changes, with prices for approximate ones, followed by the changes made here.

        A row of pooled spikes gets the fit of the neurons before the pooling, unless these have a row of their own.
        """
        fitted = {change.layer for change in self.changes}
        told = []
        for change in changes:
            if change.label == APPROXIMATE and change.price is None and self.price is not None:
                fit = self.factors.get(FULL.format(change.layer))
                how = change.how if fit is None or change.layer in fitted else f"{change.how}; {fit}"
                known = change.layer in self.price.rate_chip
                change = replace(change, how=how, price=self.price.layer_price(change.layer) if known else None)
            told.append(change)
        return [*told, *self.changes]


def approximate(
    network: Network,
    chip: Chip,
    options: Options,
    inputs: dict | None,
    labels: np.ndarray | None = None,
    readout: Readout | None = None,
) -> Approximated:
    """Replace neurons of a quantized network as `options.approximate` allows; return it if nothing changes.

    `inputs`: samples `[B, T, *shape]` of every input, or None; `labels` int[B]. `readout`: how integers become answers.
    """
    ideal = fold_biases(network)
    bare, features_of = nearest_network(ideal, chip, options)
    pooled = pooled_layers(ideal)
    if not features_of and not pooled:
        return Approximated(network, [], None, [], {})
    programs = [name for name in features_of if name in ideal.programs]
    if inputs is None and programs:
        raise OptionError(
            f"approximate='program' fits built-in neurons to what programs do on calibration samples ({programs[0]}): "
            "give some"
        )
    if inputs is None:
        changes = [_describe_change(name, features, None, None) for name, features in features_of.items()]
        return Approximated(bare, changes, None, [NOT_FITTED], {})
    fitting, held = split_samples(len(next(iter(inputs.values()))))
    refitted = {name for name, features in features_of.items() if any(f.word != "delay" for f in features)}
    changed, fits = _refit_all(ideal, bare, {*refitted, *map(FULL.format, pooled)}, chip, _select(inputs, fitting))
    price = None
    if len(held):
        price = measure_price(ideal, changed, _select(inputs, held), None if labels is None else labels[held], readout)
    shown = {FULL.format(name): name for name in pooled}  # these neurons send the spikes of the layer
    prices = {} if price is None else {name: price.layer_price(shown.get(name, name)) for name in features_of}
    changes = [
        _describe_change(shown.get(name, name), features, fits.get(name), prices.get(name))
        for name, features in features_of.items()
    ]
    return Approximated(changed, changes, price, [] if price else [NOT_PRICED], fits)


def _select(inputs: dict, samples: np.ndarray) -> dict:
    return {name: array[samples] for name, array in inputs.items()}


def _refit_all(
    ideal: Network, bare: Network, changing: set[str], chip: Chip, inputs: dict
) -> tuple[Network, dict[str, Refitted]]:
    """Fit every layer of `changing` to its ideal spikes, in topological order.

    Connections that point back deliver spikes of the ideal network. If currents were pooled, the pooled spikes are
    fitted. If the model pools a layer's spikes, both its own and the pooled spikes are.
    """
    n_steps = next(iter(inputs.values())).shape[1]
    updates = n_steps * max(ideal.node(name).n_neurons for name in ideal.layers)
    kept = thin_samples(np.arange(len(next(iter(inputs.values())))), updates)
    inputs = _select(inputs, kept)
    wanted, read = ideal_trace(ideal, inputs)
    sent = {**inputs, **wanted}
    full_of = {FULL.format(name): name for name in pooled_layers(ideal)}
    relays = {name: relay for name, relay in find_relays(bare, chip).items() if relay not in full_of.values()}
    nodes, fits = dict(bare.nodes), {}
    for name in ideal.layers:
        if name in full_of.values() or name in relays.values():
            continue
        alike: tuple[str, ...]
        layer: DrivenLayer | PooledLayer
        if name in full_of:
            alike, layer = (full_of[name],), PooledLayer(bare, name, full_of[name], sent)
        elif name in relays:
            alike, layer = (name, relays[name]), PooledLayer(bare, name, relays[name], sent, full_counts=True)
        else:
            alike, layer = (name,), DrivenLayer(bare, name, sent)
        neuron = nodes[name].neuron
        if name in changing and neuron.fires:
            search = refit_program if name in ideal.programs else refit
            fits[name] = search(layer, neuron, tuple(wanted[of] for of in alike), chip)
        elif name in changing and name in ideal.programs and isinstance(layer, DrivenLayer):
            fits[name] = refit_readout(layer, neuron, read[name][ideal.node(name).neuron.readout], chip)
        if name in fits:
            nodes[name] = Node(name, nodes[name].shape, fits[name].neuron)
        sent |= dict(zip(alike, layer.run_trains(nodes[name].neuron), strict=True))
    return Network(bare.inputs, nodes, bare.connections), fits


def to_float_network(
    network: Network, fixed: Network, chip: Chip, options: Options, factors: dict[str, Refitted]
) -> Network:
    """Return the normalized float network with the chip's nearest neurons, as fitted.

    `fixed`: the same network in integers, before the fit.
    """
    near = nearest_network(network, chip, options)[0]
    nodes = dict(near.nodes)
    for name, fit in factors.items():
        spec = nodes[name].neuron
        if isinstance(fit, FittedProgram):
            nodes[name] = Node(name, nodes[name].shape, float_neuron(fit, network.into(name), fixed.into(name)))
            continue
        threshold = np.asarray(spec.threshold, np.float64) * fit.threshold_factor
        spec = _set_leak(spec.replace(threshold=threshold), fit.leak_factor)
        spec = spec if fit.current is None else spec.replace(alpha=fit.current, w_in=1 - fit.current)
        nodes[name] = Node(name, nodes[name].shape, spec)
    return Network(near.inputs, nodes, near.connections)


def _set_leak(spec: NeuronSpec, leak: float | None) -> NeuronSpec:
    """Return a float neuron with a leak `leak` times as large, or of `leak` if it had none."""
    if leak is None:
        return spec
    if spec.membrane == "euler":  # v + k (v_leak - v + r i) as a linear membrane, whose leak does not scale its input
        k = np.asarray(spec.k, np.float64)
        gain, constant = k * np.asarray(spec.r), k * np.asarray(spec.v_leak)
        spec = spec.replace(membrane="linear", beta=1 - k, gain=gain, leak=constant, k=0.0, r=1.0, v_leak=0.0)
    lost = 1 - np.asarray(spec.beta, np.float64)
    return spec.replace(beta=1 - np.minimum(lost * leak if np.any(lost) else leak, 1.0))


def _describe_change(name: str, features: list[Feature], fit: Refitted | None, price: dict | None) -> Change:
    how = "features only" if fit is None else str(fit)
    was, has = (", ".join(dict.fromkeys(getattr(f, side) for f in features)) for side in ("was", "has"))
    return Change(layer=name, was=was, has=has, how=how, label=APPROXIMATE, price=price)
