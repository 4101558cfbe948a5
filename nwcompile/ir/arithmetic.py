"""The integer arithmetic that every backend computes (DESIGN 4.2), in NumPy, each rule named once.

All functions take and give int64 arrays (or ints) and are exact. The kernels in `nwcompile.kernels`
repeat them under the same names. The rules are those of Loihi 1 as reproduced bit for bit from
brian2-loihi and lava-nc traces; widths come from the chip file.
"""

import numpy as np

MAX_COUNT = 1 << 62  # Spikes of a float neuron in a step, and of a float layer in a run: what int64 surely holds.


def decay(x, k, decay_bits: int):
    """`sign(x) * ((|x| * (2**decay_bits - k)) >> decay_bits)`: keeps (1 - k/2**decay_bits) of x, rounded to zero."""
    x = np.asarray(x, np.int64)
    return np.sign(x) * ((np.abs(x) * ((1 << decay_bits) - np.asarray(k, np.int64))) >> decay_bits)


def wrap(x, state_bits: int):
    """Subtract 2**state_bits once where x > 2**(state_bits-1); add it once where x <= -2**(state_bits-1)."""
    half = 1 << (state_bits - 1)
    return x - (x > half) * (2 * half) + (x <= -half) * (2 * half)


def modulo(x, state_bits: int):
    """The two's complement number of state_bits that is x modulo 2**state_bits."""
    half = 1 << (state_bits - 1)
    return ((x + half) & (2 * half - 1)) - half


def shift_to_zero(x, bits):
    """`x / 2**bits`, rounded toward zero."""
    return np.sign(x) * (np.abs(x) >> bits)


def interpolate_table(entries, x, bits):
    """At x, with i = x >> bits, the line through entries[i] and entries[i+1], 2**bits apart; half is rounded up."""
    i = x >> bits
    low, step = entries[i], entries[i + 1] - entries[i]
    return low + ((step * (x - (i << bits)) + ((1 << bits) >> 1)) >> bits)


def saturate(x, state_bits: int):
    """Clip to +-(2**(state_bits-1) - 1)."""
    limit = (1 << (state_bits - 1)) - 1
    return np.clip(x, -limit, limit)


def shift_lost(x, k):
    """`x >> k`, rounded down, or 1 towards 0 where that is 0: what a decay by shift takes of x."""
    x = np.asarray(x, np.int64)
    lost = x >> np.asarray(k, np.int64)
    return np.where(lost == 0, np.sign(x), lost)


def clip(x, state_bits: int):
    """Clip to -2**(state_bits-1) .. 2**(state_bits-1) - 1."""
    half = 1 << (state_bits - 1)
    return np.clip(x, -half, half - 1)


def negate(x, state_bits: int):
    """-x in a register of `state_bits`, where the lowest number is its own negative."""
    half = 1 << (state_bits - 1)
    return np.where(np.asarray(x) == -half, -half, -np.asarray(x))


def spike_count(v, threshold, strict, spikes: str, net=0, cap: int | None = None):
    """How many spikes (signed) a membrane fires: `v > threshold`, or `>=` where not strict.

    `binary`: 0 or 1. `multi`: `max(0, trunc(v / threshold))`, and 0 where the comparison fails, but never above `cap`.
    `bipolar`: +1 above `threshold`, -1 below `-threshold`. `gated`: +1 above `threshold`, -1 below 0 where `net`, the
    sum of the spikes fired before, is above 0. Works for float and for integer arrays; a float membrane fires at most
    MAX_COUNT spikes.
    """
    above = np.where(strict, v > threshold, v >= threshold)
    if spikes == "binary":
        return above.astype(np.int64)
    if spikes == "bipolar":
        below = np.where(strict, -v > threshold, -v >= threshold)
        return above.astype(np.int64) - (below & ~above)
    if spikes == "gated":
        return above.astype(np.int64) - ((v < 0) & (np.asarray(net) > 0))
    if np.issubdtype(np.asarray(v).dtype, np.integer):
        count = np.where(above, v // np.where(threshold > 0, threshold, 1), 0)
    else:
        with np.errstate(over="ignore"):
            count = np.where(above, np.minimum(np.trunc(v / threshold), v.dtype.type(MAX_COUNT)), 0).astype(np.int64)
    return count if cap is None else np.minimum(count, cap)


def effective_weight(mantissa, exponent: int, limit: int):
    """`clip(floor(mantissa * 2**exponent), -limit, limit)` as int64, exact for any exponent."""
    m = np.asarray(mantissa, np.int64)
    scaled = m << exponent if exponent >= 0 else m >> -exponent
    return np.clip(scaled, -limit, limit)


def mantissa_step(bits: int, chip_bits: int, chip_step: int, sign_mode: str) -> int:
    """Spacing of the mantissas a synapse of `bits` can hold on a chip of `chip_bits` and `chip_step`.

    Loihi (8 bits, step 2): mixed-sign weights of b bits lie 2**(9-b) apart, one-sign weights 2**(8-b).
    """
    return (chip_step if sign_mode == "mixed" else 1) << (chip_bits - bits)


def mantissa_range(bits: int, chip_bits: int, chip_step: int, sign_mode: str) -> tuple[int, int]:
    """Least and largest mantissa: mixed -2**(c-1)*step .. (2**(c-1)-1)*step, one sign 0 .. 2**c-1, on the grid.

    Mantissas are the least plus multiples of `mantissa_step`. A mixed-sign weight of 1 bit is a binary weight: half a
    step above 0 or below, never 0 (-128 or 128 on Loihi); of one sign it is 0 or a step.
    """
    step = mantissa_step(bits, chip_bits, chip_step, sign_mode)
    if sign_mode == "mixed" and bits == 1:
        return -(step // 2), step // 2
    if sign_mode == "mixed":
        return -(1 << (bits - 1)) * step, ((1 << (bits - 1)) - 1) * step
    top = ((1 << bits) - 1) * step
    return (0, top) if sign_mode == "exc" else (-top, 0)


def round_mantissa(value, mantissa_bits: int, exponent_max: int, unit_bits: int = 0):
    """Each number on the finest grid whose signed mantissa holds it, shifted left by 0..exponent_max: int64.

    In whole multiples of 2**unit_bits; what no mantissa holds becomes the largest that one does.
    """
    top = (1 << (mantissa_bits - 1)) - 1
    value = np.clip(np.asarray(value, np.float64), -(top << exponent_max), top << exponent_max)
    rounded = np.zeros(value.shape, np.int64)
    for exponent in range(exponent_max, -1, -1):
        grid = 1 << max(exponent, unit_bits)
        largest = (top << exponent) // grid * grid
        nearest = np.rint(value / grid).astype(np.int64) * grid
        if exponent == exponent_max:
            rounded = np.clip(nearest, -largest, largest)
        else:
            rounded = np.where(np.abs(nearest) <= largest, nearest, rounded)
    return rounded
