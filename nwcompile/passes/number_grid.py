"""Number grids: float thresholds, biases and weights rounded to what a chip's registers and synapses hold."""

from dataclasses import dataclass

import numpy as np

from nwcompile.errors import OptionError
from nwcompile.ir.arithmetic import mantissa_range, mantissa_step
from nwcompile.ir.chip import Chip

NOISE = 1e-9  # a product of floats this close to a grid point was meant to be on it
WEIGHT_TYPES = (np.int8, np.int16, np.int32)


@dataclass(frozen=True, eq=False)
class Rounded:
    """Integer `mantissa` with one `exponent`; `effective` is their product, `n_clipped` weights lost magnitude."""

    mantissa: np.ndarray
    exponent: int
    effective: np.ndarray
    n_clipped: int


def largest_mantissa(chip: Chip, bits: int) -> int:
    """The largest positive mantissa of a mixed-sign weight of `bits`; raises OptionError for bits the chip lacks."""
    if not 2 <= bits <= chip.weights.bits:
        raise OptionError(f"weight_bits={bits} is outside 2..{chip.weights.bits}, what {chip.name} holds with a sign")
    return mantissa_range(bits, chip.weights.bits, chip.weights.step, "mixed")[1]


def finest_exponent(chip: Chip, bits: int) -> int:
    """The exponent below which effective weights only lose range: their spacing is 1 there already."""
    step = mantissa_step(bits, chip.weights.bits, chip.weights.step, "mixed")
    return min(max(chip.weights.exponent_min, 1 - step.bit_length()), chip.weights.exponent_max)


def coarsest_exponent(chip: Chip, bits: int) -> int:
    """The largest exponent at which the largest mantissa stays within the chip's effective weights."""
    room = np.log2(chip.weights.effective_limit / largest_mantissa(chip, bits))
    return max(min(chip.weights.exponent_max, int(np.floor(room + NOISE))), chip.weights.exponent_min)


def round_weights(target: np.ndarray, limit: float, chip: Chip, bits: int) -> Rounded:
    """Effective weights nearest to `target`, with the smallest exponent that holds magnitudes up to `limit`."""
    low, high = mantissa_range(bits, chip.weights.bits, chip.weights.step, "mixed")
    largest = min(np.abs(target).max(initial=0), limit)
    exponent = finest_exponent(chip, bits)
    while exponent < chip.weights.exponent_max and largest > high * 2.0**exponent * (1 + NOISE):
        exponent += 1
    spacing = max(mantissa_step(bits, chip.weights.bits, chip.weights.step, "mixed") * 2.0**exponent, 1.0)
    top = chip.weights.effective_limit
    low, high = max(np.ceil(low * 2.0**exponent), -top), min(np.floor(high * 2.0**exponent), top)
    low, high = np.ceil(low / spacing) * spacing, np.floor(high / spacing) * spacing
    effective = np.clip(np.rint(target / spacing) * spacing, low, high)
    n_clipped = int(np.count_nonzero((target < low - spacing / 2) | (target > high + spacing / 2)))
    mantissa = effective / 2.0**exponent
    largest = int(np.abs(mantissa).max(initial=0))
    dtype = next(t for t in WEIGHT_TYPES if largest <= np.iinfo(t).max)
    return Rounded(mantissa.astype(dtype), exponent, effective, n_clipped)


def round_threshold(value: np.ndarray, strict: bool, chip: Chip) -> tuple[np.ndarray, bool]:
    """Threshold on the chip's grid, and the comparison that the chip makes with it.

    Where the chip lacks the comparison, `v >= value` becomes `v > t` with the largest t below `value`, and
    `v > value` becomes `v >= t` with the smallest t above; else t is the nearest.
    """
    unit = 1 << chip.neuron.threshold_shift_bits
    steps = np.round(np.asarray(value, np.float64) / unit, 9)
    chip_strict = strict if strict in chip.neuron.strict else not strict
    if chip_strict != strict:
        steps = np.ceil(steps) - 1 if chip_strict else np.floor(steps) + 1
    return np.rint(steps).astype(np.int64) * unit, chip_strict


def largest_threshold(chip: Chip) -> int:
    """The largest threshold the chip holds."""
    return ((1 << chip.neuron.threshold_bits) - 1) << chip.neuron.threshold_shift_bits


def largest_bias(chip: Chip) -> int:
    """The largest bias the chip holds, in state units."""
    return ((1 << (chip.neuron.bias_bits - 1)) - 1) << chip.neuron.bias_exponent_max


def round_bias(value: np.ndarray, chip: Chip, unit_bits: int = 0) -> np.ndarray:
    """Each bias, in state units, on the finest grid whose mantissa holds it, in whole multiples of 2**unit_bits."""
    top = (1 << (chip.neuron.bias_bits - 1)) - 1
    value = np.asarray(value, np.float64)
    rounded = np.zeros(value.shape, np.int64)
    for exponent in range(chip.neuron.bias_exponent_max, -1, -1):
        grid = 1 << max(exponent, unit_bits)
        most = (top << exponent) // grid * grid
        nearest = np.rint(value / grid).astype(np.int64) * grid
        if exponent == chip.neuron.bias_exponent_max:
            rounded = np.clip(nearest, -most, most)
        else:
            rounded = np.where(np.abs(nearest) <= most, nearest, rounded)
    return rounded
