"""The float LIF scan over time and its gradient, in Numba.

Multiplications and additions are rounded one by one (no `fastmath`, so no fused multiply-add): results are bit for bit
those of `beta * v + i` written in PyTorch. Loops run neurons innermost, which is what the compiler vectorises.
"""

import numpy as np

from nwcompile.kernels.jit import compiled

RESET_SUBTRACTION, RESET_ZERO, RESET_NONE = 0, 1, 2


@compiled(nogil=True)
def lif_forward(current, v0, beta, threshold, reset, spikes, mem):
    """v = beta*v + i; spike = v >= threshold; reset; `mem` is v after the reset.

    current: float[B, T, N], v0: float[B, N], beta: float[N], threshold: float[N]; outputs spikes, mem: float[B, T, N].
    """
    n_samples, n_steps, n_neurons = current.shape
    one, zero = beta.dtype.type(1), beta.dtype.type(0)
    v = np.empty_like(beta)
    for b in range(n_samples):
        v[:] = v0[b]
        for t in range(n_steps):
            current_t, spikes_t, mem_t = current[b, t], spikes[b, t], mem[b, t]
            for n in range(n_neurons):
                x = beta[n] * v[n] + current_t[n]
                spike = one if x >= threshold[n] else zero
                if reset == RESET_SUBTRACTION:
                    x = x - spike * threshold[n]
                elif reset == RESET_ZERO:
                    x = zero if spike > zero else x
                spikes_t[n], mem_t[n], v[n] = spike, x, x


@compiled(nogil=True)
def lif_backward(v, slope, grad_spikes, grad_mem, beta, threshold, reset, detach, grad_v, grad_v0, grad_threshold):
    """The gradient of `lif_forward`, backwards in time.

    v: float[B, T, N] before the reset, slope: float[B, T, N] surrogate derivative at v - threshold, grad_spikes,
    grad_mem: float[B, T, N]; outputs grad_v: float[B, T, N] (also the gradient of the current) and grad_threshold:
    float64[N], to which the sum over B and T is added. grad_v0: float[B, N] comes in as what the step after the last
    hands back (0 at the end of a sequence) and goes out as the gradient of the membrane before the first step.
    With `detach` no gradient goes through the spike in the reset.
    Let g be the gradient of mem (from outside and from step t+1) and h that of the spike; then
      subtraction  mem = v - s*th:    dv = g + (h - th*g)*slope,      dth = -s*g - (h - th*g)*slope
      zero         mem = v*(1 - s):   dv = g*(1 - s) + (h - v*g)*slope, dth = -(h - v*g)*slope
      none         mem = v:           dv = g + h*slope,               dth = -h*slope
    """
    n_samples, n_steps, n_neurons = v.shape
    one, zero = beta.dtype.type(1), beta.dtype.type(0)
    carried, sum_threshold = np.empty_like(beta), np.zeros(n_neurons)
    for b in range(n_samples):
        carried[:] = grad_v0[b]
        for back in range(n_steps):
            t = n_steps - 1 - back
            v_t, slope_t, grad_v_t = v[b, t], slope[b, t], grad_v[b, t]
            grad_spikes_t, grad_mem_t = grad_spikes[b, t], grad_mem[b, t]
            for n in range(n_neurons):
                g, h = grad_mem_t[n] + carried[n], grad_spikes_t[n]
                spike = one if v_t[n] >= threshold[n] else zero
                through, direct = g, zero
                if reset == RESET_SUBTRACTION:
                    direct = spike * g
                    h = h if detach else h - threshold[n] * g
                elif reset == RESET_ZERO:
                    through = zero if spike > zero else g
                    h = h if detach else h - v_t[n] * g
                by_spike = h * slope_t[n]
                grad_v_t[n] = through + by_spike
                sum_threshold[n] -= direct + by_spike
                carried[n] = beta[n] * (through + by_spike)
        grad_v0[b] = carried
    grad_threshold += sum_threshold
