"""A layer of built-in neurons whose float parameters are rounded in every pass as the compiler rounds them.

Over time, its integers are a differentiable operation: forward as in the simulators, backward by a surrogate.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.host import Encoding
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import RESET_TIMINGS, RESETS, SPIKES, NeuronSpec, align_to_shape
from nwcompile.kernels.cores.neuron import Neurons
from nwcompile.kernels.layers.integer_backward import (
    N_SUMS,
    ForwardTrace,
    LayerUnits,
    integer_backward,
    integer_forward,
)
from nwcompile.nn.ops.threads import run_on_threads, split_ranges
from nwcompile.nn.qat.connected import ConnectedLayer, copy_array, make_parameter
from nwcompile.nn.qat.sums import IntegerWeights, StraightThrough
from nwcompile.passes.analyze.grids import WeightGrid, find_decay_for_loss, largest_threshold
from nwcompile.passes.quantize.scaled_layer import (
    Layer,
    Scaled,
    apply_scale,
    describe_layer,
    driving_weights,
    register_encoding,
    scale_at_exponents,
)
from nwcompile.sim.host import encode
from nwcompile.sim.sequence import tables

NOTHING = np.zeros((0, 0, 0), np.float32)
NO_STATES = np.zeros((0, 0, 0), np.int64)
LEARNABLE = ("threshold", "alpha", "beta")  # In addition to weights and biases.


@dataclass(frozen=True, eq=False)
class IntegerNeurons:
    """The current neurons of one layer, as kernels take them.

    `surrogate` returns the derivative of a spike from the membrane minus the threshold, in the float network's units.
    `detach_reset`: no gradient through a reset. `shows_membrane`: return the membranes, with a gradient.
    """

    name: str
    rules: Neurons
    units: LayerUnits
    spikes: str
    reset: str
    timing: str
    surrogate: Callable
    detach_reset: bool
    shows_membrane: bool

    @classmethod
    def from_node(cls, node: Node, unit: np.ndarray, surrogate: Callable, detach_reset: bool) -> "IntegerNeurons":
        """Build from a fixed-point layer; one unit of its state is `unit` (float64[neuron]) in the float network."""
        spec, shape = node.neuron, node.shape

        def neuron_parameter(name: str) -> np.ndarray:
            return spec.array(name, shape).reshape(-1).astype(np.float64)

        keep_u, keep_v = (1 - spec.fixed.lost(neuron_parameter(name)) for name in ("decay_u", "decay_v"))
        drive = unit * (1 << spec.fixed.shift_bits) * (keep_u if spec.fixed.shifts else 1)  # added before a shift decay
        v_min = np.full(node.n_neurons, -inf) if spec.v_min is None else neuron_parameter("v_min") * unit
        reset_value = neuron_parameter("reset_value") * unit if spec.reset == "value" else np.zeros(node.n_neurons)
        numbers = {"unit": unit, "drive": drive, "threshold": neuron_parameter("threshold") * unit}
        numbers |= {"keep_u": keep_u, "keep_v": keep_v, "reset_value": reset_value, "v_min": v_min}
        units = LayerUnits(**{key: np.ascontiguousarray(value, np.float32) for key, value in numbers.items()})
        rules = tables.neuron_tables(Network({}, {node.name: node}, ()), [node.name])
        return cls(
            name=node.name,
            rules=rules,
            units=units,
            spikes=spec.spikes,
            reset=spec.reset,
            timing=spec.reset_timing,
            surrogate=surrogate,
            detach_reset=detach_reset,
            shows_membrane=not spec.fires,
        )

    def threshold_distance(self, before: torch.Tensor) -> torch.Tensor:
        """Return how far membranes `[B, T, N]` are above the nearest threshold that decides a spike."""
        threshold = torch.from_numpy(self.units.threshold)
        if self.spikes == "multi":
            return before - (before / threshold).round().clamp(min=1) * threshold
        if self.spikes == "bipolar":
            return before.abs() - threshold
        if self.spikes == "gated":
            return torch.maximum(before - threshold, -before)
        return before - threshold


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, drive, state, bias_u, bias_v, threshold, keep_u, keep_v, neurons, recorded):
        n_samples, n_steps, n = drive.shape
        integers = np.zeros((3, n_samples, n), np.int64)
        integers[2] = tables.LONG_AGO
        if state is not None:
            integers[:] = state.detach().numpy()
        learns = ctx.needs_input_grad[5] or ctx.needs_input_grad[6]
        shape = drive.shape
        spikes = np.empty(shape, np.float32)
        trace = ForwardTrace(
            before=np.empty(shape, np.float32),
            late=np.empty(shape, np.float32) if neurons.timing != "now" else NOTHING,
            after=np.empty(shape, np.float32) if learns or neurons.shows_membrane else NOTHING,
            current=np.empty(shape, np.float32) if learns else NOTHING,
        )
        u, v = (np.empty(shape, np.int64) for _ in range(2)) if recorded is not None else (NO_STATES, NO_STATES)
        start = NOTHING if state is None else (integers[:2] * neurons.units.unit).astype(np.float32)
        given = np.ascontiguousarray(drive.detach().numpy())
        rows = split_ranges(n_samples, prod(shape))

        def run_samples(k: int) -> None:
            samples = slice(*rows[k])
            integer_forward(
                neurons.rules,
                given[samples],
                integers[:, samples],
                neurons.units.unit,
                spikes[samples],
                ForwardTrace(*(stored[samples] for stored in trace)),
                u[samples],
                v[samples],
                tables.resting_states(n),
            )

        run_on_threads(run_samples, len(rows))
        if recorded is not None:
            recorded |= {"u": u, "v": v}
        after = torch.from_numpy(trace.after) if neurons.shows_membrane else None
        spikes = torch.from_numpy(spikes)
        ctx.trace, ctx.start, ctx.neurons, ctx.dtype = trace, start, neurons, drive.dtype
        ctx.save_for_backward(spikes)
        ctx.set_materialize_grads(False)
        return spikes, after, torch.from_numpy(integers.astype(np.float64))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, of_spikes, of_after, of_last):
        (spikes,) = ctx.saved_tensors
        trace = ctx.trace
        neurons = ctx.neurons
        n_samples, n_steps, n = spikes.shape
        before = torch.from_numpy(trace.before)
        slope = np.ascontiguousarray(neurons.surrogate(neurons.threshold_distance(before)).numpy(), np.float32)
        of_spikes = np.zeros(spikes.shape, np.float32) if of_spikes is None else read_gradient(of_spikes, neurons.name)
        of_after = NOTHING if of_after is None else read_gradient(of_after, neurons.name)
        of_state = np.zeros((2, n_samples, n), np.float32)
        if of_last is not None:
            of_state[:] = of_last[:2].numpy()
        of_drive = np.empty(spikes.shape, np.float32)
        rows = split_ranges(n_samples, spikes.numel())
        sums = np.zeros((len(rows), N_SUMS, n))
        kind = SPIKES.index(neurons.spikes), RESETS.index(neurons.reset), RESET_TIMINGS.index(neurons.timing)

        def run_samples(k: int) -> None:
            samples = slice(*rows[k])
            given = (array[samples] for array in (of_spikes, of_after, slope, spikes.numpy()))
            stored = ForwardTrace(*(array[samples] for array in trace))
            states = ctx.start[:, samples], of_state[:, samples]
            rule = neurons.units, kind, neurons.detach_reset
            integer_backward(*rule, *given, stored, *states, of_drive[samples], sums[k])

        run_on_threads(run_samples, len(rows))
        learned = [torch.from_numpy(total.astype(np.float32)) for total in sums.sum(0)]
        learned = [g if needs else None for g, needs in zip(learned, ctx.needs_input_grad[2:7], strict=True)]
        state = None
        if ctx.needs_input_grad[1]:
            state = torch.from_numpy(np.concatenate([of_state, np.zeros((1, n_samples, n), np.float32)])).double()
        return torch.from_numpy(of_drive).to(ctx.dtype), state, *learned, None, None


def read_gradient(grad: torch.Tensor, layer: str) -> np.ndarray:
    """Return the gradient of a layer's output as an array. Raises ModelError for NaN and infinity."""
    if not torch.stack(grad.aminmax()).isfinite().all():
        raise ModelError(
            f"layer {layer!r} is given a gradient with NaN or infinite values: the loss is NaN or infinite; "
            "lower the learning rate, clip the gradients, or look for a division by 0 or a log of 0 in the loss"
        )
    return np.ascontiguousarray(grad.numpy(), np.float32)


