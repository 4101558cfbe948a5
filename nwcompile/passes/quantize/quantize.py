"""Quantize: a float network in the chip's integers, layer by layer, each at the scale that keeps its spikes closest."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Direct
from nwcompile.ir.host import Encoding, Injected, connect_registers
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import Options
from nwcompile.ir.run import Run
from nwcompile.passes.analyze.pool import group_of
from nwcompile.passes.analyze.state_range import program_bounds, state_range
from nwcompile.passes.prepare.weight_bits import apply_weight_bits
from nwcompile.passes.quantize.channel_scale import per_channel
from nwcompile.passes.quantize.layer_warnings import (
    activity_warnings,
    input_warnings,
    lost_warnings,
    number_warnings,
    range_warnings,
    rate_warnings,
    rounding_warnings,
)
from nwcompile.passes.quantize.program_curves import observed
from nwcompile.passes.quantize.program_scale import FixedLayer, fixed_layer
from nwcompile.passes.quantize.scale_search import Evidence, choose, peak_current
from nwcompile.passes.quantize.scaled_layer import Layer, Scaled, describe, register_encoding
from nwcompile.passes.quantize.shared import once
from nwcompile.passes.quantize.table import COLUMNS, kept_row, program_states, rates, scaled_row, states
from nwcompile.sim import simulate
from nwcompile.sim.host import encode
from nwcompile.sim.inputs import prepare
from nwcompile.sim.sequence.run import trace
from nwcompile.sim.values import LARGEST_SPIKE
from nwcompile.threads import raise_if_canceled

NUMBERS = ("core", "weights", "state", "neuron", "io")  # What `quantize` reads of a chip, beside noc.payload_bits.
LARGEST_SEARCH = 5e8  # Synaptic sums of one candidate scale: beyond so many a part of the samples is searched.
FEWEST_SAMPLES = 4  # With fewer samples a scale would be fitted to chance.
UPDATE_SUMS = 10  # A neuron update takes about as long as so many synaptic sums.


@dataclass(frozen=True, eq=False)
class Quantized:
    """The fixed-point `network`, one `table` row a layer (`ir/manifest.py:QuantizationRow`), and `warnings`.

    `registers`: by input that the host writes into a layer's registers, how it makes the numbers.
    """

    network: Network
    table: list[dict]
    warnings: list[str]
    registers: dict[str, Encoding] = field(default_factory=dict)


def quantized(network: Network, chip: Chip, samples: dict[str, np.ndarray] | None, options: Options) -> Quantized:
    """`quantize`, inside `sharing` once for chips with the same numbers."""
    numbers = [*(getattr(chip, section) for section in NUMBERS), chip.noc.payload_bits]
    kind = f"{options.to_dict()} {numbers}"
    return once(kind, network, samples, lambda: quantize(network, chip, samples, options))


def quantize(network: Network, chip: Chip, calibration, options: Options) -> Quantized:
    """A normalized float network as integers for `chip`, checked on calibration input `[B, T, *shape]` or None.

    Layers are done in topological order. Each gets one scale for weights, biases, threshold, reset value and clamp
    (each channel its own, see `channel_scale`, where neurons have thresholds of their own and weights are narrow);
    among the scales that the chip's widths allow, the one whose spikes are closest to the float layer's, driven by
    the already quantized layers before it (by float spikes over connections that point back). Large networks are
    searched on a part of the samples. A fixed-point network keeps its integers. What the chip's neurons cannot do is
    left to `check`; raises ModelError for what no integers can express and for unusable calibration, OptionError.
    """
    if network.is_fixed:
        return _kept(network, chip, calibration, options)
    scales = choose_scales(network, chip, calibration, options)
    quantized = described(scales, chip)
    warnings = list(quantized.warnings)
    for row in quantized.table:  # only here: a network that is trained in integers gets over it
        if row["layer"] in scales.programs:
            continue
        warnings += rounding_warnings(row, scales.layers[row["layer"]], scales.scaled[row["layer"]], chip)
    wanted, sent = ({}, {}) if scales.samples is None else (scales.samples.run.spikes, scales.samples.sent)
    warnings += lost_warnings(scales.layers, scales.scaled, wanted, sent)
    warnings += rate_warnings(quantized.table, wanted, sent)
    return replace(quantized, warnings=warnings)


@dataclass(frozen=True, eq=False)
class Scales:
    """A float `network` of chosen widths, and of each layer what it is (`layers`) and its integers (`scaled`).

    `programs`: the layers whose neurons are programs, on the chip. `samples`: the calibration samples that the scales
    were compared on, or None.
    """

    network: Network
    layers: dict[str, Layer]
    scaled: dict[str, Scaled]
    programs: dict[str, FixedLayer]
    samples: "_Samples | None"


def choose_scales(network: Network, chip: Chip, calibration, options: Options, learned: Collection[str] = ()) -> Scales:
    """The scale of every layer of a normalized float network, as `quantize` chooses them.

    `learned`: parameters of neuron programs that are trained afterwards.

    Where connections must share exponents (`weights.one_exponent`), it is the least of those that they would have, so
    that no state overflows; the scales are chosen once more for these.
    """
    network = apply_weight_bits(network, chip, options)
    x = _inputs(network, chip, calibration, options)
    scales = _layer_by_layer(network, chip, x, {}, learned)
    if not chip.weights.one_exponent:
        return scales
    shared: dict[str, int] = {}
    for name, layer in scales.layers.items():
        for c, weight in zip(layer.connections, scales.scaled[name].weights, strict=True):
            group = group_of(network, chip, c)
            shared[group] = min(shared.get(group, weight.exponent), weight.exponent)
    return _layer_by_layer(network, chip, x, shared, learned)


def _layer_by_layer(
    network: Network, chip: Chip, x: dict | None, shared: dict[str, int], learned: Collection[str]
) -> Scales:
    """The scales, the exponents of the groups of `shared` being given."""
    samples = None if x is None else _Samples.of(network, x, learned)
    layers: dict[str, Layer] = {}
    scaled: dict[str, Scaled] = {}
    programs: dict[str, FixedLayer] = {}
    for name in network.layers:
        raise_if_canceled()
        if name in network.programs:
            run = None if samples is None else samples.run.states[name]
            programs[name] = fixed_layer(network, name, chip, run, learned)
            if samples is not None:
                samples.sent[name] = programs[name].spikes(network, samples.sent)
            continue
        layers[name] = per_channel(_sharing(describe(network, name, chip), network, chip, shared), chip)
        evidence = None if samples is None else samples.evidence(layers[name])
        scaled[name], fired = choose(layers[name], chip, evidence)
        if samples is not None and fired is not None:
            samples.sent[name] = fired
    return Scales(network, layers, scaled, programs, samples)


def _sharing(layer: Layer, network: Network, chip: Chip, shared: dict[str, int]) -> Layer:
    """The layer with weight grids of the exponents that its connections share with others."""
    if not shared:
        return layer
    exponents = [shared[group_of(network, chip, c)] for c in layer.connections]
    pairs = zip(layer.grids, exponents, strict=True)
    return replace(layer, grids=tuple(replace(g, finest=e, coarsest=e, exponent_max=e) for g, e in pairs))


def described(scales: Scales, chip: Chip) -> Quantized:
    """The integers at the chosen scales, with what can be said about them."""
    fixed = assembled(scales.network, scales.layers, scales.scaled, scales.programs)
    registers = {
        layer.register: register_encoding(layer, chip, scales.scaled[name].scale)
        for name, layer in scales.layers.items()
        if layer.register is not None
    }
    table, warnings = [], []
    for name in fixed.layers:
        if name in scales.programs:
            table.append(dict.fromkeys(COLUMNS) | scales.programs[name].row)
            continue
        layer = scales.layers[name]
        row = scaled_row(layer, scales.scaled[name])
        warnings += number_warnings(row, layer, scales.scaled[name], chip)
        table.append(row)
    tried, wanted = (None, {}) if scales.samples is None else (scales.samples.x, scales.samples.run.spikes)
    tried = encoded(tried, registers)
    return Quantized(fixed, *_checked(fixed, chip, table, tried, wanted, warnings), registers)


def encoded(x: dict[str, np.ndarray] | None, registers: dict[str, Encoding]) -> dict[str, np.ndarray] | None:
    """Samples of a network, by input, with those of registers as the integers that the host writes into them."""
    if x is None or not registers:
        return x
    changed = {name: encode(encoding, x[name])[0].astype(np.int32) for name, encoding in registers.items()}
    return {**x, **changed}


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
    def of(cls, network: Network, samples: dict[str, np.ndarray], learned: Collection[str]) -> "_Samples":
        samples = _searched(network, samples)
        seen = _observed(network, learned)
        run = once("float run", seen, samples, lambda: simulate(seen, samples, record="all"))
        for name, spikes in run.spikes.items():
            if (largest := np.abs(spikes).max(initial=0)) > LARGEST_SPIKE:
                raise ModelError(
                    f"layer {name!r} sends up to {largest:.0f} spikes in a step of the calibration samples, and a "
                    f"message holds {LARGEST_SPIKE}; where it feeds itself, make those weights smaller"
                )
        with np.errstate(invalid="ignore"):  # of registers, whose numbers may be larger, nothing is sent
            sent = {name: array.astype(np.int32) for name, array in samples.items()}
        return cls(samples, run, {**sent, **run.spikes})

    def evidence(self, layer: Layer) -> Evidence:
        name, sources = layer.node.name, [c.source for c in layer.connections]
        spikes = {**self.x, **self.run.spikes}
        scale = 1.0 if layer.channel_scale is None else layer.channel_scale
        injected = None if layer.register is None else self.x[layer.register]
        return Evidence(
            tuple(self.sent[source] for source in sources),
            self.run.spikes[name] if layer.neuron.fires else self.run.states[name]["v"],
            peak_current(layer, tuple(spikes[source] for source in sources), injected),
            float(np.abs(self.run.states[name]["v"] * scale).max()),
            injected,
        )


def measure_rates(
    table: list[dict], fixed: Network, network: Network, samples: dict | None, inputs: dict | None
) -> list[dict]:
    """Return the table with the rates of every layer of `fixed` measured anew, unchanged without samples.

    `network`: the float network before any layer was rewritten; `samples` of it, and `inputs` as the chip gets them.
    A part of them is run, as for the scales.
    """
    if not inputs:
        return table
    kept = searched_samples(fixed, *next(iter(inputs.values())).shape[:2])
    sent, _ = trace(fixed, {name: array[kept] for name, array in inputs.items()}, keep_states=False)
    wanted: dict[str, np.ndarray] = {}
    if samples is not None and not network.is_fixed:
        wanted = simulate(network, {name: samples[name][kept] for name in network.inputs}).spikes
    names = (row["layer"] for row in table)
    return [
        row | rates(wanted.get(name), sent[name]) if fixed.node(name).neuron.fires else row
        for row, name in zip(table, names, strict=True)
    ]


def _observed(network: Network, learned: Collection[str]) -> Network:
    """The network, whose float programs also keep what they need tables for."""
    nodes = dict(network.nodes)
    for name in network.programs:
        program = network.node(name).neuron
        assert isinstance(program, NeuronProgram)
        nodes[name] = replace(nodes[name], neuron=observed(program, learned))
    return replace(network, nodes=nodes)


def _searched(network: Network, samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As many samples, evenly spread, as the search has time for."""
    if not samples:
        return samples
    kept = searched_samples(network, *next(iter(samples.values())).shape[:2])
    return {name: array[kept] for name, array in samples.items()}


