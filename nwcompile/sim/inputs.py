"""Checking what is sent: what a person feeds a network, `[B, T, *shape]` or nothing, and how many spikes at once."""

import numpy as np

from nwcompile.errors import ModelError, shown
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network

LARGEST_SPIKE = (1 << 23) - 1
LARGEST_STEPS = (1 << 31) - 1
MAX_REPEATED_SPIKES = 4095  # Where n spikes are n messages, one neuron sends at most so many of them in a step.


def prepare(
    network: Network, x, steps: int | None, chip: Chip | None = None, on_multi_spike: str = "refuse"
) -> tuple[dict[str, np.ndarray], int, int]:
    """`(inputs, B, T)`: every input as float32 (float network) or int32 (fixed), C-contiguous `[B, T, *shape]`.

    `x` is an array for a network with one input, a dict of arrays by input name for any, or None with `steps=N`
    (B = 1; an input that is absent stays silent). With a `chip`, values must be what it takes, or what
    `on_multi_spike` (`Options`) makes of them. Raises ModelError for wrong names, shapes, dtypes or values.
    """
    given = _by_name(network, x)
    whole = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
    if steps is not None and not (whole and 1 <= steps <= LARGEST_STEPS):
        raise ModelError(f"steps={shown(steps)} must be a whole number from 1 to {LARGEST_STEPS}")
    if not given:
        if steps is None:
            raise ModelError("no input: give x of shape [B, T, *shape], or x=None with steps=N")
        return {n: np.zeros((1, steps, *node.shape), _dtype(network)) for n, node in network.inputs.items()}, 1, steps
    arrays = {name: _array(network, name, value, chip, on_multi_spike) for name, value in given.items()}
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


def _array(network: Network, name: str, value, chip: Chip | None, on_multi_spike: str) -> np.ndarray:
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
        elif 0 in array.shape[:2]:
            hint = f" (give {'a sample' if len(array) == 0 else 'a step'} or more)"
        raise ModelError(f"input {name!r} must be {expected}, got shape {list(array.shape)}{hint}")
    if not np.isfinite(array).all():
        raise ModelError(f"input {name!r} has NaN or infinite values; clean the data first")
    if network.is_fixed or chip is not None:
        _whole(name, array)
    if chip is not None:
        _verify_values(name, int(array.min()), int(array.max()), chip, on_multi_spike)
    return np.ascontiguousarray(array, _dtype(network))


def _whole(name: str, array: np.ndarray) -> None:
    if np.issubdtype(array.dtype, np.floating) and (array != np.trunc(array)).any():
        value = array[array != np.trunc(array)].flat[0]
        raise ModelError(
            f"input {name!r} has the value {value!s}, but the integer program takes whole numbers; "
            "encode real values into spikes first (nwcompile.encode does)"
        )
    low = int(array.min())
    high = int(array.max())
    if max(-low, high) > LARGEST_SPIKE:
        raise ModelError(f"input {name!r} has values up to {max(-low, high)}; the limit is {LARGEST_SPIKE}")


def _verify_values(name: str, low: int, high: int, chip: Chip, on_multi_spike: str) -> None:
    """Raise ModelError unless a chip takes input values low..high."""
    smallest_spike, largest_spike = -1 if "bipolar" in chip.neuron.spikes else 0, 1
    if low >= smallest_spike and high <= largest_spike:
        return
    has = f"input {name!r} has values {low}..{high}"
    if on_multi_spike == "repeat":
        if low < smallest_spike:
            raise ModelError(
                f"{has}, and a negative value cannot be sent as so many spikes; compile with on_multi_spike='graded', "
                "or encode it into two lines, one for each sign"
            )
        if high > MAX_REPEATED_SPIKES:
            raise ModelError(
                f"{has}, but at most {MAX_REPEATED_SPIKES} spikes a step are sent one by one; scale it down, "
                "or compile with on_multi_spike='graded'"
            )
        return
    if on_multi_spike == "refuse" and "multi" not in chip.neuron.spikes:
        choices = "'graded'" if low < 0 else "'graded' or 'repeat'"
        raise ModelError(
            f"{has}, but {chip.name} takes spikes {smallest_spike}..{largest_spike}; compile with "
            f"on_multi_spike={choices}, encode graded values into spikes, or choose a chip whose neuron.spikes has "
            "'multi'"
        )
    limit = largest_payload(chip, low < 0)
    if max(-low, high) > limit:
        raise ModelError(
            f"{has}, but a message of {chip.name} carries {-limit if low < 0 else 0}..{limit} "
            f"(noc.payload_bits = {chip.noc.payload_bits}); scale it down or raise noc.payload_bits"
        )


def largest_payload(chip: Chip, is_signed: bool) -> int:
    """The largest magnitude of a count that a message of the chip carries."""
    bits = chip.noc.payload_bits
    if bits is None:
        return LARGEST_SPIKE
    return (1 << (bits - is_signed)) - 1 if bits > is_signed else 0


def verify_counts(
    network: Network,
    chip: Chip,
    on_multi_spike: str,
    spikes: dict[str, np.ndarray],
    first_sample: int = 0,
    first_step: dict[str, int] | None = None,
) -> None:
    """Raise ModelError, naming the first of them, unless a chip's messages can tell how often neurons spike in a step.

    `spikes[layer]` is [B, T, *shape]; `on_multi_spike` that of `Options`. First by sample, then by step. They begin
    with sample `first_sample` and, by layer, with step `first_step`.
    """
    repeats = on_multi_spike == "repeat"
    limit = MAX_REPEATED_SPIKES if repeats else largest_payload(chip, False)
    for name in network.layers:
        if network.node(name).neuron.spikes != "multi" or spikes[name].max(initial=0) <= limit:
            continue
        flat = spikes[name].reshape(*spikes[name].shape[:2], -1)
        sample, step, neuron = (int(i) for i in np.argwhere(flat > limit)[0])
        n = int(flat[sample, step, neuron])
        sample = first_sample + sample
        step = step + (first_step[name] if first_step else 0)
        where = f"layer {name!r} fires {n} spikes at once (sample {sample}, step {step}, neuron {neuron})"
        if repeats:
            raise ModelError(
                f"{where}, but at most {limit} a step are sent one by one; train it to fire less, "
                "or compile with on_multi_spike='graded'"
            )
        raise ModelError(
            f"{where}, but a message of {chip.name} carries at most {limit} (noc.payload_bits = "
            f"{chip.noc.payload_bits}); train it to fire less, raise noc.payload_bits, "
            "or compile with on_multi_spike='repeat'"
        )
