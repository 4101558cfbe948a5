"""Unmet taps: the rows and columns of a kernel that meet padding at every place are left out, where kernels are stored.

A kernel of 3 x 3 on a map of 1 x 1, as deep layers of small images have, reads its middle tap only. Where a chip stores
convolutions as kernels (`weights.sharing`), the other taps would take eight ninths of the memory. What a spike adds,
and to which neurons, stays the same.
"""

from dataclasses import replace

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, pair, window_count
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options


def without_unmet_taps(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """The network with every kernel cut to the taps that meet its source somewhere, where the chip stores kernels."""
    if not chip.weights.sharing:
        return network, []
    edges, changes = [], []
    for edge in network.connections:
        cut = _cut(edge, network.node(edge.source).shape) if isinstance(edge, Conv2d) else edge
        edges.append(cut)
        if cut is not edge:
            was, has = (" x ".join(map(str, np.shape(e.weight)[2:])) for e in (edge, cut))
            how = f"taps of the kernel from {edge.source} that only padding meets are left out"
            changes.append(Change(edge.target, f"a kernel of {was}", f"{has} of it meet the map", how, EXACT))
    return replace(network, connections=tuple(edges)) if changes else network, changes


def _cut(edge: Conv2d, shape: tuple[int, ...]) -> Conv2d:
    """The connection with fewer taps and less padding; itself where all taps are met or the sizes would not agree."""
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
