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
from nwcompile.ir.connection import Connection, Sparse
from nwcompile.ir.host import Encoding, Injected, drop_registers
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import Options
from nwcompile.nn.ops.surrogate import named
from nwcompile.nn.qat.connected import array
from nwcompile.nn.qat.host import HostMaps
from nwcompile.nn.qat.layer import Integers, Pin, QuantizedLayer
from nwcompile.nn.qat.program import IntegerProgram, QuantizedProgram
from nwcompile.nn.qat.sums import exact, sums
from nwcompile.passes.prepare.input_layer import behind_host
from nwcompile.passes.quantize.approximate.approximate import approximate as approximated
from nwcompile.passes.quantize.approximate.approximate import as_float
from nwcompile.passes.quantize.approximate.ideal import pooled_layers
from nwcompile.passes.quantize.approximate.nearest import nearest_network
from nwcompile.passes.quantize.quantize import assembled, choose_scales, described
from nwcompile.passes.stages.draft import Draft
from nwcompile.passes.stages.refusal import refuse
from nwcompile.passes.stages.run import run
from nwcompile.sim.host import run_host
from nwcompile.sim.inputs import prepare
from nwcompile.sim.sequence.run import groups
from nwcompile.sim.values import verify_counts

COUNTED = ("multi", "graded")  # messages of numbers beyond 1


