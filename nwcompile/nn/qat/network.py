"""Quantization-aware training: a network that computes the chip's integers and learns float parameters."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast
from warnings import warn

import numpy as np
import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, NwWarning
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.host import Encoding, Injected, drop_registers
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import Options
from nwcompile.nn.ops.surrogate import look_up_surrogate
from nwcompile.nn.qat.connected import copy_array
from nwcompile.nn.qat.host import HostMaps
from nwcompile.nn.qat.layer import Integers, Pin, QuantizedLayer
from nwcompile.nn.qat.program import IntegerProgram, QuantizedProgram
from nwcompile.nn.qat.sums import exact_arithmetic, sum_synapses
from nwcompile.passes.prepare.input_layer import behind_host
from nwcompile.passes.quantize.approximate.approximate import approximate as approximated
from nwcompile.passes.quantize.approximate.approximate import to_float_network
from nwcompile.passes.quantize.approximate.ideal import pooled_layers
from nwcompile.passes.quantize.approximate.nearest import nearest_network
from nwcompile.passes.quantize.quantize import assemble_network, choose_scales, describe_scales
from nwcompile.passes.stages.draft import Draft
from nwcompile.passes.stages.refusal import refuse
from nwcompile.passes.stages.run import run
from nwcompile.sim.host import run_host
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.sequence.run import layer_groups
from nwcompile.sim.values import verify_counts

COUNTED = ("multi", "graded")  # Kinds of messages whose numbers may exceed 1.


class QuantizedNetwork(torch.nn.Module):
    """A float network that is trained on a chip's integers: forward as the chip computes, backward by a surrogate.

    `network` is normalized as in `nw.compile`: batch norm and pooling are folded into weights, and these are trained; a
    pruned Dense becomes a list of synapses, so its zeros stay. The compiler's own pass chooses the scale of every
    layer, exponents, channel scales and thresholds, from `calibration` `[B, T, *shape]` if given. They stay until
    `recalibrate`; every pass rounds weights and biases to this grid. `layers` are in the order of `names`.

    `bits`, `layer_bits`, `on_multi_spike`, `approximate` and `input_layer` are those of `nw.Options`. The layout of
    samples is `network.layout`. `host` is None or the maps that the host computes before the first layers (`HostMaps`,
    trained too). `surrogate` is a name or function of `nwcompile.nn.surrogate`; `detach_reset` stops the gradient
    through resets. `learn_thresholds` and `learn_taus` train thresholds and decay factors of built-in neurons;
    `learn_parameters` names parameters of neuron programs to train. Computes on the CPU. Warns (NwWarning) as
    quantization does. Raises ModelError, OptionError and FitError as `nw.compile` does.
    """

    @checked("network", "detach_reset", "learn_thresholds", "learn_taus", "learn_parameters")
    def __init__(
        self,
        network: Network,
        chip: Chip | str,
        calibration=None,
        *,
        bits: int | None = None,
        layer_bits: dict[str, int] | None = None,
        surrogate: str | Callable = "fast_sigmoid",
        detach_reset: bool = False,
        learn_thresholds: bool = False,
        learn_taus: bool = False,
        learn_parameters: str | Sequence[str] = (),
        on_multi_spike: str = "refuse",
        approximate: tuple[str, ...] | str = (),
        input_layer: str | None = None,
    ):
        super().__init__()
        self.chip = chip if isinstance(chip, Chip) else Chip.load(chip)
        self.options = Options(
            bits=bits,
            layer_bits=layer_bits,
            on_multi_spike=on_multi_spike,
            approximate=approximate,
            input_layer=input_layer,
        )
        if network.is_fixed:
            raise ModelError("the network is in integers already; give the float network to train it")
        network.verify()
        self.learned_parameters = _verify_names(network, learn_parameters)
        self.given = network
        draft = Draft(given=network, chip=self.chip, options=self.options, calibration=calibration, may_compare=False)
        draft = run(draft, until="estimate", refuse=refuse)
        given = draft.input
        self.host = None if given.host is None else HostMaps(given.host)
        self.legalization = draft.changes
        self.float_network = self._approximate_neurons(draft)
        self._lasting = [*draft.notes, *_describe_pruned(self.float_network)]
        self.names = self.float_network.layers
        learned = ("threshold",) * learn_thresholds + ("alpha", "beta") * learn_taus
        trained = _find_trained(given.network, self.float_network)
        surrogate = look_up_surrogate(surrogate)
        programs, of_programs = self.float_network.programs, self.learned_parameters
        layers = torch.nn.ModuleList(
            QuantizedProgram(self.float_network, name, self.chip, trained[name], of_programs, surrogate, detach_reset)
            if name in programs
            else QuantizedLayer(self.float_network, name, self.chip, trained[name], learned, surrogate, detach_reset)
            for name in self.names
        )
        self.layers = cast("Sequence[QuantizedLayer | QuantizedProgram]", layers)
        self.groups = layer_groups(self.float_network)
        self._index = {name: i for i, name in enumerate(self.names)}
        self.recalibrate(calibration)

    def layer(self, name: str) -> QuantizedLayer | QuantizedProgram:
        """Return the layer of that name. Raises KeyError."""
        return self.layers[self._index[name]]

    def recalibrate(self, calibration=None) -> None:
        """Choose scales, exponents and thresholds again, with the compiler's pass, for the current parameters.

        `calibration` has the network's layout. Raises ModelError if parameters are not finite.
        """
        for layer in self.layers:
            layer.verify_parameters()
        samples = None
        if calibration is not None and self.host is None:
            samples = prepare_inputs(self.given, calibration, None, self.chip, self.options.on_multi_spike)[0]
        elif calibration is not None and self.host is not None:
            samples = behind_host(
                self.float_network, self.host.current_host(), prepare_inputs(self.given, calibration)[0]
            )
        chosen = choose_scales(self._to_float_network(), self.chip, samples, self.options, self.learned_parameters)
        quantized = describe_scales(chosen, self.chip)
        self.table, self.warnings = quantized.table, [*self._lasting, *quantized.warnings]
        for name, layer in zip(self.names, self.layers, strict=True):
            if isinstance(layer, QuantizedProgram):
                layer.pin_choices(chosen.programs[name].format)
            else:
                layer.pin_choices(Pin.from_layer(chosen.layers[name], chosen.scaled[name]))
        for text in self.warnings:
            warn(text, NwWarning, stacklevel=4)  # at the line that built the network

    def forward(self, x=None, steps: int | None = None):
        """Return the last layer's spikes, float32 `[B, T, *shape]`; for a readout the membrane, in float units.

        `x`: samples in the network's layout, or a dict of samples by input name, or None with `steps=N`. States are
        cleared first. A network with several outputs returns a dict by layer. Membranes have the float network's units.
        """
        results = self.spikes(x, steps)
        outputs = {name: results[name] for name in self.float_network.outputs}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def spikes(self, x=None, steps: int | None = None) -> dict[str, torch.Tensor]:
        """Return the result of `forward` for every layer, by name."""
        return self._run_groups(x, steps, None)

    @torch.no_grad()
    def record(self, x=None, steps: int | None = None) -> dict[str, dict[str, np.ndarray]]:
        """Return the integers of every layer, by layer, as `simulate(..., record="all")` does: `spikes` and the states.

        The states are `u` and `v`, or those of a neuron program.
        """
        recorded: dict[str, dict] = {name: {} for name in self.names}
        self._run_groups(x, steps, recorded)
        return recorded

    def network(self) -> Network:
        """Return the trained fixed-point network; `nw.compile` keeps its integers unchanged."""
        integers = {name: layer.compute_integers() for name, layer in zip(self.names, self.layers, strict=True)}
        built_in = {name: now for name, now in integers.items() if isinstance(now, Integers)}
        layers = {name: now.layer for name, now in built_in.items()}
        scaled = {name: now.scaled for name, now in built_in.items()}
        programs = {name: now.fixed for name, now in integers.items() if isinstance(now, IntegerProgram)}
        fixed = drop_registers(assemble_network(self.float_network, layers, scaled, programs))
        host = None
        if self.host is not None:
            host = self.host.current_host()
            registers = self._register_encodings().items()
            written = {line: _cast_layer(self.layer(e.layer)).make_encoding(built_in[e.layer]) for line, e in registers}
            host = replace(host, gives={**host.gives, **written})
        given, readout = self.given, self.given.readout
        if readout is not None:
            scales = {name: now.scaled.scale for name, now in built_in.items()}
            table = [{"layer": name, "scale": scale} for name, scale in scales.items()]
            readout = readout.in_integers(table + [program.row for program in programs.values()])
        return replace(
            fixed, layout=given.layout, n_steps=given.n_steps, host=host, left_out=given.left_out, readout=readout
        )

    def _register_encodings(self) -> dict[str, Encoding]:
        """Return the encodings that the host writes into registers, by input."""
        gives = {} if self.host is None else self.host.given.gives
        return {line: encoding for line, encoding in gives.items() if encoding.register is not None}

    def _approximate_neurons(self, draft: Draft) -> Network:
        """Return the float network with the chip's nearest neurons, fitted to the samples as in `nw.compile`."""
        network = draft.legal
        if not nearest_network(network, self.chip, self.options)[1] and not pooled_layers(network):
            return network
        draft = run(draft, after="schedule", until="quantize")
        nearer = approximated(draft.network, self.chip, self.options, draft.samples)
        self.legalization = nearer.price_changes(self.legalization)
        return to_float_network(network, draft.network, self.chip, self.options, nearer.factors)

    def _to_float_network(self) -> Network:
        """Return the float network with the current parameters."""
        nodes, connections = dict(self.float_network.nodes), {}
        for name, layer in zip(self.names, self.layers, strict=True):
            nodes[name] = replace(nodes[name], neuron=layer.float_neuron())
            for c, weight, bias in zip(layer.connections, layer.weights, layer.biases, strict=True):
                float_bias = None if c.bias is None else copy_array(bias).astype(np.float32)
                connections[id(c)] = c.replace(weight=copy_array(weight).astype(np.float32), bias=float_bias)
        edges = tuple(connections.get(id(c), c) for c in self.float_network.connections)
        return Network(self.float_network.inputs, nodes, edges)

    def _run_groups(self, x, steps: int | None, recorded: dict | None) -> dict[str, torch.Tensor]:
        given, n_samples, n_steps, currents = self._prepare_inputs(x, steps)
        sent = {name: torch.from_numpy(np.require(array, requirements="W")).flatten(2) for name, array in given.items()}
        results = {}
        with exact_arithmetic():
            for names in self.groups:
                run = _TrainedGroup(self, names, sent, currents, n_samples, n_steps)
                for name, (spikes, membrane) in (run.run_loop if run.inner else run.run_whole)(recorded).items():
                    sent[name] = spikes
                    shown = spikes if membrane is None else membrane
                    results[name] = shown.unflatten(2, self.float_network.node(name).shape)
        if any(self.float_network.node(name).neuron.message in COUNTED for name in self.names):
            counts = {name: sent[name].detach().numpy() for name in self.names}
            verify_counts(self.float_network, self.chip, self.options.on_multi_spike, counts)
        return results

    def _prepare_inputs(self, x, steps: int | None) -> tuple[dict[str, np.ndarray], int, int, dict[str, torch.Tensor]]:
        """Return the chip's input `[B, T, *shape]` by name, B, T, and the float numbers for registers by layer."""
        if self.host is None:
            return *prepare_inputs(self.given, x, steps, self.chip, self.options.on_multi_spike), {}
        given, n_samples, n_steps = prepare_inputs(self.given, x, steps)
        host = self.host.current_host()
        of_host = {name: given[name] for name in host.network.inputs}
        if self._register_encodings():
            made, currents = {}, self.host.compute_currents(of_host, n_steps)
        else:
            made, currents = run_host(host, of_host, n_steps)[1], {}
        lines = [name for name in self.float_network.inputs if name not in self._register_encodings()]
        left = {name: (made if name in made else given)[name].astype(np.float32) for name in lines}
        return left, n_samples, n_steps, currents


