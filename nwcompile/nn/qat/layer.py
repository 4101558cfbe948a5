"""A layer whose float parameters are rounded to the chip's integers, as the compiler rounds them, in every pass."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from nwcompile.ir.chip import Chip
from nwcompile.ir.host import Encoding
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec, align_to_shape
from nwcompile.nn.qat import scan
from nwcompile.nn.qat.connected import ConnectedLayer, array, parameter
from nwcompile.nn.qat.scan import IntegerNeurons
from nwcompile.nn.qat.sums import IntegerWeights, StraightThrough
from nwcompile.passes.analyze.dynamics import rounded_decay
from nwcompile.passes.analyze.grids import WeightGrid, largest_threshold
from nwcompile.passes.quantize.channel_scale import with_channel_scale
from nwcompile.passes.quantize.scaled_layer import (
    Layer,
    Scaled,
    at_exponents,
    describe,
    driving_weights,
    register_encoding,
)
from nwcompile.sim.host import encode

LEARNABLE = ("threshold", "alpha", "beta")  # beside weights and biases


@dataclass(frozen=True, eq=False)
class Pin:
    """What the compiler has chosen for a layer and training keeps: see `Layer` and `Scaled`; of each connection its
    exponent, sign mode and bits. `channel_scale` is None or broadcasts to the layer.
    """

    scale: float
    threshold_factor: float
    exponents: tuple[int, ...]
    sign_modes: tuple[str, ...]
    bits: tuple[int, ...]
    channel_scale: np.ndarray | None

    @classmethod
    def of(cls, layer: Layer, scaled: Scaled) -> "Pin":
        exponents = tuple(int(w.exponent) for w in scaled.weights)
        modes, bits = (tuple(getattr(grid, key) for grid in layer.grids) for key in ("sign_mode", "bits"))
        return cls(scaled.scale, scaled.threshold_factor, exponents, modes, bits, layer.channel_scale)


@dataclass(frozen=True, eq=False)
class Integers:
    """The integers of a layer at this moment."""

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
        """Spikes, membranes or None, and the last state, of a drive [B, T, N]; see `scan.run`."""
        return scan.run(drive, state, self.learned, self.neurons, recorded)


class QuantizedLayer(ConnectedLayer):
    """One layer of built-in neurons, at a scale that the compiler has chosen.

    Parameters beside those of its connections, if they are learned: `threshold`, and `alpha` and `beta`, what current
    and membrane keep in a step. What is pinned is a `Pin`.
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
        layer = describe(self.bare, name, chip)
        spec, d = layer.neuron, layer.dynamics
        has = {"threshold": spec.fires, "alpha": spec.alpha is not None, "beta": bool(np.any(d.keep_v))}
        first = {"threshold": spec.threshold, "alpha": d.keep_u, "beta": d.keep_v}
        for key in LEARNABLE:
            self.register_parameter(key, parameter(first[key], True) if key in learned and has[key] else None)

    def pin(self, pinned: Pin) -> None:
        """Keep these choices from now on."""
        grids = tuple(WeightGrid.of_signs(*at, self.chip) for at in zip(pinned.sign_modes, pinned.bits, strict=True))
        first = replace(describe(self.bare, self.name, self.chip), grids=grids, connections=self.connections)
        if pinned.channel_scale is not None:
            first = with_channel_scale(first, pinned.channel_scale)
        self.first, self.pinned = first, pinned
        shape, of_channel = self.node.shape, 1.0 if pinned.channel_scale is None else pinned.channel_scale
        channel = np.broadcast_to(np.asarray(of_channel, np.float64), shape).reshape(-1)
        self.of_channel, self.unit = of_channel, 1 / (pinned.scale * channel)
        pairs = zip(self.connections, first.sources, strict=True)
        factors = (
            driving_weights(c.replace(weight=np.ones(np.shape(c.weight))), self.node, source, first.dynamics)
            for c, source in pairs
        )
        self.factors = tuple(_single(f) for f in factors)
        unit = pinned.scale / (1 << self.chip.state.shift_bits)
        self.slopes = tuple(torch.as_tensor(f * unit, dtype=torch.float64) for f in self.factors)
        self.bias_factor = torch.from_numpy(np.broadcast_to(first.dynamics.factor, shape).reshape(-1) / channel)

    def pin_state(self) -> dict:
        pinned = dict(vars(self.pinned))
        scale = pinned["channel_scale"]
        return pinned | {"channel_scale": None if scale is None else torch.from_numpy(scale)}

    def pin_of_state(self, state: dict) -> Pin:
        scale = state["channel_scale"]
        return Pin(**state | {"channel_scale": None if scale is None else scale.numpy()})

    def integers(self) -> Integers:
        """What the parameters are on the chip now. Raises ModelError if they are not finite, BackendError on a GPU."""
        self.verify()
        weights = tuple(array(w) * factor for w, factor in zip(self.weights, self.factors, strict=True))
        first, shape, pinned = self.first, self.node.shape, self.pinned
        d, neuron = first.dynamics, first.neuron
        if self.threshold is not None:
            wanted = np.asarray(align_to_shape(array(self.threshold), shape)) * self.of_channel
            largest = largest_threshold(self.chip) / (pinned.scale * pinned.threshold_factor)
            neuron = neuron.replace(threshold=np.clip(wanted, 0, largest))
        if self.alpha is not None:
            d = replace(d, decay_u=self._decay(self.alpha, self.chip.state.decay_offset))
        if self.beta is not None:
            d = replace(d, decay_v=self._decay(self.beta, 0))
        bias = self._bias()
        if bias is not None:
            key = "constant_v" if self.node.neuron.alpha is None else "constant_u"
            added = bias.detach().numpy().reshape(shape) * self.of_channel
            if first.register is not None:  # one register holds the current and the bias
                first = replace(first, constant=first.constant + added)
            else:
                d = replace(d, **{key: getattr(d, key) + added})
        layer = replace(first, neuron=neuron, dynamics=d, weights=weights)
        scaled = at_exponents(layer, self.chip, pinned.scale, pinned.exponents, pinned.threshold_factor)
        rounded = zip(self.connections, scaled.weights, strict=True)
        sums = tuple(IntegerWeights.of(c, w.effective, self.node.n_neurons) for c, w in rounded)
        node = Node(self.name, shape, scaled.neuron)
        neurons = IntegerNeurons.of(node, self.unit, self.surrogate, self.detach_reset)
        return Integers(layer, scaled, sums, neurons, self._learned())

    def float_neuron(self) -> NeuronSpec:
        """The float neurons as they have been trained (what a step keeps of an Euler membrane stays as it was)."""
        spec, changed = self.node.neuron, {}
        if self.threshold is not None:
            changed["threshold"] = array(self.threshold)
        for key in ("alpha", "beta"):
            if getattr(self, key) is not None and (key == "alpha" or spec.membrane == "linear"):
                changed[key] = np.clip(array(getattr(self, key)), 0, 1)
        return spec.replace(**changed)

    def _decay(self, keep: torch.Tensor, lowest: int) -> np.ndarray:
        kept = np.asarray(align_to_shape(np.clip(array(keep), 0, 1), self.node.shape))
        return rounded_decay(kept, self.chip.fixed_point, lowest)

    def _bias(self) -> torch.Tensor | None:
        """What the connections' biases add to each neuron in a step, float64[N], in the float network's units."""
        total = self.bias()
        return None if total is None else total * self.bias_factor

    def _learned(self) -> tuple[torch.Tensor, ...]:
        """float32[N] each: bias of u and v, threshold, what u and v keep; with gradients where they are parameters."""
        bias = self._bias()
        none = torch.zeros(self.node.n_neurons)
        of_neurons = none if bias is None else bias.float()
        biases = (none, of_neurons) if self.node.neuron.alpha is None else (of_neurons, none)
        others = (getattr(self, key) for key in LEARNABLE)
        return (*biases, *(none if p is None else self.spread(p) for p in others))

    def registers(self, now: Integers, currents: torch.Tensor) -> torch.Tensor:
        """What the host writes into the layer's registers `now`, float64 like `currents` [B, T, N], with gradients."""
        encoding = self.encoding(now)
        shaped = currents.detach().numpy().reshape(*currents.shape[:2], *self.node.shape)
        numbers = torch.from_numpy(encode(encoding, shaped)[0]).flatten(2).double()
        slope = torch.as_tensor(np.asarray(encoding.scale).reshape(-1), dtype=torch.float64)
        return StraightThrough.apply(currents.double(), numbers, slope)

    def encoding(self, now: Integers) -> Encoding:
        """How the host makes the numbers for the layer's registers `now`."""
        return register_encoding(now.layer, self.chip, self.pinned.scale)


def _single(factor: np.ndarray):
    """A number where one says it all."""
    return float(factor.flat[0]) if factor.size and (factor == factor.flat[0]).all() else factor
