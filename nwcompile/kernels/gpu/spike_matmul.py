"""Spikes times weights and the LIF scan in one, in Triton: for small layers without a gradient, whose currents then
never leave the registers.

Lanes are those of `gpu.lif`; each sums the currents of AHEAD steps for its own neuron, input by input from 0, as the
kernel of the CPU does for wide layers, and then takes them. Spikes of a layer before may come packed.
"""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.lif import forward_block, pairs


@triton.jit(do_not_specialize=["n_samples", "n_steps", "n", "n_in", "x_sample", "x_step"])
def fire_weighed(
    x, weight, state, beta, threshold, spikes, last, n_samples, n_steps, n, n_in, x_sample, x_step,
    RESET: tl.constexpr, FLOOR: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr
):  # fmt: skip
    """`lif_forward` of the currents x @ weight, without membranes.

    x: float[B, T, n_in], with samples x_sample and steps x_step numbers apart, or packed int32[B, ceil(T/32), n_in],
    with words x_step apart; weight: float[n_in, N]. The other arrays are those of `lif_forward`. AHEAD divides 32.
    """
    IS_PACKED: tl.constexpr = x.dtype.element_ty == tl.int32
    PACKS: tl.constexpr = spikes.dtype.element_ty == tl.int32
    wide = n.to(tl.int64)
    m, inside, b, c = pairs(n_samples, wide, BLOCK)
    decay = tl.load(beta + c, mask=inside, other=0.0)
    limit = tl.load(threshold + c, mask=inside, other=0.0)
    v = tl.load(state + m, mask=inside, other=0.0)
    zero, word = tl.zeros_like(v), tl.zeros([BLOCK], tl.int32)
    x_at = x + b * x_sample
    spikes_at = spikes + b * ((n_steps + 31) // 32 if PACKS else n_steps) * wide + c
    for t0 in range(0, n_steps, AHEAD):
        totals = ()
        for _ in tl.static_range(AHEAD):
            totals = totals + (zero,)
        for j in range(n_in):
            w = tl.load(weight + j * wide + c, mask=inside, other=0.0)
            if IS_PACKED:
                fired = tl.load(x_at + j, mask=inside, other=0) >> t0 % 32
            more = ()
            for k in tl.static_range(AHEAD):
                if IS_PACKED:
                    more = more + (totals[k] + tl.where((fired >> k) & 1 != 0, w, 0.0),)
                else:
                    row = tl.load(x_at + k * x_step.to(tl.int64) + j, mask=inside & (t0 + k < n_steps), other=0.0)
                    more = more + (totals[k] + row.to(zero.dtype) * w,)
            totals = more
        v, word = forward_block(
            v, word, totals, t0, n_steps - t0, spikes_at, None, wide, inside, decay, limit, RESET, FLOOR, False, AHEAD
        )
        is_full = (t0 + AHEAD) % 32 == 0
        if IS_PACKED:
            x_at += tl.where(is_full, x_step.to(tl.int64), 0)
        else:
            x_at += AHEAD * x_step.to(tl.int64)
        if PACKS:
            tl.store(spikes_at, word, mask=inside & (is_full | (t0 + AHEAD >= n_steps)))
            word = tl.where(is_full, 0, word)
            spikes_at += tl.where(is_full, wide, 0)
        else:
            spikes_at += AHEAD * wide
    tl.store(last + m, v, mask=inside)
