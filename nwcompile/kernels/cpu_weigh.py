"""Spikes times weights, for weights that the cache holds, in Numba.

A row's sum depends on nothing but the row: it is the same in every batch and however the steps are cut into calls.
"""

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.simd import LANES, bits_of, filled, load, lowest, store

GROUP = 4  # inputs whose sums are looked up together
MOST_LOOKED_UP = 64  # inputs


@compiled(nogil=True)
def weigh(x, at, weight, out):
    """out[r] = the sum over j of x[r, j] * weight[j], for rows r of `at` = (first, last, n_in, n_out).

    x: float[R, n_in], weight: float[n_in, n_out]; output out: float[R, n_out]; all flat. Weights of inputs that are 0
    are not looked at; a sum adds in the order of the inputs, from 0.
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


@compiled(nogil=True)
def weigh_narrow(x, at, weight, out):
    """As `weigh`, for n_out <= LANES and few inputs: the sums of every four inputs are made once for all rows.

    Every LANES inputs that are zeros and ones add the sums of their groups of four, in order; others, input by input.
    """
    first, last, n_in, n_out = at
    zero, one = filled(weight.dtype.type(0)), filled(weight.dtype.type(1))
    n_groups, n_sums = (n_in + GROUP - 1) // GROUP, 1 << GROUP
    sums = np.zeros(n_groups * n_sums * LANES, weight.dtype)
    for j in range(n_in):
        row, bit = load(weight, j * n_out, n_out), 1 << j % GROUP
        of_group = j // GROUP * n_sums
        for m in range(bit):
            lower = load(sums, (of_group + m) * LANES, LANES)
            store(sums, (of_group + bit + m) * LANES, LANES, lower + row)
    for r in range(first, last):
        total = zero
        for c in range(0, n_in, LANES):
            # a load beyond the row's end, where there are rows after it, is faster than one that stops there
            left, at_x = n_in - c, r * n_in + c
            spikes = load(x, at_x, max(left, min(LANES, last * n_in - at_x)))
            bits, other = bits_of(spikes != zero), bits_of(spikes != one)
            if left < LANES:
                bits &= (1 << left) - 1
            if bits & other == 0:
                for g in range(c // GROUP, min((c + LANES) // GROUP, n_groups)):
                    total = total + load(sums, (g * n_sums + (bits & (n_sums - 1))) * LANES, LANES)
                    bits >>= GROUP
            else:
                while bits != 0:
                    j = c + lowest(bits)
                    total = total + filled(x[r * n_in + j]) * load(weight, j * n_out, n_out)
                    bits &= bits - 1
        store(out, r * n_out, max(n_out, min(LANES, (last - r) * n_out)), total)  # the next rows come later
