"""Surrogate derivatives of a spike, on vectors of `simd`; formulas and sources: `nwcompile.nn.ops.surrogate`."""

import math

from nwcompile.kernels.jit import inlined
from nwcompile.kernels.layers.simd import exponential, filled, magnitude, where

NAMES = ("atan", "fast_sigmoid", "sigmoid", "piecewise_linear", "triangular")
ATAN, FAST_SIGMOID, SIGMOID, PIECEWISE_LINEAR, TRIANGULAR = range(5)


@inlined
def slope_at(kind, x, slope, one):
    """The derivative at `x`, the membrane minus the threshold; `slope` and `one` are scalars of its float type."""
    dtype = type(one)
    full, zero, ones = filled(slope), filled(one - one), filled(one)
    if kind == ATAN:
        y = filled(dtype(math.pi / 2) * slope) * x
        return filled(slope * dtype(0.5)) / (ones + y * y)
    if kind == FAST_SIGMOID:
        y = ones + full * magnitude(x)
        return ones / (y * y)
    if kind == SIGMOID:
        y = ones / (ones + exponential(zero - full * x))
        return full * y * (ones - y)
    if kind == PIECEWISE_LINEAR:
        return where(full * magnitude(x) >= ones, zero, filled(slope * dtype(0.5)))
    y = ones - full * magnitude(x)
    return full * where(y >= zero, y, zero)
