"""A connection as a list of synapses: source, target, and which of the stored weights each of them is."""

import numpy as np

from nwcompile.ir.connection import Connection, Conv2d, Dense, pair


def synapse_list(c: Connection, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, targets (flat, within their layers) and places in the flat `weight` of a Dense, Conv2d or Sparse.

    `shape` is that of the source's node. A convolution is unrolled; its taps on padding are left out.
    """
    if isinstance(c, Dense):
        post, pre = np.indices(np.shape(c.weight)).reshape(2, -1)
        return pre, post, np.arange(np.size(c.weight))
    if isinstance(c, Conv2d):
        return _of_convolution(c, shape)
    return np.asarray(c.pre), np.asarray(c.post), np.arange(np.size(c.weight))


def _of_convolution(c: Conv2d, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    (_, rows, columns), (n_out, out_rows, out_columns) = c.geometry(shape)
    size, stride, padding, dilation = np.shape(c.weight), pair(c.stride), pair(c.padding), pair(c.dilation)
    every = (*size, out_rows, out_columns)
    out, own, ky, kx, oy, ox = (a.astype(np.int32) for a in np.ogrid[tuple(slice(n) for n in every)])
    y, x = oy * stride[0] - padding[0] + ky * dilation[0], ox * stride[1] - padding[1] + kx * dilation[1]
    inside = np.broadcast_to((y >= 0) & (y < rows) & (x >= 0) & (x < columns), every)
    pre = ((out // (n_out // c.groups) * size[1] + own) * rows + y) * columns + x
    post = (out * out_rows + oy) * out_columns + ox
    place = ((out * size[1] + own) * size[2] + ky) * size[3] + kx
    pre, post, place = (np.broadcast_to(a, every)[inside] for a in (pre, post, place))
    return pre, post, place