@dataclass(frozen=True, eq=False)
class Pin:
    """The compiler's choices for a layer, which training keeps: see `Layer` and `Scaled`.

    `exponents`, `sign_modes` and `bits` are per connection. `channel_scale` is None or broadcasts to the layer.
    """

    scale: float
    threshold_factor: float
    exponents: tuple[int, ...]
    sign_modes: tuple[str, ...]
    bits: tuple[int, ...]
    channel_scale: np.ndarray | None

    @classmethod
    def from_layer(cls, layer: Layer, scaled: Scaled) -> "Pin":
        exponents = tuple(int(w.exponent) for w in scaled.weights)
        modes, bits = (tuple(getattr(grid, key) for grid in layer.grids) for key in ("sign_mode", "bits"))
        return cls(scaled.scale, scaled.threshold_factor, exponents, modes, bits, layer.channel_scale)


@dataclass(frozen=True, eq=False)
class Integers:
    """The current integers of a layer.

    `learned`: the parameters that the integers are rounded from, float32[N] each, in the float network's units: bias of
    u and v, threshold, decay factors of u and v.
    """

    layer: Layer
    scaled: Scaled
    weights: tuple[IntegerWeights, ...]
    neurons: IntegerNeurons
    learned: tuple[torch.Tensor, ...]

    @property
    def neuron(self) -> NeuronSpec:
        """The neurons on the chip."""
        return self.scaled.neuron

    def run(self, drive: torch.Tensor, state: torch.Tensor | None, recorded: dict | None) -> tuple:
        """Return spikes and membranes (or None), float32[B, T, N], and the last state, float64[3, B, N].

        `drive`: whole numbers [B, T, N], float32 or float64. `state`: last state of the previous call, None at first.
        `recorded`: receives `u` and `v`, int64[B, T, N].
        """
        return _Scan.apply(drive, state, *self.learned, self.neurons, recorded)