def searched_samples(network: Network, n_samples: int, n_steps: int) -> np.ndarray:
    """Which samples scales are compared on, by their number."""
    work = sum(UPDATE_SUMS * network.node(name).n_neurons for name in network.layers)
    for c in network.connections:
        if isinstance(c, Direct):
            places = prod(c.output_shape(network.node(c.source).shape)[1:]) if isinstance(c, Conv2d) else 1
            work += np.size(c.weight) * places
    n_kept = min(n_samples, max(FEWEST_SAMPLES, int(LARGEST_SEARCH // (work * n_steps))))
    return np.linspace(0, n_samples - 1, n_kept).astype(int)


def assembled(
    network: Network, layers: dict[str, Layer], scaled: dict[str, Scaled], programs: dict[str, FixedLayer]
) -> Network:
    """The whole network with every layer's integers, connections in their order."""
    integers: dict[int, Connection] = {}
    for name, program in programs.items():
        integers |= {id(old): new for old, new in zip(network.into(name), program.connections, strict=True)}
    for name, layer in layers.items():
        pairs = zip(layer.connections, scaled[name].connections(layer), strict=True)
        integers |= {id(old): new for old, new in pairs}
        into = (c for c in network.into(name) if isinstance(c, Injected))
        integers |= {id(c): connect_registers(c.source, name, layer.node.n_neurons, np.int8) for c in into}
    nodes = {
        name: programs[name].node if name in programs else Node(name, node.shape, scaled[name].neuron)
        for name, node in network.nodes.items()
    }
    fixed = Network(network.inputs, nodes, tuple(integers[id(c)] for c in network.connections))
    fixed.verify()
    return fixed


def _kept(network: Network, chip: Chip, calibration, options: Options) -> Quantized:
    """A network that came in integers: as it is, with what can be said about it."""
    warnings = []
    for name in ("bits", "layer_bits"):
        if getattr(options, name) is not None:
            warnings.append(f"{name}={getattr(options, name)} has no effect: the network is already in integers")
    x = _inputs(network, chip, calibration, options)
    into = {name: [c for c in network.into(name) if isinstance(c, Direct)] for name in network.layers}
    table = [kept_row(name, network.node(name).neuron, into[name], chip) for name in network.layers]
    x = None if x is None else _searched(network, x)
    return Quantized(network, *_checked(network, chip, table, x, {}, warnings))


def _checked(
    network: Network, chip: Chip, table: list[dict], x: dict | None, wanted: dict, warnings: list[str]
) -> tuple[list[dict], list[str]]:
    """The rows of a fixed-point network and its warnings with what running the samples adds to them."""
    spikes, states_of = ({}, {}) if x is None else trace(network, x)
    silent = input_warnings(x or {})
    warnings = [*warnings, *silent]
    sent = None if x is None else {**x, **spikes}
    rows = []
    for row in table:
        name = row["layer"]
        if name in network.programs:
            rows.append(row | _of_program(network, row, wanted.get(name), sent, states_of))
            continue
        reach = state_range(network, name, sent, states_of.get(name))
        row = row | states(reach, chip)
        if sent is not None and network.node(name).neuron.fires:
            row |= rates(wanted.get(name), spikes[name])
            if reach.reaches_threshold and not silent:
                warnings += activity_warnings(name, wanted.get(name), spikes[name], _silent_before(network, name, sent))
        warnings += range_warnings(row, reach, chip)
        rows.append(row)
    return rows, warnings


def _of_program(network: Network, row: dict, wanted: np.ndarray | None, spikes: dict | None, states_of: dict) -> dict:
    """What the row of a layer that is a program has beside others: its states, and what it sends in the samples."""
    name, formats = row["layer"], row.get("states", ())
    program = network.node(name).neuron
    assert isinstance(program, NeuronProgram)
    sent = rates(wanted, spikes[name]) if spikes is not None and program.fires else {}
    return sent | program_states(program, states_of.get(name), program_bounds(network, name, spikes), formats)


def _silent_before(network: Network, name: str, sent: dict) -> list[str]:
    """The other layers and inputs that feed a layer, if none of them sent a spike; else none."""
    sources = list(dict.fromkeys(c.source for c in network.into(name) if c.source != name))
    return [] if any(sent[source].any() for source in sources) else sources
