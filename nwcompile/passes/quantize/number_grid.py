"""Number grids: float thresholds and biases rounded to what a chip's registers hold."""

import numpy as np

from nwcompile.ir.chip import Chip

NOISE = 1e-9  # a product of floats this close to a grid point was meant to be on it


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
