"""Scaled layer: a layer's weights, thresholds and biases times one scale, each rounded to its grid (DESIGN 4.2).

`scale_channels` first scales each output channel so that all have weights of about the same size. A leaky
integrate-and-fire neuron gives the same spikes if its weights, biases, threshold, reset value and clamp are all
multiplied by one number. So if neurons have their own thresholds, a channel of small weights need not use the coarse
steps of one with large weights.
"""

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Direct, Sparse
from nwcompile.ir.host import Encoding, Injected, connect_registers
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec, align_to_shape
from nwcompile.passes.analyze import grids
from nwcompile.passes.analyze.grids import Dynamics, Rounded, WeightGrid, layer_dynamics

Edge = TypeVar("Edge", bound=Connection)
REGISTERS = "registers"  # The input that stands for the registers of a single layer.
MOST = 4.0  # Largest factor between a threshold and the layer's median, up or down: it must fit its register.
SCALED = ("threshold", "reset_value", "v_min")


@dataclass(frozen=True, eq=False)
class Layer:
    """A float layer, ready to be scaled: `weights[i]` float64 are those of connection i times the dynamics' factor.

    `channel_scale`: the factor of neurons, dynamics and weights, which broadcasts to the layer, or None. `register`:
    the input whose values x the host writes into registers, as `dynamics.factor * x + constant`, or None; the layer's
    constants are included.
    """

    node: Node
    neuron: NeuronSpec
    connections: tuple[Direct, ...]
    sources: tuple[Node, ...]
    dynamics: Dynamics
    weights: tuple[np.ndarray, ...]
    grids: tuple[WeightGrid, ...]
    channel_scale: np.ndarray | None = None
    register: str | None = None
    constant: np.ndarray = field(default_factory=lambda: np.zeros(()))

    def register_currents(self, x: np.ndarray) -> np.ndarray:
        """Return what registers of value x [B, T, *shape] add to the current, float64, in the float network's units."""
        return self.dynamics.factor * x.astype(np.float64) + self.constant

    @property
    def largest_weight(self) -> float:
        """The largest magnitude of all weights."""
        return max((float(np.abs(w).max(initial=0)) for w in self.weights), default=0.0)

    @property
    def bits(self) -> int | None:
        """The width of the widest weights, None without any."""
        return max((grid.bits for grid in self.grids), default=None)


@dataclass(frozen=True, eq=False)
class Scaled:
    """A layer on the chip's number grids: state and weight units per float unit, its neurons and its weights.

    `threshold_factor`: the factor of its thresholds in addition to the scale.
    """

    scale: float
    weight_scale: float
    threshold_factor: float
    neuron: NeuronSpec
    weights: tuple[Rounded, ...]

    def layer_network(self, layer: Layer) -> Network:
        """Return the layer alone: connection i comes from an input `in{i}`, its registers are the input REGISTERS."""
        inputs = {f"in{i}": Node(f"in{i}", source.shape) for i, source in enumerate(layer.sources)}
        node = Node(layer.node.name, layer.node.shape, self.neuron)
        connections = [c.replace(source=f"in{i}") for i, c in enumerate(self.fixed_connections(layer))]
        if layer.register is not None:
            inputs[REGISTERS] = Node(REGISTERS, node.shape)
            connections.append(connect_registers(REGISTERS, node.name, node.n_neurons, np.int8))
        return Network(inputs, {node.name: node}, tuple(connections))

    def fixed_connections(self, layer: Layer) -> tuple[Direct, ...]:
        """Return the layer's connections with integer mantissas; their biases are in the neurons."""
        parts = zip(layer.connections, self.weights, layer.grids, strict=True)
        return tuple(set_mantissas(c, w, grid.sign_mode, grid.bits) for c, w, grid in parts)


def set_mantissas(edge: Edge, rounded: Rounded, sign_mode: str, bits: int) -> Edge:
    """Return the connection with integer mantissas, without its bias, which is in the neurons."""
    return edge.replace(
        weight=rounded.mantissa,
        exponent=rounded.exponent,
        bias=None,
        sign_mode=sign_mode,
        weight_bits=bits,
        delay=edge.aligned_delay,
    )


def describe_layer(network: Network, name: str, chip: Chip) -> Layer:
    """Return the layer `name` of a normalized float network, with its dynamics. Raises ModelError."""
    node, d = network.node(name), layer_dynamics(network, name, chip)
    connections = tuple(c for c in network.into(name) if isinstance(c, Direct) and not isinstance(c, Injected))
    registers = [c.source for c in network.into(name) if isinstance(c, Injected)]
    assert node.neuron is not None and len(connections) + len(registers) == len(network.into(name)), "normalize first"
    constant = np.zeros(())
    if registers:  # one register holds the current and every constant that is added to it
        kind = "constant_v" if node.neuron.alpha is None else "constant_u"
        constant = getattr(d, kind)
        d = replace(d, constant_v=np.zeros(())) if kind == "constant_v" else replace(d, constant_u=np.zeros(()))
    weights = tuple(driving_weights(c, node, network.node(c.source), d) for c in connections)
    bits = (c.weight_bits or chip.weights.bits for c in connections)
    grids = tuple(WeightGrid.from_weights(w, b, chip) for w, b in zip(weights, bits, strict=True))
    return Layer(
        node=node,
        neuron=node.neuron,
        connections=connections,
        sources=tuple(network.node(c.source) for c in connections),
        dynamics=d,
        weights=weights,
        grids=grids,
        register=registers[0] if registers else None,
        constant=constant,
    )


