"""Sets of small numbers as the bits of a uint64, in Numba."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nwcompile.kernels.jit import inlined

ONE = np.uint64(1)


@intrinsic
def lowest(typing, bits):
    """The smallest number in a set that is not empty (uint64)."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@inlined
def bit(number):
    """The set of one number, 0 to 63."""
    return ONE << np.uint64(number)


@inlined
def first_from(bits, start):
    """The first number of a set from `start` on, going round; the set is not empty."""
    above = bits >> np.uint64(start)
    if above != 0:
        return start + np.int64(lowest(above))
    return np.int64(lowest(bits))
