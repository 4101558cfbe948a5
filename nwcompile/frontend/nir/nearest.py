"""Convert neurons and connections to the nearest NIR nodes, and list the fields that the nodes cannot express.

NIR's equations of neurons are continuous (nir 1.0.8, `nir/ir/neuron.py`). snnTorch and SpikingJelly read them with
Euler steps of dt: tau dv/dt = (v_leak - v) + r*i becomes v += dt/tau * (v_leak - v + r*i).

Connections have shapes that nir 1.0.8 computes correctly. nir computes wrong sizes for grouped convolutions and
non-square kernels, and has no list of synapses and no node that reshapes N values to [C, H, W]. Such connections become
ungrouped kernels, zero-padded kernels, or matrices.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from nwcompile.frontend.nir.dialects import DIALECTS, neuron_spec
from nwcompile.frontend.nir.file import NirNode
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, MaxPool2d, Pool2d, Scale, pair
from nwcompile.ir.neuron import NeuronSpec

ERROR_CODE = "NW2105"
SLOWEST = 2.0**-26  # dt/tau of a state that does not leak: 1 - 2**-26 is 1 in float32, and tau stays finite
MAX_MATRIX_ENTRIES = 1 << 26  # Matrices for connections without a node have at most 256 MiB.


@np.errstate(all="ignore")
def nearest_node(spec: NeuronSpec, shape: tuple[int, ...], dt: float) -> dict[str, object]:
    """Return type and parameters (float64 of `shape`) of the NIR node for neurons of `spec` and a time step of `dt`.

    With keep = beta (linear) or 1-k (euler), clipped to 0..1-2**-26: tau = dt/(1-keep); r = gain/(1-keep) or r; v_leak
    = (leak+bias)/(1-keep) or v_leak + bias/k; tau_syn = dt/(1-alpha). w_in = w_in/(1-alpha), times alpha if a new input
    decays in its first step. beta = 1 without a constant drive becomes an IF or I with r = gain/dt.
    """
    numbers = {name: _as_float64(getattr(spec, name), shape) for name in NeuronSpec.NUMBERS[:11]}
    plain = {"fires": True, "membrane": "linear", "beta": 0, "gain": 1, "leak": 0, "bias": 0, "reset": "none"}
    if spec.alpha is None and all(np.all(getattr(spec, name) == value) for name, value in plain.items()):
        return {"type": "Threshold", "threshold": numbers["threshold"]}
    keep = numbers["beta"]
    r = numbers["gain"]
    drive = numbers["leak"] + numbers["bias"]
    if spec.membrane == "euler":
        keep = 1 - numbers["k"]
        r = numbers["k"] * numbers["r"]
        drive = numbers["k"] * numbers["v_leak"] + drive
    rate = np.clip(1 - keep, SLOWEST, 1.0)
    values: dict[str, object] = {}
    if spec.alpha is not None:
        alpha = _as_float64(spec.alpha, shape)
        rate_syn = np.clip(1 - alpha, SLOWEST, 1.0)
        w_in = _as_float64(spec.w_in, shape) * (alpha if spec.current_order == "add_then_decay" else 1)
        values = {"tau_syn": dt / rate_syn, "tau_mem": dt / rate, "w_in": w_in / rate_syn}
    elif (keep != 1).any() or drive.any():
        values = {"tau": dt / rate}
    if values:
        values |= {"r": r / rate, "v_leak": drive / rate}
    else:
        values = {"r": r / dt}
    if spec.fires:
        v_reset = numbers["reset_value"] if spec.reset == "value" else np.zeros(shape)
        values |= {"v_threshold": numbers["threshold"], "v_reset": v_reset}
    prefix = "Cuba" if spec.alpha is not None else ""
    letters = "I" if "v_leak" not in values else "LI"
    return {"type": prefix + letters + ("F" if spec.fires else ""), **values}


def lost_fields(spec: NeuronSpec, shape: tuple[int, ...], node: Mapping, dt: float) -> dict[str, object]:
    """Return the fields of `spec`, with values, that a reader of the node alone (dialect `nir`) gets wrong."""
    values = {key: value for key, value in node.items() if key != "type"}
    with np.errstate(all="ignore"):
        read, _ = neuron_spec(NirNode("", str(node["type"]), values), shape, DIALECTS["nir"], dt, {})
    names = ["membrane", "refractory", "v_min", "clamp"]
    if spec.membrane == "linear":
        names += ["beta", "gain"] if _equal(_drive(spec), _drive(read), shape) else ["beta", "gain", "leak", "bias"]
    elif not _equal(np.clip(spec.k, 0, 1), spec.k, shape):
        names += ["k"]
    if spec.alpha is not None:
        names += ["alpha", "current_order"] if spec.current_order == "add_then_decay" else ["alpha", "w_in"]
        names += ["current_order"] if spec.current_order == "add_use_decay" else []
    if spec.fires:
        names += ["threshold", "strict", "spikes", "reset"]
        names += ["reset_timing"] if spec.reset != "none" else []
        names += ["reset_value"] if spec.reset == "value" else []
    return {name: getattr(spec, name) for name in names if not _equal(getattr(spec, name), getattr(read, name), shape)}


def _drive(spec: NeuronSpec) -> np.ndarray:
    return np.asarray(spec.leak, np.float64) + np.asarray(spec.bias, np.float64)


def _as_float64(value, shape: tuple[int, ...]) -> np.ndarray:
    return np.array(np.broadcast_to(np.asarray(0.0 if value is None else value, np.float64), shape))


def _equal(a, b, shape: tuple[int, ...]) -> bool:
    """Return whether two fields are equal as float32, the type of the computation."""
    if a is None or b is None or isinstance(a, str | bool):
        return a is b if a is None or b is None else a == b
    with np.errstate(over="ignore"):
        return np.array_equal(_as_float64(a, shape).astype(np.float32), _as_float64(b, shape).astype(np.float32))


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
