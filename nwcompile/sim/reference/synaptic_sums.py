"""Connections in NumPy, batch first: synaptic sums of a target in float32 or int64."""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from nwcompile.ir.arithmetic import clip, effective_weight, shift_lost
from nwcompile.ir.connection import (
    Connection,
    Conv1d,
    Conv2d,
    Dense,
    MatMul,
    MaxPool2d,
    Pool2d,
    Scale,
    Sparse,
    pair,
    synapse_list,
)
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import Program

NO_LIMIT = 1 << 40  # No effective weight is as large as this, so none is clipped.
CHUNK = 1 << 22  # Sums per chunk: 32 MiB for each sign.


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
    """Return a fixed-point node with its connections' biases in `bias_u`, or added to the inputs of its program."""
    biases = [c.bias_per_neuron(node.input_shape) for c in network.into(node.name) if c.bias is not None]
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


def order_dependent(model: Network | Program, window: str, inputs: dict, spikes: dict) -> dict[str, np.ndarray] | None:
    """Return where currents may depend on the order of spikes, by layer int64[place, 3]: sample, step, neuron.

    Backends add all spikes of a step and clip once. A chip that adds them one by one and saturates gives the same
    result, unless both signs occur and a partial sum can pass the limit: then 127 + 127 - 128 may end below 126. The
    two one-sided sums prove which results no order can change.

    `spikes` holds every layer, in the steps of the `window`. Returns None if no layer has decays by shift, as only
    there every addition saturates.
    """
    network = model.network if isinstance(model, Program) else model
    layers = [
        name for name in network.built_in if (form := network.node(name).neuron.fixed) is not None and form.shifts
    ]
    if not layers:
        return None
    network = effective_network(network)
    delays = [c.aligned_delay for c in network.connections]
    if isinstance(model, Program) and window == "hardware" and model.schedule.period == 1:
        delays = list(model.schedule.delay)
    sent = {**inputs, **spikes}
    return {name: _find_places(network, name, delays, sent, len(spikes[name])) for name in layers}


def _find_places(network: Network, name: str, delays, sent: dict, n_samples: int) -> np.ndarray:
    node = network.node(name)
    edges = [(c, delay) for c, delay in zip(network.connections, delays, strict=True) if c.target == name]
    maps = [_split_signs(c, network) for c, _ in edges]
    n_steps = sent[name].shape[1]
    size = max(1, CHUNK // (n_steps * node.n_neurons))
    places = [np.zeros((0, 3), np.int64)]
    for start in range(0, n_samples, size):
        part = slice(start, start + size)
        up, down = np.zeros((2, len(sent[name][part]), n_steps, node.n_neurons), np.int64)
        for (c, delay), (excites, inhibits) in zip(edges, maps, strict=True):
            late = sent[c.source][part, : max(n_steps - delay, 0)]
            x = late.reshape(-1, excites.shape[1]).astype(np.int64)
            shape = (*late.shape[:2], node.n_neurons)
            for values, ups, downs in ((np.maximum(x, 0), excites, inhibits), (np.minimum(x, 0), inhibits, excites)):
                up[:, n_steps - late.shape[1] :] += (ups @ values.T).T.reshape(shape)
                down[:, n_steps - late.shape[1] :] += (downs @ values.T).T.reshape(shape)
        places.append(np.argwhere(_depends_on_order(node, up, down)) + (start, 0, 0))
    return np.concatenate(places)


def _split_signs(connection: Connection, network: Network) -> tuple[csr_array, csr_array]:
    """Split the weights of a connection into positive and negative ones, int64[target, source] each."""
    source, target = (network.node(name) for name in (connection.source, connection.target))
    pre, post, place = synapse_list(connection, source.shape)
    weight = np.asarray(connection.weight).reshape(-1)[place].astype(np.int64)
    shape = (target.n_neurons, source.n_neurons)
    parts = (np.maximum(weight, 0), np.minimum(weight, 0))
    return tuple(csr_array((part, (post, pre)), shape=shape) for part in parts)


def _depends_on_order(node: Node, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return where `up` and `down` [B, T, n] are both non-zero in a step and one alone would pass the limit."""
    spec, fixed = node.neuron, node.neuron.fixed
    low, high = fixed.limits
    k_u, bias = (spec.array(key, node.shape).reshape(-1) for key in ("decay_u", "bias_u"))
    u, is_open = np.zeros_like(up[:, 0]), np.zeros(up.shape, bool)
    for t in range(up.shape[1]):
        rise = (up[:, t] + np.maximum(bias, 0)) << fixed.shift_bits
        fall = (down[:, t] + np.minimum(bias, 0)) << fixed.shift_bits
        is_open[:, t] = (rise > 0) & (fall < 0) & ((u + rise > high) | (u + fall < low))
        u = clip(u + rise + fall, fixed.state_bits)
        u = u - shift_lost(u, k_u)
    return is_open