class QuantizedLayer(ConnectedLayer):
    """One layer of built-in neurons, at a scale that the compiler has chosen.

    In addition to its connections it may learn `threshold`, and the decay factors `alpha` (current) and `beta`
    (membrane). `pinned` is a `Pin`.
    """

    threshold: torch.nn.Parameter | None
    alpha: torch.nn.Parameter | None
    beta: torch.nn.Parameter | None

    def __init__(
        self,
        network: Network,
        name: str,
        chip: Chip,
        trains: tuple[bool, ...],
        learned: tuple[str, ...],
        surrogate: Callable,
        detach_reset: bool,
    ):
        super().__init__(network, name, chip, trains)
        self.surrogate, self.detach_reset = surrogate, detach_reset
        layer = describe_layer(self.bare, name, chip)
        spec, d = layer.neuron, layer.dynamics
        has = {"threshold": spec.fires, "alpha": spec.alpha is not None, "beta": bool(np.any(d.keep_v))}
        first = {"threshold": spec.threshold, "alpha": d.keep_u, "beta": d.keep_v}
        for key in LEARNABLE:
            self.register_parameter(key, make_parameter(first[key], True) if key in learned and has[key] else None)

    def pin_choices(self, pinned: Pin) -> None:
        """Use these choices from now on."""
        grids = tuple(WeightGrid.from_signs(*at, self.chip) for at in zip(pinned.sign_modes, pinned.bits, strict=True))
        first = replace(describe_layer(self.bare, self.name, self.chip), grids=grids, connections=self.connections)
        if pinned.channel_scale is not None:
            first = apply_scale(first, pinned.channel_scale)
        self.first, self.pinned = first, pinned
        shape, of_channel = self.node.shape, 1.0 if pinned.channel_scale is None else pinned.channel_scale
        channel = np.broadcast_to(np.asarray(of_channel, np.float64), shape).reshape(-1)
        self.of_channel, self.unit = of_channel, 1 / (pinned.scale * channel)
        pairs = zip(self.connections, first.sources, strict=True)
        factors = (
            driving_weights(c.replace(weight=np.ones(np.shape(c.weight))), self.node, source, first.dynamics)
            for c, source in pairs
        )
        # A factor of equal entries is a single number.
        self.factors = tuple(float(f.flat[0]) if f.size and (f == f.flat[0]).all() else f for f in factors)
        unit = pinned.scale / (1 << self.chip.state.shift_bits)
        self.slopes = tuple(torch.as_tensor(f * unit, dtype=torch.float64) for f in self.factors)
        self.bias_factor = torch.from_numpy(np.broadcast_to(first.dynamics.factor, shape).reshape(-1) / channel)

    def pin_state(self) -> dict:
        pinned = dict(vars(self.pinned))
        scale = pinned["channel_scale"]
        return pinned | {"channel_scale": None if scale is None else torch.from_numpy(scale)}

    def pin_from_state(self, state: dict) -> Pin:
        scale = state["channel_scale"]
        return Pin(**state | {"channel_scale": None if scale is None else scale.numpy()})

    def compute_integers(self) -> Integers:
        """Round the current parameters. Raises ModelError if they are not finite, BackendError on a GPU."""
        self.verify_parameters()
        weights = tuple(copy_array(w) * factor for w, factor in zip(self.weights, self.factors, strict=True))
        first, shape, pinned = self.first, self.node.shape, self.pinned
        d, neuron = first.dynamics, first.neuron
        if self.threshold is not None:
            wanted = np.asarray(align_to_shape(copy_array(self.threshold), shape)) * self.of_channel
            largest = largest_threshold(self.chip) / (pinned.scale * pinned.threshold_factor)
            neuron = neuron.replace(threshold=np.clip(wanted, 0, largest))
        if self.alpha is not None:
            d = replace(d, decay_u=self._round_decay(self.alpha, self.chip.state.decay_offset))
        if self.beta is not None:
            d = replace(d, decay_v=self._round_decay(self.beta, 0))
        bias = self._scale_biases()
        if bias is not None:
            key = "constant_v" if self.node.neuron.alpha is None else "constant_u"
            added = bias.detach().numpy().reshape(shape) * self.of_channel
            if first.register is not None:  # one register holds the current and the bias
                first = replace(first, constant=first.constant + added)
            else:
                d = replace(d, **{key: getattr(d, key) + added})
        layer = replace(first, neuron=neuron, dynamics=d, weights=weights)
        scaled = scale_at_exponents(layer, self.chip, pinned.scale, pinned.exponents, pinned.threshold_factor)
        rounded = zip(self.connections, scaled.weights, strict=True)
        sums = tuple(IntegerWeights.from_connection(c, w.effective, self.node.n_neurons) for c, w in rounded)
        node = Node(self.name, shape, scaled.neuron)
        neurons = IntegerNeurons.from_node(node, self.unit, self.surrogate, self.detach_reset)
        return Integers(layer, scaled, sums, neurons, self._expand_learned())

    def float_neuron(self) -> NeuronSpec:
        """Return the trained float neurons; the decay of an Euler membrane stays unchanged."""
        spec, changed = self.node.neuron, {}
        if self.threshold is not None:
            changed["threshold"] = copy_array(self.threshold)
        for key in ("alpha", "beta"):
            if getattr(self, key) is not None and (key == "alpha" or spec.membrane == "linear"):
                changed[key] = np.clip(copy_array(getattr(self, key)), 0, 1)
        return spec.replace(**changed)

    def _round_decay(self, keep: torch.Tensor, lowest: int) -> np.ndarray:
        kept = np.asarray(align_to_shape(np.clip(copy_array(keep), 0, 1), self.node.shape))
        return find_decay_for_loss(1 - kept, self.chip.fixed_point, lowest)

    def _scale_biases(self) -> torch.Tensor | None:
        """Return the sum of the biases into each neuron, float64[N], in the float network's units; None without any."""
        total = self.sum_biases()
        return None if total is None else total * self.bias_factor

    def _expand_learned(self) -> tuple[torch.Tensor, ...]:
        """Expand bias of u and v, threshold, decay factors of u and v to float32[N] each; parameters keep gradients."""
        bias = self._scale_biases()
        none = torch.zeros(self.node.n_neurons)
        of_neurons = none if bias is None else bias.float()
        biases = (none, of_neurons) if self.node.neuron.alpha is None else (of_neurons, none)
        others = (getattr(self, key) for key in LEARNABLE)
        return (*biases, *(none if p is None else self.expand_parameter(p) for p in others))

    def encode_currents(self, now: Integers, currents: torch.Tensor) -> torch.Tensor:
        """Encode `currents` [B, T, N] as the host writes them into registers: integers in float64, with gradients."""
        encoding = self.make_encoding(now)
        shaped = currents.detach().numpy().reshape(*currents.shape[:2], *self.node.shape)
        numbers = torch.from_numpy(encode(encoding, shaped)[0]).flatten(2).double()
        slope = torch.as_tensor(np.asarray(encoding.scale).reshape(-1), dtype=torch.float64)
        return StraightThrough.apply(currents.double(), numbers, slope)

    def make_encoding(self, now: Integers) -> Encoding:
        """Return how the host encodes the numbers for the layer's registers."""
        return register_encoding(now.layer, self.chip, self.pinned.scale)
