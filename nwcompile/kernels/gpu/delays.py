"""Sums over synapses with delays and the gradients of their weights, in Triton; see `kernels.layers.delays`.

The steps of a sample are adjacent here, `[B, N, T]`: a lane computes one step, and a delay is an offset of its reads.
Multiplications and additions are rounded one by one, in the order of the lists (launch with `enable_fp_fusion=False`),
so the sums have the CPU's bits. Gradients of weights are added up in another order.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_samples", "n_steps", "n_parts", "n", "n_rows"])
def delayed_sums(
    x,  # float[B, N, T]
    row,  # int64[part * M + 1]: first synapse of each row of each part
    source,  # int32[synapse]
    start,  # int32[synapse]
    taps,  # float[synapse, n_taps]
    out,  # float[B, M, T]
    n_samples, n_steps, n_parts, n, n_rows,
    N_TAPS: tl.constexpr, IS_EARLY: tl.constexpr, SAMPLES: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A program computes one row, SAMPLES samples and STEPS steps; programs are numbered on one axis, row after row."""
    n_times, n_blocks = (n_steps + STEPS - 1) // STEPS, (n_samples + SAMPLES - 1) // SAMPLES
    block = tl.program_id(0) // n_times
    m = block // n_blocks
    b = (block % n_blocks * SAMPLES + tl.arange(0, SAMPLES))[:, None]
    t = (tl.program_id(0) % n_times * STEPS + tl.arange(0, STEPS))[None, :]
    is_sample = b < n_samples
    total = tl.zeros((SAMPLES, STEPS), taps.dtype.element_ty)
    for part in range(n_parts):
        first = tl.load(row + part * n_rows + m)
        end = tl.load(row + part * n_rows + m + 1)
        for s in range(first, end):
            sent = x + (b.to(tl.int64) * n + tl.load(source + s)) * n_steps
            late = tl.load(start + s)
            for j in tl.static_range(N_TAPS):
                at = t + (late + j if IS_EARLY else -late - j)
                value = tl.load(sent + at, mask=is_sample & (at >= 0) & (at < n_steps), other=0.0)
                total += tl.load(taps + s * N_TAPS + j) * value
    tl.store(out + (b.to(tl.int64) * n_rows + m) * n_steps + t, total, mask=is_sample & (t < n_steps))


@triton.jit(do_not_specialize=["n_samples", "n_steps", "n", "n_rows"])
def delayed_products(
    x,  # float[B, N, T]
    grad,  # float[B, M, T]
    target,  # int32[synapse]
    source,  # int32[synapse]
    start,  # int32[synapse]
    out,  # float[synapse, n_taps]
    n_samples, n_steps, n, n_rows,
    N_TAPS: tl.constexpr, SAMPLES: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A program computes one synapse over all samples and steps, SAMPLES and STEPS at a time."""
    s = tl.program_id(0)
    late = tl.load(start + s)
    back = grad + tl.load(target + s).to(tl.int64) * n_steps
    sent = x + tl.load(source + s).to(tl.int64) * n_steps
    for j in tl.static_range(N_TAPS):
        total = tl.zeros((SAMPLES, STEPS), out.dtype.element_ty)
        for b0 in range(0, n_samples, SAMPLES):
            b = (b0 + tl.arange(0, SAMPLES))[:, None].to(tl.int64)
            for t0 in range(0, n_steps, STEPS):
                t = (t0 + tl.arange(0, STEPS))[None, :]
                at = t - late - j
                inside = (b < n_samples) & (t < n_steps) & (at >= 0)
                value = tl.load(sent + b * n * n_steps + at, mask=inside, other=0.0)
                total += value * tl.load(back + b * n_rows * n_steps + t, mask=inside, other=0.0)
        tl.store(out + s * N_TAPS + j, tl.sum(tl.sum(total, 1), 0))
