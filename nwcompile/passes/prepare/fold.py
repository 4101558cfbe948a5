"""Linear maps and their products: fold a chain of connections without neurons between them, in float64.

A map has one of four forms, in flat C order at both ends: a `Convolution` (kept symbolic while the product is one), a
`Diagonal`, a dense matrix `ndarray[n_target, n_source]`, or a `scipy.sparse.csr_array` of that shape.
"""

from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np
from scipy.sparse import csr_array

from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, Pool2d, Scale, Sparse, pair, window_count
from nwcompile.ir.flat import csr_groups

# Fraction of non-zero numbers below which a dense product becomes a list of synapses, and below which a convolution
# uses only its non-zero inputs.
SPARSE_BELOW = 0.25
DENSE_ABOVE = 0.5  # Fraction of non-zero weights above which a sparse product becomes a matrix.


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution of a source `[C, H, W]`, as torch's conv2d: `weight` float64[C_out, C_in/groups, rows, columns]."""

    weight: np.ndarray
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    source: tuple[int, int, int]
    target: tuple[int, int, int]

    @property
    def grouped(self) -> np.ndarray:
        """The `weight` as [group, C_out/group, C_in/group, rows, columns]."""
        return self.weight.reshape(self.groups, -1, *self.weight.shape[1:])

    def iterate_taps(self):
        """Yield every tap: its position in the kernel, and the slices of the padded source that it reads."""
        for a in range(self.weight.shape[2]):
            for b in range(self.weight.shape[3]):
                start = (a * self.dilation[0], b * self.dilation[1])
                rows, columns = (
                    slice(start[x], start[x] + self.stride[x] * (self.target[1 + x] - 1) + 1, self.stride[x])
                    for x in (0, 1)
                )
                yield (a, b), rows, columns


@dataclass(frozen=True, eq=False)
class Diagonal:
    """An element-wise product with `scale` float64[n]."""

    scale: np.ndarray

    def per_channel(self, n_channels: int) -> np.ndarray | None:
        """Return float64[C] if the scale is constant within every channel, else None."""
        table = self.scale.reshape(n_channels, -1)
        return table[:, 0] if (table == table[:, :1]).all() else None


def linear_map(connection: Connection, source_shape: tuple[int, ...], target_shape: tuple[int, ...]):
    """Return the linear map of a float connection, without its bias or shift."""
    if isinstance(connection, Scale):
        return Diagonal(connection.per_neuron("scale", source_shape).astype(np.float64).reshape(-1))
    if isinstance(connection, Pool2d):
        conv = _to_convolution(connection.as_conv2d(source_shape[0]), source_shape)
        return replace(conv, weight=np.full(conv.weight.shape, connection.window_weight))
    if isinstance(connection, Conv1d):
        return _to_convolution(connection.as_conv2d((source_shape[0], source_shape[1])), source_shape)
    if isinstance(connection, Conv2d):
        return _to_convolution(connection, source_shape)
    if isinstance(connection, Sparse):
        weight = np.asarray(connection.weight, np.float64)
        return csr_array((weight, (connection.post, connection.pre)), shape=(prod(target_shape), prod(source_shape)))
    assert isinstance(connection, Dense)
    return np.asarray(connection.weight, np.float64)


def constant_offset(
    connection: Connection, source_shape: tuple[int, ...], target_shape: tuple[int, ...]
) -> np.ndarray | None:
    """Return the constant that a connection adds, float64[n_target], or None."""
    if isinstance(connection, Scale):
        return connection.per_neuron("shift", source_shape).astype(np.float64).reshape(-1)
    bias = connection.bias_per_neuron(target_shape)
    return None if bias is None else bias.astype(np.float64).reshape(-1)


