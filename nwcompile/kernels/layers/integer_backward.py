"""Integer neurons over time with a trace for surrogate gradients, and their gradient, in Numba.

The forward pass uses `neuron.step`, so spikes and states equal those of the simulators. The backward pass is that of
float neurons, with a straight-through gradient of rounding, wrapping and saturation. A late reset (`NEXT`, `BOTH`) is a
constant in it.
"""

from math import isnan, nan
from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.neuron import (
    BIPOLAR,
    BOTH,
    NEXT,
    NOW,
    RESET_NONE,
    RESET_SUBTRACT,
    RESET_VALUE,
    RESET_ZERO,
    decay,
    limit_v,
    shifted_membrane,
    spike_count,
    step,
)
from nwcompile.kernels.jit import inlined, kernel

BIAS_U = 0  # Rows of the gradient sums: the gradient of each parameter, over all samples and steps.
BIAS_V = 1
THRESHOLD = 2
KEEP_U = 3
KEEP_V = 4
N_SUMS = 5


class LayerUnits(NamedTuple):
    """Units and parameters of a layer's integer neurons in the float network's units."""

    unit: np.ndarray  # float32[neuron]: one state unit
    drive: np.ndarray  # float32[neuron]: one unit of synaptic sums
    threshold: np.ndarray  # float32[neuron]
    keep_u: np.ndarray  # float32[neuron]: fraction of u that a step keeps
    keep_v: np.ndarray  # float32[neuron]
    reset_value: np.ndarray  # float32[neuron]
    v_min: np.ndarray  # float32[neuron]: -infinity if there is no clamp


class ForwardTrace(NamedTuple):
    """Trace of a forward pass: `before` is [sample, step, neuron]; the others too, or of 0 samples if not wanted."""

    before: np.ndarray  # float32: membrane before the threshold, NaN in the refractory period
    late: np.ndarray  # float32: spikes that cause a late reset
    after: np.ndarray  # float32: membrane at the end of the step
    current: np.ndarray  # float32: u


@inlined
def state_before_step(stored, start, variable, b, t, i):
    """u (variable 0) or v (1) of a neuron before step t: after the last step, or at the start (0 if not given)."""
    if t:
        return stored[b, t - 1, i]
    if start.shape[1]:
        return start[variable, b, i]
    return np.float32(0)


@inlined
def charge_membrane(rule, v, u, late):
    """The membrane before the threshold in `step`, from v before the step, the new u and the spikes of a late reset."""
    if rule.shifts:
        return shifted_membrane(v, u, late, rule)
    leaked = decay(v, rule.decay_v, np.int64(rule.decay_bits))
    if rule.timing == NEXT and late != 0 and rule.reset in (RESET_ZERO, RESET_VALUE):
        leaked = rule.reset_value
    leaked += u + rule.bias
    if rule.timing != NOW and rule.reset == RESET_SUBTRACT:
        leaked -= late * rule.threshold
    return limit_v(leaked, rule)


@kernel
def integer_forward(neurons, drive, state, unit, spikes, trace, u, v, scratch):
    """Run one layer over the steps of all samples.

    drive: float32 | float64[sample, step, neuron] of integers -> spikes: float32 likewise; state: int64[3,
    sample, neuron], u, v and since as in `States`, updated to the last step; u, v: int64 like drive, or
    of 0 samples if not wanted; scratch: States of one sample.
    """
    n_samples, n_steps, n = drive.shape
    for b in range(n_samples):
        for i in range(n):
            scratch.u[i], scratch.v[i], scratch.since[i] = state[0, b, i], state[1, b, i], state[2, b, i]
        for t in range(n_steps):
            for i in range(n):
                rule = neurons.rule[neurons.rule_of[i]]
                old, frozen = scratch.v[i], scratch.since[i] + 1 < rule.refractory
                count = step(neurons, i, scratch, i, np.int64(drive[b, t, i]))
                late = np.int64(0)
                if rule.fires and rule.timing != NOW:
                    late = min(spike_count(old, rule.threshold, rule.strict, rule.spikes), rule.max_spikes)
                spikes[b, t, i] = count
                trace.before[b, t, i] = nan if frozen else charge_membrane(rule, old, scratch.u[i], late) * unit[i]
                if trace.late.shape[0]:
                    trace.late[b, t, i] = late
                if trace.after.shape[0]:
                    trace.after[b, t, i] = scratch.v[i] * unit[i]
                if trace.current.shape[0]:
                    trace.current[b, t, i] = scratch.u[i] * unit[i]
                if u.shape[0]:
                    u[b, t, i], v[b, t, i] = scratch.u[i], scratch.v[i]
        for i in range(n):
            state[0, b, i], state[1, b, i], state[2, b, i] = scratch.u[i], scratch.v[i], scratch.since[i]


