"""EventProp in discrete time, in Triton: the spike record of a forward pass, and the adjoint over it.

It has the bits of `kernels.layers.eventprop` (launch with `enable_fp_fusion=False`). A lane computes one neuron of one
sample over all steps, as in `lif`, and loads AHEAD steps while it computes those before. The number of steps, sizes and
strides are launch arguments.
"""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.lif import load_rows, pairs, reset_membrane
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
    RESET: tl.constexpr, FLOOR: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
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
    spikes_at = spikes + b * n_steps * n + c
    mem_at = mem + b * n_steps * n + c
    in_words = b * ((n_steps + 31) // 32) * n + c
    zero, x_by = tl.zeros_like(before), x_step.to(tl.int64)
    x = load_rows(x_at, x_by, n_steps, inside, zero, False, AHEAD)
    spike = load_rows(spikes_at, n, n_steps, inside, zero, False, AHEAD)
    after = load_rows(mem_at, n, n_steps, inside, zero, False, AHEAD)
    for t0 in range(0, n_steps, AHEAD):
        n_left = n_steps - t0 - AHEAD
        x_at += AHEAD * x_by
        spikes_at += AHEAD * n
        mem_at += AHEAD * n
        next_x = load_rows(x_at, x_by, n_left, inside, zero, False, AHEAD)
        next_spike = load_rows(spikes_at, n, n_left, inside, zero, False, AHEAD)
        next_after = load_rows(mem_at, n, n_left, inside, zero, False, AHEAD)
        for k in tl.static_range(AHEAD):
            t = t0 + k
            if t < n_steps:
                v = decay * before + x[k]
                fired = spike[k] > 0.0
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
                before = after[k]
                fired_before = fired
        x, spike, after = next_x, next_spike, next_after


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
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
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
    dv_later, h_later = zero, zero
    n_words = (n_steps + 31) // 32
    h_by, g_by, last = h_step.to(tl.int64), g_step.to(tl.int64), n_steps - 1
    h_at, g_at, mem_at, start = grad_spikes, grad_mem, mem, zero
    if h_at is not None:
        h_at += b * h_sample + last * h_by + c * H_EACH
    if g_at is not None:
        g_at += b * g_sample + last * g_by + c * G_EACH
    if mem_at is not None:
        mem_at += (b * n_steps + last - 1) * n + c
        start = tl.load(state + m, mask=inside, other=0.0)
    h_rows = load_rows(h_at, -h_by, n_steps, inside, zero, False, AHEAD)
    g_rows = load_rows(g_at, -g_by, n_steps, inside, zero, False, AHEAD)
    rows = load_rows(mem_at, -n, last, inside, zero, False, AHEAD)
    for done in range(0, n_steps, AHEAD):
        n_left = n_steps - done - AHEAD
        if h_at is not None:
            h_at -= AHEAD * h_by
        if g_at is not None:
            g_at -= AHEAD * g_by
        if mem_at is not None:
            mem_at -= AHEAD * n
        next_h = load_rows(h_at, -h_by, n_left, inside, zero, False, AHEAD)
        next_g = load_rows(g_at, -g_by, n_left, inside, zero, False, AHEAD)
        next_rows = load_rows(mem_at, -n, n_left - 1, inside, zero, False, AHEAD)
        fired, is_low, before, v, v_later = (), (), (), (), ()
        for k in tl.static_range(AHEAD):  # all values at the spikes of these steps are asked for before one is used
            t = last - done - k
            is_first = inside & (t >= 0) & ((t % 32 == 31) | (t == last))
            in_words = (b * n_words + t // 32) * n + c
            word = tl.where(is_first, tl.load(words + in_words, mask=is_first, other=0), word)
            fires = inside & (t >= 0) & (((word >> (t & 31)) & 1) > 0)
            place -= fires.to(tl.int64)
            fired = fired + (fires,)
            before = before + (tl.load(values + place, mask=fires, other=0.0),)
            v = v + (tl.load(values + n_spikes + place, mask=fires, other=0.0),)
            if RESET == "zero" and not DETACH:
                v_later = v_later + (tl.load(values + 2 * n_spikes + place, mask=fires, other=0.0),)
            if FLOOR:
                low = tl.where(is_first, tl.load(clipped + in_words, mask=is_first, other=0), low)
                is_low = is_low + (((low >> (t & 31)) & 1) > 0,)
        for k in tl.static_range(AHEAD):
            t = last - done - k
            if t >= 0:
                h, asked = h_rows[k], g_rows[k]
                dv = asked + back
                if FLOOR:
                    dv = tl.where(is_low[k], 0.0, dv)
                by_time = h_later - h
                if RESET == "subtraction":
                    of_threshold -= tl.where(fired[k], dv, 0.0).to(tl.float64)
                    if not DETACH:
                        by_time += limit * asked - (one - decay) * limit * dv_later
                elif RESET == "zero":
                    dv = tl.where(fired[k], 0.0, dv)
                    if not DETACH:
                        by_time += v[k] * asked - v_later[k] * dv_later
                moves = fired[k] & (t < last) & (before[k] < limit)
                rise = tl.where(moves, v[k] - before[k], one)
                by_membrane = quotient(tl.where(moves, by_time, 0.0), rise)
                dv = tl.where(moves, dv - by_membrane * quotient(limit - before[k], rise), dv)
                to_before = tl.where(moves, zero - by_membrane * quotient(v[k] - limit, rise), zero)
                of_threshold += by_membrane.to(tl.float64)
                tl.store(grad_current + (b * n_steps + t) * n + c, dv, mask=inside)
                back = decay * dv + to_before
                if mem is not None:
                    of_beta += (dv * tl.where(t > 0, rows[k], start)).to(tl.float64)
                dv_later, h_later = dv, h
        h_rows, g_rows, rows = next_h, next_g, next_rows
    tl.store(carried + m, back, mask=inside)
    if sums is not None:
        tl.store(sums + m, of_beta, mask=inside)
        tl.store(sums + n_samples * n + m, of_threshold, mask=inside)
