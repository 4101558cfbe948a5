"""A layer of built-in neurons whose float parameters are rounded in every pass as the compiler rounds them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from nwcompile.ir.chip import Chip
from nwcompile.ir.host import Encoding
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec, align_to_shape
from nwcompile.nn.qat import scan
from nwcompile.nn.qat.connected import ConnectedLayer, copy_array, make_parameter
from nwcompile.nn.qat.scan import IntegerNeurons
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

LEARNABLE = ("threshold", "alpha", "beta")  # In addition to weights and biases.


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
    """The current integers of a layer."""

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
        """Return spikes, membranes or None, and the last state for a drive [B, T, N]; see `scan.run`."""
        return scan.run(drive, state, self.learned, self.neurons, recorded)


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
        self.factors = tuple(_simplify_factor(f) for f in factors)
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


def _simplify_factor(factor: np.ndarray):
    """Return a single number if all entries are equal."""
    return float(factor.flat[0]) if factor.size and (factor == factor.flat[0]).all() else factor
