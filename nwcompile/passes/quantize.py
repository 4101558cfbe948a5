"""Quantize: a float network in the chip's integers, layer by layer, each at the scale that keeps its spikes closest."""

from dataclasses import dataclass
from math import prod

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import Options
from nwcompile.ir.run import Run
from nwcompile.passes.scale_search import Evidence, choose, peak_current
from nwcompile.passes.scaled_layer import Direct, Layer, Scaled, describe, weight_error
from nwcompile.passes.widths import with_widths
from nwcompile.sim import simulate
from nwcompile.sim.inputs import prepare
from nwcompile.sim.sequence import record

LARGEST_SEARCH = 5e8  # synaptic sums of one candidate scale, over all samples that are searched
FEWEST_SAMPLES = 4
UPDATE_SUMS = 10  # synaptic sums that one neuron update costs as much as
SATURATED = 0.95  # share of neurons and steps that fire
ALWAYS_ON = 0.05  # share of neurons that fire in every step
COLUMNS = ("layer", "bits", "scale", "exponents", "clipped_weights", "weight_error_rms", "tau_error_percent",
           "threshold_float", "threshold_int", "strict_change", "rate_float", "rate_fixed",
           "spike_agreement_percent")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Quantized:
    """The fixed-point `network`, one `table` row a layer, and `warnings`.

    A row: `layer`; weight `bits`; `scale` S, integer state units per unit of the float membrane; `exponents` of its
    connections in order; `clipped_weights`, how many; `weight_error_rms`, over the weights' own root mean square;
    `tau_error_percent`; `threshold_float`, `threshold_int`, a number or [least, largest]; `strict_change`, a text where
    the chip's comparison is not the float network's; `rate_float`, `rate_fixed`, spikes per neuron and step;
    `spike_agreement_percent`, neurons and steps that spike alike over those in which either spikes. What is not
    known without calibration, or does not exist, is None.
    """

    network: Network
    table: list[dict]
    warnings: list[str]


def quantize(network: Network, chip: Chip, calibration, options: Options) -> Quantized:
    """A normalized float network as integers for `chip`, checked on calibration input `[B, T, *shape]` or None.

    Layers are done in topological order. Each gets one scale for weights, biases, threshold, reset value and clamp;
    among the scales that the chip's widths allow, the one whose spikes are closest to the float layer's, driven by
    the already quantized layers before it (by float spikes over connections that point back). Large networks are
    searched on a part of the samples. A fixed-point network keeps its integers. What the chip's neurons cannot do is
    left to `check`; raises ModelError for what no integers can express and for unusable calibration, OptionError.
    """
    if network.is_fixed:
        return _kept(network, chip, calibration, options)
    network = with_widths(network, chip, options)
    x = _inputs(network, chip, calibration, options)
    samples = None if x is None else _Samples.of(network, x)
    layers: dict[str, Layer] = {}
    scaled: dict[str, Scaled] = {}
    for name in network.layers:
        layers[name] = describe(network, name, chip)
        evidence = None if samples is None else samples.evidence(layers[name])
        scaled[name], fired = choose(layers[name], chip, evidence)
        if samples is not None and fired is not None:
            samples.sent[name] = fired
    fixed = _assemble(network, layers, scaled)
    spikes = {} if samples is None else record(fixed, samples.x)[1]
    table, warnings = [], []
    for name, layer in layers.items():
        row = _row(layer, scaled[name])
        if layer.neuron.fires and samples is not None:
            row |= _comparison(samples.run.spikes[name], spikes[name])
            warnings += _activity_warnings(name, samples.run.spikes[name], spikes[name])
        warnings += _number_warnings(row, scaled[name], chip)
        table.append(row)
    return Quantized(fixed, table, warnings)


def _inputs(network: Network, chip: Chip, calibration, options: Options) -> dict[str, np.ndarray] | None:
    """The samples as the chip takes them, by input, or None."""
    return None if calibration is None else prepare(network, calibration, None, chip, options.on_multi_spike)[0]


@dataclass(frozen=True, eq=False)
class _Samples:
    """The samples that scales are compared on: input `x`, the float `run`, and what each source sends on the chip.

    `sent` holds float spikes at first; each quantized layer puts its own in their place.
    """

    x: dict[str, np.ndarray]
    run: Run
    sent: dict[str, np.ndarray]

    @classmethod
    def of(cls, network: Network, x: dict[str, np.ndarray]) -> "_Samples":
        x = _searched(network, x)
        run = simulate(network, x, record="all")
        return cls(x, run, {**{name: array.astype(np.int32) for name, array in x.items()}, **run.spikes})

    def evidence(self, layer: Layer) -> Evidence:
        sources = [c.source for c in layer.connections]
        spikes = {**self.x, **self.run.spikes}
        return Evidence(
            tuple(self.sent[source] for source in sources),
            self.run.spikes[layer.node.name],
            peak_current(layer, tuple(spikes[source] for source in sources)),
            float(np.abs(self.run.states[layer.node.name]["v"]).max()),
        )


