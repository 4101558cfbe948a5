"""Checking and shaping what a person feeds a network: `[B, T, *shape]` arrays, or nothing for `steps` steps."""

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network

LARGEST_SPIKE = (1 << 23) - 1
LARGEST_STEPS = (1 << 31) - 1


def prepare(network: Network, x, steps: int | None, chip: Chip | None = None) -> tuple[dict[str, np.ndarray], int, int]:
    """`(inputs, B, T)`: every input as float32 (float network) or int32 (fixed), C-contiguous `[B, T, *shape]`.

    `x` is an array for a network with one input, a dict of arrays by input name for any, or None with `steps=N`
    (B = 1; an input that is absent stays silent). Raises ModelError for wrong names, shapes, dtypes or values.
    """
    given = _by_name(network, x)
    whole = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
    if steps is not None and not (whole and 1 <= steps <= LARGEST_STEPS):
        raise ModelError(f"steps={steps!r} must be a whole number from 1 to {LARGEST_STEPS}")
    if not given:
        if steps is None:
            raise ModelError("no input: give x of shape [B, T, *shape], or x=None with steps=N")
        return {n: np.zeros((1, steps, *node.shape), _dtype(network)) for n, node in network.inputs.items()}, 1, steps
    arrays = {name: _array(network, name, value, chip) for name, value in given.items()}
    sizes = {array.shape[:2] for array in arrays.values()}
    if len(sizes) > 1:
        raise ModelError(
            f"inputs differ in [B, T]: {', '.join(str(list(s)) for s in sorted(sizes))}; give them all alike"
        )
    n_samples, n_steps = sizes.pop()
    if steps is not None and steps != n_steps:
        raise ModelError(f"steps={steps} but x has T = {n_steps}; leave steps out or make them equal")
    for name, node in network.inputs.items():
        arrays.setdefault(name, np.zeros((n_samples, n_steps, *node.shape), _dtype(network)))
    return arrays, n_samples, n_steps


def _dtype(network: Network):
    return np.int32 if network.is_fixed else np.float32


def _by_name(network: Network, x) -> dict:
    if x is None:
        return {}
    if isinstance(x, dict):
        for name in x:
            if name not in network.inputs:
                raise ModelError(f"there is no input {name!r}; inputs: {', '.join(network.inputs) or 'none'}")
        return x
    if len(network.inputs) != 1:
        names = ", ".join(network.inputs) or "none"
        raise ModelError(f"the network has {len(network.inputs)} inputs ({names}); give x as a dict by input name")
    return {next(iter(network.inputs)): x}


def _array(network: Network, name: str, value, chip: Chip | None) -> np.ndarray:
    shape = network.inputs[name].shape
    expected = f"[B, T, {', '.join(map(str, shape))}]"
    try:
        array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ModelError(f"input {name!r} must be numbers of shape {expected}: {e}") from None
    if array.dtype == bool:
        array = array.astype(np.int8)
    if array.dtype.kind not in "iuf":
        raise ModelError(f"input {name!r} of dtype {array.dtype} must be numbers of shape {expected}")
    if array.shape[2:] != shape or array.ndim != len(shape) + 2 or 0 in array.shape[:2]:
        hint = ""
        if array.shape[1:] == shape:
            hint = " (is the time axis missing?)"
        raise ModelError(f"input {name!r} must be {expected}, got shape {list(array.shape)}{hint}")
    if not np.isfinite(array).all():
        raise ModelError(f"input {name!r} has NaN or infinite values; clean the data first")
    if network.is_fixed or chip is not None:
        _whole(name, array, chip)
    return np.ascontiguousarray(array, _dtype(network))


def _whole(name: str, array: np.ndarray, chip: Chip | None) -> None:
    if np.issubdtype(array.dtype, np.floating) and (array != np.trunc(array)).any():
        value = array[array != np.trunc(array)].flat[0]
        raise ModelError(
            f"input {name!r} has the value {value!s}, but the integer program takes whole numbers; "
            "encode real values into spikes first (for example Bernoulli rate coding)"
        )
    low, high = int(array.min()), int(array.max())
    if max(-low, high) > LARGEST_SPIKE:
        raise ModelError(f"input {name!r} has values up to {max(-low, high)}; the limit is {LARGEST_SPIKE}")
    if chip is None or "multi" in chip.neuron.spikes:
        return
    least = -1 if "bipolar" in chip.neuron.spikes else 0
    if low < least or high > 1:
        raise ModelError(
            f"input {name!r} has values {low}..{high}, but {chip.name} takes spikes {least}..1; "
            "encode graded values into spikes, or choose a chip whose neuron.spikes has 'multi'"
        )
