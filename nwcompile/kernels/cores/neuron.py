"""The fixed-point neuron update and its scan over time, in Numba, with the rules and names of `ir/arithmetic.py`."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined, kernel

# RULE.reset: effect of a spike on v; numbered as `ir.neuron.RESETS`.
RESET_ZERO, RESET_VALUE, RESET_SUBTRACT, RESET_NONE = range(4)
# RULE.timing: whether the reset acts in the step of the spike, in the next step, or half in each.
NOW, NEXT, BOTH = range(3)
# RULE.spikes: kind of output in a step; numbered as `ir.neuron.SPIKES`.
BINARY, MULTI, BIPOLAR, GATED = range(4)
# RULE.overflow: overflow of u; numbered as `ir.neuron.OVERFLOWS`. The last two also apply to v.
WRAP, SATURATE, MODULO, CLIP = range(4)
LONG_AGO = 1 << 30  # Steps since the last spike if there was none: above any refractory period, far below overflow.


RULE = np.dtype(
    [
        ("threshold", np.int64),
        ("decay_u", np.int64),
        ("decay_v", np.int64),
        ("bias_u", np.int64),
        ("bias", np.int64),
        ("reset_value", np.int64),  # 0 for reset to zero
        ("v_min", np.int64),  # far below the range of v if there is no clamp
        ("refractory", np.int64),
        ("max_spikes", np.int64),  # maximum spikes per step of MULTI
        ("strict", np.bool_),
        ("fires", np.bool_),
        ("floor_resets", np.bool_),  # below v_min the membrane is reset instead of clamped
        ("shifts", np.bool_),  # decays are right shifts
        ("sleeps", np.bool_),  # without events, a neuron with u = v = 0 is unchanged and does not fire
        ("spikes", np.int8),  # BINARY, MULTI, BIPOLAR, GATED
        ("reset", np.int8),
        ("timing", np.int8),  # of the reset: NOW, NEXT, BOTH
        ("overflow", np.int8),
        ("state_bits", np.int8),
        ("decay_bits", np.int8),
        ("shift", np.int8),
    ],
    align=True,
)


class Neurons(NamedTuple):
    """Parameters of n neurons; many neurons share one rule."""

    rule: np.ndarray  # RULE[rule]
    rule_of: np.ndarray  # int32[neuron]


class States(NamedTuple):
    """Mutable state of n neurons."""

    u: np.ndarray  # int64[neuron]
    v: np.ndarray  # int64[neuron]
    since: np.ndarray  # int64[neuron]: steps since the last spike; of GATED neurons LONG_AGO + number of spikes


@inlined
def is_at_rest(neurons, i, states, k):
    """Whether neuron i (state k) changes only by events: no bias, v = 0, and u does not outlast the step."""
    rule = neurons.rule[neurons.rule_of[i]]
    fastest = np.int64(0) if rule.shifts else np.int64(1) << rule.decay_bits
    keeps_u = states.u[k] != 0 and rule.decay_u != fastest
    return states.v[k] == 0 and rule.bias == 0 and rule.bias_u == 0 and not keeps_u


@inlined
def is_asleep(neurons, i, states, k):
    """Whether an update without events would change only `since` of neuron i (state k)."""
    return states.u[k] == 0 and states.v[k] == 0 and neurons.rule[neurons.rule_of[i]].sleeps


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


@inlined
def clip(x, state_bits):
    half = np.int64(1) << (state_bits - 1)
    return min(max(x, -half), half - 1)


@inlined
def shift_lost(x, k):
    lost = x >> k
    return lost if lost != 0 else np.int64(x > 0)


@inlined
def shifted_current(u, drive, rule):
    """The current u after adding the synaptic sum and decaying by a shift."""
    u = clip(u + drive, np.int64(rule.state_bits))
    return u - shift_lost(u, rule.decay_u)


@inlined
def shifted_membrane(v, u, late, rule):
    """The membrane before the threshold, with decays by shifts: every addition saturates.

    late: spikes of the membrane before the step, for a late reset.
    """
    bits = np.int64(rule.state_bits)
    half = np.int64(1) << (bits - 1)
    lost = shift_lost(v, rule.decay_v)
    if rule.timing == NEXT and late != 0 and rule.reset in (RESET_ZERO, RESET_VALUE):
        v, lost = rule.reset_value, np.int64(0)
    change = lost if lost == -half else -lost  # the lowest number is its own negative
    v = clip(v + clip(clip(change + u, bits) + rule.bias, bits), bits)
    if rule.timing != NOW and rule.reset == RESET_SUBTRACT:
        v = clip(v - late * rule.threshold, bits)
    return v


@kernel
def modulo(x, state_bits):
    half = np.int64(1) << (state_bits - 1)
    return ((x + half) & (2 * half - 1)) - half


@kernel
def limit_v(v, rule):
    """v after overflow of its register."""
    if rule.overflow == MODULO:
        return modulo(v, np.int64(rule.state_bits))
    if rule.overflow == CLIP:
        return clip(v, np.int64(rule.state_bits))
    return saturate(v, np.int64(rule.state_bits))


@inlined
def limit_u(u, rule):
    """u after overflow of its register."""
    return wrap(u, np.int64(rule.state_bits)) if rule.overflow == WRAP else limit_v(u, rule)


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
def step(neurons, i, states, j, x):
    """Update neuron i with state j by the synaptic sum `x`; returns its spikes."""
    rule = neurons.rule[neurons.rule_of[i]]
    strict, spikes, fires, reset, timing = rule.strict, rule.spikes, rule.fires, rule.reset, rule.timing
    threshold = rule.threshold
    since = states.since[j] + 1
    frozen = since < rule.refractory
    u = (x + rule.bias_u) << np.int64(rule.shift)
    if rule.shifts:
        u = shifted_current(states.u[j], u, rule)
    else:
        u = limit_u(decay(states.u[j], rule.decay_u, np.int64(rule.decay_bits)) + u, rule)
    states.u[j] = u
    if frozen:
        states.since[j] = since
        return np.int64(0)
    before = spike_count(states.v[j], threshold, strict, spikes) if fires and timing != NOW else np.int64(0)
    before = min(before, rule.max_spikes)
    if rule.shifts:
        v = shifted_membrane(states.v[j], u, before, rule)
    else:
        v = decay(states.v[j], rule.decay_v, np.int64(rule.decay_bits))
        if timing == NEXT and before != 0 and reset in (RESET_ZERO, RESET_VALUE):
            v = rule.reset_value
        v += u + rule.bias
        if timing != NOW and reset == RESET_SUBTRACT:
            v -= before * threshold
        v = limit_v(v, rule)
    count = spike_count(v, threshold, strict, spikes) if fires else np.int64(0)
    count = min(count, rule.max_spikes)
    if spikes == GATED and v < 0 and states.since[j] > LONG_AGO:
        count = np.int64(-1)
    if timing != NEXT and fires:
        if reset == RESET_SUBTRACT:
            v -= (count - before if timing == BOTH else count) * threshold
        elif reset != RESET_NONE and count != 0:
            v = rule.reset_value
    if not rule.floor_resets:
        v = max(v, rule.v_min)
    elif count == 0 and v < rule.v_min:
        v = v - rule.v_min if reset == RESET_SUBTRACT else -rule.reset_value
    states.v[j] = limit_v(v, rule)
    if spikes == GATED:
        states.since[j] += count
    else:
        states.since[j] = 0 if count != 0 else since
    return count


@kernel
def scan(neurons, drive, touched, spikes, u, v, updates, states, first_step):
    """Run a feed-forward layer over the sequences of some samples, each from cleared state.

    If `first_step` is not 0: over further steps of one sample, from the `states` of the last call.

    drive: int64[sample, step, neuron], touched: uint8 likewise -> spikes: int8 | int32 likewise;
    u, v: int64 likewise, or of 0 samples if not wanted; updates: int64[step, neuron] added to; states: scratch.
    """
    n_samples, n_steps, n = drive.shape
    keep = u.shape[0] > 0
    for b in range(n_samples):
        if first_step == 0:
            states.u[:] = 0
            states.v[:] = 0
            states.since[:] = LONG_AGO
        for t in range(n_steps):
            for i in range(n):
                if touched[b, t, i] or not is_at_rest(neurons, i, states, i):
                    updates[t, i] += 1
                spikes[b, t, i] = step(neurons, i, states, i, drive[b, t, i])
                if keep:
                    u[b, t, i] = states.u[i]
                    v[b, t, i] = states.v[i]