def apply_map(linear, x: np.ndarray) -> np.ndarray:
    """Apply the map to rows: `x` [k, n_source] -> [k, n_target]."""
    if isinstance(linear, Diagonal):
        return x * linear.scale
    if not isinstance(linear, Convolution):
        return (linear @ x.T).T
    (ph, pw), k = linear.padding, len(x)
    padded = np.pad(x.reshape(k, *linear.source), ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    if linear.groups == 1 and np.count_nonzero(x) < SPARSE_BELOW * x.size:
        return _apply_to_spikes(linear, padded)
    padded = padded.reshape(k, linear.groups, linear.source[0] // linear.groups, *padded.shape[2:])
    out = np.zeros((k, linear.groups, linear.target[0] // linear.groups, *linear.target[1:]))
    for (a, b), rows, columns in linear.iterate_taps():
        out += np.einsum("kgirc,goi->kgorc", padded[..., rows, columns], linear.grouped[..., a, b], optimize=True)
    return out.reshape(k, prod(linear.target))


def _apply_to_spikes(linear: Convolution, padded: np.ndarray) -> np.ndarray:
    """Apply a convolution to mostly zero maps [k, C, H, W] such as spikes; sums in the order of `apply_map`."""
    out = np.zeros((len(padded), *linear.target[1:], linear.target[0]))
    for (a, b), rows, columns in linear.iterate_taps():
        read = csr_array(np.moveaxis(padded[:, :, rows, columns], 1, -1).reshape(-1, linear.source[0]))
        out += (read @ np.ascontiguousarray(linear.weight[:, :, a, b].T)).reshape(out.shape)
    return np.moveaxis(out, -1, 1).reshape(len(padded), -1)


def row_sums(linear) -> np.ndarray:
    """Apply the map to a row of ones, float64[n_target]: each target's sum of weights."""
    if isinstance(linear, Convolution):  # add up the weights of a tap once, in order, instead of for every output
        weight = np.cumsum(linear.weight, 1)[:, -1:]
        linear = replace(linear, weight=weight, source=(linear.groups, *linear.source[1:]))
        return apply_map(linear, np.ones((1, prod(linear.source))))[0]
    n_source = len(linear.scale) if isinstance(linear, Diagonal) else linear.shape[1]
    return apply_map(linear, np.ones((1, n_source)))[0]


def apply_transpose(linear, y: np.ndarray) -> np.ndarray:
    """Apply the transposed map to rows: `y` [k, n_target] -> [k, n_source]."""
    if isinstance(linear, Diagonal):
        return y * linear.scale
    if not isinstance(linear, Convolution):
        return (linear.T @ y.T).T
    (ph, pw), k, (n_channels, height, width) = linear.padding, len(y), linear.source
    grouped = y.reshape(k, linear.groups, -1, *linear.target[1:])
    padded = np.zeros((k, linear.groups, n_channels // linear.groups, height + 2 * ph, width + 2 * pw))
    for (a, b), rows, columns in linear.iterate_taps():
        padded[..., rows, columns] += np.einsum("kgorc,goi->kgirc", grouped, linear.grouped[..., a, b], optimize=True)
    return padded[..., ph : ph + height, pw : pw + width].reshape(k, -1)


def compose(second, first):
    """Return the map that applies `first`, then `second`."""
    if isinstance(second, np.ndarray):
        return _to_sparse_if_thin(apply_transpose(first, second))
    if isinstance(first, np.ndarray):
        return _to_sparse_if_thin(np.ascontiguousarray(apply_map(second, np.ascontiguousarray(first.T)).T))
    if isinstance(second, Diagonal) and isinstance(first, Diagonal):
        return Diagonal(second.scale * first.scale)
    product = None
    if isinstance(second, Convolution) and isinstance(first, Convolution):
        product = _convolve_kernels(second, first)
    elif isinstance(second, Diagonal) and isinstance(first, Convolution):
        scale = second.per_channel(first.target[0])
        product = None if scale is None else replace(first, weight=first.weight * scale[:, None, None, None])
    elif isinstance(second, Convolution) and isinstance(first, Diagonal):
        scale = first.per_channel(second.source[0])
        if scale is not None:
            weight = second.grouped * scale.reshape(second.groups, 1, -1, 1, 1)
            product = replace(second, weight=weight.reshape(second.weight.shape))
    return product if product is not None else _to_dense_if_full((to_matrix(second) @ to_matrix(first)).tocsr())


def add_maps(first, second):
    """Return the sum of two maps with the same ends, or None if a single map would lose their structure."""
    if isinstance(first, Convolution) and isinstance(second, Convolution):
        same = ("stride", "padding", "dilation", "groups", "source", "target")
        if first.weight.shape == second.weight.shape and all(getattr(first, f) == getattr(second, f) for f in same):
            return replace(first, weight=first.weight + second.weight)
        return None
    if isinstance(first, Diagonal) and isinstance(second, Diagonal):
        return Diagonal(first.scale + second.scale)
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.asarray((first if isinstance(first, np.ndarray) else to_matrix(first).toarray()) + to_matrix(second))
    if isinstance(first, Convolution) or isinstance(second, Convolution):
        return None
    return _to_dense_if_full((to_matrix(first) + to_matrix(second)).tocsr())


def to_matrix(linear):
    """Return the map as csr_array [n_target, n_source]; a dense matrix stays dense."""
    if isinstance(linear, Diagonal):
        index = np.arange(len(linear.scale))
        return csr_array((linear.scale, (index, index)))
    if not isinstance(linear, Convolution):
        return linear
    n_source, n_target = prod(linear.source), prod(linear.target)
    (ph, pw), (n_channels, height, width) = linear.padding, linear.source
    line = np.full((n_channels, height + 2 * ph, width + 2 * pw), -1)
    line[:, ph : ph + height, pw : pw + width] = np.arange(n_source).reshape(linear.source)
    line = line.reshape(linear.groups, 1, -1, *line.shape[1:])
    neuron = np.arange(n_target).reshape(linear.groups, -1, 1, *linear.target[1:])
    weights, pres, posts = [], [], []
    for (a, b), rows, columns in linear.iterate_taps():
        pre, post, weight = np.broadcast_arrays(
            line[..., rows, columns], neuron, linear.grouped[..., a, b][..., None, None]
        )
        real = pre >= 0
        weights.append(weight[real])
        pres.append(pre[real])
        posts.append(post[real])
    index = (np.concatenate(posts), np.concatenate(pres))
    return csr_array((np.concatenate(weights), index), shape=(n_target, n_source))


@np.errstate(over="ignore")  # A network refuses weights beyond float32.
def to_connection(linear, source: str, target: str, delay: int, bias, source_shape, target_shape) -> Connection:
    """Return the map as a Dense, Conv2d or Sparse connection in float32; `bias` is float64[n_target] or None."""
    bias = _compact_bias(bias, target_shape)
    if isinstance(linear, Diagonal):
        linear = _to_depthwise(linear, source_shape)
    if isinstance(linear, np.ndarray):
        return Dense(source, target, linear.astype(np.float32), bias, delay)
    if isinstance(linear, Convolution):
        plain = linear.source == tuple(source_shape) and linear.target == tuple(target_shape)
        return Conv2d(
            source=source,
            target=target,
            weight=linear.weight.astype(np.float32),
            bias=bias,
            stride=linear.stride,
            padding=linear.padding,
            dilation=linear.dilation,
            groups=linear.groups,
            delay=delay,
            source_shape=None if plain else linear.source,
        )
    linear = linear.tocsc()
    linear.sort_indices()
    pre = csr_groups(linear.indptr)
    return Sparse(
        source=source,
        target=target,
        pre=pre,
        post=linear.indices.astype(np.int64),
        weight=linear.data.astype(np.float32),
        delay=delay,
        bias=bias,
    )


def _to_convolution(conv: Conv2d, source_shape) -> Convolution:
    source, target = conv.kernel_geometry(tuple(source_shape))
    weight = np.asarray(conv.weight, np.float64)
    return Convolution(
        weight=weight,
        stride=pair(conv.stride),
        padding=pair(conv.padding),
        dilation=pair(conv.dilation),
        groups=conv.groups,
        source=source,
        target=target,
    )


def _to_sparse_if_thin(weight: np.ndarray):
    return csr_array(weight) if np.count_nonzero(weight) < SPARSE_BELOW * weight.size else weight


def _to_dense_if_full(product: csr_array):
    product.sum_duplicates()
    product.eliminate_zeros()
    return product.toarray() if product.nnz > DENSE_ABOVE * prod(product.shape) else product


def _convolve_kernels(second: Convolution, first: Convolution) -> Convolution | None:
    """Return the product of two convolutions; None if zero padding around `second`'s source forbids it."""
    if first.target != second.source:
        return None
    axes = [_convolve_axis(second, first, axis) for axis in (0, 1)]
    if None in axes:
        return None
    (rows, dilation_h, padding_h), (columns, dilation_w, padding_w) = axes
    groups = gcd(first.groups, second.groups)
    one, two = _merge_groups(first, groups), _merge_groups(second, groups)
    kernel = np.zeros((groups, two.shape[1], one.shape[2], rows.max() + 1, columns.max() + 1))
    for (row_two, row_one), row in np.ndenumerate(rows):
        for (column_two, column_one), column in np.ndenumerate(columns):
            kernel[..., row, column] += two[..., row_two, column_two] @ one[..., row_one, column_one]
    stride = (first.stride[0] * second.stride[0], first.stride[1] * second.stride[1])
    weight = kernel.reshape(second.target[0], -1, *kernel.shape[3:])
    padding, dilation = (padding_h, padding_w), (dilation_h, dilation_w)
    if window_count(first.source[1:], weight.shape[2:], stride, padding, dilation) != second.target[1:]:
        return None
    return Convolution(
        weight=weight,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        source=first.source,
        target=second.target,
    )


def _convolve_axis(second: Convolution, first: Convolution, axis: int):
    """Return the product's taps along one axis [tap of second, tap of first], its dilation and its padding.

    Returns None if `second` pads with zeros where the product would read the source: then it is not a convolution.
    """
    near, far = np.arange(first.weight.shape[2 + axis]), np.arange(second.weight.shape[2 + axis])
    read = far * second.dilation[axis] - second.padding[axis]
    read = read[:, None] + np.arange(second.target[1 + axis]) * second.stride[axis]
    padded = read[(read < 0) | (read >= first.target[1 + axis])]
    reach = padded[:, None] * first.stride[axis] + near * first.dilation[axis] - first.padding[axis]
    if ((reach >= 0) & (reach < first.source[1 + axis])).any():
        return None
    place = far[:, None] * (second.dilation[axis] * first.stride[axis]) + near * first.dilation[axis]
    dilation = int(np.gcd.reduce(place.reshape(-1))) or 1
    return place // dilation, dilation, second.padding[axis] * first.stride[axis] + first.padding[axis]


def _merge_groups(conv: Convolution, groups: int) -> np.ndarray:
    """Return the weight as [group, C_out/group, C_in/group, rows, columns] for wider groups, padded with zeros."""
    finer = conv.groups // groups
    _, n_out, n_in, *kernel = conv.grouped.shape
    wide = np.zeros((groups, finer, n_out, finer, n_in, *kernel))
    for block in range(finer):
        wide[:, block, :, block] = conv.grouped.reshape(groups, finer, n_out, n_in, *kernel)[:, block]
    return wide.reshape(groups, finer * n_out, finer * n_in, *kernel)


def _to_depthwise(diagonal: Diagonal, shape: tuple[int, ...]):
    """Return a channel-wise 1 x 1 convolution if the scale allows it, else a sparse matrix."""
    if len(shape) not in (2, 3):
        return to_matrix(diagonal)
    view = (shape[0], 1 if len(shape) == 2 else shape[1], shape[-1])
    scale = diagonal.per_channel(shape[0])
    if scale is None:
        return to_matrix(diagonal)
    return build_channel_scaling(scale, view, view)


def build_channel_scaling(scale: np.ndarray, source: tuple, target: tuple, stride: tuple = (1, 1)) -> Convolution:
    """Return the 1 x 1 convolution that multiplies each channel by `scale` float64[C]; a `stride` skips pixels."""
    return Convolution(
        weight=scale.reshape(-1, 1, 1, 1),
        stride=stride,
        padding=(0, 0),
        dilation=(1, 1),
        groups=len(scale),
        source=source,
        target=target,
    )


def _compact_bias(bias: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the bias in float32: one number per channel if constant within channels, else of the target's shape."""
    if bias is None or not bias.any():
        return None
    channels = bias.reshape(shape[0], -1)
    if len(shape) > 1 and (channels == channels[:, :1]).all():
        return channels[:, 0].astype(np.float32)
    return bias.reshape(shape).astype(np.float32)
