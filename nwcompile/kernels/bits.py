"""Sets of small numbers as the bits of a uint64, in Numba."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nwcompile.kernels.jit import inlined

ONE = np.uint64(1)


@intrinsic
def lowest(typing, bits):
    """The smallest number in a nonempty set (uint64)."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def leading_zeros(typing, bits):
    """The number of zero bits above the highest 1 of a nonzero uint64."""

    def generate(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@inlined
def bit(number):
    """The set of one number, 0 to 63."""
    return ONE << np.uint64(number)


@inlined
def first_from(bits, start):
    """The first number of a nonempty set from `start` on, with wrap-around."""
    above = bits >> np.uint64(start)
    if above != 0:
        return start + np.int64(lowest(above))
    return np.int64(lowest(bits))


@inlined
def first_of_both(one, row, other, row_of_other, low, high):
    """The smallest number from `low` to `high` in two sets, rows of uint64[row, word]; -1 if there is none."""
    for word in range(low >> 6, (high >> 6) + 1):
        both = one[row, word] & other[row_of_other, word]
        if word == low >> 6:
            both = both >> np.uint64(low & 63) << np.uint64(low & 63)
        if both != 0:
            position = (word << 6) + np.int64(lowest(both))
            return position if position <= high else np.int64(-1)
    return np.int64(-1)


@inlined
def last_of_both(one, row, other, row_of_other, low, high):
    """The largest number from `low` to `high` in two sets, as `first_of_both`; -1 if there is none."""
    for word in range(high >> 6, (low >> 6) - 1, -1):
        both = one[row, word] & other[row_of_other, word]
        if word == high >> 6:
            both = both << np.uint64(63 - (high & 63)) >> np.uint64(63 - (high & 63))
        if both != 0:
            position = (word << 6) + 63 - np.int64(leading_zeros(both))
            return position if position >= low else np.int64(-1)
    return np.int64(-1)
