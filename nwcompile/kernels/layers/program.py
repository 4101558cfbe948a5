"""Operations on vectors of neurons for the source of a float neuron program, with NumPy's results."""

from nwcompile.kernels.jit import inlined
from nwcompile.kernels.layers.lif import AHEAD_STEPS, goes_past
from nwcompile.kernels.layers.simd import (
    LANES,
    as_numbers,
    ask_for,
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

__all__ = ["AHEAD_STEPS", "LANES", "SOON_STEPS", "as_numbers", "ask_for", "both", "either", "fence", "filled_lanes",
           "filled_like", "floor", "goes_past", "larger", "load_like", "magnitude", "negated", "root", "sign",
           "smaller", "store", "store_large", "trunc", "where"]  # fmt: skip

SOON_STEPS = 2 * AHEAD_STEPS  # Input is prefetched this far ahead; half of it is late if other cores use memory too.


@inlined
def smaller(x, y):
    """The smaller of two numbers; NaN if either is NaN."""
    return where(either(x < y, x != x), x, y)


@inlined
def larger(x, y):
    """The larger of two numbers; NaN if either is NaN."""
    return where(either(x > y, x != x), x, y)


@inlined
def sign(x, zero):
    """1, -1 or 0; NaN of NaN."""
    above, below = as_numbers(zero, x > zero), as_numbers(zero, x < zero)
    return where(x > zero, above, where(x < zero, zero - below, where(x == zero, zero, x)))
