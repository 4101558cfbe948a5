"""Convert a connection to an equivalent NIR node, in shapes that nir 1.0.8 computes correctly.

nir computes wrong sizes for grouped convolutions and non-square kernels, and has no list of synapses and no node that
reshapes N values to [C, H, W]. Such connections become ungrouped kernels, zero-padded kernels, or matrices.
"""

from math import prod
from typing import Any

import numpy as np

from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, MaxPool2d, Pool2d, Scale, pair

ERROR_CODE = "NW2105"
MAX_MATRIX_ENTRIES = 1 << 26  # Matrices for connections without a node have at most 256 MiB.


def keeps_shape(connection: Connection, shape: tuple[int, ...]) -> bool:
    """Return whether the node for a source of `shape` in the file outputs the connection's own shape, else flat."""
    if isinstance(connection, Conv2d):
        if len(shape) != 3 or tuple(connection.source_shape or shape) != shape:
            return False
        return (
            _square(connection) is not None or prod(shape) * prod(connection.output_shape(shape)) > MAX_MATRIX_ENTRIES
        )
    return isinstance(connection, Scale) or len(shape) == {Conv1d: 2, Pool2d: 3}.get(type(connection), -1)


def is_typed(c: Connection) -> bool:
    """Return whether nir 1.0.8 computes the right shapes for a connection that keeps its shape."""
    return not isinstance(c, Conv2d) or _square(c) is not None


def nearest_operation(
    connection: Connection, shape: tuple[int, ...], source_shape: tuple[int, ...], target_shape: tuple[int, ...]
) -> tuple[dict | None, list[str]]:
    """Return a connection's node, None if an edge suffices, and the names of fields that the node cannot hold.

    A node is its type and parameters. The source has `shape` in the file and `source_shape` in the network; the latter
    is flattened before a matrix. Raises ModelError if the matrix would be too large, and for nonlinear connections.
    """
    if not connection.is_linear:
        what = "maximum of currents" if isinstance(connection, MaxPool2d) else "product of spikes"
        raise connection.fail(f"NIR has no {what}; keep the module, or save the program that nw.compile makes of it")
    if isinstance(connection, Scale):
        return _scale_node(connection, shape, source_shape)
    if isinstance(connection, Pool2d) and keeps_shape(connection, shape):
        stride = connection.kernel if connection.stride is None else connection.stride
        sizes = {"kernel_size": connection.kernel, "stride": stride, "padding": connection.padding}
        kind = "SumPool2d" if connection.kind == "sum" else "AvgPool2d"
        return {"type": kind, **{key: np.array(pair(value)) for key, value in sizes.items()}}, []
    if isinstance(connection, Conv1d | Conv2d) and keeps_shape(connection, shape):
        return _convolution_node(connection, shape, target_shape)
    weight = (
        np.asarray(connection.weight)
        if isinstance(connection, Dense)
        else _as_matrix(connection, source_shape, target_shape)
    )
    bias = connection.bias_per_neuron(target_shape)
    if bias is None:
        return {"type": "Linear", "weight": weight}, []
    return {"type": "Affine", "weight": weight, "bias": np.ascontiguousarray(bias).reshape(-1)}, []


def _scale_node(connection: Scale, shape, source_shape) -> tuple[dict | None, list[str]]:
    lost = ["shift"] if np.any(connection.shift) else []
    if np.ndim(connection.scale) == 0 and np.ndim(connection.shift) == 0 and connection.scale == 1 and not lost:
        return None, []
    return {"type": "Scale", "scale": np.array(connection.per_neuron("scale", source_shape)).reshape(shape)}, lost


def _convolution_node(connection: Conv1d | Conv2d, shape, target_shape) -> tuple[dict, list[str]]:
    output = connection.output_shape(shape)
    lost = []
    sizes: dict[str, Any]
    input_shape: Any
    bias = np.zeros(output[0], np.float32)
    if connection.bias is not None:
        full = np.ascontiguousarray(connection.bias_per_neuron(target_shape)).reshape(output[0], -1)
        if (full == full[:, :1]).all():
            bias = np.ascontiguousarray(full[:, 0])
        else:
            lost = ["bias"]
    if isinstance(connection, Conv1d):
        sizes = {key: np.int64(pair(getattr(connection, key))[0]) for key in ("stride", "padding", "dilation")}
        groups = 1
        weight = _expand_groups(np.asarray(connection.weight), connection.groups)
        input_shape = np.int64(shape[1])
    else:
        square, groups = _square(connection), 1
        if square is None:
            square = (np.asarray(connection.weight), pair(connection.padding))
            groups = int(connection.groups)
        weight, padding = square
        stride = pair(connection.stride)
        dilation = pair(connection.dilation)
        sizes = {"stride": np.array(stride), "padding": np.array(padding), "dilation": np.array(dilation)}
        input_shape = np.array(shape[1:])
    parameters = {"input_shape": input_shape, "weight": weight, **sizes, "groups": np.int64(groups), "bias": bias}
    return {"type": type(connection).__name__, **parameters}, lost


def _expand_groups(weight: np.ndarray, groups: int) -> np.ndarray:
    """Return the kernel over all channels, with zeros for channels of other groups."""
    if groups == 1:
        return weight
    n_out = weight.shape[0] // groups
    n_in = weight.shape[1]
    full = np.zeros((weight.shape[0], n_in * groups, *weight.shape[2:]), weight.dtype)
    for g in range(groups):
        full[g * n_out : (g + 1) * n_out, g * n_in : (g + 1) * n_in] = weight[g * n_out : (g + 1) * n_out]
    return full


def _square(connection: Conv2d) -> tuple[np.ndarray, tuple[int, int]] | None:
    """Return weight and padding of an equal ungrouped convolution with a square kernel, or None.

    Zeros are added equally on both sides so that the padding can undo them; an odd number of zeros has no center.
    """
    weight = _expand_groups(np.asarray(connection.weight), int(connection.groups))
    size = max(weight.shape[2:])
    missing = [size - n for n in weight.shape[2:]]
    if any(n % 2 for n in missing):
        return None
    margin = [n // 2 for n in missing]
    padding = tuple(
        p + m * d for p, m, d in zip(pair(connection.padding), margin, pair(connection.dilation), strict=True)
    )
    if any(margin):
        weight = np.pad(weight, ((0, 0), (0, 0), *((m, m) for m in margin)))
    return weight, padding


def _as_matrix(connection: Connection, source_shape, target_shape) -> np.ndarray:
    """Return float32[n_target, n_source], the linear map of `connection` without its bias."""
    from nwcompile.passes.prepare.fold import linear_map, to_matrix

    n_source = prod(source_shape)
    n_target = prod(target_shape)
    if n_source * n_target > MAX_MATRIX_ENTRIES:
        raise connection.fail(
            f"NIR has no node for this {type(connection).__name__}, and a matrix of {n_target} x {n_source} values is "
            f"more than the {MAX_MATRIX_ENTRIES} that are written; write a model without it"
        )
    m = to_matrix(linear_map(connection, source_shape, target_shape))
    return np.asarray(m if isinstance(m, np.ndarray) else m.toarray(), np.float32)
