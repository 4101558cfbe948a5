"""The float LIF scan over time and its gradient, in Numba, for layers without recurrent synapses.

Arrays are flat. `at` gives the part of a `[B, T, N]` tensor that a call computes:
  at = (first sample, last sample, first neuron, last neuron, n_steps, n_neurons)
`strides` are those of samples and steps of an input. Results go to their places in whole tensors, so parts can be
computed in any order and by several threads, with the same bits.

Multiplications and additions are rounded one by one, so results are those of `beta * v + i` written in PyTorch.
A vector of neurons advances AHEAD_STEPS steps with its membrane in registers. Long float rows take half as many steps,
because each step is a stream to memory; short rows take more. If N is small, several samples are processed together,
ROW_NUMBERS numbers in all, so that their dependency chains overlap. If a row is one vector, four samples advance
together through all steps, with the fewest lanes that hold a row.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from nwcompile.kernels.jit import compiled, inlined
from nwcompile.kernels.layers.simd import (
    LANES,
    WORD_BITS,
    add_to,
    fence,
    filled,
    filled_lanes,
    load,
    load_every,
    load_like,
    no_bits,
    set_bit,
    store,
    store_large,
    store_row,
    store_spikes,
    store_words,
    where,
)
from nwcompile.kernels.layers.simd_code import LINE_BYTES, PIECE
from nwcompile.kernels.layers.surrogate import slope_at

RESET_SUBTRACTION = 0
RESET_ZERO = 1
RESET_NONE = 2
AHEAD_STEPS = 8  # Steps that a vector of neurons advances with its membrane in registers.
ROW_NUMBERS = 2048  # Numbers of the samples that are processed together, so that their dependency chains overlap.
SHORT_ROW_NUMBERS = 128  # Rows up to this length advance four times as many steps at once.
LARGE_RESULT_NUMBERS = 1 << 21  # Results from this size on do not fit the caches and are written past them.
LARGE_MEM_NUMBERS = 1 << 20  # Membranes are written past the caches sooner, because they are seldom read next.


@inlined
def reset_membrane(v, fired, threshold, reset, zero):
    """The membrane after the reset."""
    if reset == RESET_SUBTRACTION:
        return v - where(fired, threshold, zero)
    if reset == RESET_ZERO:
        return where(fired, zero, v)
    return v


@inlined
def goes_past(result, n):
    """Whether a result of rows of `n` is too large for the caches, and all its vectors are aligned to cache lines."""
    return result.size >= LARGE_RESULT_NUMBERS and n % LANES == 0 and result.ctypes.data % LINE_BYTES == 0


@compiled()
def lif_forward(current, at, strides, state, beta, threshold, reset, floor, per_word, spikes, mem, last):
    """v = beta*v + i; spike = v >= threshold; reset; with `floor` v = max(v, 0); `mem` is the final v.

    current: float[B, T, N] with `strides` of samples and steps; state: float[B, N], beta, threshold: float[N].
    per_word: 1, or 32 for packed spikes.
    Outputs: spikes float or uint8[B, T, N], or int32[B, ceil(T/32), N] with step t in bit t % 32 of word t // 32;
    mem: float[B, T, N], or empty if not wanted; last: float[B, N], the membrane after the last step.
    """
    first_sample, last_sample, first, end, n_steps, n = at
    zero = filled(beta.dtype.type(0))
    past = goes_past(spikes, n) and (mem.size == 0 or goes_past(mem, n))
    keep, n_words = mem.size > 0, (n_steps + per_word - 1) // per_word
    n_together, width = max(1, ROW_NUMBERS // n), (end - first + LANES - 1) // LANES * LANES
    ahead = AHEAD_STEPS if n < ROW_NUMBERS or per_word > 1 or spikes.itemsize == 1 else AHEAD_STEPS // 2
    ahead = ahead if n > SHORT_ROW_NUMBERS else 4 * AHEAD_STEPS
    v_rows = np.empty(n_together * width, beta.dtype)
    for b0 in range(first_sample, last_sample, n_together):
        b1 = min(b0 + n_together, last_sample)
        for b in range(b0, b1):
            for c in range(first, end, LANES):
                store(v_rows, (b - b0) * width + c - first, LANES, load(state, b * n + c, end - c))
        for t0 in range(0, n_steps, ahead):
            t1 = min(t0 + ahead, n_steps)
            for b in range(b0, b1):
                for c in range(first, end, LANES):
                    left, at_v = end - c, (b - b0) * width + c - first
                    decay, limit = load(beta, c, left), load(threshold, c, left)
                    v, words = load(v_rows, at_v, LANES), no_bits(zero)
                    for t in range(t0, t1):
                        v = decay * v + load(current, b * strides[0] + t * strides[1] + c, left)
                        fired = v >= limit
                        v = reset_membrane(v, fired, limit, reset, zero)
                        if floor:
                            v = where(zero >= v, zero, v)
                        store_spikes(spikes, (b * n_steps + t) * n + c, left, fired, past)
                        words = set_bit(words, fired, t)
                        if keep:
                            store_large(mem, (b * n_steps + t) * n + c, left, v, past)
                    store_words(spikes, (b * n_words + t0 // per_word) * n + c, left, words, t0)
                    store(v_rows, at_v, LANES, v)
        for b in range(b0, b1):
            for c in range(first, end, LANES):
                store(last, b * n + c, end - c, load(v_rows, (b - b0) * width + c - first, LANES))
    fence()


@inlined
def narrow_step(current, b, t, strides, v, words, numbers, rule, out):
    """Compute step t of sample b in `lif_forward_narrow`; returns the membranes after it and the words of spikes."""
    decay, limit, zero = numbers
    reset, floor, n_steps, n, past = rule
    spikes, mem = out
    at, row, left = b * strides[0] + t * strides[1], (b * n_steps + t) * n, (n_steps - t) * n
    v = decay * v + load_like(zero, current, at, current.size - at)
    fired = v >= limit
    v = reset_membrane(v, fired, limit, reset, zero)
    if floor:
        v = where(zero >= v, zero, v)
    store_row(spikes, row, n, left, fired, False)
    if mem.size > 0:
        store_row(mem, row, n, left, v, past)
    return v, set_bit(words, fired, t)


@cache
def lif_forward_narrow(lanes: int) -> Callable:
    """`lif_forward` for n <= `lanes` and all neurons; `lanes` is one of `simd.WIDTHS`."""

    @compiled()
    def forward_narrow(current, at, strides, state, beta, threshold, reset, floor, per_word, spikes, mem, last):
        first, end, _, _, n_steps, n = at
        zero = filled_lanes(beta.dtype.type(0), lanes)
        numbers = load_like(zero, beta, 0, n), load_like(zero, threshold, 0, n), zero
        past = mem.size >= LARGE_MEM_NUMBERS and n % PIECE == 0 and mem.ctypes.data % (PIECE * mem.itemsize) == 0
        rule, out = (reset, floor, n_steps, n, past), (spikes, mem)
        n_words = (n_steps + per_word - 1) // per_word
        for a in range(first, end, 4):
            b, c, d = min(a + 1, end - 1), min(a + 2, end - 1), min(a + 3, end - 1)
            v_a, v_b = load_like(zero, state, a * n, n), load_like(zero, state, b * n, n)
            v_c, v_d = load_like(zero, state, c * n, n), load_like(zero, state, d * n, n)
            for t0 in range(0, n_steps, WORD_BITS):
                w_a, w_b, w_c, w_d = no_bits(zero), no_bits(zero), no_bits(zero), no_bits(zero)
                for t in range(t0, min(t0 + WORD_BITS, n_steps)):
                    v_a, w_a = narrow_step(current, a, t, strides, v_a, w_a, numbers, rule, out)
                    v_b, w_b = narrow_step(current, b, t, strides, v_b, w_b, numbers, rule, out)
                    v_c, w_c = narrow_step(current, c, t, strides, v_c, w_c, numbers, rule, out)
                    v_d, w_d = narrow_step(current, d, t, strides, v_d, w_d, numbers, rule, out)
                word = t0 // WORD_BITS
                store_words(spikes, (a * n_words + word) * n, n, w_a, t0)
                store_words(spikes, (b * n_words + word) * n, n, w_b, t0)
                store_words(spikes, (c * n_words + word) * n, n, w_c, t0)
                store_words(spikes, (d * n_words + word) * n, n, w_d, t0)
            store(last, a * n, n, v_a)
            store(last, b * n, n, v_b)
            store(last, c * n, n, v_c)
            store(last, d * n, n, v_d)
        fence()

    return forward_narrow


@inlined
def membrane_gradient(g, h, v, fired, threshold, slope, reset, floor, detach, zero):
    """Gradient of the membrane before the spike, and the contribution to the threshold's gradient.

    g: gradient of mem, h: of the spike; slope: the surrogate derivative at v - threshold. See `lif_backward`.
    """
    if floor:
        g = where(reset_membrane(v, fired, threshold, reset, zero) >= zero, g, zero)
    through, direct = g, zero
    if reset == RESET_SUBTRACTION:
        direct = where(fired, g, zero)
        if not detach:
            h = h - threshold * g
    elif reset == RESET_ZERO:
        through = where(fired, zero, g)
        if not detach:
            h = h - v * g
    by_spike = h * slope
    return through + by_spike, zero - (direct + by_spike)


@compiled()
def lif_backward(current, mem, state, grads, at, strides, neurons, form, slope, outputs):
    """The gradient of `lif_forward`, backward in time.

    current, mem: float[B, T, N], state: float[B, N], neurons: (beta, threshold), float[N]: inputs and outputs of the
    forward pass; grads: (of spikes, of mem), float[B, T, N]. strides: of samples and steps of current, then of samples,
    steps and neurons (1, or 0 if shared) of both grads. form: (reset, floor, detach, surrogate).
    outputs: grad_current: float[B, T, N]; carried: float[B, N], in: the gradient of the last membrane, out: that of
    `state`; sums: float64[2, N], to which the gradients of beta and threshold are added, or empty.
    Let g be the gradient of mem (from outside and from step t+1; 0 where `floor` clipped) and h that of the spike; then
      subtraction  mem = v - s*th:    dv = g + (h - th*g)*slope,        dth = -s*g - (h - th*g)*slope
      zero         mem = v*(1 - s):   dv = g*(1 - s) + (h - v*g)*slope, dth = -(h - v*g)*slope
      none         mem = v:           dv = g + h*slope,                 dth = -h*slope
    With `detach` the terms with g in h are dropped: no gradient goes through the spike in the reset.
    """
    first_sample, last_sample, first, end, n_steps, n = at
    grad_spikes, grad_mem = grads
    beta, threshold = neurons
    reset, floor, detach, surrogate = form
    grad_current, carried, sums = outputs
    one = beta.dtype.type(1)
    zero, learns, past = filled(one - one), sums.size > 0, goes_past(grad_current, n)
    n_together, ahead = max(1, ROW_NUMBERS // n), AHEAD_STEPS if n > SHORT_ROW_NUMBERS else 4 * AHEAD_STEPS
    for b0 in range(first_sample, last_sample, n_together):
        b1 = min(b0 + n_together, last_sample)
        for t1 in range(n_steps, 0, -ahead):
            t0 = max(0, t1 - ahead)
            for b in range(b0, b1):
                for c in range(first, end, LANES):
                    left = end - c
                    decay, limit = load(beta, c, left), load(threshold, c, left)
                    back, sum_beta, sum_threshold = load(carried, b * n + c, left), zero, zero
                    for t in range(t1 - 1, t0 - 1, -1):
                        row = (b * n_steps + t) * n + c
                        mem_before = load(mem, row - n, left) if t > 0 else load(state, b * n + c, left)
                        v = decay * mem_before + load(current, b * strides[0] + t * strides[1] + c, left)
                        h_at = b * strides[2] + t * strides[3] + c * strides[4]
                        g_at = b * strides[5] + t * strides[6] + c * strides[7]
                        h = load_every(grad_spikes, h_at, left, strides[4])
                        g = load_every(grad_mem, g_at, left, strides[7]) + back
                        steep = slope_at(surrogate, v - limit, slope, one)
                        dv, dth = membrane_gradient(g, h, v, v >= limit, limit, steep, reset, floor, detach, zero)
                        store_large(grad_current, row, left, dv, past)
                        back = decay * dv
                        if learns:
                            sum_beta = sum_beta + dv * mem_before
                            sum_threshold = sum_threshold + dth
                    store(carried, b * n + c, left, back)
                    if learns:
                        add_to(sums, c, left, sum_beta)
                        add_to(sums, n + c, left, sum_threshold)
    fence()