def _searched(network: Network, x: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As many samples, evenly spread, as the search has time for."""
    if not x:
        return x
    n_samples, n_steps = next(iter(x.values())).shape[:2]
    work = sum(UPDATE_SUMS * network.node(name).n_neurons for name in network.layers)
    for c in network.connections:
        if isinstance(c, Direct):
            places = prod(c.output_shape(network.node(c.source).shape)[1:]) if isinstance(c, Conv2d) else 1
            work += np.size(c.weight) * places
    n_kept = min(n_samples, max(FEWEST_SAMPLES, int(LARGEST_SEARCH // (work * n_steps))))
    kept = np.linspace(0, n_samples - 1, n_kept).astype(int)
    return {name: array[kept] for name, array in x.items()}


def _assemble(network: Network, layers: dict[str, Layer], scaled: dict[str, Scaled]) -> Network:
    """The whole network with every layer's integers, connections in their order."""
    integers: dict[int, Direct] = {}
    for name, layer in layers.items():
        pairs = zip(layer.connections, scaled[name].connections(layer), strict=True)
        integers |= {id(old): new for old, new in pairs}
    nodes = {name: Node(name, node.shape, scaled[name].neuron) for name, node in network.nodes.items()}
    fixed = Network(network.inputs, nodes, tuple(integers[id(c)] for c in network.connections))
    fixed.verify()
    return fixed


def _row(layer: Layer, scaled: Scaled) -> dict:
    spec, neuron = layer.neuron, scaled.neuron
    change = None
    if neuron.strict != spec.strict and spec.fires:
        sign = {True: ">", False: ">="}
        threshold = scaled.scale * np.min(spec.threshold)
        change = f"v {sign[spec.strict]} {threshold:.6g} became v {sign[neuron.strict]} {np.min(neuron.threshold)}"
        if spec.reset == "subtract" or spec.spikes == "multi":
            change += ", which is also what a spike counts and subtracts"
    return dict.fromkeys(COLUMNS) | {
        "layer": layer.node.name,
        "bits": layer.bits,
        "scale": scaled.scale,
        "exponents": [w.exponent for w in scaled.weights],
        "clipped_weights": sum(w.n_clipped for w in scaled.weights),
        "weight_error_rms": weight_error(layer, scaled),
        "tau_error_percent": layer.dynamics.tau_error_percent,
        "threshold_float": _range(spec.threshold) if spec.fires else None,
        "threshold_int": _range(neuron.threshold) if spec.fires else None,
        "strict_change": change,
    }


def _range(value):
    """A number, or [least, largest] where neurons differ."""
    low, high = np.min(value).item(), np.max(value).item()
    return low if low == high else [low, high]


def _rate(spikes: np.ndarray) -> float:
    return int(np.count_nonzero(spikes)) / spikes.size


def _comparison(wanted: np.ndarray, spikes: np.ndarray) -> dict:
    either = int(np.count_nonzero((wanted != 0) | (spikes != 0)))
    alike = int(np.count_nonzero((wanted == spikes) & (spikes != 0)))
    return {
        "rate_float": _rate(wanted),
        "rate_fixed": _rate(spikes),
        "spike_agreement_percent": 100.0 * alike / either if either else 100.0,
    }


def _activity_warnings(name: str, wanted: np.ndarray | None, spikes: np.ndarray) -> list[str]:
    """Layers that say nothing: never a spike, almost always one, or some neurons in every step."""
    n_fired = np.count_nonzero(spikes)
    n_wanted = 0 if wanted is None else np.count_nonzero(wanted)
    if not n_fired and n_wanted:
        return [
            f"layer {name!r} is dead on the chip: no spike in the calibration samples, {n_wanted} in float; "
            "give it more weight bits, or train it with weights of more equal size"
        ]
    if not n_fired:
        return [f"layer {name!r} is dead: no spike in the calibration samples; lower its threshold or train it longer"]
    if n_fired > SATURATED * spikes.size:
        return [
            f"layer {name!r} is saturated: {100 * n_fired / spikes.size:.0f} % of its neurons and steps fire in the "
            "calibration samples; raise its threshold or scale its input down"
        ]
    n_on = int((spikes != 0).all((0, 1)).sum())
    n = spikes[0, 0].size
    if n_on > ALWAYS_ON * n:
        return [
            f"layer {name!r}: {n_on} of {n} neurons fire in every step of the calibration samples; they carry nothing"
        ]
    return []


def _number_warnings(row: dict, scaled: Scaled, chip: Chip) -> list[str]:
    """What rounding has taken away whole."""
    name, warnings = row["layer"], []
    if row["tau_error_percent"] is None:
        warnings.append(
            f"layer {name!r}: a leak is finer than the chip's decay of {chip.state.decay_bits} bits, "
            "which cannot tell it from none or from a full one"
        )
    if scaled.weights and not any(w.effective.any() for w in scaled.weights) and row["weight_error_rms"]:
        warnings.append(
            f"layer {name!r}: every weight is 0 after rounding, because its biases, threshold or currents are so much "
            "larger; scale its input or take a chip with wider states"
        )
    return warnings


def _kept(network: Network, chip: Chip, calibration, options: Options) -> Quantized:
    """A network that came in integers: as it is, with what can be said about it."""
    warnings = []
    for name in ("bits", "layer_bits"):
        if getattr(options, name) is not None:
            warnings.append(f"{name}={getattr(options, name)} has no effect: the network is already in integers")
    x = _inputs(network, chip, calibration, options)
    spikes = {} if x is None else record(network, x)[1]
    table = []
    for name in network.layers:
        neuron = network.node(name).neuron
        into = [c for c in network.into(name) if isinstance(c, Direct)]
        assert neuron is not None
        fired = spikes.get(name) if neuron.fires else None
        table.append(dict.fromkeys(COLUMNS) | {
            "layer": name,
            "bits": max((c.weight_bits or chip.weights.bits for c in into), default=None),
            "scale": 1.0,
            "exponents": [int(c.exponent) for c in into],
            "threshold_int": _range(neuron.threshold) if neuron.fires else None,
            "rate_fixed": None if fired is None else _rate(fired),
        })  # fmt: skip
        warnings += [] if fired is None else _activity_warnings(name, None, fired)
    return Quantized(network, table, warnings)
