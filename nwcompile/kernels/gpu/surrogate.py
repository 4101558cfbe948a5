"""Surrogate derivatives of a spike in Triton, with the names and operations of `surrogate`.

They are rounded as on the CPU, operation by operation, except the exponential of "sigmoid", which is the GPU's own.
"""

import triton
import triton.language as tl


@triton.jit
def quotient(x, y):
    """x / y, rounded as in IEEE 754; Triton's own division of float32 is an approximation."""
    if x.dtype == tl.float64:
        return x / y
    else:
        return tl.div_rn(x, y)


@triton.jit
def slope_at(KIND: tl.constexpr, x, SLOPE: tl.constexpr, SCALED: tl.constexpr):
    """The derivative at `x`, the membrane minus the threshold. SCALED: pi/2 * SLOPE, rounded to the type of `x`."""
    one = tl.full(x.shape, 1.0, x.dtype)
    slope = tl.full(x.shape, SLOPE, x.dtype)
    if KIND == "atan":
        y = tl.full(x.shape, SCALED, x.dtype) * x
        return quotient(slope * 0.5, one + y * y)
    elif KIND == "fast_sigmoid":
        y = one + slope * tl.abs(x)
        return quotient(one, y * y)
    elif KIND == "sigmoid":
        y = quotient(one, one + tl.exp(0.0 - slope * x))
        return slope * y * (one - y)
    elif KIND == "piecewise_linear":
        return tl.where(slope * tl.abs(x) >= one, 0.0, slope * 0.5)
    else:
        tl.static_assert(KIND == "triangular")
        y = one - slope * tl.abs(x)
        return slope * tl.where(y >= 0.0, y, 0.0)
