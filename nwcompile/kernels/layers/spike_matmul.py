"""Products of spikes and weights that fit into the cache, in Numba.

The sum of a row depends only on the row: it is the same in every batch and for every division of steps into calls.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from nwcompile.kernels.jit import compiled, inlined
from nwcompile.kernels.layers.simd import (
    LANES,
    bits_of,
    filled,
    filled_lanes,
    filled_like,
    load,
    load_like,
    lowest,
    store,
    store_row,
    width_of,
)

GROUP_INPUTS = 4  # Inputs whose sums are looked up together.
N_SUMS = 1 << GROUP_INPUTS
MAX_LOOKED_UP_INPUTS = 64  # With more inputs the table of their sums exceeds the first-level cache.


@compiled()
def spike_matmul(x, at, weight, out):
    """out[r] = the sum over j of x[r, j] * weight[j], for rows r of `at` = (first, last, n_in, n_out).

    x: float[R, n_in], weight: float[n_in, n_out]; output out: float[R, n_out]; all flat. Weights of inputs that are 0
    are not read; a sum adds in the order of the inputs, from 0.
    """
    first, last, n_in, n_out = at
    width = (n_out + LANES - 1) // LANES * LANES
    zero = filled(weight.dtype.type(0))
    rows = weight
    if width != n_out:
        rows = np.empty(n_in * width, weight.dtype)
        for j in range(n_in):
            for c in range(0, n_out, LANES):
                store(rows, j * width + c, LANES, load(weight, j * n_out + c, n_out - c))
    active = np.empty(n_in, np.int64)
    for r in range(first, last):
        n_active = 0
        for c in range(0, n_in, LANES):
            bits = bits_of(load(x, r * n_in + c, n_in - c) != zero)
            while bits != 0:
                active[n_active] = c + lowest(bits)
                n_active += 1
                bits &= bits - 1
        for c in range(0, n_out, LANES):
            total = zero
            for k in range(n_active):
                j = active[k]
                total = total + filled(x[r * n_in + j]) * load(rows, j * width + c, LANES)
            store(out, r * n_out + c, n_out - c, total)


@inlined
def add_up(weight, n_in, n_out, lanes, zero, sums):
    """Write the sums of all subsets of a group's inputs to `sums`: row `group * N_SUMS + bits` of `lanes` numbers."""
    for j in range(n_in):
        row, bit = load_like(zero, weight, j * n_out, n_out), 1 << j % GROUP_INPUTS
        of_group = j // GROUP_INPUTS * N_SUMS
        for m in range(bit):
            lower = load_like(zero, sums, (of_group + m) * lanes, lanes)
            store(sums, (of_group + bit + m) * lanes, lanes, lower + row)


@cache
def spike_matmul_narrow(n_pairs: int, lanes: int) -> Callable:
    """`spike_matmul` for n_out <= `lanes`, one of `simd.WIDTHS`, and n_in inputs in `n_pairs` pairs of groups.

    The last pair may be incomplete.

    The sums of every group of four inputs are computed once for all rows, as are those of the first pair. Vectors of
    LANES inputs that are 0 or 1 add the sums of their groups, in order. Other inputs are added one by one.
    """
    lanes_in, n_groups = width_of(min(LANES, 2 * GROUP_INPUTS * n_pairs)), 2 * n_pairs
    n_parts, per_part = -(-n_groups * GROUP_INPUTS // LANES), LANES // GROUP_INPUTS

    @compiled()
    def narrow(x, at, weight, out):
        first, last, n_in, n_out = at
        zero, none = filled_lanes(weight.dtype.type(0), lanes), filled_lanes(weight.dtype.type(0), lanes_in)
        one = filled_lanes(weight.dtype.type(1), lanes_in)
        sums = np.zeros(n_groups * N_SUMS * lanes, weight.dtype)
        add_up(weight, n_in, n_out, lanes, zero, sums)
        of_pair = np.empty(N_SUMS * N_SUMS * lanes, weight.dtype)
        for k in range(N_SUMS * N_SUMS):
            low = load_like(zero, sums, k % N_SUMS * lanes, lanes)
            store(of_pair, k * lanes, lanes, low + load_like(zero, sums, (N_SUMS + k // N_SUMS) * lanes, lanes))
        for r in range(first, last):
            total = zero
            for part in range(n_parts):
                # a load beyond the row's end, if more rows follow, is faster than a masked load
                left, at_x = n_in - part * LANES, r * n_in + part * LANES
                spikes = load_like(none, x, at_x, max(left, min(lanes_in, last * n_in - at_x)))
                bits = bits_of(spikes != none) & (1 << min(left, LANES)) - 1
                if bits & bits_of(spikes != one) == 0:
                    group = part * per_part
                    if part == 0:
                        total = load_like(zero, of_pair, (bits & (N_SUMS * N_SUMS - 1)) * lanes, lanes)
                        bits >>= 2 * GROUP_INPUTS
                        group = 2
                    for g in range(group, min(n_groups, (part + 1) * per_part)):
                        total = total + load_like(zero, sums, (g * N_SUMS + (bits & (N_SUMS - 1))) * lanes, lanes)
                        bits >>= GROUP_INPUTS
                else:
                    while bits != 0:
                        j = lowest(bits)
                        row = load_like(zero, weight, (part * LANES + j) * n_out, n_out)
                        total = total + filled_like(zero, x[at_x + j]) * row
                        bits &= bits - 1
            store_row(out, r * n_out, n_out, (last - r) * n_out, total, False)

    return narrow