def register_encoding(layer: Layer, chip: Chip, scale: float) -> Encoding:
    """Return how the host encodes values for a layer's registers at a scale, in units of the synaptic sum."""
    shift, can = chip.state.shift_bits, chip.neuron
    unit = scale / (1 << shift)
    largest = grids.largest_bias(chip) >> shift
    factor, constant = (
        a.item() if a.size == 1 else np.ascontiguousarray(np.broadcast_to(a, layer.node.shape))
        for a in (np.asarray(layer.dynamics.factor) * unit, np.asarray(layer.constant) * unit)
    )
    return Encoding(
        layer=layer.node.name,
        scale=factor,
        offset=constant,
        low=-largest,
        high=largest,
        register=layer.node.name,
        mantissa_bits=can.bias_bits,
        exponent_max=can.bias_exponent_max,
        shift_bits=shift,
    )


def scale_layer(layer: Layer, chip: Chip, scale: float, clip: float = 1.0, threshold_factor: float = 1.0) -> Scaled:
    """Scale a layer; weights beyond `clip` times the layer's largest may be clipped.

    Weights of 1 bit are -s or s. If all connections have such weights, s is `clip` times the layer's largest weight for
    the connection with the largest mean, and proportional to the mean for the others; otherwise it is their mean.
    """
    weight_scale = scale / (1 << chip.state.shift_bits)
    limit = clip * layer.largest_weight * weight_scale
    means = [float(np.abs(w).sum() / max(np.count_nonzero(w), 1)) for w in layer.weights]  # of non-zero weights
    largest_mean = max(means, default=0.0)
    level = limit / largest_mean if layer.bits == 1 and largest_mean else weight_scale
    weights = tuple(
        grid.round_within(w * weight_scale, level * mean if grid.bits == 1 else limit)
        for w, grid, mean in zip(layer.weights, layer.grids, means, strict=True)
    )
    neuron = fixed_neuron(layer, chip, scale, threshold_factor)
    return Scaled(scale, weight_scale, threshold_factor, neuron, weights)


def scale_at_exponents(
    layer: Layer, chip: Chip, scale: float, exponents: tuple[int, ...], threshold_factor: float = 1.0
) -> Scaled:
    """Scale a layer with given weight exponents, one per connection."""
    weight_scale = scale / (1 << chip.state.shift_bits)
    triples = zip(layer.weights, layer.grids, exponents, strict=True)
    weights = tuple(grid.round_at(w * weight_scale, exponent) for w, grid, exponent in triples)
    neuron = fixed_neuron(layer, chip, scale, threshold_factor)
    return Scaled(scale, weight_scale, threshold_factor, neuron, weights)


def weight_error(layer: Layer, scaled: Scaled) -> float:
    """Return the root mean square of the weights' rounding errors, over that of the weights."""
    unit = scaled.weight_scale
    error = sum(
        float(((w.effective / unit - t) ** 2).sum()) for w, t in zip(scaled.weights, layer.weights, strict=True)
    )
    total = sum(float((t**2).sum()) for t in layer.weights)
    return float(np.sqrt(error / total)) if total else 0.0


def driving_weights(connection: Direct, node: Node, source: Node, dynamics: Dynamics) -> np.ndarray:
    """Return a connection's weights times the dynamics' factor, float64. Raises ModelError if it varies in channels."""
    weight = np.asarray(connection.weight, np.float64)
    if dynamics.factor.size == 1:
        return weight * dynamics.factor.reshape(())
    factor = np.broadcast_to(dynamics.factor, node.shape).reshape(-1)
    if isinstance(connection, Sparse):
        return weight * factor[connection.post]
    channels = factor.reshape(len(weight), -1)
    if (channels != channels[:, :1]).any():
        raise ModelError(
            f"layer {node.name!r}: its gain differs inside a channel, which the convolution from {source.name!r} "
            "cannot take up; give one gain for each channel"
        )
    return weight * channels[:, 0].reshape(-1, *[1] * (weight.ndim - 1))


