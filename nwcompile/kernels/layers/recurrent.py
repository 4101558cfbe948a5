"""The float LIF scan of a layer with recurrent synapses of one step's delay, and its gradient, in Numba.

Conventions are those of `lif`. The recurrent sum of a neuron adds the weights of firing neurons in their order, from 0,
and is then added to the current. So it does not depend on how steps are divided into calls.
"""

import numpy as np

from nwcompile.kernels.jit import compiled, inlined
from nwcompile.kernels.layers.lif import membrane_gradient, reset_membrane
from nwcompile.kernels.layers.simd import LANES, add_to, filled, load, load_every, store, store_spikes, where
from nwcompile.kernels.layers.surrogate import slope_at


@inlined
def weighted_rows(factor, first, weight, n, zero, active, out):
    """out[n] = the sum over j of factor[first + j] * weight[j * n : (j + 1) * n], skipping factors of 0."""
    n_active = 0
    for j in range(n):
        active[n_active] = j
        n_active += factor[first + j] != 0
    for c in range(0, n, LANES):
        total = zero
        for k in range(n_active):
            j = active[k]
            total = total + filled(factor[first + j]) * load(weight, j * n + c, n - c)
        store(out, c, n - c, total)


@inlined
def rows_of_four(factor, at, weight, n, zero, out):
    """`weighted_rows` for four offsets `at` in `factor`, so that a weight is read once for all; out: float[4, n]."""
    first, second, third, fourth = at
    for c in range(0, n, LANES):
        left, a, b, d, e = n - c, zero, zero, zero, zero
        for j in range(n):
            row = load(weight, j * n + c, left)
            a = a + filled(factor[first + j]) * row
            b = b + filled(factor[second + j]) * row
            d = d + filled(factor[third + j]) * row
            e = e + filled(factor[fourth + j]) * row
        store(out, c, left, a)
        store(out, n + c, left, b)
        store(out, 2 * n + c, left, d)
        store(out, 3 * n + c, left, e)


@compiled()
def recurrent_forward(current, at, strides, weight, beta, threshold, reset, floor, spikes, mem, last):
    """`lif_forward` with current(t) + spikes(t-1) @ weight as the current, for whole layers.

    weight: float[N, N], from row to column. last: float[2, B, N], in: the membranes and spikes before the first step,
    out: after the last. spikes, mem: float[B, T, N].
    """
    first_sample, last_sample, n_samples, n_steps, n = at
    zero = filled(beta.dtype.type(0))
    received, active = np.empty(n, beta.dtype), np.empty(n + 1, np.int64)
    for b in range(first_sample, last_sample):
        v_at, fired_at = b * n, (n_samples + b) * n
        for t in range(n_steps):
            weighted_rows(last, fired_at, weight, n, zero, active, received)
            for c in range(0, n, LANES):
                left, out = n - c, (b * n_steps + t) * n + c
                limit = load(threshold, c, left)
                i = load(current, b * strides[0] + t * strides[1] + c, left) + load(received, c, left)
                v = load(beta, c, left) * load(last, v_at + c, left) + i
                fired = v >= limit
                v = reset_membrane(v, fired, limit, reset, zero)
                if floor:
                    v = where(zero >= v, zero, v)
                store_spikes(spikes, out, left, fired, False)
                store_spikes(last, fired_at + c, left, fired, False)
                store(mem, out, left, v)
                store(last, v_at + c, left, v)


@compiled()
def recurrent_backward(current, spikes, mem, state, grads, at, strides, weights, neurons, form, slope, outputs):
    """The gradient of `recurrent_forward`; like `lif_backward` except for the following.

    weights: from row to column, and transposed, from column to row. state and carried: float[2, B, N]; carried enters
    with the gradients of the last membranes and spikes, and returns those of the first. A spike's gradient also gets
    the gradients of the next step's currents, times its weights. The caller computes the gradient of the weights: the
    sum over samples and steps of spikes(t-1) times grad_current(t).
    """
    first_sample, last_sample, n_samples, n_steps, n = at
    grad_spikes, grad_mem = grads
    weight, transposed = weights
    beta, threshold = neurons
    reset, floor, detach, surrogate = form
    grad_current, carried, sums = outputs
    one = beta.dtype.type(1)
    zero, learns = filled(one - one), sums.size > 0
    received, returned, active = np.empty(n, beta.dtype), np.empty(4 * n, beta.dtype), np.empty(n + 1, np.int64)
    for b0 in range(first_sample, last_sample, 4):
        b1 = min(b0 + 4, last_sample)
        fired_first = (n_samples + b0) * n
        returned[: (b1 - b0) * n] = carried[fired_first : fired_first + (b1 - b0) * n]
        for t in range(n_steps - 1, -1, -1):
            for b in range(b0, b1):
                v_at, before, at_sample = b * n, (b * n_steps + t - 1) * n, (b - b0) * n
                if t > 0:
                    weighted_rows(spikes, before, weight, n, zero, active, received)
                else:
                    weighted_rows(state, (n_samples + b) * n, weight, n, zero, active, received)
                for c in range(0, n, LANES):
                    left, row = n - c, before + n + c
                    decay, limit = load(beta, c, left), load(threshold, c, left)
                    mem_before = load(mem, before + c, left) if t > 0 else load(state, v_at + c, left)
                    i = load(current, b * strides[0] + t * strides[1] + c, left) + load(received, c, left)
                    v = decay * mem_before + i
                    h_at = b * strides[2] + t * strides[3] + c * strides[4]
                    g_at = b * strides[5] + t * strides[6] + c * strides[7]
                    h = load_every(grad_spikes, h_at, left, strides[4]) + load(returned, at_sample + c, left)
                    g = load_every(grad_mem, g_at, left, strides[7]) + load(carried, v_at + c, left)
                    steep = slope_at(surrogate, v - limit, slope, one)
                    dv, dth = membrane_gradient(g, h, v, v >= limit, limit, steep, reset, floor, detach, zero)
                    store(grad_current, row, left, dv)
                    store(carried, v_at + c, left, decay * dv)
                    if learns:
                        add_to(sums, c, left, dv * mem_before)
                        add_to(sums, n + c, left, dth)
            b, size, now = b1 - 1, n_steps * n, t * n  # the last sample fills the places of missing ones
            at_four = b0 * size + now, min(b0 + 1, b) * size + now, min(b0 + 2, b) * size + now, b * size + now
            rows_of_four(grad_current, at_four, transposed, n, zero, returned)
        carried[fired_first : fired_first + (b1 - b0) * n] = returned[: (b1 - b0) * n]
