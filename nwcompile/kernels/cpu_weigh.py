"""Spikes times weights, for weights that the cache holds, in Numba.

Weights of inputs that are 0 are not looked at. A sum adds in the order of the inputs, from 0, so a row's result depends
on nothing but the row: it is the same in every batch and however the steps are cut into calls.
"""

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.simd import LANES, filled, load, lowest, not_zero, store


@compiled(nogil=True)
def weigh(x, at, weight, out):
    """out[r] = the sum over j of x[r, j] * weight[j], for rows r of `at` = (first, last, n_in, n_out).

    x: float[R, n_in], weight: float[n_in, n_out]; output out: float[R, n_out]; all flat.
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
    if width == LANES:
        for r in range(first, last):
            total = zero
            for c in range(0, n_in, LANES):
                # a load beyond the row's end, where there are rows after it, is faster than one that stops there
                left, at_x = n_in - c, r * n_in + c
                bits = not_zero(load(x, at_x, max(left, min(LANES, last * n_in - at_x))))
                if left < LANES:
                    bits &= (1 << left) - 1
                while bits != 0:
                    j = c + lowest(bits)
                    total = total + filled(x[r * n_in + j]) * load(rows, j * LANES, LANES)
                    bits &= bits - 1
            store(out, r * n_out, max(n_out, min(LANES, (last - r) * n_out)), total)  # the next rows come later
        return
    active = np.empty(n_in, np.int64)
    for r in range(first, last):
        n_active = 0
        for c in range(0, n_in, LANES):
            bits = not_zero(load(x, r * n_in + c, n_in - c))
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
