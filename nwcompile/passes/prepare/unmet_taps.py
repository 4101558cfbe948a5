"""Unmet taps: remove rows and columns of stored kernels that only ever see padding.

A 3 x 3 kernel on a 1 x 1 map, as deep layers of small images have, reads only its middle tap. If a chip stores
convolutions as kernels (`weights.sharing`), the other taps would take eight ninths of the memory. The effect of a spike
stays the same.
"""

from dataclasses import replace

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, pair, window_count
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options


def drop_unmet_taps(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Crop every kernel to the taps that read its source, if the chip stores kernels."""
    if not chip.weights.sharing:
        return network, []
    edges, changes = [], []
    for edge in network.connections:
        cut = _drop_taps(edge, network.node(edge.source).shape) if isinstance(edge, Conv2d) else edge
        edges.append(cut)
        if cut is not edge:
            was, has = (" x ".join(map(str, np.shape(e.weight)[2:])) for e in (edge, cut))
            how = f"taps of the kernel from {edge.source} that only padding meets are left out"
            changes.append(Change(edge.target, f"a kernel of {was}", f"{has} of it meet the map", how, EXACT))
    return replace(network, connections=tuple(edges)) if changes else network, changes


def _drop_taps(edge: Conv2d, shape: tuple[int, ...]) -> Conv2d:
    """Return the connection with fewer taps and less padding; unchanged if no tap can go or sizes would differ."""
    source, target = edge.kernel_geometry(shape)
    strides, paddings, dilations = (pair(value) for value in (edge.stride, edge.padding, edge.dilation))
    kept, padding = [], []
    for axis in range(2):
        taps = np.arange(np.shape(edge.weight)[2 + axis]) * dilations[axis] - paddings[axis]
        places = np.arange(target[1 + axis])[:, None] * strides[axis] + taps
        (met,) = np.nonzero(((places >= 0) & (places < source[1 + axis])).any(0))
        if not met.size:
            return edge
        kept.append(slice(int(met[0]), int(met[-1]) + 1))
        padding.append(paddings[axis] - int(met[0]) * dilations[axis])
    weight = np.ascontiguousarray(np.asarray(edge.weight)[:, :, kept[0], kept[1]])
    if weight.shape == np.shape(edge.weight) or min(padding) < 0:
        return edge
    if window_count(source[1:], weight.shape[2:], strides, tuple(padding), dilations) != target[1:]:
        return edge
    return edge.replace(weight=weight, padding=tuple(padding))
