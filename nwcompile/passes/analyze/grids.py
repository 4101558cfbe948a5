"""Grids: float weights, thresholds, biases and decays rounded to the numbers that a chip holds.

`layer_dynamics` writes a float neuron as the chip's two leaky sums, u and v (DESIGN 4.2).
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.arithmetic import mantissa_step, round_mantissa
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec

NOISE = 1e-9  # Tolerance for products of floats that are meant to lie on a grid point.
WEIGHT_TYPES = (np.int8, np.int16, np.int32)
ERROR_CODE = "NW5010"
SLOWEST = 2.0**-15  # The share of a state that the slowest decay by shift removes per step.
FASTEST = 0.99  # Losses above this share count as equal when time constants are compared.


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
        low, high = chip.mantissa_range(bits, mode)
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
    can, bits = chip.weights, bits or chip.weights.bits
    low, high = chip.mantissa_range(bits, sign_mode)
    inside = weight.min(initial=0) >= low and weight.max(initial=0) <= high
    step = mantissa_step(bits, can.bits, can.step, sign_mode)
    return bool(inside and not np.any((weight.astype(np.int64) - low) % step))


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


@dataclass(frozen=True, eq=False)
class Dynamics:
    """`u = keep_u*u + factor*(sum of w*s) + constant_u; v = keep_v*v + u + constant_v`, in the float network's units.

    Numbers are float64, scalars or arrays that broadcast to the layer. The chip's u and v lose `FixedPoint.lost(decay)`
    per step. `tau_error_percent` is the largest error of a time constant by rounding, or None if the chip rounds a very
    slow leak to none or a very fast one to a full one. If decays are shifts, u decays after the sum is added, and few
    time constants are close to an available one. The factor then keeps the charge of a spike, the total that it adds to
    v.
    """

    factor: np.ndarray
    constant_u: np.ndarray
    constant_v: np.ndarray
    keep_u: np.ndarray
    keep_v: np.ndarray
    decay_u: np.ndarray
    decay_v: np.ndarray
    tau_error_percent: float | None


def layer_dynamics(network: Network, layer: str, chip: Chip) -> Dynamics:
    """Return the dynamics of a float layer of a normalized network, biases of its connections included.

    All three current orders give the same sequence of currents and differ in `factor` only. Without a current
    (`alpha is None`) u keeps nothing and every constant goes to v. Raises ModelError for a leak outside 0..1.
    """
    node = network.node(layer)
    spec: NeuronSpec = node.neuron
    biases = [c.bias_per_neuron(node.shape) for c in network.into(layer) if c.bias is not None]
    bias = sum((np.asarray(b, np.float64) for b in biases), np.zeros(()))
    if spec.membrane == "linear":
        keep_v, gain, constant_v = _to_float32(spec.beta), _to_float32(spec.gain), _to_float32(spec.leak)
    else:
        k = _to_float32(spec.k)
        keep_v, gain, constant_v = 1 - k, k * _to_float32(spec.r), k * _to_float32(spec.v_leak)
    constant_v = constant_v + _to_float32(spec.bias)
    factor, keep_u, constant_u = gain, np.zeros(()), np.zeros(())
    if spec.alpha is None:
        constant_v = constant_v + gain * bias
    else:
        keep_u = _to_float32(spec.alpha)
        factor = gain * _to_float32(spec.w_in) * (keep_u if spec.current_order == "add_then_decay" else 1.0)
        constant_u = factor * bias
    lowest = chip.state.decay_offset if spec.alpha is not None else 0
    form = chip.fixed_point
    decay_u, error_u = _chip_decay(layer, "alpha", keep_u, form, 1 if form.shifts else lowest)
    error_u = 0.0 if spec.alpha is None else error_u  # there is no time constant to approximate
    decay_v, error_v = _chip_decay(layer, "beta" if spec.membrane == "linear" else "1 - k", keep_v, form, 0)
    if form.shifts:
        lost = form.lost(decay_u)
        to_same_charge = lost / ((1 - lost) * np.maximum(1 - keep_u, SLOWEST))
        factor = factor * to_same_charge
        constant_u = constant_u * to_same_charge
    worst = max(error_u, error_v)
    return Dynamics(
        factor=factor,
        constant_u=constant_u,
        constant_v=constant_v,
        keep_u=keep_u,
        keep_v=keep_v,
        decay_u=decay_u,
        decay_v=decay_v,
        tau_error_percent=None if worst == inf else worst,
    )


def _to_float32(value) -> np.ndarray:
    """Round to float32, as the float network computes."""
    return np.asarray(value, np.float32).astype(np.float64)


def _chip_decay(layer: str, name: str, keep: np.ndarray, form: FixedPoint, lowest: int) -> tuple[np.ndarray, float]:
    """Return the chip's decays for the remaining shares, and the largest time-constant error in percent (or inf)."""
    if keep.min() < 0 or keep.max() > 1:
        bad = float(keep.min() if keep.min() < 0 else keep.max())
        raise ModelError(
            f"layer {layer!r}: {name} = {bad:g} is outside 0..1, and a chip's state can only decay; "
            "train it with a leak between 0 and 1"
        )
    decay = find_decay_for_loss(1 - keep, form, lowest)
    chip_keep = 1 - form.lost(decay)
    leaky = (0 < keep) & (keep < 1) & (0 < chip_keep) & (chip_keep < 1)
    ratio = np.log(np.where(leaky, keep, 0.5)) / np.log(np.where(leaky, chip_keep, 0.5))  # of the time constants
    error = np.where(leaky, 100 * np.abs(ratio - 1), np.where(keep == chip_keep, 0.0, inf))
    return decay, float(error.max())


def find_decay_for_loss(lost: np.ndarray, form: FixedPoint, lowest: int = 0) -> np.ndarray:
    """Return the chip's decay, int64, at least `lowest`, that is nearest to losing a share `lost` (0..1) per step.

    For shifts, the nearest time constant (as a ratio) decides.
    """
    if not form.shifts:
        return np.maximum(np.rint(lost * (1 << form.decay_bits)).astype(np.int64), lowest)
    shifts = np.arange(lowest, form.decay_range[1] + 1)
    wanted, has = (np.log(-np.log1p(-np.clip(x, SLOWEST, FASTEST))) for x in (np.asarray(lost), form.lost(shifts)))
    return shifts[np.abs(wanted[..., None] - has).argmin(-1)].astype(np.int64)
