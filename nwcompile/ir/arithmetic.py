"""Integer arithmetic of all backends (DESIGN 4.2), in NumPy.

All functions take and return int64 arrays (or ints) and are exact. The kernels in `nwcompile.kernels` implement the
same rules. They are the rules of Loihi 1, reproduced bit for bit from traces of brian2-loihi and lava-nc. Widths come
from the chip file.
"""

import numpy as np

MAX_COUNT = 1 << 62  # Limit of spikes of a float neuron in a step, and of a float layer in a run; int64 holds it.


def decay(x, k, decay_bits: int):
    """Multiply x by 1 - k/2**decay_bits, rounded to zero: `sign(x) * ((|x| * (2**decay_bits - k)) >> decay_bits)`."""
    x = np.asarray(x, np.int64)
    return np.sign(x) * ((np.abs(x) * ((1 << decay_bits) - np.asarray(k, np.int64))) >> decay_bits)


def wrap(x, state_bits: int):
    """Subtract 2**state_bits once if x > 2**(state_bits-1); add it once if x <= -2**(state_bits-1)."""
    half = 1 << (state_bits - 1)
    return x - (x > half) * (2 * half) + (x <= -half) * (2 * half)


def modulo(x, state_bits: int):
    """Reduce x modulo 2**state_bits to a two's complement number of `state_bits`."""
    half = 1 << (state_bits - 1)
    return ((x + half) & (2 * half - 1)) - half


def shift_to_zero(x, bits):
    """Divide x by 2**bits and round toward zero."""
    return np.sign(x) * (np.abs(x) >> bits)


def interpolate_table(entries, x, bits):
    """Interpolate linearly at x between entries[i] and entries[i+1], i = x >> bits; half is rounded up.

    Entries are 2**bits apart.
    """
    i = x >> bits
    low, step = entries[i], entries[i + 1] - entries[i]
    return low + ((step * (x - (i << bits)) + ((1 << bits) >> 1)) >> bits)


def saturate(x, state_bits: int):
    """Clip to +-(2**(state_bits-1) - 1)."""
    limit = (1 << (state_bits - 1)) - 1
    return np.clip(x, -limit, limit)


def shift_lost(x, k):
    """Amount that a decay by shift subtracts from x: `x >> k`, rounded down, or sign(x) if that is 0."""
    x = np.asarray(x, np.int64)
    lost = x >> np.asarray(k, np.int64)
    return np.where(lost == 0, np.sign(x), lost)


def clip(x, state_bits: int):
    """Clip to -2**(state_bits-1) .. 2**(state_bits-1) - 1."""
    half = 1 << (state_bits - 1)
    return np.clip(x, -half, half - 1)


def negate(x, state_bits: int):
    """Return -x in a register of `state_bits`, in which the lowest number is its own negative."""
    half = 1 << (state_bits - 1)
    return np.where(np.asarray(x) == -half, -half, -np.asarray(x))


def spike_count(v, threshold, strict, spikes: str, net=0, cap: int | None = None):
    """Signed number of spikes that a membrane fires: at `v > threshold` if `strict`, else at `v >= threshold`.

    `binary`: 0 or 1. `multi`: `max(0, trunc(v / threshold))`, 0 if the comparison fails, at most `cap`.
    `bipolar`: +1 above `threshold`, -1 below `-threshold`. `gated`: +1 above `threshold`; -1 below 0 if `net`, the sum
    of the spikes fired before, is above 0. Arrays may be float or integer; a float membrane fires at most MAX_COUNT
    spikes.
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
    """Compute `clip(floor(mantissa * 2**exponent), -limit, limit)` as int64, exact for any exponent."""
    m = np.asarray(mantissa, np.int64)
    scaled = m << exponent if exponent >= 0 else m >> -exponent
    return np.clip(scaled, -limit, limit)


def mantissa_step(bits: int, chip_bits: int, chip_step: int, sign_mode: str) -> int:
    """Spacing of the mantissas of a synapse of `bits` on a chip of `chip_bits` and `chip_step`.

    Loihi (8 bits, step 2): mixed-sign weights of b bits are 2**(9-b) apart, one-sign weights 2**(8-b).
    """
    return (chip_step if sign_mode == "mixed" else 1) << (chip_bits - bits)


def mantissa_range(bits: int, chip_bits: int, chip_step: int, sign_mode: str) -> tuple[int, int]:
    """Smallest and largest mantissa: mixed -2**(c-1)*step .. (2**(c-1)-1)*step, one sign 0 .. 2**c-1, on the grid.

    Mantissas are the smallest one plus multiples of `mantissa_step`. A mixed-sign weight of 1 bit is a binary weight:
    half a step above or below 0, never 0 (-128 or 128 on Loihi). A one-sign weight of 1 bit is 0 or one step.
    """
    step = mantissa_step(bits, chip_bits, chip_step, sign_mode)
    if sign_mode == "mixed" and bits == 1:
        return -(step // 2), step // 2
    if sign_mode == "mixed":
        return -(1 << (bits - 1)) * step, ((1 << (bits - 1)) - 1) * step
    top = ((1 << bits) - 1) * step
    return (0, top) if sign_mode == "exc" else (-top, 0)


def round_mantissa(value, mantissa_bits: int, exponent_max: int, unit_bits: int = 0):
    """Round numbers to int64 values `mantissa << exponent`, exponent 0..exponent_max, each on the finest grid possible.

    Results are multiples of 2**unit_bits. Numbers out of range are clipped to the largest representable one.
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
