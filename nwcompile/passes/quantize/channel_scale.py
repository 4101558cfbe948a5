"""Channel scale: a layer whose output channels all have weights of about the same size, by scaling each channel whole.

A leaky integrate-and-fire neuron gives the same spikes when its weights, biases, threshold, reset value and clamp are
all multiplied by one number. So where neurons have thresholds of their own, a channel of small weights need not share
the coarse steps of one of large weights.
"""

from dataclasses import replace

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.neuron import align_to_shape
from nwcompile.passes.quantize.scaled_layer import Layer, driving_weights

MOST = 4.0  # Times the layer's median threshold, up or down, that a threshold may become: it must fit its register.
SCALED = ("threshold", "reset_value", "v_min")


def per_channel(layer: Layer, chip: Chip) -> Layer:
    """An equal layer with a `channel_scale`, or the layer itself where that gains nothing or the chip has no freedom.

    Readouts are left alone, for their membranes are compared with each other, and so are weights of the chip's full
    width. Channels are those of the first axis: neurons, in a layer of one axis.
    """
    sized = layer.largest_weight and layer.bits is not None and layer.bits < chip.weights.bits
    if chip.neuron.threshold_per != "neuron" or not layer.neuron.fires or not sized:
        return layer
    shape = layer.node.shape
    largest = _largest(layer)
    ratio = np.median(largest[largest > 0]) / np.where(largest > 0, largest, 1)
    threshold = np.broadcast_to(align_to_shape(layer.neuron.threshold, shape), shape)
    threshold = np.abs(threshold).reshape(len(largest), -1).max(1)
    threshold = np.where(threshold > 0, threshold, 1)
    room = np.median(threshold) / threshold
    factor = np.where(largest > 0, np.clip(ratio, room / MOST, room * MOST), 1)
    return with_channel_scale(layer, factor.reshape(-1, *[1] * (len(shape) - 1)))


def with_channel_scale(layer: Layer, factor: np.ndarray) -> Layer:
    """An equal layer, every neuron scaled by its `factor`, which broadcasts to the layer."""
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


def _largest(layer: Layer) -> np.ndarray:
    """float64[C]: the largest magnitude of the weights into each channel."""
    n_channels = layer.node.shape[0]
    largest = np.zeros(n_channels)
    for c, weight in zip(layer.connections, layer.weights, strict=True):
        if isinstance(c, Sparse):
            np.maximum.at(largest, np.asarray(c.post) // (layer.node.n_neurons // n_channels), np.abs(weight))
        else:
            largest = np.maximum(largest, np.abs(weight).reshape(n_channels, -1).max(1, initial=0))
    return largest
