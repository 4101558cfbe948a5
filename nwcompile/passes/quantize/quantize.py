"""Quantize: convert a float network to integers, layer by layer, each at the scale with the closest spikes.

Results that several chips have in common, such as those of a chip and its boards, are computed only once within
`share_results`.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import prod
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, Direct
from nwcompile.ir.host import Encoding, Injected, connect_registers
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import Options
from nwcompile.ir.run import Run
from nwcompile.passes.analyze.pool import weight_group
from nwcompile.passes.analyze.state_range import program_bounds, state_range
from nwcompile.passes.prepare.weights import apply_weight_bits
from nwcompile.passes.quantize.gate_currents import sends_numbers
from nwcompile.passes.quantize.layer_warnings import (
    activity_warnings,
    input_warnings,
    lost_warnings,
    number_warnings,
    range_warnings,
    rate_warnings,
    rounding_warnings,
)
from nwcompile.passes.quantize.program_curves import record_arguments
from nwcompile.passes.quantize.program_scale import FixedLayer, fixed_layer, fixed_sender
from nwcompile.passes.quantize.scale_search import Evidence, choose_scale, peak_current
from nwcompile.passes.quantize.scaled_layer import Layer, Scaled, describe_layer, register_encoding, scale_channels
from nwcompile.passes.quantize.table import COLUMNS, kept_row, program_states, scaled_row, spike_rates, state_columns
from nwcompile.sim import simulate
from nwcompile.sim.host import encode
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.sequence.run import trace_layers
from nwcompile.sim.values import LARGEST_SPIKE
from nwcompile.threads import raise_if_canceled

NUMBERS = ("core", "weights", "state", "neuron", "io")  # The sections of a chip that are read, with noc.payload_bits.
LARGEST_SEARCH = 5e8  # Synaptic sums of one candidate scale above which only a part of the samples is searched.
FEWEST_SAMPLES = 4  # With fewer samples a scale would be fitted to chance.
UPDATE_SUMS = 10  # Synaptic sums that take as long as a neuron update.
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Quantized:
    """The fixed-point `network`, a `table` with one row per layer (`ir/manifest.py:QuantizationRow`), and `warnings`.

    `registers`: for each input that the host writes into registers, its encoding.
    """

    network: Network
    table: list[dict]
    warnings: list[str]
    registers: dict[str, Encoding] = field(default_factory=dict)


def quantize_once(network: Network, chip: Chip, samples: dict[str, np.ndarray] | None, options: Options) -> Quantized:
    """Call `quantize`, inside `share_results` only once for chips with the same numbers."""
    numbers = [*(getattr(chip, section) for section in NUMBERS), chip.noc.payload_bits]
    compared = set() if network.readout is None else network.readout.state_layers
    kind = f"{options.to_dict()} {numbers} {sorted(compared)}"
    return make_once(kind, network, samples, lambda: quantize(network, chip, samples, options))


def quantize(network: Network, chip: Chip, calibration, options: Options) -> Quantized:
    """Convert a normalized float network to integers for `chip`, checked on calibration input `[B, T, *shape]` or None.

    Layers are done in topological order. Each gets one scale for weights, biases, threshold, reset value and clamp. If
    neurons have their own thresholds and weights are narrow, each channel gets its own (see `channel_scale`). Of the
    scales that the chip's widths allow, the one with the spikes closest to the float layer's wins; the layer is driven
    by already quantized layers, and by float spikes over connections that point back. Large networks use a part of the
    samples. A fixed-point network keeps its integers. Features that the chip's neurons lack are left to `check`. Raises
    ModelError for what no integers can express and for unusable calibration, and OptionError.
    """
    if network.is_fixed:
        return _keep_integers(network, chip, calibration, options)
    scales = choose_scales(network, chip, calibration, options)
    quantized = describe_scales(scales, chip)
    warnings = list(quantized.warnings)
    for row in quantized.table:  # only here: training in integers compensates for it
        if row["layer"] in scales.programs:
            continue
        warnings += rounding_warnings(row, scales.layers[row["layer"]], scales.scaled[row["layer"]], chip)
    wanted, sent = ({}, {}) if scales.samples is None else (scales.samples.run.spikes, scales.samples.sent)
    warnings += lost_warnings(scales.layers, scales.scaled, wanted, sent)
    warnings += rate_warnings(quantized.table, wanted, sent)
    return replace(quantized, warnings=warnings)


@dataclass(frozen=True, eq=False)
class Scales:
    """A float `network` of chosen widths, and for each layer its float form (`layers`) and its integers (`scaled`).

    `programs`: the layers whose neurons are programs, on the chip. `samples`: the calibration samples that the scales
    were compared on, or None.
    """

    network: Network
    layers: dict[str, Layer]
    scaled: dict[str, Scaled]
    programs: dict[str, FixedLayer]
    samples: "_Samples | None"


def choose_scales(network: Network, chip: Chip, calibration, options: Options, learned: Collection[str] = ()) -> Scales:
    """Choose the scale of every layer of a normalized float network, as `quantize` does.

    `learned`: parameters of neuron programs that are trained afterwards.

    If connections must share exponents (`weights.one_exponent`), the least of their own exponents is used, so that no
    state overflows, and the scales are chosen again.
    """
    network = apply_weight_bits(network, chip, options)
    x = _prepare_inputs(network, chip, calibration, options)
    scales = _layer_by_layer(network, chip, x, {}, learned)
    if not chip.weights.one_exponent:
        return scales
    shared: dict[str, int] = {}
    for name, layer in scales.layers.items():
        for c, weight in zip(layer.connections, scales.scaled[name].weights, strict=True):
            group = weight_group(network, chip, c)
            shared[group] = min(shared.get(group, weight.exponent), weight.exponent)
    return _layer_by_layer(network, chip, x, shared, learned)


def _layer_by_layer(
    network: Network, chip: Chip, x: dict | None, shared: dict[str, int], learned: Collection[str]
) -> Scales:
    """Choose the scales for given exponents of the groups in `shared`."""
    samples = None if x is None else _Samples.from_network(network, x, learned)
    layers: dict[str, Layer] = {}
    scaled: dict[str, Scaled] = {}
    programs: dict[str, FixedLayer] = {}
    for name in network.layers:
        raise_if_canceled()
        if name in network.programs:
            if sends_numbers(network, name):
                if samples is None:
                    raise ModelError(
                        f"layer {name!r} sends currents as numbers, and only samples show how large they are; give "
                        "calibration samples"
                    )
                programs[name] = fixed_sender(network, name, chip, programs)
                scale = programs[name].scale
                read = {c: c.replace(weight=np.asarray(c.weight) / np.float32(scale)) for c in network.out_of(name)}
                network = replace(network, connections=tuple(read.get(c, c) for c in network.connections))
                sent = {**samples.run.spikes, name: samples.run.spikes[name] * scale}
                samples = replace(samples, run=replace(samples.run, spikes=sent))
            else:
                run = None if samples is None else samples.run.states[name]
                try:
                    programs[name] = fixed_layer(network, name, chip, run, learned)
                except ModelError as e:
                    raise e.starting(f"layer {name!r}: ") from None
            if samples is not None:
                samples.sent[name] = programs[name].run_spikes(network, samples.sent)
            continue
        layer = describe_layer(network, name, chip)
        if shared:
            exponents = (shared[weight_group(network, chip, c)] for c in layer.connections)
            pairs = zip(layer.grids, exponents, strict=True)
            grids = tuple(replace(g, finest=e, coarsest=e, exponent_max=e) for g, e in pairs)
            layer = replace(layer, grids=grids)
        if network.readout is None or name not in network.readout.state_layers:  # their states are compared
            layer = scale_channels(layer, chip)
        layers[name] = layer
        evidence = None if samples is None else samples.layer_evidence(layer)
        scaled[name], fired = choose_scale(layer, chip, evidence)
        if samples is not None and fired is not None:
            samples.sent[name] = fired
    return Scales(network, layers, scaled, programs, samples)


def describe_scales(scales: Scales, chip: Chip) -> Quantized:
    """Return the integers at the chosen scales, with their table and warnings."""
    fixed = assemble_network(scales.network, scales.layers, scales.scaled, scales.programs)
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
    tried = encode_registers(tried, registers)
    return Quantized(fixed, *_run_samples(fixed, chip, table, tried, wanted, warnings), registers)


def encode_registers(x: dict[str, np.ndarray] | None, registers: dict[str, Encoding]) -> dict[str, np.ndarray] | None:
    """Return samples of a network, by input, with those of registers as the integers that the host writes."""
    if x is None or not registers:
        return x
    changed = {name: encode(encoding, x[name])[0].astype(np.int32) for name, encoding in registers.items()}
    return {**x, **changed}


def _prepare_inputs(network: Network, chip: Chip, calibration, options: Options) -> dict[str, np.ndarray] | None:
    """Return the samples as the chip takes them, by input, or None."""
    return None if calibration is None else prepare_inputs(network, calibration, None, chip, options.on_multi_spike)[0]


@dataclass(frozen=True, eq=False)
class _Samples:
    """The calibration samples on which scales are compared: input `x`, the float `run`, and the spikes of each source.

    `sent` starts with the float network's spikes. Quantizing a layer replaces its entry with the integer spikes.
    """

    x: dict[str, np.ndarray]
    run: Run
    sent: dict[str, np.ndarray]

    @classmethod
    def from_network(cls, network: Network, samples: dict[str, np.ndarray], learned: Collection[str]) -> "_Samples":
        samples = _select_samples(network, samples)
        programs = {name: network.node(name) for name in network.programs}
        seen_nodes = {n: replace(node, neuron=record_arguments(node.neuron, learned)) for n, node in programs.items()}
        seen = replace(network, nodes={**network.nodes, **seen_nodes})  # also records the arguments of tables
        run = make_once("float run", seen, samples, lambda: simulate(seen, samples, record="all"))
        for name, spikes in run.spikes.items():
            if (largest := np.abs(spikes).max(initial=0)) > LARGEST_SPIKE:
                raise ModelError(
                    f"layer {name!r} sends up to {largest:.0f} spikes in a step of the calibration samples, and a "
                    f"message holds {LARGEST_SPIKE}; where it feeds itself, make those weights smaller"
                )
        with np.errstate(invalid="ignore"):  # numbers of registers may be larger, but are not sent
            sent = {name: array.astype(np.int32) for name, array in samples.items()}
        return cls(samples, run, {**sent, **run.spikes})

    def layer_evidence(self, layer: Layer) -> Evidence:
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
    """Return the table with the rates of every layer of `fixed` measured again, unchanged without samples.

    `network`: the float network before any layer was rewritten; `samples` of it, and `inputs` as the chip gets them. As
    for the scales, a part of them is run.
    """
    if not inputs:
        return table
    kept = searched_samples(fixed, *next(iter(inputs.values())).shape[:2])
    sent, _ = trace_layers(fixed, {name: array[kept] for name, array in inputs.items()}, keep_states=False)
    wanted: dict[str, np.ndarray] = {}
    if samples is not None and not network.is_fixed:
        wanted = simulate(network, {name: samples[name][kept] for name in network.inputs}).spikes
    measured = {
        name: spike_rates(wanted.get(name), sent[name]) for name in fixed.layers if fixed.node(name).neuron.fires
    }
    return [row | measured.get(row["layer"], {}) for row in table]


def _select_samples(network: Network, samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return evenly spread samples, as many as the search has time for."""
    if not samples:
        return samples
    kept = searched_samples(network, *next(iter(samples.values())).shape[:2])
    return {name: array[kept] for name, array in samples.items()}


