"""A layer whose float parameters are rounded to the chip's integers, as the compiler rounds them, in every pass."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import aligned
from nwcompile.nn.integer_scan import IntegerNeurons
from nwcompile.nn.integer_sums import IntegerWeights, Rounded
from nwcompile.passes.channel_scale import with_channel_scale
from nwcompile.passes.dynamics import rounded_decay
from nwcompile.passes.number_grid import largest_threshold
from nwcompile.passes.scaled_layer import Layer, Scaled, describe, driving_weights, rescaled

LEARNABLE = ("threshold", "alpha", "beta")  # beside weights and biases


@dataclass(frozen=True, eq=False)
class Integers:
    """The integers of a layer at this moment."""

    layer: Layer
    scaled: Scaled
    weights: tuple[IntegerWeights, ...]
    neurons: IntegerNeurons


class QuantizedLayer(torch.nn.Module):
    """One layer of a normalized float network, at a scale that the compiler has chosen.

    Parameters, in the float network's units: `weights[i]` and `biases[i]` of connection i (those without a bias have an
    empty one), and with `learn_thresholds` and `learn_taus` `threshold`, and `alpha` and `beta`, what current and
    membrane keep in a step. `connections[i]` say where they lie.
    """

    def __init__(self, network: Network, name: str, chip: Chip, trains: tuple[bool, ...], learned: tuple[str, ...],
                 surrogate: Callable, detach_reset: bool):  # fmt: skip
        super().__init__()
        self.name, self.chip, self.surrogate, self.detach_reset = name, chip, surrogate, detach_reset
        self.connections = network.into(name)
        without = tuple(c.replace(bias=None) for c in self.connections)
        self.bare = Network(network.inputs, network.nodes, without)
        layer = describe(self.bare, name, chip)
        spec = layer.neuron
        self.weights = torch.nn.ParameterList(_parameter(c.weight, t) for c, t in zip(without, trains, strict=True))
        self.biases = torch.nn.ParameterList(
            _parameter(np.zeros(0) if c.bias is None else c.bias, t and c.bias is not None)
            for c, t in zip(self.connections, trains, strict=True)
        )
        places = (np.arange(np.size(c.bias)).reshape(np.shape(c.bias)) for c in self.connections if c.bias is not None)
        with_bias = [c for c in self.connections if c.bias is not None]
        self.bias_places = {
            id(c): torch.from_numpy(c.replace(bias=p).bias_per_neuron(layer.node.shape).reshape(-1).astype(np.int64))
            for c, p in zip(with_bias, places, strict=True)
        }
        has = {"threshold": spec.fires, "alpha": spec.alpha is not None, "beta": True}
        first = {"threshold": spec.threshold, "alpha": layer.dynamics.keep_u, "beta": layer.dynamics.keep_v}
        for key in LEARNABLE:
            value = _parameter(first[key], True) if key in learned and has[key] else None
            self.register_parameter(key, value)
        self._kept: tuple | None = None

    @property
    def node(self) -> Node:
        """The float layer."""
        return self.bare.node(self.name)

    def pin(self, layer: Layer, scaled: Scaled) -> None:
        """Keep scale, exponents, sign modes and channel scales from now on."""
        first = describe(self.bare, self.name, self.chip)
        first = replace(first, grids=layer.grids, connections=self.connections)
        if layer.channel_scale is not None:
            first = with_channel_scale(first, layer.channel_scale)
        self.first, self.pinned, self._kept = first, scaled, None
        shape, cs = self.node.shape, 1.0 if layer.channel_scale is None else layer.channel_scale
        unit = 1 / (scaled.scale * np.broadcast_to(cs, shape).reshape(-1).astype(np.float64))
        self.unit = unit
        pairs = zip(first.connections, first.sources, strict=True)
        ones = (c.replace(weight=np.ones(np.shape(c.weight))) for c in first.connections)
        self.factors = tuple(
            _single(driving_weights(one, self.node, source, first.dynamics))
            for one, (_, source) in zip(ones, pairs, strict=True)
        )
        self.gradients = tuple(_factor(f * scaled.weight_scale) for f in self.factors)
        factor = np.broadcast_to(first.dynamics.factor, shape).reshape(-1) / np.broadcast_to(cs, shape).reshape(-1)
        self.bias_factor = torch.from_numpy(factor.astype(np.float64))

    def integers(self) -> Integers:
        """What the parameters are on the chip. Raises ModelError where they are not finite."""
        version = tuple((id(p), p._version) for p in self.parameters())
        if self._kept is None or self._kept[0] != version:
            self._kept = version, self._rounded()
        return self._kept[1]

    def _rounded(self) -> Integers:
        for key, p in self.named_parameters():
            if not p.isfinite().all():
                raise ModelError(
                    f"layer {self.name!r}: {key} has NaN or infinite values; an optimiser step has spoiled it: lower "
                    "the learning rate or clip the gradients, and go on from a state_dict of before"
                )
        first, shape, bits = self.first, self.node.shape, self.chip.state.decay_bits
        pairs = zip(self.weights, self.factors, strict=True)
        weights = tuple(w.detach().numpy().astype(np.float64) * factor for w, factor in pairs)
        d, neuron = first.dynamics, first.neuron
        cs = 1.0 if first.channel_scale is None else first.channel_scale
        if self.threshold is not None:
            wanted = np.asarray(aligned(self.threshold.detach().numpy().astype(np.float64), shape)) * cs
            most = largest_threshold(self.chip) / (self.pinned.scale * self.pinned.threshold_factor)
            neuron = neuron.replace(threshold=np.clip(wanted, 0, most))
        if self.alpha is not None:
            lowest = self.chip.state.decay_offset
            d = replace(d, decay_u=rounded_decay(self._keep(self.alpha), bits, lowest))
        if self.beta is not None:
            d = replace(d, decay_v=rounded_decay(self._keep(self.beta), bits, 0))
        bias = self._bias()
        if bias is not None:
            own = bias.detach().numpy().reshape(shape) * cs
            key = "constant_v" if first.node.neuron.alpha is None else "constant_u"
            d = replace(d, **{key: getattr(d, key) + own})
        layer = replace(first, neuron=neuron, dynamics=d, weights=weights)
        scaled = rescaled(layer, self.chip, self.pinned)
        n = self.node.n_neurons
        rounded = zip(self.connections, scaled.weights, strict=True)
        sums = tuple(IntegerWeights.of(c, w.effective, n) for c, w in rounded)
        node = Node(self.name, shape, scaled.neuron)
        neurons = IntegerNeurons.of(node, self.unit, self.surrogate, self.detach_reset)
        return Integers(layer, scaled, sums, neurons)

    def _keep(self, parameter: torch.Tensor) -> np.ndarray:
        keep = np.clip(parameter.detach().numpy().astype(np.float64), 0, 1)
        return np.asarray(aligned(keep, self.node.shape))

    def _bias(self) -> torch.Tensor | None:
        """What the connections' biases add to each neuron in a step, float64[N], in the float network's units."""
        total = None
        for c, bias in zip(self.connections, self.biases, strict=True):
            if c.bias is not None:
                own = bias.double().reshape(-1)[self.bias_places[id(c)]]
                total = own if total is None else total + own
        return None if total is None else total * self.bias_factor

    def learned(self) -> tuple[torch.Tensor, ...]:
        """float32[N] each: bias of u and v, threshold, what u and v keep; with gradients where they are parameters."""
        bias, none = self._bias(), torch.zeros(self.node.n_neurons)
        biases = (none, bias) if self.node.neuron.alpha is None else (bias, none)
        values = [none if b is None else b.float() for b in biases]
        for parameter in (self.threshold, self.alpha, self.beta):
            values.append(none if parameter is None else self._spread(parameter))
        return tuple(values)

    def _spread(self, parameter: torch.Tensor) -> torch.Tensor:
        shape = self.node.shape
        if parameter.ndim == 1 and len(shape) > 1 and len(parameter) == shape[0]:
            parameter = parameter.reshape(-1, *[1] * (len(shape) - 1))
        return parameter.float().broadcast_to(shape).reshape(-1)

    def weight(self, i: int, largest: float) -> torch.Tensor:
        """The effective weights of connection i, in the float type that sums of spikes up to `largest` need."""
        whole = self.integers().weights[i]
        dtype = whole.dtype(self.connections[i], largest)
        value = torch.from_numpy(whole.value).to(dtype)
        return Rounded.apply(self.weights[i], value, self.gradients[i].to(dtype))


def _parameter(value, trains: bool) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(np.array(value, np.float32)), requires_grad=trains)


def _single(factor: np.ndarray):
    """A number where one says it all."""
    factor = np.asarray(factor, np.float64)
    return float(factor.flat[0]) if factor.size and (factor == factor.flat[0]).all() else factor


def _factor(factor) -> torch.Tensor:
    return torch.as_tensor(np.asarray(factor), dtype=torch.float64)