@kernel
def integer_backward(units, kind, detaches, of_spikes, of_after, slope, spikes, trace, start, of_state, of_drive, sums):
    """The gradient of `integer_forward`, in the float network's units; `of_drive` is per unit of synaptic sums.

    kind: (spikes, reset, timing) of `neuron`; detaches: no gradient through a reset. of_spikes, slope (of a spike over
    the membrane), spikes: float32[sample, step, neuron]; of_after: likewise or of 0 samples; start: float32[2, sample,
    neuron], u and v before the first step, or of 0 samples if they were 0 -> of_drive: float32 like of_spikes;
    of_state: float32[2, sample, neuron], in: gradient of the last state, out: of the first; sums: float64[N_SUMS,
    neuron], added to.
    """
    counts, reset, timing = kind
    n_samples, n_steps, n = of_spikes.shape
    learns_keep = trace.after.shape[0] > 0 and trace.current.shape[0] > 0
    for b in range(n_samples):
        for back in range(n_steps):
            t = n_steps - 1 - back
            for i in range(n):
                g_v = of_state[1, b, i]
                if of_after.shape[0]:
                    g_v += of_after[b, t, i]
                m, g_m = trace.before[b, t, i], np.float32(0)
                if isnan(m):
                    of_state[1, b, i] = g_v
                else:
                    count, late = spikes[b, t, i], np.float32(0)
                    if trace.late.shape[0]:
                        late = trace.late[b, t, i]
                    g_s, g_threshold, theta = of_spikes[b, t, i], np.float32(0), units.threshold[i]
                    after, g_m = m, g_v
                    if timing != NEXT and reset == RESET_SUBTRACT:
                        after = m - (count - late if timing == BOTH else count) * theta
                    elif timing == NOW and reset != RESET_NONE and count != 0:
                        after = units.reset_value[i]
                    if after < units.v_min[i]:
                        g_v = g_m = np.float32(0)
                    if timing != NEXT and reset == RESET_SUBTRACT:
                        g_threshold -= (count - late if timing == BOTH else count) * g_v
                        if not detaches:
                            g_s -= g_v * theta
                    elif timing == NOW and reset != RESET_NONE:
                        if not detaches:
                            g_s += g_v * (units.reset_value[i] - m)
                        if count != 0:
                            g_m = np.float32(0)
                    g_m += g_s * slope[b, t, i]
                    sign = np.float32(-1) if counts == BIPOLAR and m < 0 else np.float32(1)
                    g_threshold -= sign * g_s * slope[b, t, i]
                    keeps = np.float32(1)
                    if timing != NOW and reset == RESET_SUBTRACT:
                        g_threshold -= late * g_m
                    elif timing == NEXT and reset != RESET_NONE and late != 0:
                        keeps = np.float32(0)
                    sums[THRESHOLD, i] += g_threshold
                    sums[BIAS_V, i] += g_m
                    if learns_keep:
                        sums[KEEP_V, i] += keeps * g_m * state_before_step(trace.after, start, 1, b, t, i)
                    of_state[1, b, i] = keeps * units.keep_v[i] * g_m
                g_u = of_state[0, b, i] + g_m
                sums[BIAS_U, i] += g_u
                if learns_keep:
                    sums[KEEP_U, i] += g_u * state_before_step(trace.current, start, 0, b, t, i)
                of_drive[b, t, i] = g_u * units.drive[i]
                of_state[0, b, i] = units.keep_u[i] * g_u