class QuantizedNetwork(torch.nn.Module):
    """A float network on a chip's integers, to be trained: forward as the chip computes, backward by a surrogate.

    `network` is normalized as `nw.compile` does (batch norm and pooling are folded into weights, which then are what is
    trained; a pruned Dense becomes a list of synapses, so its zeros stay), and the compiler's own pass chooses, on
    `calibration` `[B, T, *shape]` or without, the scale of every layer, exponents, channel scales and thresholds. They
    stay until `recalibrate`; weights and biases are rounded to that grid anew in every pass. `layers` are
    `QuantizedLayer`s in the order of `names`.

    `bits`, `layer_bits`, `on_multi_spike`, `approximate`, `input_layer` are those of `nw.Options`. Samples are laid out
    as `network.layout` says, as everywhere. `host`: the maps that the host computes before the first layers
    (`HostMaps`, trained too), or None. `surrogate` is a name or function of `nwcompile.nn.surrogate`; `detach_reset`:
    no gradient through resets. `learn_thresholds` and `learn_taus` train thresholds and what a step keeps of current
    and membrane, of built-in neurons; `learn_parameters` names parameters of neuron programs that are trained. Computes
    on the CPU. Warns (NwWarning) of what quantization warns of. Raises ModelError, OptionError
    and FitError as `nw.compile` does.
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
        self.learned_parameters = _known(network, learn_parameters)
        self.given = network
        draft = Draft(given=network, chip=self.chip, options=self.options, calibration=calibration, may_compare=False)
        draft = run(draft, until="estimate", refuse=refuse)
        given = draft.input
        self.host = None if given.host is None else HostMaps(given.host)
        self.legalization = draft.changes
        self.float_network = self._nearest(draft)
        self._lasting = [*draft.notes, *_pruned_whole(self.float_network)]
        self.names = self.float_network.layers
        learned = ("threshold",) * learn_thresholds + ("alpha", "beta") * learn_taus
        trained = _trained(given.network, self.float_network)
        surrogate = named(surrogate)
        programs, of_programs = self.float_network.programs, self.learned_parameters
        layers = torch.nn.ModuleList(
            QuantizedProgram(self.float_network, name, self.chip, trained[name], of_programs, surrogate, detach_reset)
            if name in programs
            else QuantizedLayer(self.float_network, name, self.chip, trained[name], learned, surrogate, detach_reset)
            for name in self.names
        )
        self.layers = cast("Sequence[QuantizedLayer | QuantizedProgram]", layers)
        self.groups = groups(self.float_network)
        self._index = {name: i for i, name in enumerate(self.names)}
        self.recalibrate(calibration)

    def layer(self, name: str) -> QuantizedLayer | QuantizedProgram:
        """The layer of that name. Raises KeyError."""
        return self.layers[self._index[name]]

    def recalibrate(self, calibration=None) -> None:
        """Let the compiler choose scales, exponents and thresholds anew, for the parameters as they are now.

        `calibration` is laid out as the network says. Raises ModelError if parameters are not finite.
        """
        for layer in self.layers:
            layer.verify()
        samples = None
        if calibration is not None and self.host is None:
            samples = prepare(self.given, calibration, None, self.chip, self.options.on_multi_spike)[0]
        elif calibration is not None and self.host is not None:
            samples = behind_host(self.float_network, self.host.host(), prepare(self.given, calibration)[0])
        chosen = choose_scales(self._as_float(), self.chip, samples, self.options, self.learned_parameters)
        quantized = described(chosen, self.chip)
        self.table, self.warnings = quantized.table, [*self._lasting, *quantized.warnings]
        for name, layer in zip(self.names, self.layers, strict=True):
            if isinstance(layer, QuantizedProgram):
                layer.pin(chosen.programs[name].format)
            else:
                layer.pin(Pin.of(chosen.layers[name], chosen.scaled[name]))
        for text in self.warnings:
            warn(text, NwWarning, stacklevel=4)  # who made the network

    def forward(self, x=None, steps: int | None = None):
        """What the last layer sends, float32 `[B, T, *shape]`; of a readout its membrane in the float network's units.

        `x`: samples as the network's layout says, or a dict of such by input name, or None with `steps=N`. They begin
        with cleared states. Networks with several outputs give a dict by layer.
        """
        results = self.spikes(x, steps)
        outputs = {name: results[name] for name in self.float_network.outputs}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def spikes(self, x=None, steps: int | None = None) -> dict[str, torch.Tensor]:
        """What `forward` gives, of every layer, by name."""
        return self._run(x, steps, None)

    @torch.no_grad()
    def record(self, x=None, steps: int | None = None) -> dict[str, dict[str, np.ndarray]]:
        """The integers of every layer, as `simulate(..., record="all")` gives them, by layer: `spikes` and its states.

        These are `u` and `v`, or those of a neuron program.
        """
        recorded: dict[str, dict] = {name: {} for name in self.names}
        self._run(x, steps, recorded)
        return recorded

    def network(self) -> Network:
        """The fixed-point network that is trained; `nw.compile` keeps its integers as they are."""
        integers = {name: layer.integers() for name, layer in zip(self.names, self.layers, strict=True)}
        built_in = {name: now for name, now in integers.items() if isinstance(now, Integers)}
        layers = {name: now.layer for name, now in built_in.items()}
        scaled = {name: now.scaled for name, now in built_in.items()}
        programs = {name: now.fixed for name, now in integers.items() if isinstance(now, IntegerProgram)}
        fixed = drop_registers(assembled(self.float_network, layers, scaled, programs))
        host = None
        if self.host is not None:
            host = self.host.host()
            registers = self._registers().items()
            written = {line: _built_in(self.layer(e.layer)).encoding(built_in[e.layer]) for line, e in registers}
            host = replace(host, gives={**host.gives, **written})
        return replace(fixed, layout=self.given.layout, n_steps=self.given.n_steps, host=host)

    def _registers(self) -> dict[str, Encoding]:
        """What the host writes into registers, by input."""
        gives = {} if self.host is None else self.host.given.gives
        return {line: encoding for line, encoding in gives.items() if encoding.register is not None}

    def _nearest(self, draft: Draft) -> Network:
        """The float network with the chip's nearest neurons, as `nw.compile` fits them to the samples."""
        network = draft.legal
        if not nearest_network(network, self.chip, self.options)[1] and not pooled_layers(network):
            return network
        draft = run(draft, after="schedule", until="quantize")
        nearer = approximated(draft.network, self.chip, self.options, draft.samples)
        self.legalization = nearer.with_price(self.legalization)
        return as_float(network, draft.network, self.chip, self.options, nearer.factors)

    def _as_float(self) -> Network:
        """The float network with the parameters as they are now."""
        nodes, connections = dict(self.float_network.nodes), {}
        for name, layer in zip(self.names, self.layers, strict=True):
            nodes[name] = replace(nodes[name], neuron=layer.float_neuron())
            for c, weight, bias in zip(layer.connections, layer.weights, layer.biases, strict=True):
                float_bias = None if c.bias is None else array(bias).astype(np.float32)
                connections[id(c)] = c.replace(weight=array(weight).astype(np.float32), bias=float_bias)
        edges = tuple(connections.get(id(c), c) for c in self.float_network.connections)
        return Network(self.float_network.inputs, nodes, edges)

    def _run(self, x, steps: int | None, recorded: dict | None) -> dict[str, torch.Tensor]:
        given, n_samples, n_steps, currents = self._inputs(x, steps)
        sent = {name: torch.from_numpy(np.require(array, requirements="W")).flatten(2) for name, array in given.items()}
        results = {}
        with exact():
            for names in self.groups:
                run = _TrainedGroup(self, names, sent, currents, n_samples, n_steps)
                for name, (spikes, membrane) in (run.looped if run.inner else run.whole)(recorded).items():
                    sent[name] = spikes
                    shown = spikes if membrane is None else membrane
                    results[name] = shown.unflatten(2, self.float_network.node(name).shape)
        if any(self.float_network.node(name).neuron.message in COUNTED for name in self.names):
            counts = {name: sent[name].detach().numpy() for name in self.names}
            verify_counts(self.float_network, self.chip, self.options.on_multi_spike, counts)
        return results

    def _inputs(self, x, steps: int | None) -> tuple[dict[str, np.ndarray], int, int, dict[str, torch.Tensor]]:
        """What the chip gets `[B, T, *shape]` by input, B, T, and by layer the float numbers for its registers."""
        if self.host is None:
            return *prepare(self.given, x, steps, self.chip, self.options.on_multi_spike), {}
        given, n_samples, n_steps = prepare(self.given, x, steps)
        host = self.host.host()
        of_host = {name: given[name] for name in host.network.inputs}
        if self._registers():
            made, currents = {}, self.host.currents(of_host, n_steps)
        else:
            made, currents = run_host(host, of_host, n_steps)[1], {}
        lines = [name for name in self.float_network.inputs if name not in self._registers()]
        left = {name: (made if name in made else given)[name].astype(np.float32) for name in lines}
        return left, n_samples, n_steps, currents


