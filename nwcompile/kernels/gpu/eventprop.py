"""EventProp in discrete time, in Triton: the spike record of a forward pass, and the adjoint over it.

It has the bits of `kernels.layers.eventprop` (launch with `enable_fp_fusion=False`). A lane computes one neuron of one
sample over all steps, as in `lif`. The number of steps, sizes and strides are launch arguments.
"""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.lif import pairs, reset_membrane
from nwcompile.kernels.gpu.surrogate import quotient


@triton.jit(do_not_specialize=["n_samples", "n_steps", "n", "n_spikes", "x_sample", "x_step"])
def keep_spikes(
    current,  # float[B, T, N], samples x_sample and steps x_step apart
    spikes,  # float[B, T, N]
    mem,  # float[B, T, N]
    state,  # float[B, N]
    beta,  # float[N]
    threshold,  # float[N]
    first,  # int64[B * N + 1]
    words,  # int32[B, ceil(T/32), N]
    clipped,  # int32[B, ceil(T/32), N], written with FLOOR
    values,  # float[3, n_spikes]
    n_samples, n_steps, n, n_spikes, x_sample, x_step,
    RESET: tl.constexpr, FLOOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Record what `spike_adjoint` needs of a forward pass of `lif_forward`."""
    n, n_spikes = n.to(tl.int64), n_spikes.to(tl.int64)
    m, inside, b, c = pairs(n_samples, n, BLOCK)
    decay = tl.load(beta + c, mask=inside, other=0.0)
    limit = tl.load(threshold + c, mask=inside, other=0.0)
    before = tl.load(state + m, mask=inside, other=0.0)
    place = tl.load(first + m, mask=inside, other=0)
    word, low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
    fired_before = inside & (word > 0)
    x_at = current + b * x_sample + c
    row = b * n_steps * n + c
    in_words = b * ((n_steps + 31) // 32) * n + c
    for t in range(n_steps):
        v = decay * before + tl.load(x_at, mask=inside, other=0.0).to(before.dtype)
        fired = tl.load(spikes + row, mask=inside, other=0.0) > 0.0
        if RESET == "zero":
            tl.store(values + 2 * n_spikes + place - 1, v, mask=fired_before)
        tl.store(values + place, before, mask=fired)
        tl.store(values + n_spikes + place, v, mask=fired)
        place += fired.to(tl.int64)
        word = word | (fired.to(tl.int32) << (t % 32))
        if FLOOR:
            is_low = (reset_membrane(v, fired, limit, RESET) >= 0.0) == 0
            low = low | (is_low.to(tl.int32) << (t % 32))
        is_full = (t % 32 == 31) | (t == n_steps - 1)
        tl.store(words + in_words, word, mask=inside & is_full)
        if FLOOR:
            tl.store(clipped + in_words, low, mask=inside & is_full)
            low = tl.where(is_full, 0, low)
        word = tl.where(is_full, 0, word)
        in_words += tl.where(is_full, n, 0)
        before = tl.load(mem + row, mask=inside, other=0.0)
        fired_before = fired
        x_at += x_step
        row += n


@triton.jit(do_not_specialize=["n_samples", "n_steps", "n", "n_spikes", "h_sample", "h_step", "g_sample", "g_step"])
def spike_adjoint(
    words,  # int32[B, ceil(T/32), N]
    clipped,  # int32[B, ceil(T/32), N], read with FLOOR
    first,  # int64[B * N + 1]
    values,  # float[3, n_spikes]
    mem,  # float[B, T, N], or None if the gradient of beta is not wanted
    state,  # float[B, N]
    grad_spikes,  # float[B, T, N] or None, samples h_sample, steps h_step and neurons H_EACH apart
    grad_mem,  # float[B, T, N] or None, samples g_sample, steps g_step and neurons G_EACH apart
    beta,  # float[N]
    threshold,  # float[N]
    grad_current,  # float[B, T, N]
    carried,  # float[B, N], in: the gradient of the last membrane, out: that of the state
    sums,  # float64[2, B, N] or None: gradients of beta and of threshold per (sample, neuron) pair
    n_samples, n_steps, n, n_spikes, h_sample, h_step, g_sample, g_step,
    RESET: tl.constexpr, FLOOR: tl.constexpr, DETACH: tl.constexpr, H_EACH: tl.constexpr, G_EACH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `lif_forward` by EventProp, backward in time."""
    n, n_spikes = n.to(tl.int64), n_spikes.to(tl.int64)
    m, inside, b, c = pairs(n_samples, n, BLOCK)
    decay = tl.load(beta + c, mask=inside, other=0.0)
    limit = tl.load(threshold + c, mask=inside, other=0.0)
    back = tl.load(carried + m, mask=inside, other=0.0)
    place = tl.load(first + m + 1, mask=inside, other=0)
    zero, one = tl.zeros_like(back), tl.full([BLOCK], 1.0, back.dtype)
    of_beta, of_threshold = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    word, low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
    dv_later, h, h_later, asked = zero, zero, zero, zero
    n_words = (n_steps + 31) // 32
    for done in range(n_steps):
        t = n_steps - 1 - done
        row = (b * n_steps + t) * n + c
        is_first = inside & ((t % 32 == 31) | (done == 0))
        in_words = (b * n_words + t // 32) * n + c
        word = tl.where(is_first, tl.load(words + in_words, mask=is_first, other=0), word)
        if grad_spikes is not None:
            h = tl.load(grad_spikes + b * h_sample + t * h_step.to(tl.int64) + c * H_EACH, mask=inside, other=0.0)
        if grad_mem is not None:
            asked = tl.load(grad_mem + b * g_sample + t * g_step.to(tl.int64) + c * G_EACH, mask=inside, other=0.0)
        dv = asked + back
        if FLOOR:
            low = tl.where(is_first, tl.load(clipped + in_words, mask=is_first, other=0), low)
            dv = tl.where(((low >> (t % 32)) & 1) > 0, 0.0, dv)
        fired = inside & (((word >> (t % 32)) & 1) > 0)
        place -= fired.to(tl.int64)
        before = tl.load(values + place, mask=fired, other=0.0)
        v = tl.load(values + n_spikes + place, mask=fired, other=0.0)
        by_time = h_later - h
        if RESET == "subtraction":
            of_threshold -= tl.where(fired, dv, 0.0).to(tl.float64)
            if not DETACH:
                by_time += limit * asked - (one - decay) * limit * dv_later
        elif RESET == "zero":
            dv = tl.where(fired, 0.0, dv)
            if not DETACH:
                by_time += v * asked - tl.load(values + 2 * n_spikes + place, mask=fired, other=0.0) * dv_later
        moves = fired & (done > 0) & (before < limit)
        rise = tl.where(moves, v - before, one)
        by_membrane = quotient(tl.where(moves, by_time, 0.0), rise)
        dv = tl.where(moves, dv - by_membrane * quotient(limit - before, rise), dv)
        to_before = tl.where(moves, zero - by_membrane * quotient(v - limit, rise), zero)
        of_threshold += by_membrane.to(tl.float64)
        tl.store(grad_current + row, dv, mask=inside)
        back = decay * dv + to_before
        if mem is not None:
            start = tl.load(state + m, mask=inside, other=0.0)
            mem_before = tl.where(t > 0, tl.load(mem + row - n, mask=inside & (t > 0), other=0.0), start)
            of_beta += (dv * mem_before).to(tl.float64)
        dv_later, h_later = dv, h
    tl.store(carried + m, back, mask=inside)
    if sums is not None:
        tl.store(sums + m, of_beta, mask=inside)
        tl.store(sums + n_samples * n + m, of_threshold, mask=inside)
