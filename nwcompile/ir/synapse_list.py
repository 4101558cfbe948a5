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
    place = np.indices((*size, out_rows, out_columns)).reshape(6, -1)
    y = place[4] * stride[0] - padding[0] + place[2] * dilation[0]
    x = place[5] * stride[1] - padding[1] + place[3] * dilation[1]
    inside = (y >= 0) & (y < rows) & (x >= 0) & (x < columns)
    channel = place[0] // (n_out // c.groups) * size[1] + place[1]
    pre = (channel * rows + y) * columns + x
    post = (place[0] * out_rows + place[4]) * out_columns + place[5]
    return pre[inside], post[inside], np.ravel_multi_index(tuple(place[:4, inside]), size)
