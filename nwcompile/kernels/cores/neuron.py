"""The fixed-point neuron update and its scan over time, in Numba. Same rules and names as `ir/arithmetic.py`."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined, kernel

RESET_ZERO, RESET_VALUE, RESET_SUBTRACT, RESET_NONE = 0, 1, 2, 3
NOW, NEXT, BOTH = 0, 1, 2
BINARY, MULTI, BIPOLAR, GATED = 0, 1, 2, 3
LONG_AGO = 1 << 30


RULE = np.dtype(
    [
        ("threshold", np.int64),
        ("decay_u", np.int64),
        ("decay_v", np.int64),
        ("bias_u", np.int64),
        ("bias", np.int64),
        ("reset_value", np.int64),  # 0 for reset to zero
        ("v_min", np.int64),  # far below the state's range where there is no clamp
        ("refractory", np.int64),
        ("strict", np.bool_),
        ("fires", np.bool_),
        ("wraps", np.bool_),
        ("sleeps", np.bool_),  # without events it stays as it is when u and v are 0, and does not fire
        ("spikes", np.int8),  # BINARY, MULTI, BIPOLAR, GATED
        ("reset", np.int8),
        ("timing", np.int8),  # of the reset
        ("state_bits", np.int8),
        ("decay_bits", np.int8),
        ("shift", np.int8),
    ],
    align=True,
)


class Neurons(NamedTuple):
    """Parameters of n neurons; many neurons share few rules."""

    rule: np.ndarray  # RULE[rule]
    rule_of: np.ndarray  # int32[neuron]


class States(NamedTuple):
    """Mutable state of n neurons."""

    u: np.ndarray  # int64[neuron]
    v: np.ndarray  # int64[neuron]
    since: np.ndarray  # int64[neuron]: steps since the last spike; of GATED neurons LONG_AGO + their spikes so far


@inlined
def is_at_rest(p, i, s, k):
    """Whether neuron i (state k) has nothing to update but events: no bias, v = 0, and no u that outlasts the step."""
    r = p.rule[p.rule_of[i]]
    keeps_u = s.u[k] != 0 and r.decay_u < (np.int64(1) << r.decay_bits)
    return s.v[k] == 0 and r.bias == 0 and r.bias_u == 0 and not keeps_u


@inlined
def is_asleep(p, i, s, k):
    """Whether an update without events would change nothing in neuron i (state k) but the steps since its spike."""
    return s.u[k] == 0 and s.v[k] == 0 and p.rule[p.rule_of[i]].sleeps


@kernel
def decay(x, k, decay_bits):
    kept = (abs(x) * ((np.int64(1) << decay_bits) - k)) >> decay_bits
    return kept if x >= 0 else -kept


@kernel
def wrap(x, state_bits):
    half = np.int64(1) << (state_bits - 1)
    if x > half:
        return x - 2 * half
    if x <= -half:
        return x + 2 * half
    return x


@kernel
def saturate(x, state_bits):
    limit = (np.int64(1) << (state_bits - 1)) - 1
    return min(max(x, -limit), limit)


@kernel
def spike_count(v, threshold, strict, spikes):
    above = v > threshold if strict else v >= threshold
    if spikes == BIPOLAR:
        below = -v > threshold if strict else -v >= threshold
        return np.int64(1) if above else (np.int64(-1) if below else np.int64(0))
    if not above:
        return np.int64(0)
    return v // threshold if spikes == MULTI else np.int64(1)


@inlined
def step(p, i, s, j, x):
    """Update neuron i with state `s[j]` from the synaptic sum `x`; returns its spikes."""
    r = p.rule[p.rule_of[i]]
    strict, spikes, fires, reset, timing = r.strict, r.spikes, r.fires, r.reset, r.timing
    state_bits, threshold = np.int64(r.state_bits), r.threshold
    since = s.since[j] + 1
    frozen = since < r.refractory
    u = decay(s.u[j], r.decay_u, np.int64(r.decay_bits)) + ((x + r.bias_u) << np.int64(r.shift))
    u = wrap(u, state_bits) if r.wraps else saturate(u, state_bits)
    s.u[j] = u
    if frozen:
        s.since[j] = since
        return np.int64(0)
    before = spike_count(s.v[j], threshold, strict, spikes) if fires and timing != NOW else np.int64(0)
    v = decay(s.v[j], r.decay_v, np.int64(r.decay_bits))
    if timing == NEXT and before != 0 and reset in (RESET_ZERO, RESET_VALUE):
        v = r.reset_value
    v += u + r.bias
    if timing != NOW and reset == RESET_SUBTRACT:
        v -= before * threshold
    v = saturate(v, state_bits)
    count = spike_count(v, threshold, strict, spikes) if fires else np.int64(0)
    if spikes == GATED and v < 0 and s.since[j] > LONG_AGO:
        count = np.int64(-1)
    if timing != NEXT and fires:
        if reset == RESET_SUBTRACT:
            v -= (count - before if timing == BOTH else count) * threshold
        elif reset != RESET_NONE and count != 0:
            v = r.reset_value
    s.v[j] = saturate(max(v, r.v_min), state_bits)
    if spikes == GATED:
        s.since[j] += count
    else:
        s.since[j] = 0 if count != 0 else since
    return count


@kernel
def scan(p, drive, touched, spikes, u, v, updates, s):
    """Run one feed-forward layer over whole sequences of some samples.

    drive: int64[sample, step, neuron], touched: uint8 likewise -> spikes: int8 | int32 likewise;
    u, v: int64 likewise, or of 0 samples where not wanted; updates: int64[step, neuron] added to; s: scratch States.
    """
    n_samples, n_steps, n = drive.shape
    keep = u.shape[0] > 0
    for b in range(n_samples):
        s.u[:] = 0
        s.v[:] = 0
        s.since[:] = LONG_AGO
        for t in range(n_steps):
            for i in range(n):
                if touched[b, t, i] or not is_at_rest(p, i, s, i):
                    updates[t, i] += 1
                spikes[b, t, i] = step(p, i, s, i, drive[b, t, i])
                if keep:
                    u[b, t, i] = s.u[i]
                    v[b, t, i] = s.v[i]