class _TrainedGroup:
    """One pass through a layer, or through layers that feed each other, fed by what others have `sent` `[B, T, n]`."""

    def __init__(
        self, network: QuantizedNetwork, names: list[str], sent: dict, currents: dict, n_samples: int, n_steps: int
    ):
        self.layers = {name: network.layer(name) for name in names}
        self.n_samples, self.n_steps, self.sent, self.currents = n_samples, n_steps, sent, currents
        self.integers = {name: layer.integers() for name, layer in self.layers.items()}
        self.inner: list[tuple] = []
        self.drive = {name: self._outer(layer, names) for name, layer in self.layers.items()}

    def _outer(self, layer: QuantizedLayer | QuantizedProgram, names: list[str]) -> torch.Tensor:
        """What the layers before a layer add in every step, `[B, T, N]`."""
        drives, now = [], self.integers[layer.name]
        for i, c in enumerate(layer.connections):
            node = layer.bare.node(c.source)
            if c.source in names:
                largest = _most(self.integers[c.source].neuron)
                self.inner.append((c, layer.weight(now.weights[i], i, largest), node.shape))
                continue
            x = self.sent[c.source]
            weight = layer.weight(now.weights[i], i, _largest(x, node.neuron))
            n_late = max(self.n_steps - c.aligned_delay, 0)
            x = x[:, :n_late].reshape(self.n_samples * n_late, node.n_neurons).to(weight.dtype)
            drive = sums(c, x, weight, node.shape, layer.node.n_neurons).unflatten(0, (self.n_samples, n_late))
            drives.append(torch.nn.functional.pad(drive, (0, 0, self.n_steps - n_late, 0)))
        if layer.name in self.currents:
            assert isinstance(now, Integers), "programs have no registers"
            written = _built_in(layer).registers(now, self.currents[layer.name])
            drives.append(written.expand(self.n_samples, self.n_steps, layer.node.n_neurons))
        if len(drives) == 1:
            return drives[0]
        none = torch.zeros(self.n_samples, self.n_steps, layer.node.n_neurons, dtype=torch.float64)
        return sum((drive.double() for drive in drives), none)

    def whole(self, recorded: dict | None) -> dict:
        """Spikes and membranes of the only layer, all steps at once."""
        ((name, drive),) = self.drive.items()
        states = None if recorded is None else recorded[name]
        now = self.integers[name]
        spikes, membrane, _ = now.run(drive, None, states)
        _keep(states, spikes, now.neuron, self.layers[name].node.shape)
        return {name: (spikes, membrane)}

    def looped(self, recorded: dict | None) -> dict:
        """Spikes and membranes of layers that feed each other, step by step."""
        state: dict[str, torch.Tensor | None] = dict.fromkeys(self.layers)
        steps: dict[str, list] = {name: [] for name in self.layers}
        kept: dict[str, list] = {name: [] for name in self.layers}
        for t in range(self.n_steps):
            for name, layer in self.layers.items():
                drive = self.drive[name][:, t].double()
                for c, weight, shape in self.inner:
                    if c.target == name and t >= c.aligned_delay:
                        x = steps[c.source][t - c.aligned_delay][0][:, 0].to(weight.dtype)
                        drive = drive + sums(c, x, weight, shape, layer.node.n_neurons)
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
                _keep(recorded[name], results[name][0], self.integers[name].neuron, layer.node.shape)
        return results


