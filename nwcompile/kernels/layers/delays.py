"""Sums over synapses with delays, and the gradients of their weights, in Numba.

A synapse has `n_taps` weights for consecutive delays: out[t] = sum of taps[j] * x[t - start - j]. The numbers of
`lanes` samples are adjacent in memory, step after step, so a delay is an offset of whole vectors. All delays therefore
cost the same, and delays that a synapse does not have cost nothing. Arrays are flat.

Synapses are listed by part (`TILE` sources, whose input stays in the cache), and within a part by row: synapses
`row[p * M + m]` to `row[p * M + m + 1]` belong to row m in part p. Multiplications and additions are rounded one by
one, in the order of the list.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from nwcompile.kernels.jit import compiled, inlined
from nwcompile.kernels.layers.simd import filled_lanes, filled_like, load_like, store, total

TILE = 16  # Sources per part: their steps, with 16 samples as lanes, stay in a core's cache.
WIDEST = 16  # Maximum samples as lanes: one vector register, or two.
STEPS = 8  # Steps of a row that are summed at once, each in its own register.
LINE_NUMBERS = 16  # Numbers of a step that are moved at once: one cache line.


@inlined
def lay_side_by_side(x, b0, b1, n_steps, n, before, height, lanes, rows):
    """Copy samples b0 to b1 of `[B, T, N]` to `[N, height, lanes]`, with step 0 at row `before` of every neuron."""
    for t in range(n_steps):
        for n0 in range(0, n, LINE_NUMBERS):
            for b in range(b0, b1):
                at = (b * n_steps + t) * n
                for k in range(n0, min(n0 + LINE_NUMBERS, n)):
                    rows[(k * height + before + t) * lanes + b - b0] = x[at + k]


@inlined
def lay_in_steps(rows, b0, b1, n_steps, n, height, lanes, out):
    """Copy rows that begin with step 0 back to `[B, T, N]`."""
    for t in range(n_steps):
        for n0 in range(0, n, LINE_NUMBERS):
            for b in range(b0, b1):
                at = (b * n_steps + t) * n
                for k in range(n0, min(n0 + LINE_NUMBERS, n)):
                    out[at + k] = rows[(k * height + t) * lanes + b - b0]


@cache
def delayed_sums(lanes: int) -> Callable:
    """The kernel for `lanes` samples as lanes, one of `simd.WIDTHS`."""

    @compiled()
    def sums(x, at, row, source, start, taps, out):
        """out[b, t, m] = the sum over m's synapses s and taps j of taps[s, j] * x[b, t - start[s] - j, source[s]].

        x: float[B, T, N]; at: (first sample, last sample, T, N, M, n_taps, reach, is_early): reach is the longest
        delay; if is_early, the sum is over x[b, t + start[s] + j, source[s]]. row: int64[part * M + 1]; source, start:
        int32[synapse]; taps: float[synapse, n_taps]. Output out: float[B, T, M].
        """
        first, end, n_steps, n, n_rows, n_taps, reach, is_early = at
        zero = filled_lanes(x.dtype.type(0), lanes)
        padded = (n_steps + STEPS - 1) // STEPS * STEPS
        before, later = (0, 1) if is_early else (reach, -1)
        height = padded + reach
        sent = np.zeros(n * height * lanes, x.dtype)
        for b0 in range(first, end, lanes):
            b1 = min(b0 + lanes, end)
            made = np.zeros(n_rows * padded * lanes, x.dtype)
            lay_side_by_side(x, b0, b1, n_steps, n, before, height, lanes, sent)
            for r in range(row.size - 1):
                if row[r] == row[r + 1]:
                    continue
                for t in range(0, padded, STEPS):
                    done = (r % n_rows * padded + t) * lanes
                    s_0, s_1 = load_like(zero, made, done, lanes), load_like(zero, made, done + lanes, lanes)
                    s_2 = load_like(zero, made, done + 2 * lanes, lanes)
                    s_3 = load_like(zero, made, done + 3 * lanes, lanes)
                    s_4 = load_like(zero, made, done + 4 * lanes, lanes)
                    s_5 = load_like(zero, made, done + 5 * lanes, lanes)
                    s_6 = load_like(zero, made, done + 6 * lanes, lanes)
                    s_7 = load_like(zero, made, done + 7 * lanes, lanes)
                    for s in range(row[r], row[r + 1]):
                        place = (source[s] * height + before + t + later * start[s]) * lanes
                        x_0, x_1 = load_like(zero, sent, place, lanes), load_like(zero, sent, place + lanes, lanes)
                        x_2 = load_like(zero, sent, place + 2 * lanes, lanes)
                        x_3 = load_like(zero, sent, place + 3 * lanes, lanes)
                        x_4 = load_like(zero, sent, place + 4 * lanes, lanes)
                        x_5 = load_like(zero, sent, place + 5 * lanes, lanes)
                        x_6 = load_like(zero, sent, place + 6 * lanes, lanes)
                        x_7 = load_like(zero, sent, place + 7 * lanes, lanes)
                        for j in range(n_taps):
                            weight = filled_like(zero, taps[s * n_taps + j])
                            s_0, s_1, s_2 = s_0 + weight * x_0, s_1 + weight * x_1, s_2 + weight * x_2
                            s_3, s_4, s_5 = s_3 + weight * x_3, s_4 + weight * x_4, s_5 + weight * x_5
                            s_6, s_7 = s_6 + weight * x_6, s_7 + weight * x_7
                            if j + 1 == n_taps:
                                break
                            if is_early:
                                after = load_like(zero, sent, place + (STEPS + j) * lanes, lanes)
                                x_0, x_1, x_2, x_3, x_4, x_5, x_6, x_7 = x_1, x_2, x_3, x_4, x_5, x_6, x_7, after
                            else:
                                prior = load_like(zero, sent, place - (j + 1) * lanes, lanes)
                                x_0, x_1, x_2, x_3, x_4, x_5, x_6, x_7 = prior, x_0, x_1, x_2, x_3, x_4, x_5, x_6
                    store(made, done, lanes, s_0)
                    store(made, done + lanes, lanes, s_1)
                    store(made, done + 2 * lanes, lanes, s_2)
                    store(made, done + 3 * lanes, lanes, s_3)
                    store(made, done + 4 * lanes, lanes, s_4)
                    store(made, done + 5 * lanes, lanes, s_5)
                    store(made, done + 6 * lanes, lanes, s_6)
                    store(made, done + 7 * lanes, lanes, s_7)
            lay_in_steps(made, b0, b1, n_steps, n_rows, padded, lanes, out)

    return sums


@cache
def delayed_products(lanes: int) -> Callable:
    """The kernel for `lanes` samples as lanes, one of `simd.WIDTHS`."""

    @compiled()
    def products(x, grad, at, row, source, start, out):
        """out[s, j] += the sum over b and t of grad[b, t, m] * x[b, t - start[s] - j, source[s]]: gradients of `taps`.

        x: float[B, T, N]; grad: float[B, T, M]; at, row, source, start: as in `delayed_sums`, with is_early False.
        Output out: float64[synapse, n_taps], added to.
        """
        first, end, n_steps, n, n_rows, n_taps, reach, _ = at
        zero = filled_lanes(x.dtype.type(0), lanes)
        height = n_steps + reach + 1  # one extra row, because taps are processed in pairs
        sent, back = np.zeros(n * height * lanes, x.dtype), np.zeros(n_rows * n_steps * lanes, x.dtype)
        for b0 in range(first, end, lanes):
            b1 = min(b0 + lanes, end)
            if b1 - b0 < lanes:
                sent[:] = 0
            lay_side_by_side(x, b0, b1, n_steps, n, reach + 1, height, lanes, sent)
            lay_side_by_side(grad, b0, b1, n_steps, n_rows, 0, n_steps, lanes, back)
            for r in range(row.size - 1):
                from_row = r % n_rows * n_steps * lanes
                for s in range(row[r], row[r + 1]):
                    for j in range(0, n_taps, 2):
                        place = (source[s] * height + reach + 1 - start[s] - j) * lanes
                        one_0, one_1, two_0, two_1 = zero, zero, zero, zero
                        prior = load_like(zero, sent, place - lanes, lanes)
                        for t in range(0, n_steps - 1, 2):
                            g_0 = load_like(zero, back, from_row + t * lanes, lanes)
                            g_1 = load_like(zero, back, from_row + (t + 1) * lanes, lanes)
                            x_0 = load_like(zero, sent, place + t * lanes, lanes)
                            x_1 = load_like(zero, sent, place + (t + 1) * lanes, lanes)
                            one_0, one_1 = one_0 + g_0 * x_0, one_1 + g_1 * x_1
                            two_0, two_1 = two_0 + g_0 * prior, two_1 + g_1 * x_0
                            prior = x_1
                        if n_steps % 2 == 1:
                            g_0 = load_like(zero, back, from_row + (n_steps - 1) * lanes, lanes)
                            one_0 = one_0 + g_0 * load_like(zero, sent, place + (n_steps - 1) * lanes, lanes)
                            two_0 = two_0 + g_0 * prior
                        out[s * n_taps + j] += total(one_0 + one_1)
                        if j + 1 < n_taps:
                            out[s * n_taps + j + 1] += total(two_0 + two_1)

    return products