def searched_samples(network: Network, n_samples: int, n_steps: int) -> np.ndarray:
    """Return the indices of the samples that scales are compared on."""
    work = sum(UPDATE_SUMS * network.node(name).n_neurons for name in network.layers)
    for c in network.connections:
        if isinstance(c, Direct):
            places = prod(c.output_shape(network.node(c.source).shape)[1:]) if isinstance(c, Conv2d) else 1
            work += np.size(c.weight) * places
    n_kept = min(n_samples, max(FEWEST_SAMPLES, int(LARGEST_SEARCH // (work * n_steps))))
    return np.linspace(0, n_samples - 1, n_kept).astype(int)


def assemble_network(
    network: Network, layers: dict[str, Layer], scaled: dict[str, Scaled], programs: dict[str, FixedLayer]
) -> Network:
    """Return the network with every layer's integers, connections in their order."""
    integers: dict[int, Connection] = {}
    for name, program in programs.items():
        integers |= {id(old): new for old, new in zip(network.into(name), program.connections, strict=True)}
    for name, layer in layers.items():
        pairs = zip(layer.connections, scaled[name].fixed_connections(layer), strict=True)
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


def _keep_integers(network: Network, chip: Chip, calibration, options: Options) -> Quantized:
    """Return a network that was given in integers, with its table and warnings."""
    warnings = []
    for name in ("bits", "layer_bits"):
        if getattr(options, name) is not None:
            warnings.append(f"{name}={getattr(options, name)} has no effect: the network is already in integers")
    x = _prepare_inputs(network, chip, calibration, options)
    into = {name: [c for c in network.into(name) if isinstance(c, Direct)] for name in network.layers}
    table = [kept_row(name, network.node(name).neuron, into[name], chip) for name in network.layers]
    x = None if x is None else _select_samples(network, x)
    return Quantized(network, *_run_samples(network, chip, table, x, {}, warnings))


def _run_samples(
    network: Network, chip: Chip, table: list[dict], x: dict | None, wanted: dict, warnings: list[str]
) -> tuple[list[dict], list[str]]:
    """Return the rows and warnings of a fixed-point network, completed by running the samples."""
    spikes, states_of = ({}, {}) if x is None else trace_layers(network, x)
    silent = input_warnings(x or {})
    warnings = [*warnings, *silent]
    sent = None if x is None else {**x, **spikes}
    rows = []
    for row in table:
        name = row["layer"]
        if name in network.programs:
            program = network.node(name).neuron
            rates = spike_rates(wanted.get(name), spikes[name]) if sent is not None and program.fires else {}
            bounds, formats = program_bounds(network, name, sent), row.get("states", ())
            rows.append(row | rates | program_states(program, chip, states_of.get(name), bounds, formats))
            continue
        reach = state_range(network, name, sent, states_of.get(name))
        row = row | state_columns(reach, chip)
        if sent is not None and network.node(name).neuron.fires:
            row |= spike_rates(wanted.get(name), spikes[name])
            if reach.reaches_threshold and not silent:
                sources = list(dict.fromkeys(c.source for c in network.into(name) if c.source != name))
                before = [] if any(sent[source].any() for source in sources) else sources
                warnings += activity_warnings(name, wanted.get(name), spikes[name], before)
        warnings += range_warnings(row, reach, chip)
        rows.append(row)
    return rows, warnings


@dataclass(eq=False)
class _Kept:
    """The last value of a kind, and a digest of its arguments; other threads wait while one computes it."""

    made_from: str = ""
    value: Any = None
    lock: RLock = field(default_factory=RLock)


_KNOWN: ContextVar[dict[str, _Kept] | None] = ContextVar("known", default=None)


@contextmanager
def share_results() -> Iterator[None]:
    """Within this context, and in threads with a copy of it, `make_once` caches its results in memory."""
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def make_once(kind: str, network: Network, samples: dict[str, np.ndarray] | None, make: Callable[[], Value]) -> Value:
    """Return `make()`; within `share_results`, the last result of its kind for the same network and samples."""
    known = _KNOWN.get()
    if known is None:
        return make()
    digest = hashlib.sha256(f"{network.hash} {network.layout} {samples is None}".encode())
    for name, array in (samples or {}).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    kept = known.setdefault(kind, _Kept())
    with kept.lock:
        if kept.made_from != digest.hexdigest():
            kept.made_from = kept.value = ""  # the old value is freed before the new one is computed
            kept.value = make()
            kept.made_from = digest.hexdigest()
        return kept.value
