"""Convert NIR's stateless nodes (weights, pooling, reshaping, delay) to connections of a Network."""

from math import prod
from typing import Any

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.frontend.nir.file import NirNode
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, Pool2d, Scale, Sparse

ERROR_CODE = "NW2104"
DELAY_TOLERANCE_STEPS = 1e-3  # A delay this close to a whole number of steps counts as one.
MAX_DELAY_STEPS = 2**31 - 1  # Delays are stored as int32.
MAX_WINDOW = 65535  # A larger stride, padding or kernel means a damaged file.


def output_shape(node: NirNode, source: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a stateless node's output shape for a source of `shape`; raise ModelError if it does not fit.

    The shape is computed from the weights: the nir package writes wrong shapes for non-square kernels and groups.
    """
    if node.kind == "Flatten":
        first, last = (_read_ints(node, key, -len(shape))[0] for key in ("start_dim", "end_dim"))
        first, last = (max(0, d + len(shape) if d < 0 else d) for d in (first, last))
        if first >= len(shape) or last < first:
            return shape
        return shape[:first] + (prod(shape[first : last + 1]),) + shape[last + 1 :]
    if node.kind in ("Scale", "Delay", "Identity"):
        return shape
    given = wire_node(node, source, node.name, shape, None)[0].output_shape(shape)
    return shape if given is None else tuple(given)


def wire_node(node: NirNode, source: str, target: str, shape: tuple[int, ...], dt: float | None) -> list[Connection]:
    """Return the connections of a stateless node for a source of `shape`; only a Delay has delays, in steps."""
    weight = np.asarray(node.values.get("weight", 0), np.float32)
    offsets = node.get_numbers("bias", 0.0).astype(np.float32)
    bias = offsets if offsets.any() else None
    match node.kind:
        case "Linear" | "Affine":
            return [Dense(source, target, weight, bias, delay=0)]
        case "Conv1d":
            step = _read_ints(node, "stride", 1)[0]
            weight, (padding,), (dilation,) = _add_padding(node, weight, (step,), _read_ints(node, "dilation", 1)[:1])
            row: dict[str, Any] = {
                "stride": step,
                "padding": padding,
                "dilation": dilation,
                "groups": _read_ints(node, "groups", 1)[0],
            }
            return [Conv1d(source, target, weight, bias, **row, delay=0)]
        case "Conv2d":
            stride = _read_pair(node, "stride", 1)
            weight, paddings, dilations = _add_padding(node, weight, stride, _read_pair(node, "dilation", 1))
            window: dict[str, Any] = {"stride": stride, "padding": paddings, "dilation": dilations}
            return [Conv2d(source, target, weight, bias, **window, groups=_read_ints(node, "groups", 1)[0], delay=0)]
        case "SumPool2d" | "AvgPool2d":
            pool = Pool2d(
                source,
                target,
                kernel=_read_pair(node, "kernel_size", 1),
                stride=_read_pair(node, "stride", 1),
                padding=_read_pair(node, "padding", 0),
                kind=node.kind[:3].lower(),
                delay=0,
            )
            return [pool]
        case "Scale":
            scale = node.get_numbers("scale").astype(np.float32)
            return [Scale(source, target, _fit_shape(node, "scale", scale, shape), delay=0)]
        case "Delay":
            return _wire_delay(node, source, target, shape, dt)
    return [Scale(source, target, delay=0)]


def delay_steps(node: NirNode, dt: float | None) -> np.ndarray:
    """Return the delay of a Delay node in steps, one number or one per neuron."""
    delay = node.get_numbers("delay")
    if dt is None:
        raise node.fail("needs the time step; give dt= in the unit of its delay")
    steps = np.rint(delay / dt)
    if (steps > MAX_DELAY_STEPS).any():
        raise node.fail(
            f"delay {delay.max():g} is {delay.max() / dt:g} steps of dt={dt:g}, more than {MAX_DELAY_STEPS}"
        )
    if (np.abs(delay / dt - steps) > DELAY_TOLERANCE_STEPS).any() or (steps < 0).any():
        odd = delay.flat[np.argmax(np.where(steps < 0, np.inf, np.abs(delay / dt - steps)))]
        raise node.fail(f"delay {odd:g} is {odd / dt:g} steps of dt={dt:g}; it must be a whole number of steps >= 0")
    return steps.astype(np.int64)


def _wire_delay(node: NirNode, source: str, target: str, shape: tuple[int, ...], dt: float | None) -> list[Connection]:
    steps = delay_steps(node, dt).reshape(-1)
    if (steps == steps[0]).all():
        return [Scale(source, target, delay=int(steps[0]))]
    steps = _fit_shape(node, "delay", steps, shape).reshape(-1)
    lines = [(int(d), np.flatnonzero(steps == d)) for d in np.unique(steps)]
    return [Sparse(source, target, n, n, np.ones(len(n), np.float32), delay=d) for d, n in lines]


def _fit_shape(node: NirNode, key: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if values.size == 1:
        return values.reshape(())
    if values.size == prod(shape):
        return values.reshape(shape)
    if values.size == shape[0] and values.ndim == 1:
        return np.broadcast_to(values.reshape(-1, *[1] * (len(shape) - 1)), shape)
    raise node.fail(f"{key} of shape {values.shape} does not fit its input of shape {shape}")


def _read_ints(node: NirNode, key: str, least: int) -> list[int]:
    """Return parameter `key` as a list of integers."""
    value = node.values[key]
    if isinstance(value, str) or (value != np.trunc(value)).any() or value.min() < least or value.max() > MAX_WINDOW:
        stated = repr(value) if isinstance(value, str) else value.tolist()
        raise node.fail(f"{key} is {stated}; it must be whole numbers from {least} to {MAX_WINDOW}")
    return [int(v) for v in value.reshape(-1)]


def _read_pair(node: NirNode, key: str, least: int) -> tuple[int, int]:
    values = _read_ints(node, key, least)
    if len(values) > 2:
        raise node.fail(f"{key} has {len(values)} numbers; it must have 1 or 2")
    return (values[0], values[-1])


def _add_padding(node: NirNode, weight: np.ndarray, stride, dilation) -> tuple[np.ndarray, tuple, tuple]:
    """Return weight, zeros on each side, and dilation per axis; 'same' preserves the size as torch defines it.

    If torch pads one more zero at the end than at the start (an even kernel with odd dilation), an undilated kernel
    with a zero weight in front computes the same with equal padding.
    """
    text = node.values["padding"]
    if not isinstance(text, str):
        return weight, _read_pair(node, "padding", 0)[: len(stride)], tuple(dilation)
    if text not in ("same", "valid"):
        raise node.fail(f"padding {text!r} is not supported; supported: numbers, 'same', 'valid'")
    if text == "valid":
        return weight, (0,) * len(stride), tuple(dilation)
    if any(n != 1 for n in stride):
        raise node.fail(f"padding 'same' needs stride 1, not {tuple(stride)}")
    total = [d * (k - 1) for k, d in zip(weight.shape[2:], dilation, strict=True)]
    spread = tuple(1 if n % 2 else d for n, d in zip(total, dilation, strict=True))
    if any(n % 2 for n in total):
        size = [n + 2 if n % 2 else k for n, k in zip(total, weight.shape[2:], strict=True)]
        place = tuple(slice(1, None, d) if n % 2 else slice(None) for n, d in zip(total, dilation, strict=True))
        wide = np.zeros((*weight.shape[:2], *size), weight.dtype)
        wide[(slice(None), slice(None), *place)] = weight
        weight = wide
    return weight, tuple((n + 1) // 2 for n in total), spread


def takes_shape(node: NirNode, shape: tuple[int, ...]) -> bool:
    """Return whether the node's parameters were made for `shape`; True if they do not tell."""
    if node.kind in ("Linear", "Affine"):
        return shape == (node.values["weight"].shape[1],)
    if node.kind == "Flatten":
        made_for = node.values.get("input_type")
        return made_for is None or made_for.ndim == 0 or tuple(made_for.tolist()) == shape
    if node.kind in ("Conv1d", "Conv2d", "SumPool2d", "AvgPool2d"):
        try:
            wire_node(node, "", "", shape, None)[0].output_shape(shape)
        except ModelError:
            return False
        return True
    sizes = [np.shape(v) for v in node.values.values() if np.size(v) > 1]
    return all(size == shape for size in sizes)