class _TrainedGroup:
    """One pass through a layer, or through layers that feed each other; `sent` `[B, T, n]` comes from the others."""

    def __init__(
        self, network: QuantizedNetwork, names: list[str], sent: dict, currents: dict, n_samples: int, n_steps: int
    ):
        self.layers = {name: network.layer(name) for name in names}
        self.n_samples, self.n_steps, self.sent, self.currents = n_samples, n_steps, sent, currents
        self.integers = {name: layer.compute_integers() for name, layer in self.layers.items()}
        self.inner: list[tuple] = []
        self.drive = {name: self._sum_outer_drive(layer, names) for name, layer in self.layers.items()}

    def _sum_outer_drive(self, layer: QuantizedLayer | QuantizedProgram, names: list[str]) -> torch.Tensor:
        """Sum the drive from outside the group, `[B, T, N]`; prepare the weights inside the group."""
        drives, now = [], self.integers[layer.name]
        for i, c in enumerate(layer.connections):
            node = layer.bare.node(c.source)
            if c.source in names:
                largest = _largest_output(self.integers[c.source].neuron)
                self.inner.append((c, layer.effective_weight(now.weights[i], i, largest), node.shape))
                continue
            x = self.sent[c.source]
            weight = layer.effective_weight(now.weights[i], i, _largest_message(x, node.neuron))
            n_late = max(self.n_steps - c.aligned_delay, 0)
            x = x[:, :n_late].reshape(self.n_samples * n_late, node.n_neurons).to(weight.dtype)
            drive = sum_synapses(c, x, weight, node.shape, layer.node.n_neurons).unflatten(0, (self.n_samples, n_late))
            drives.append(torch.nn.functional.pad(drive, (0, 0, self.n_steps - n_late, 0)))
        if layer.name in self.currents:
            assert isinstance(now, Integers), "programs have no registers"
            written = _cast_layer(layer).encode_currents(now, self.currents[layer.name])
            drives.append(written.expand(self.n_samples, self.n_steps, layer.node.n_neurons))
        if len(drives) == 1:
            return drives[0]
        none = torch.zeros(self.n_samples, self.n_steps, layer.node.n_neurons, dtype=torch.float64)
        return sum((drive.double() for drive in drives), none)

    def run_whole(self, recorded: dict | None) -> dict:
        """Run the only layer on all steps; return its spikes and membranes."""
        ((name, drive),) = self.drive.items()
        states = None if recorded is None else recorded[name]
        now = self.integers[name]
        spikes, membrane, _ = now.run(drive, None, states)
        _record_spikes(states, spikes, now.neuron, self.layers[name].node.shape)
        return {name: (spikes, membrane)}

    def run_loop(self, recorded: dict | None) -> dict:
        """Run layers that feed each other step by step; return their spikes and membranes."""
        state: dict[str, torch.Tensor | None] = dict.fromkeys(self.layers)
        steps: dict[str, list] = {name: [] for name in self.layers}
        kept: dict[str, list] = {name: [] for name in self.layers}
        for t in range(self.n_steps):
            for name, layer in self.layers.items():
                drive = self.drive[name][:, t].double()
                for c, weight, shape in self.inner:
                    if c.target == name and t >= c.aligned_delay:
                        x = steps[c.source][t - c.aligned_delay][0][:, 0].to(weight.dtype)
                        drive = drive + sum_synapses(c, x, weight, shape, layer.node.n_neurons)
                states: dict | None = None if recorded is None else {}
                *fired, state[name] = self.integers[name].run(drive[:, None], state[name], states)
                steps[name].append(fired)
                kept[name].append(states)
        results = {}
        for name, layer in self.layers.items():
            spikes, membranes = zip(*steps[name], strict=True)
            results[name] = torch.cat(spikes, 1), None if membranes[0] is None else torch.cat(membranes, 1)
            if recorded is not None:
                whole = {key: np.concatenate([states[key] for states in kept[name]], 1) for key in kept[name][0]}
                recorded[name] |= whole
                _record_spikes(recorded[name], results[name][0], self.integers[name].neuron, layer.node.shape)
        return results


