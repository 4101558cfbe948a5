"""EventProp in discrete time, in Numba: the spike record of a forward pass, and the adjoint over it.

`nwcompile.nn.surrogate.eventprop` is the definition; arrays and `at` are those of `lif`. Spikes are packed: step t is
bit t % 32 of word t // 32. Values of spikes are stored by sample, then neuron, then time; those of neuron c of sample b
begin at `first[b * N + c]`. Multiplications and additions are rounded one by one.
"""

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.layers.lif import RESET_SUBTRACTION, RESET_ZERO
from nwcompile.kernels.layers.simd import LANES, WORD_BITS, add_to, load, load_every, store


@compiled()
def keep_spikes(current, spikes, mem, state, at, strides, neurons, form, first, outputs):
    """Record what `spike_adjoint` needs of a forward pass of `lif_forward`.

    current, spikes, mem: float[B, T, N], strides: of samples and steps of current; state: float[B, N]; neurons: (beta,
    threshold), float[N]; form: (reset, floor); first: int64[B * N + 1].
    outputs, initially 0: words: uint32[B, ceil(T/32), N], the spikes; clipped: likewise, steps clipped by the floor, or
    empty; values: float[2, n_spikes]: for each spike the membrane before its step and in it; or float[3, n_spikes],
    also the membrane in the step after a reset to 0.
    """
    first_sample, last_sample, first_neuron, end, n_steps, n = at
    beta, threshold = neurons
    reset, floor = form
    words, clipped, values = outputs
    n_spikes, n_words = first[first.size - 1], (n_steps + WORD_BITS - 1) // WORD_BITS
    zero = beta.dtype.type(0)
    place = np.empty(n, np.int64)
    for b in range(first_sample, last_sample):
        for c in range(first_neuron, end):
            place[c] = first[b * n + c]
        for t in range(n_steps):
            bit, in_words = np.uint32(1) << np.uint32(t % WORD_BITS), (b * n_words + t // WORD_BITS) * n
            for c in range(first_neuron, end):
                row = (b * n_steps + t) * n + c
                fired = spikes[row] != zero
                is_after_zero = reset == RESET_ZERO and t > 0 and spikes[row - n] != zero
                if not (fired or is_after_zero or floor):
                    continue
                before = mem[row - n] if t > 0 else state[b * n + c]
                v = beta[c] * before + current[b * strides[0] + t * strides[1] + c]
                if is_after_zero:
                    values[2 * n_spikes + place[c] - 1] = v
                if fired:
                    words[in_words + c] |= bit
                    values[place[c]] = before
                    values[n_spikes + place[c]] = v
                    place[c] += 1
                if floor:
                    after = v
                    if fired and reset == RESET_SUBTRACTION:
                        after = v - threshold[c]
                    elif fired and reset == RESET_ZERO:
                        after = zero
                    if not after >= zero:
                        clipped[in_words + c] |= bit


@compiled()
def spike_adjoint(kept, mem, state, grads, at, strides, neurons, form, outputs):
    """The gradient of `lif_forward` by EventProp, backward in time.

    kept: (words, clipped, first, values) of `keep_spikes`; mem: float[B, T, N], the membranes, or empty if the gradient
    of beta is not wanted; state: float[B, N]. grads: (of spikes, of mem), float[B, T, N], with strides of samples,
    steps and neurons (1, or 0 if shared) of both. form: (reset, floor, detach).
    outputs: grad_current: float[B, T, N]; carried: float[B, N], in: the gradient of the last membrane, out: that of
    `state`; sums: float64[2, N], to which the gradients of beta and threshold are added, or empty.
    """
    words, clipped, first, values = kept
    first_sample, last_sample, first_neuron, end, n_steps, n = at
    grad_spikes, grad_mem = grads
    beta, threshold = neurons
    reset, floor, detach = form
    grad_current, carried, sums = outputs
    n_spikes, n_words = first[first.size - 1], (n_steps + WORD_BITS - 1) // WORD_BITS
    zero, one = beta.dtype.type(0), beta.dtype.type(1)
    place = np.empty(n, np.int64)
    for b in range(first_sample, last_sample):
        for c in range(first_neuron, end):
            place[c] = first[b * n + c + 1]
        for t in range(n_steps - 1, -1, -1):
            bit, in_words = np.uint32(1) << np.uint32(t % WORD_BITS), (b * n_words + t // WORD_BITS) * n
            for c in range(first_neuron, end, LANES):
                left, m, row = end - c, b * n + c, (b * n_steps + t) * n + c
                asked = load_every(grad_mem, b * strides[3] + t * strides[4] + c * strides[5], left, strides[5])
                dv = asked + load(carried, m, left)
                store(grad_current, row, left, dv)
                store(carried, m, left, load(beta, c, left) * dv)
            for c in range(first_neuron, end):
                row = (b * n_steps + t) * n + c
                if floor and clipped[in_words + c] & bit:
                    grad_current[row] = zero
                    carried[b * n + c] = zero
                if words[in_words + c] & bit:
                    limit, dv, to_before, k = threshold[c], grad_current[row], zero, place[c] - 1
                    place[c] = k
                    before, v = values[k], values[n_spikes + k]
                    if reset == RESET_SUBTRACTION and sums.size > 0:
                        sums[n + c] -= dv
                    elif reset == RESET_ZERO:
                        dv = zero
                    if t + 1 < n_steps and before < limit:
                        asked = grad_mem[b * strides[3] + t * strides[4] + c * strides[5]]
                        h_at = b * strides[0] + t * strides[1] + c * strides[2]
                        by_time = grad_spikes[h_at + strides[1]] - grad_spikes[h_at]
                        if reset == RESET_SUBTRACTION and not detach:
                            by_time += limit * asked - (one - beta[c]) * limit * grad_current[row + n]
                        elif reset == RESET_ZERO and not detach:
                            by_time += v * asked - values[2 * n_spikes + k] * grad_current[row + n]
                        rise = v - before
                        by_membrane = by_time / rise
                        dv -= by_membrane * ((limit - before) / rise)
                        to_before = zero - by_membrane * ((v - limit) / rise)
                        if sums.size > 0:
                            sums[n + c] += by_membrane
                    grad_current[row] = dv
                    carried[b * n + c] = beta[c] * dv + to_before
            if mem.size > 0:
                for c in range(first_neuron, end, LANES):
                    left, row = end - c, (b * n_steps + t) * n + c
                    mem_before = load(mem, row - n, left) if t > 0 else load(state, b * n + c, left)
                    add_to(sums, c, left, load(grad_current, row, left) * mem_before)
