"""What the source of a float neuron program is made of: operations on vectors of neurons, as NumPy has them."""

from numba import float32

from nwcompile.kernels.jit import inlined
from nwcompile.kernels.layers.lif import AHEAD_STEPS, goes_past
from nwcompile.kernels.layers.simd import (
    LANES,
    as_numbers,
    both,
    either,
    fence,
    filled_lanes,
    filled_like,
    floor,
    load_like,
    magnitude,
    negated,
    root,
    store,
    store_large,
    trunc,
    where,
)

__all__ = ["AHEAD_STEPS", "LANES", "as_numbers", "both", "either", "fence", "filled_lanes", "filled_like", "floor",
           "goes_past", "larger", "load_like", "magnitude", "negated", "root", "sign", "smaller", "store",
           "store_large", "trunc", "where"]  # fmt: skip


@inlined
def smaller(x, y):
    """The smaller of two; one that is no number is kept."""
    return where(either(x < y, x != x), x, y)


@inlined
def larger(x, y):
    """The larger of two; one that is no number is kept."""
    return where(either(x > y, x != x), x, y)


@inlined
def sign(x, zero):
    """1, -1 or 0; of what is no number, that."""
    one = filled_like(zero, float32(1))
    return where(x > zero, one, where(x < zero, zero - one, where(x == zero, zero, x)))