def _keep(recorded: dict | None, spikes: torch.Tensor, neuron: NeuronSpec | NeuronProgram, shape) -> None:
    """Add the spikes to what was recorded of a layer, all in its `shape`."""
    if recorded is None:
        return
    recorded["spikes"] = spikes.detach().numpy().astype(neuron.spike_dtype)
    for key, value in recorded.items():
        recorded[key] = value.reshape(*value.shape[:2], *shape)


def _largest(x: torch.Tensor, neuron: NeuronSpec | NeuronProgram | None) -> float:
    """The largest magnitude among what an input (no neuron) or a layer sent."""
    is_known = neuron is not None and neuron.message not in COUNTED
    return 1.0 if is_known else max(abs(float(end)) for end in x.detach().aminmax())


def _most(neuron: NeuronSpec | NeuronProgram) -> float:
    """The largest magnitude of what a neuron on the chip sends in a step."""
    if isinstance(neuron, NeuronProgram):
        return neuron.largest_output
    limit = (1 << (neuron.number_format.state_bits - 1)) - 1
    return 1.0 if neuron.spikes != "multi" else float(limit // np.min(neuron.threshold))


def _known(network: Network, names: Sequence[str]) -> tuple[str, ...]:
    """Names of parameters of programs. Raises ModelError for one that no program of the network has."""
    names = (names,) if isinstance(names, str) else tuple(names)
    programs = [network.node(layer).neuron for layer in network.programs]
    known = {key for program in programs if isinstance(program, NeuronProgram) for key in program.parameters}
    for name in names:
        if name not in known:
            has = f"their parameters are {', '.join(sorted(known))}" if known else "none has parameters"
            raise ModelError(f"learn_parameters: no neuron program of the network has a parameter {name!r}; {has}")
    return names


def _built_in(layer: QuantizedLayer | QuantizedProgram) -> QuantizedLayer:
    """A layer that has registers: of built-in neurons."""
    assert isinstance(layer, QuantizedLayer), "programs have no registers"
    return layer


def _pruned_whole(network: Network) -> list[str]:
    """Warnings of connections of which `prune_zeros` has left nothing to train."""
    return [
        f"all weights from {c.source!r} to {c.target!r} are 0 and stay 0, as pruned ones do; begin with other weights "
        "to train them"
        for c in network.connections
        if isinstance(c, Sparse) and not np.size(c.weight)
    ]


def _trained(network: Network, normal: Network) -> dict[str, tuple[bool, ...]]:
    """For each connection into each layer of the normalized network, whether weights of the network are in it.

    Pooling, batch norm alone, and connections that only move spikes (lists of synapses of weight 1, as front ends make
    them) hold nothing to train.
    """
    trained: dict[str, tuple[bool, ...]] = {}
    for name in normal.layers:
        learned = _learned_from(network, name)
        into = [c for c in normal.into(name) if not isinstance(c, Injected)]
        trained[name] = tuple(learned.get(c.source, _has_numbers(c)) for c in into)
    return trained


def _has_numbers(connection: Connection) -> bool:
    """Whether a connection that legalize put in does more than pass spikes on."""
    return not np.all(np.asarray(connection.weight) == 1)


def _learned_from(network: Network, name: str) -> dict[str, bool]:
    """By input or layer that a place is fed by, whether weights lie on some path from there."""
    learned_from: dict[str, bool] = {}
    for c in network.into(name):
        is_trained = c.has_weight and not (isinstance(c, Sparse) and np.all(np.asarray(c.weight) == 1))
        is_junction = c.source in network.nodes and network.node(c.source).neuron is None
        before = _learned_from(network, c.source) if is_junction else {c.source: False}
        for source, learned in before.items():
            learned_from[source] = learned_from.get(source, False) or is_trained or learned
    return learned_from
