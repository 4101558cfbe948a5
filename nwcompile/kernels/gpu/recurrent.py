"""The float LIF scan of a layer with recurrent synapses of one step's delay, and its gradient, in Triton.

One program computes one sample over all steps. The weights, the membranes and the last spikes stay in its registers, so
no step launches a kernel or waits for device memory. SIZE, a power of two of at least N lanes, is limited by the
registers for weights. Conventions are those of `gpu.lif`. The order of a recurrent sum differs from the CPU's, but is
the same in every call and for every sample. It has the CPU's bits if sums of weights are exact.
"""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.lif import load_rows, membrane_gradient, step
from nwcompile.kernels.gpu.surrogate import slope_at


@triton.jit
def weights_of(weight, n, SIZE: tl.constexpr):
    """Load the weights as `[SIZE, SIZE]`, 0 beyond `n`."""
    j = tl.arange(0, SIZE)
    inside = (j[:, None] < n) & (j[None, :] < n)
    return tl.load(weight + j[:, None] * n + j[None, :], mask=inside, other=0.0)


@triton.jit(do_not_specialize=["n_samples", "n_steps", "n", "x_sample", "x_step"])
def recurrent_forward(
    current, state, weight, beta, threshold, spikes, mem, last, n_samples, n_steps, n, x_sample, x_step,
    RESET: tl.constexpr, FLOOR: tl.constexpr, SIZE: tl.constexpr, AHEAD: tl.constexpr
):  # fmt: skip
    """`lif_forward` with current(t) + spikes(t-1) @ weight as the current; strides are in numbers.

    weight: float[N, N], from row to column. state, last: float[2, B, N], the membranes and the spikes before the first
    step and after the last. spikes, mem: float[B, T, N].
    """
    b, c = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    inside, m = c < n, b * n + c
    w = weights_of(weight, n, SIZE)
    decay = tl.load(beta + c, mask=inside, other=0.0)
    limit = tl.load(threshold + c, mask=inside, other=0.0)
    v = tl.load(state + m, mask=inside, other=0.0)
    s = tl.load(state + n_samples.to(tl.int64) * n + m, mask=inside, other=0.0)
    zero = tl.zeros_like(v)
    x_at, out = current + b * x_sample + c, b * n_steps * n + c
    rows = load_rows(x_at, x_step.to(tl.int64), n_steps, inside, zero, False, AHEAD)
    for t0 in range(0, n_steps, AHEAD):
        x_at += AHEAD * x_step.to(tl.int64)
        following = load_rows(x_at, x_step.to(tl.int64), n_steps - t0 - AHEAD, inside, zero, False, AHEAD)
        for k in tl.static_range(AHEAD):
            if t0 + k < n_steps:
                i = rows[k] + tl.sum(s[:, None] * w, axis=0)
                v, fired = step(v, i, decay, limit, RESET, FLOOR)
                s = (fired & inside).to(v.dtype)
                tl.store(spikes + out, s, mask=inside)
                tl.store(mem + out, v, mask=inside)
                out += n
        rows = following
    tl.store(last + m, v, mask=inside)
    tl.store(last + n_samples.to(tl.int64) * n + m, s, mask=inside)


@triton.jit(
    do_not_specialize=["n_samples", "n_steps", "n", "x_sample", "x_step", "h_sample", "h_step", "g_sample", "g_step"]
)
def recurrent_backward(
    current, spikes, mem, state, grad_spikes, grad_mem, weight, transposed, beta, threshold, grad_current, carried,
    sums, n_samples, n_steps, n, x_sample, x_step, h_sample, h_step, g_sample, g_step,
    RESET: tl.constexpr, FLOOR: tl.constexpr, DETACH: tl.constexpr, SURROGATE: tl.constexpr, SLOPE: tl.constexpr,
    SCALED: tl.constexpr, H_EACH: tl.constexpr, G_EACH: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """The gradient of `recurrent_forward`; like `lif_backward` except for the following.

    transposed: the weights, from column to row. state and carried: float[2, B, N]; carried enters with the gradients of
    the last membranes and spikes, and returns those of the first. A spike's gradient also gets the gradients of the
    next step's currents, times its weights. The caller computes the gradient of the weights: the sum over samples and
    steps of spikes(t-1) times grad_current(t).
    """
    LEARNS: tl.constexpr = sums is not None
    b, c = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    inside, m, fired_m = c < n, b * n + c, (n_samples + b) * n + c
    w, w_back = weights_of(weight, n, SIZE), weights_of(transposed, n, SIZE)
    decay = tl.load(beta + c, mask=inside, other=0.0)
    limit = tl.load(threshold + c, mask=inside, other=0.0)
    first_v, first_s = tl.load(state + m, mask=inside, other=0.0), tl.load(state + fired_m, mask=inside, other=0.0)
    back, returned = tl.load(carried + m, mask=inside, other=0.0), tl.load(carried + fired_m, mask=inside, other=0.0)
    of_beta, of_threshold = tl.zeros([SIZE], tl.float64), tl.zeros([SIZE], tl.float64)
    for done in range(n_steps):
        t = (n_steps - 1 - done).to(tl.int64)
        row, has_before = (b * n_steps + t) * n + c, inside & (t > 0)
        s = tl.where(t > 0, tl.load(spikes + row - n, mask=has_before, other=0.0), first_s)
        before = tl.where(t > 0, tl.load(mem + row - n, mask=has_before, other=0.0), first_v)
        x = tl.load(current + b * x_sample + t * x_step + c, mask=inside, other=0.0).to(back.dtype)
        h, g = returned, back
        if grad_spikes is not None:
            h = tl.load(grad_spikes + b * h_sample + t * h_step + c * H_EACH, mask=inside, other=0.0) + h
        if grad_mem is not None:
            g = tl.load(grad_mem + b * g_sample + t * g_step + c * G_EACH, mask=inside, other=0.0) + g
        v = decay * before + (x + tl.sum(s[:, None] * w, axis=0))
        slope = slope_at(SURROGATE, v - limit, SLOPE, SCALED)
        dv, dth = membrane_gradient(g, h, v, limit, slope, RESET, FLOOR, DETACH)
        dv = tl.where(inside, dv, 0.0)
        tl.store(grad_current + row, dv.to(grad_current.dtype.element_ty), mask=inside)
        back, returned = decay * dv, tl.sum(dv[:, None] * w_back, axis=0)
        if LEARNS:
            of_beta += (dv * before).to(tl.float64)
            of_threshold += tl.where(inside, dth, 0.0).to(tl.float64)
    tl.store(carried + m, back, mask=inside)
    tl.store(carried + fired_m, returned, mask=inside)
    if LEARNS:
        tl.store(sums + m, of_beta, mask=inside)
        tl.store(sums + fired_m, of_threshold, mask=inside)
