"""A layer whose float parameters are rounded to the chip's integers, as the compiler rounds them, in every pass."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.host import Encoding, Injected
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec, aligned
from nwcompile.nn.qat.scan import IntegerNeurons
from nwcompile.nn.qat.sums import IntegerWeights, StraightThrough
from nwcompile.passes.quantize.channel_scale import with_channel_scale
from nwcompile.passes.quantize.dynamics import rounded_decay
from nwcompile.passes.quantize.grids import WeightGrid, largest_threshold
from nwcompile.passes.quantize.scaled_layer import (
    Direct,
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


class QuantizedLayer(torch.nn.Module):
    """One layer of a normalized float network, at a scale that the compiler has chosen.

    Parameters, in the float network's units: `weights[i]` and `biases[i]` of connection i (an empty one where it has no
    bias), and if they are learned `threshold`, and `alpha` and `beta`, what current and membrane keep in a step.
    `connections[i]` say where they lie. A state_dict holds the `Pin` and the ends of synapses too.
    """

    threshold: torch.nn.Parameter | None
    alpha: torch.nn.Parameter | None
    beta: torch.nn.Parameter | None
    connections: tuple[Direct, ...]

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
        super().__init__()
        self.name, self.chip, self.surrogate, self.detach_reset = name, chip, surrogate, detach_reset
        into = network.into(name)
        self.connections = cast("tuple[Direct, ...]", tuple(c for c in into if not isinstance(c, Injected)))
        without = tuple(c.replace(bias=None) for c in self.connections)
        self.bare = Network(network.inputs, network.nodes, (*without, *(c for c in into if isinstance(c, Injected))))
        layer = describe(self.bare, name, chip)
        biases = [np.zeros(0) if c.bias is None else np.asarray(c.bias) for c in self.connections]
        self.weights = torch.nn.ParameterList(_parameter(c.weight, t) for c, t in zip(without, trains, strict=True))
        self.biases = torch.nn.ParameterList(
            _parameter(bias, t and bias.size > 0) for bias, t in zip(biases, trains, strict=True)
        )
        self.bias_places = [
            None if c.bias is None else _places(c, bias, layer.node.shape)
            for c, bias in zip(self.connections, biases, strict=True)
        ]
        spec, d = layer.neuron, layer.dynamics
        has = {"threshold": spec.fires, "alpha": spec.alpha is not None, "beta": bool(np.any(d.keep_v))}
        first = {"threshold": spec.threshold, "alpha": d.keep_u, "beta": d.keep_v}
        for key in LEARNABLE:
            self.register_parameter(key, _parameter(first[key], True) if key in learned and has[key] else None)
        self.pinned: Pin | None = None

    @property
    def node(self) -> Node:
        """The float layer."""
        return self.bare.node(self.name)

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

    def get_extra_state(self) -> dict:
        pinned = dict(vars(self.pinned))
        scale = pinned["channel_scale"]
        return pinned | {"channel_scale": None if scale is None else torch.from_numpy(scale), "ends": self._ends()}

    def set_extra_state(self, state: dict) -> None:
        """Take the pin. Raises ModelError where the synapses are others: weights of a list say not where they are."""
        if any(not torch.equal(*pair) for pair in zip(self._ends(), state["ends"], strict=True)):
            raise ModelError(
                f"layer {self.name!r}: the state_dict is of other synapses; make the module of a network in which the "
                "same weights are pruned"
            )
        scale = state["channel_scale"]
        pinned = {key: value for key, value in state.items() if key != "ends"}
        self.pin(Pin(**pinned | {"channel_scale": None if scale is None else scale.numpy()}))

    def _ends(self) -> list[torch.Tensor]:
        """int64[2, k] for each list of synapses: their sources and targets; of other connections nothing."""
        lists = [(c.pre, c.post) if isinstance(c, Sparse) else ((), ()) for c in self.connections]
        return [torch.from_numpy(np.array(ends, np.int64)) for ends in lists]

    def integers(self) -> Integers:
        """What the parameters are on the chip now. Raises ModelError if they are not finite, BackendError on a GPU."""
        self.verify()
        weights = tuple(array(w) * factor for w, factor in zip(self.weights, self.factors, strict=True))
        first, shape, pinned = self.first, self.node.shape, self.pinned
        d, neuron = first.dynamics, first.neuron
        if self.threshold is not None:
            wanted = np.asarray(aligned(array(self.threshold), shape)) * self.of_channel
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
        return Integers(layer, scaled, sums, IntegerNeurons.of(node, self.unit, self.surrogate, self.detach_reset))

    def float_neuron(self) -> NeuronSpec:
        """The float neurons as they have been trained (what a step keeps of an Euler membrane stays as it was)."""
        spec, changed = self.node.neuron, {}
        if self.threshold is not None:
            changed["threshold"] = array(self.threshold)
        for key in ("alpha", "beta"):
            if getattr(self, key) is not None and (key == "alpha" or spec.membrane == "linear"):
                changed[key] = np.clip(array(getattr(self, key)), 0, 1)
        return spec.replace(**changed)

    def verify(self) -> None:
        """Raise ModelError if the parameters are not finite, BackendError if they are on a GPU."""
        for key, p in self.named_parameters():
            if p.device.type != "cpu":
                raise BackendError(
                    f"layer {self.name!r}: {key} is on {p.device}, but integers are computed on the CPU; "
                    "move the module back with .cpu()"
                )
            if not p.isfinite().all():
                raise ModelError(
                    f"layer {self.name!r}: {key} has NaN or infinite values; an optimizer step has spoiled it: lower "
                    "the learning rate or clip the gradients, and go on from a state_dict of before"
                )

    def _decay(self, keep: torch.Tensor, lowest: int) -> np.ndarray:
        kept = np.asarray(aligned(np.clip(array(keep), 0, 1), self.node.shape))
        return rounded_decay(kept, self.chip.fixed_point, lowest)

    def _bias(self) -> torch.Tensor | None:
        """What the connections' biases add to each neuron in a step, float64[N], in the float network's units."""
        total = None
        for bias, places in zip(self.biases, self.bias_places, strict=True):
            if places is not None:
                of_connection = bias.double().reshape(-1)[places]
                total = of_connection if total is None else total + of_connection
        return None if total is None else total * self.bias_factor

    def learned(self) -> tuple[torch.Tensor, ...]:
        """float32[N] each: bias of u and v, threshold, what u and v keep; with gradients where they are parameters."""
        bias = self._bias()
        none = torch.zeros(self.node.n_neurons)
        of_neurons = none if bias is None else bias.float()
        biases = (none, of_neurons) if self.node.neuron.alpha is None else (of_neurons, none)
        others = (getattr(self, key) for key in LEARNABLE)
        return (*biases, *(none if p is None else self._spread(p) for p in others))

    def _spread(self, parameter: torch.Tensor) -> torch.Tensor:
        """A number of the layer's neurons, `[C]` or as `NeuronSpec` takes it, for each of them."""
        shape = self.node.shape
        places = np.arange(parameter.numel()).reshape(parameter.shape)
        index = np.array(np.broadcast_to(aligned(places, shape), shape)).reshape(-1)
        return parameter.float().reshape(-1)[torch.from_numpy(index)]

    def registers(self, now: Integers, currents: torch.Tensor) -> torch.Tensor:
        """What the host writes into the layer's registers `now`, float64 like `currents` [B, T, N], with gradients."""
        encoding = self.encoding(now)
        shaped = currents.detach().numpy().reshape(*currents.shape[:2], *self.node.shape)
        numbers = torch.from_numpy(encode(encoding, shaped)[0]).flatten(2).double()
        slope = torch.as_tensor(np.asarray(encoding.scale).reshape(-1), dtype=torch.float64)
        return StraightThrough.apply(currents.double(), numbers, slope)

    def encoding(self, now: Integers) -> Encoding:
        """How the host makes the numbers for the layer's registers `now`."""
        assert self.pinned is not None, "pinned when the network was made"
        return register_encoding(now.layer, self.chip, self.pinned.scale)

    def weight(self, now: Integers, i: int, largest: float) -> torch.Tensor:
        """The effective weights of connection i `now`, in the float type that sums of spikes up to `largest` need."""
        whole = now.weights[i]
        dtype = whole.dtype(self.connections[i], largest)
        return StraightThrough.apply(self.weights[i], torch.from_numpy(whole.value).to(dtype), self.slopes[i].to(dtype))


def array(parameter: torch.Tensor) -> np.ndarray:
    """Its numbers in float64, of their own."""
    return np.array(parameter.detach().double().numpy())


def _parameter(value, trains: bool) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(np.array(value, np.float32)), requires_grad=trains)


def _places(connection, bias: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
    """int64[N]: which entry of a connection's bias each neuron has."""
    places = connection.replace(bias=np.arange(bias.size).reshape(bias.shape)).bias_per_neuron(shape)
    return torch.from_numpy(places.reshape(-1).astype(np.int64))


def _single(factor: np.ndarray):
    """A number where one says it all."""
    return float(factor.flat[0]) if factor.size and (factor == factor.flat[0]).all() else factor
