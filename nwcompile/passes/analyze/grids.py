"""Grids: float weights, thresholds and biases rounded to the numbers that a chip holds."""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.arithmetic import mantissa_range, mantissa_step, round_mantissa
from nwcompile.ir.chip import Chip

NOISE = 1e-9  # Tolerance for products of floats that are meant to lie on a grid point.
WEIGHT_TYPES = (np.int8, np.int16, np.int32)


@dataclass(frozen=True, eq=False)
class Rounded:
    """Integer `mantissa` with one `exponent`; `effective` is their product. `n_clipped` weights were clipped."""

    mantissa: np.ndarray
    exponent: int
    effective: np.ndarray
    n_clipped: int


@dataclass(frozen=True)
class WeightGrid:
    """Weights that a connection of `bits` holds: mantissas low, low + step .. high, times 2**exponent.

    At the exponent `finest` effective weights are 1 apart (binary ones are -1 and 1); smaller exponents only lose
    range. At `coarsest` the largest mantissa is still within the chip's effective weights.
    """

    bits: int
    sign_mode: str
    low: int
    high: int
    step: int
    finest: int
    coarsest: int
    exponent_max: int
    effective_limit: int

    @classmethod
    def from_weights(cls, weight: np.ndarray, bits: int, chip: Chip) -> "WeightGrid":
        """Return the grid of these float weights: no sign bit if all have one sign and are narrower than the chip's."""
        can, mode = chip.weights, "mixed"
        if bits < can.bits and not (weight < 0).any():
            mode = "exc"
        elif bits < can.bits and not (weight > 0).any():
            mode = "inh"
        return cls.from_signs(mode, bits, chip)

    @classmethod
    def from_signs(cls, mode: str, bits: int, chip: Chip) -> "WeightGrid":
        """Return the grid of a sign mode."""
        can = chip.weights
        step = mantissa_step(bits, can.bits, can.step, mode)
        low, high = mantissa_range(bits, can.bits, can.step, mode)
        unit = step if low % step == 0 else high
        finest = min(max(can.exponent_min, 1 - (unit & -unit).bit_length()), can.exponent_max)
        room = int(np.floor(np.log2(can.effective_limit / (high or -low)) + NOISE))
        coarsest = max(min(can.exponent_max, room), can.exponent_min)
        return cls(bits, mode, low, high, step, finest, coarsest, can.exponent_max, can.effective_limit)

    @property
    def is_binary(self) -> bool:
        """Whether weights are -s or s, never 0."""
        return self.low % self.step != 0

    @property
    def largest(self) -> int:
        """The largest mantissa of the sign with fewer values, or of the only sign."""
        return self.high or -self.low

    def round_within(self, target: np.ndarray, limit: float) -> Rounded:
        """Round `target` to effective weights with the smallest exponent that holds magnitudes up to `limit`.

        For weights of 1 bit, the exponent brings s nearest to `limit`.
        """
        if self.bits == 1:
            exponent = int(np.rint(np.log2(limit / self.largest))) if limit > 0 else self.finest
            return self.round_at(target, max(self.finest, min(exponent, self.coarsest)))
        largest, exponent = min(np.abs(target).max(initial=0), limit), self.finest
        while exponent < self.exponent_max and largest > self.largest * 2.0**exponent * (1 + NOISE):
            exponent += 1
        return self.round_at(target, exponent)

    def round_at(self, target: np.ndarray, exponent: int) -> Rounded:
        """Round `target` to effective weights with a given exponent."""
        effective = self.round_effective(target, exponent)
        mantissa = np.sign(effective) * self.high if self.is_binary else effective / 2.0**exponent
        low, high, spacing = self._value_range(exponent)
        below, above = target < low - spacing / 2, target > high + spacing / 2
        n_clipped = int(np.count_nonzero(below)) + int(np.count_nonzero(above))
        largest = int(max(mantissa.max(initial=0), -mantissa.min(initial=0)))
        dtype = next(t for t in WEIGHT_TYPES if largest <= np.iinfo(t).max)
        return Rounded(mantissa.astype(dtype), exponent, effective, n_clipped)

    def round_effective(self, target: np.ndarray, exponent: int) -> np.ndarray:
        """Return only the effective weights of `round_at`, float64."""
        low, high, spacing = self._value_range(exponent)
        if self.is_binary:
            return np.where(target < 0, low, high)
        steps = np.asarray(target / spacing)
        np.rint(steps, out=steps)
        steps *= spacing
        return np.clip(steps, low, high, out=steps)

    def spacing(self, exponent: int) -> float:
        """Return the spacing of effective weights at an exponent, at least 1."""
        return max(self.step * 2.0**exponent, 1.0)

    def _value_range(self, exponent: int) -> tuple[float, float, float]:
        """Return the smallest and largest effective weight, and their spacing."""
        unit, spacing = 2.0**exponent, self.spacing(exponent)
        if self.is_binary:
            high = min(self.high * unit, self.effective_limit)
            return -high, high, spacing
        low = max(np.ceil(self.low * unit), -self.effective_limit)
        high = min(np.floor(self.high * unit), self.effective_limit)
        return np.ceil(low / spacing) * spacing, np.floor(high / spacing) * spacing, spacing


def holds_mantissas(weight: np.ndarray, chip: Chip, sign_mode: str, bits: int | None = None) -> bool:
    """Return whether the chip stores these integers as mantissas of a connection of `bits` (None: the chip's width)."""
    form = bits or chip.weights.bits, chip.weights.bits, chip.weights.step, sign_mode
    low, high = mantissa_range(*form)
    inside = weight.min(initial=0) >= low and weight.max(initial=0) <= high
    return bool(inside and not np.any((weight.astype(np.int64) - low) % mantissa_step(*form)))


def round_threshold(value: np.ndarray, strict: bool, chip: Chip) -> tuple[np.ndarray, bool]:
    """Return the threshold on the chip's grid, and the comparison that the chip uses with it.

    If the chip lacks the comparison, `v >= value` becomes `v > t` with the largest t below `value`, and `v > value`
    becomes `v >= t` with the smallest t above; otherwise t is the nearest.
    """
    unit = 1 << chip.neuron.threshold_shift_bits
    steps = np.round(np.asarray(value, np.float64) / unit, 9)
    chip_strict = strict if strict in chip.neuron.strict else not strict
    if chip_strict != strict:
        steps = np.ceil(steps) - 1 if chip_strict else np.floor(steps) + 1
    return np.rint(steps).astype(np.int64) * unit, chip_strict


def largest_threshold(chip: Chip) -> int:
    """Return the largest threshold that the chip holds."""
    return ((1 << chip.neuron.threshold_bits) - 1) << chip.neuron.threshold_shift_bits


def largest_bias(chip: Chip) -> int:
    """Return the largest bias that the chip holds, in state units."""
    return ((1 << (chip.neuron.bias_bits - 1)) - 1) << chip.neuron.bias_exponent_max


def round_bias(value: np.ndarray, chip: Chip, unit_bits: int = 0) -> np.ndarray:
    """Round each bias, in state units, to the finest grid whose mantissa holds it, in multiples of 2**unit_bits."""
    return round_mantissa(value, chip.neuron.bias_bits, chip.neuron.bias_exponent_max, unit_bits)
