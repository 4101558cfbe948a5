"""Channel scale: scale each output channel of a layer so that all have weights of about the same size.

A leaky integrate-and-fire neuron gives the same spikes if its weights, biases, threshold, reset value and clamp are all
multiplied by one number. So if neurons have their own thresholds, a channel of small weights need not use the coarse
steps of one with large weights.
"""

from dataclasses import replace

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.neuron import align_to_shape
from nwcompile.passes.quantize.scaled_layer import Layer, driving_weights

MOST = 4.0  # Largest factor between a threshold and the layer's median, up or down: it must fit its register.
SCALED = ("threshold", "reset_value", "v_min")


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