def _record_spikes(recorded: dict | None, spikes: torch.Tensor, neuron: NeuronSpec | NeuronProgram, shape) -> None:
    """Add the spikes to a layer's record, and reshape everything to its `shape`."""
    if recorded is None:
        return
    recorded["spikes"] = spikes.detach().numpy().astype(neuron.spike_dtype)
    for key, value in recorded.items():
        recorded[key] = value.reshape(*value.shape[:2], *shape)


def _largest_message(x: torch.Tensor, neuron: NeuronSpec | NeuronProgram | None) -> float:
    """Return the largest magnitude that an input (no neuron) or a layer sent."""
    is_known = neuron is not None and neuron.message not in COUNTED
    return 1.0 if is_known else max(abs(float(end)) for end in x.detach().aminmax())


def _largest_output(neuron: NeuronSpec | NeuronProgram) -> float:
    """Return the largest magnitude that a neuron on the chip can send in a step."""
    if isinstance(neuron, NeuronProgram):
        return neuron.largest_output
    limit = (1 << (neuron.number_format.state_bits - 1)) - 1
    return 1.0 if neuron.spikes != "multi" else float(limit // np.min(neuron.threshold))


def _verify_names(network: Network, names: Sequence[str]) -> tuple[str, ...]:
    """Return names of program parameters. Raises ModelError for a name that no program of the network has."""
    names = (names,) if isinstance(names, str) else tuple(names)
    programs = [network.node(layer).neuron for layer in network.programs]
    known = {key for program in programs if isinstance(program, NeuronProgram) for key in program.parameters}
    for name in names:
        if name not in known:
            has = f"their parameters are {', '.join(sorted(known))}" if known else "none has parameters"
            raise ModelError(f"learn_parameters: no neuron program of the network has a parameter {name!r}; {has}")
    return names


def _cast_layer(layer: QuantizedLayer | QuantizedProgram) -> QuantizedLayer:
    """Narrow the type of a layer with registers, which has built-in neurons."""
    assert isinstance(layer, QuantizedLayer), "programs have no registers"
    return layer


def _describe_pruned(network: Network) -> list[str]:
    """Return warnings for connections in which `prune_zeros` has left nothing to train."""
    return [
        f"all weights from {c.source!r} to {c.target!r} are 0 and stay 0, as pruned ones do; begin with other weights "
        "to train them"
        for c in network.connections
        if isinstance(c, Sparse) and not np.size(c.weight)
    ]


def _find_trained(network: Network, normal: Network) -> dict[str, tuple[bool, ...]]:
    """Return whether each connection into each layer of the normalized network contains weights of the network.

    Pooling, batch norm alone, and connections that only move spikes have nothing to train. The latter are lists of
    synapses of weight 1, as front ends make them.
    """
    trained: dict[str, tuple[bool, ...]] = {}
    for name in normal.layers:
        learned = _trace_learned(network, name)
        into = [c for c in normal.into(name) if not isinstance(c, Injected)]
        # A connection that legalize inserted is trained if it does more than pass spikes on.
        trained[name] = tuple(learned.get(c.source, not np.all(np.asarray(c.weight) == 1)) for c in into)
    return trained


def _trace_learned(network: Network, name: str) -> dict[str, bool]:
    """Return, for each input or layer that feeds `name`, whether there are weights on a path from it."""
    learned_from: dict[str, bool] = {}
    for c in network.into(name):
        is_trained = c.has_weight and not (isinstance(c, Sparse) and np.all(np.asarray(c.weight) == 1))
        is_junction = c.source in network.nodes and network.node(c.source).neuron is None
        before = _trace_learned(network, c.source) if is_junction else {c.source: False}
        for source, learned in before.items():
            learned_from[source] = learned_from.get(source, False) or is_trained or learned
    return learned_from
