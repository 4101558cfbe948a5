"""Connections in NumPy, batch first: synaptic sums of a target in float32 or int64."""

from dataclasses import replace

import numpy as np

from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, MatMul, MaxPool2d, Pool2d, Scale, Sparse, pair
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram

NO_LIMIT = 1 << 40  # No effective weight is as large as this, so none is clipped.


def apply_connection(connection: Connection, x: np.ndarray, target_shape: tuple[int, ...]) -> np.ndarray:
    """Return the synaptic input `[B, *target_shape]` for source values `x` `[B, *source_shape]`, with the bias.

    The result is int64 for integer weights and float32 in float networks. Float sums, bias included, are taken in
    float64 and rounded once. Float32 weights times spikes need far fewer bits than float64 has, so the result does not
    depend on the order of additions, and thus on the BLAS library or its threads.
    """
    wide = x.astype(np.float64 if np.issubdtype(x.dtype, np.floating) else np.int64, copy=False)
    y = (
        _apply_sparse(connection, wide, int(np.prod(target_shape)))
        if isinstance(connection, Sparse)
        else _apply_map(connection, wide)
    )
    y = y.reshape(len(x), *target_shape)
    if (bias := connection.bias_per_neuron(target_shape)) is not None:
        y = y + bias.astype(x.dtype)
    return y.astype(x.dtype)


def effective_network(network: Network) -> Network:
    """Return a fixed-point network with its effective weights, mantissa times 2**exponent, not clipped by a chip."""
    return Network(network.inputs, network.nodes, tuple(effective_connection(c) for c in network.connections))


def effective_connection(connection: Connection) -> Connection:
    """Return a fixed-point connection with its effective weights, int64."""
    return connection.replace(weight=effective_weight(connection.weight, connection.exponent, NO_LIMIT), exponent=0)


def fold_bias(network: Network, node: Node) -> Node:
    """Return a fixed-point node with its connections' biases in `bias_u`, or added to the input of its program."""
    biases = [c.bias_per_neuron(node.shape) for c in network.into(node.name) if c.bias is not None]
    if not biases:
        return node
    total = sum(np.asarray(b, np.int64) for b in biases)
    if isinstance(node.neuron, NeuronProgram):
        return replace(node, neuron=node.neuron.add_input_bias(total))
    return replace(node, neuron=node.neuron.replace(bias_u=node.neuron.array("bias_u", node.shape) + total))


def fold_biases(network: Network) -> Network:
    """Move the biases of all connections of a fixed-point network into its neurons."""
    nodes = {name: fold_bias(network, node) for name, node in network.nodes.items()}
    edges = (c if c.bias is None else c.replace(bias=None) for c in network.connections)
    return Network(network.inputs, nodes, tuple(edges))


def unit_connection(connection: Connection) -> Connection:
    """Set every stored weight to 1 and remove the bias, so that the connection counts synaptic events."""
    return connection.replace(weight=np.ones(np.shape(connection.weight), np.int64), bias=None, exponent=0)


def _apply_map(connection: Connection, x: np.ndarray) -> np.ndarray:
    if isinstance(connection, Scale):
        return connection.per_neuron("scale", x.shape[1:]) * x + connection.per_neuron("shift", x.shape[1:])
    if isinstance(connection, Pool2d):
        return _apply_pool(connection, x)
    if isinstance(connection, MaxPool2d):
        lowest = -np.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
        maps = x if x.ndim == 4 else x[:, :, None]
        taps = sliding_windows(maps, pair(connection.kernel), connection.strides, connection.padding, 1, lowest)
        return taps.max((4, 5))
    if isinstance(connection, MatMul):
        left, right = np.split(x.reshape(len(x), -1), [int(np.prod(connection.left))], axis=1)
        return left.reshape(-1, *connection.left) @ right.reshape(-1, *connection.right)
    weight = _typed_weight(connection, x.dtype)
    if isinstance(connection, Dense):
        return x.reshape(len(x), -1) @ weight.T
    if isinstance(connection, Conv1d):
        return convolve(connection.as_conv2d(x.shape[1:]), x, weight[:, :, None, :])
    assert isinstance(connection, Conv2d)
    return convolve(connection, x, weight)


def _typed_weight(connection: Connection, dtype) -> np.ndarray:
    """Return the weights, float32 in a float network, converted to the type of the sums."""
    number = np.float32 if np.issubdtype(dtype, np.floating) else np.int64
    return np.asarray(connection.weight).astype(number, copy=False).astype(dtype, copy=False)


def _apply_sparse(connection: Sparse, x: np.ndarray, n_target: int) -> np.ndarray:
    out = np.zeros((n_target, len(x)), x.dtype)
    weight = _typed_weight(connection, x.dtype)
    np.add.at(out, connection.post, x.reshape(len(x), -1).T[connection.pre] * weight[:, None])
    return out.T


def sliding_windows(x: np.ndarray, kernel, stride, padding, dilation, around=0) -> np.ndarray:
    """Return the taps of every window of `x` `[B, C, H, W]`, padded with `around`.

    The shape is `[B, C, rows, columns, k_rows, k_columns]`.
    """
    (ph, pw) = pair(padding)
    (dh, dw) = pair(dilation)
    (sh, sw) = pair(stride)
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=around)
    span = (dh * (kernel[0] - 1) + 1, dw * (kernel[1] - 1) + 1)
    view = np.lib.stride_tricks.sliding_window_view(x, span, axis=(2, 3))  # type: ignore[call-overload]
    return view[:, :, ::sh, ::sw, ::dh, ::dw]


def convolve(connection: Conv2d, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Cross-correlate `x` with `weight`, as torch.nn.functional.conv2d does."""
    if connection.source_shape is not None:
        x = x.reshape(len(x), *connection.source_shape)
    taps = sliding_windows(x, weight.shape[2:], connection.stride, connection.padding, connection.dilation)
    parts = []
    per_in = weight.shape[1]
    per_out = weight.shape[0] // connection.groups
    for g in range(connection.groups):
        patch = taps[:, g * per_in : (g + 1) * per_in].transpose(0, 2, 3, 1, 4, 5)
        kernel = weight[g * per_out : (g + 1) * per_out].reshape(per_out, -1)
        parts.append(patch.reshape(*patch.shape[:3], -1) @ kernel.T)
    return np.concatenate(parts, -1).transpose(0, 3, 1, 2)


def _apply_pool(connection: Pool2d, x: np.ndarray) -> np.ndarray:
    stride = connection.kernel if connection.stride is None else connection.stride
    total = sliding_windows(x, pair(connection.kernel), stride, connection.padding, 1).sum((4, 5), dtype=x.dtype)
    if connection.kind == "sum":
        return total
    rows, columns = pair(connection.kernel)
    return total / x.dtype.type(rows * columns)
