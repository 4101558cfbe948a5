"""Values: check that messages can carry the input values and spike counts."""

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.arithmetic import MAX_COUNT
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network

ERROR_CODE = "NW6002"
LARGEST_SPIKE = (1 << 23) - 1
MAX_REPEATED_SPIKES = 4095  # Messages that a neuron sends in a step at most, if n spikes are n messages.


def verify_whole(name: str, array: np.ndarray) -> None:
    """Raise ModelError unless all values are whole numbers within LARGEST_SPIKE."""
    if np.issubdtype(array.dtype, np.floating) and (array != np.trunc(array)).any():
        value = array[array != np.trunc(array)].flat[0]
        raise ModelError(
            f"input {name!r} has the value {value!s}, but the integer program takes whole numbers; "
            "encode real values into spikes first (nwcompile.encode does), or compile the model with calibration "
            "samples of such values"
        )
    low = int(array.min())
    high = int(array.max())
    if max(-low, high) > LARGEST_SPIKE:
        raise ModelError(f"input {name!r} has values up to {max(-low, high)}; the limit is {LARGEST_SPIKE}")


def is_whole(array: np.ndarray) -> bool:
    """Whether all values are whole numbers within LARGEST_SPIKE."""
    return bool((array == np.trunc(array)).all()) and float(np.abs(array).max(initial=0)) <= LARGEST_SPIKE


def chip_takes(chip: Chip, on_multi_spike: str, array: np.ndarray) -> bool:
    """Whether messages of a chip can carry these whole numbers under `on_multi_spike` (`Options`)."""
    try:
        verify_values("x", int(array.min()), int(array.max()), chip, on_multi_spike)
    except ModelError:
        return False
    return True


def verify_values(name: str, low: int, high: int, chip: Chip, on_multi_spike: str) -> None:
    """Raise ModelError unless a chip accepts input values low..high."""
    largest = chip.io.max_value
    if largest is not None and high > largest:
        raise ModelError(
            f"input {name!r} has values up to {high}, but an input line of {chip.name} takes at most {largest} in a "
            "step (io.max_value); scale it down, or spread it over more steps"
        )
    smallest_spike, largest_spike = -1 if "bipolar" in chip.neuron.spikes else 0, 1
    if low >= smallest_spike and high <= largest_spike:
        return
    has = f"input {name!r} has values {low}..{high}"
    if on_multi_spike == "repeat" and chip.core.axon_merge is not None:
        raise ModelError(
            f"{has}, but an axon of {chip.name} is one bit and takes one spike per step (core.axon_merge): encode them "
            "into single spikes, or choose another chip"
        )
    if on_multi_spike == "repeat":
        if low < smallest_spike:
            raise ModelError(
                f"{has}, and a negative value cannot be sent as single spikes; compile with on_multi_spike='graded', "
                "or encode it into two lines, one for each sign"
            )
        if high > MAX_REPEATED_SPIKES:
            raise ModelError(
                f"{has}, but at most {MAX_REPEATED_SPIKES} spikes per step are sent one by one; scale it down, "
                "or compile with on_multi_spike='graded'"
            )
        return
    if on_multi_spike == "refuse" and "multi" not in chip.neuron.spikes:
        choices = ["'graded'"] * chip.carries_message("bipolar" if low < 0 else "multi")
        choices += ["'repeat'"] * (low >= 0 and chip.core.axon_merge is None)
        compiled = f"compile with on_multi_spike={' or '.join(choices)}, " if choices else ""
        raise ModelError(
            f"{has}, but {chip.name} takes spikes {smallest_spike}..{largest_spike}; {compiled}encode graded values "
            "into spikes, or choose a chip whose neuron.spikes has 'multi'"
        )
    limit = largest_payload(chip, low < 0)
    if max(-low, high) > limit:
        raise ModelError(
            f"{has}, but a message of {chip.name} carries {-limit if low < 0 else 0}..{limit} "
            f"(noc.payload_bits = {chip.noc.payload_bits}); scale it down or raise noc.payload_bits"
        )


def largest_payload(chip: Chip, is_signed: bool) -> int:
    """Return the largest magnitude of a count that a message of the chip can carry."""
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
    first_row: int = 0,
    late: dict[str, range] | None = None,
) -> None:
    """Raise ModelError if a neuron spikes more often in a step than the chip's messages can carry.

    The error names the first such spike count by sample, then step, then layer. `spikes[layer]` is [B, T, *shape] and
    begins with sample `first_sample` and row `first_row` of a machine that is `late` (`sim.machine:Machine`).
    `on_multi_spike` is the option (`Options`).
    """
    repeats, beyond = on_multi_spike == "repeat", {}
    for name in network.layers:
        message = network.node(name).neuron.message
        if message not in ("multi", "graded"):
            continue
        limit = MAX_REPEATED_SPIKES if repeats else largest_payload(chip, message == "graded")
        if max(spikes[name].max(initial=0), -int(spikes[name].min(initial=0))) <= limit:
            continue
        flat = spikes[name].reshape(*spikes[name].shape[:2], -1)
        sample, step, neuron = (int(i) for i in np.argwhere(np.abs(flat.astype(np.int64)) > limit)[0])
        step_of_run = step + first_row - (late[name][neuron % len(late[name])] if late else 0)
        n, place = int(flat[sample, step, neuron]), f"sample {first_sample + sample}, step {step_of_run}"
        where = f"layer {name!r} fires {n} spikes at once ({place}, neuron {neuron})"
        beyond[where, limit] = sample, step_of_run
    if not beyond:
        return
    where, limit = min(beyond, key=beyond.__getitem__)
    if repeats:
        raise ModelError(
            f"{where}, but at most {limit} per step are sent one by one; train it to fire less, "
            "or compile with on_multi_spike='graded'"
        )
    raise ModelError(
        f"{where}, but a message of {chip.name} carries at most {limit} (noc.payload_bits = "
        f"{chip.noc.payload_bits}); train it to fire less, raise noc.payload_bits, "
        "or compile with on_multi_spike='repeat'"
    )


def verify_totals(spikes: dict[str, np.ndarray]) -> None:
    """Raise ModelError if a float layer's spike count overflows or is not a number."""
    for name, counts in spikes.items():
        if counts.dtype == np.int64 and (np.sum(counts, dtype=np.float64) >= MAX_COUNT or counts.min(initial=0) < 0):
            raise ModelError(
                f"layer {name!r} fires more than 2**62 spikes, which cannot be counted; scale its input down, or raise "
                "its threshold"
            )