def fixed_neuron(layer: Layer, chip: Chip, scale: float, threshold_factor: float) -> NeuronSpec:
    """Return the neurons in the chip's numbers at a scale; a readout takes any reset of the chip, as it never fires."""
    spec, d, shift = layer.neuron, layer.dynamics, chip.state.shift_bits
    wanted = scale * threshold_factor * np.asarray(spec.threshold, np.float64)
    threshold, strict = grids.round_threshold(wanted, spec.strict, chip)
    reset, reset_value = spec.reset, np.asarray(spec.reset_value, np.float64)
    if spec.membrane == "euler" and spec.reset_timing == "next":
        reset_value = d.keep_v * reset_value  # the float layer leaks after a late reset, the chip before it
    if reset == "value" and not reset_value.any() and "value" not in chip.neuron.reset:
        reset = "zero"
    spikes, timing = spec.spikes, spec.reset_timing
    if spikes != "binary":
        threshold = np.maximum(threshold, 1 << chip.neuron.threshold_shift_bits)
    if not spec.fires and timing == "now":
        threshold = np.asarray(grids.largest_threshold(chip))
        reset = reset if reset in chip.neuron.reset else chip.neuron.reset[0]
    return NeuronSpec(
        threshold=_compact_integers(threshold),
        strict=strict,
        spikes=spikes,
        fires=spec.fires,
        reset=reset,
        reset_value=_compact_integers(np.rint(scale * reset_value)),
        reset_timing=timing,
        refractory=_compact_integers(np.asarray(spec.refractory)),
        v_min=None if spec.v_min is None else _compact_integers(np.rint(scale * np.asarray(spec.v_min, np.float64))),
        bias=_compact_integers(grids.round_bias(scale * d.constant_v, chip)),
        fixed=chip.fixed_point,
        decay_u=_compact_integers(d.decay_u),
        decay_v=_compact_integers(d.decay_v),
        bias_u=_compact_integers(grids.round_bias(scale * d.constant_u, chip, shift) >> shift),
        max_spikes=spec.max_spikes,
    )


def _compact_integers(value: np.ndarray):
    """Return an int if all values are equal, else int64."""
    value = np.asarray(value).astype(np.int64)
    return int(value.flat[0]) if (value == value.flat[0]).all() else value


def scale_channels(layer: Layer, chip: Chip) -> Layer:
    """Return an equivalent layer with a `channel_scale`, or the layer itself if that gains nothing or is impossible.

    Readouts stay unchanged, because their membranes are compared with each other, and so do weights of the chip's full
    width. Channels are those of the first axis: neurons, in a layer of one axis.
    """
    sized = layer.largest_weight and layer.bits is not None and layer.bits < chip.weights.bits
    if chip.neuron.threshold_per != "neuron" or not layer.neuron.fires or not sized:
        return layer
    shape = layer.node.shape
    largest = _largest_weights(layer)
    ratio = np.median(largest[largest > 0]) / np.where(largest > 0, largest, 1)
    threshold = np.broadcast_to(align_to_shape(layer.neuron.threshold, shape), shape)
    threshold = np.abs(threshold).reshape(len(largest), -1).max(1)
    threshold = np.where(threshold > 0, threshold, 1)
    room = np.median(threshold) / threshold
    factor = np.where(largest > 0, np.clip(ratio, room / MOST, room * MOST), 1)
    return apply_scale(layer, factor.reshape(-1, *[1] * (len(shape) - 1)))


def apply_scale(layer: Layer, factor: np.ndarray) -> Layer:
    """Return an equivalent layer, every neuron scaled by its `factor`, which broadcasts to the layer."""
    shape = layer.node.shape
    spec, d = layer.neuron, layer.dynamics
    values = {name: getattr(spec, name) for name in SCALED if getattr(spec, name) is not None}
    neuron = spec.replace(**{n: np.asarray(align_to_shape(v, shape), np.float64) * factor for n, v in values.items()})
    whole = {n: align_to_shape(getattr(d, n), shape) * factor for n in ("factor", "constant_u", "constant_v")}
    scaled = replace(d, **whole)
    pairs = zip(layer.connections, layer.sources, strict=True)
    weights = tuple(driving_weights(c, layer.node, source, scaled) for c, source in pairs)
    constant = align_to_shape(layer.constant, shape) * factor
    return replace(
        layer, neuron=neuron, dynamics=scaled, weights=weights, channel_scale=factor, constant=np.asarray(constant)
    )


def _largest_weights(layer: Layer) -> np.ndarray:
    """Return float64[C]: the largest magnitude of the weights into each channel."""
    n_channels = layer.node.shape[0]
    largest = np.zeros(n_channels)
    for c, weight in zip(layer.connections, layer.weights, strict=True):
        if isinstance(c, Sparse):
            np.maximum.at(largest, np.asarray(c.post) // (layer.node.n_neurons // n_channels), np.abs(weight))
        else:
            largest = np.maximum(largest, np.abs(weight).reshape(n_channels, -1).max(1, initial=0))
    return largest
