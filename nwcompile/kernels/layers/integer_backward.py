"""Integer neurons over time with what a surrogate gradient needs, and the gradient back through them, in Numba.

Forward is `neuron.step`, so its spikes and states are those of the simulators. Backward is that of float neurons:
it goes straight through rounding, wrapping and saturation. A late reset (`NEXT`, `BOTH`) is a constant to it.
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

BIAS_U = 0  # The rows of the gradient sums: what each parameter of a layer has got from all samples and steps.
BIAS_V = 1
THRESHOLD = 2
KEEP_U = 3
KEEP_V = 4
N_SUMS = 5


class LayerUnits(NamedTuple):
    """The integer neurons of a layer in the float network's units."""

    unit: np.ndarray  # float32[neuron]: of one state unit
    drive: np.ndarray  # float32[neuron]: of one unit of synaptic sums
    threshold: np.ndarray  # float32[neuron]
    keep_u: np.ndarray  # float32[neuron]: of u in a step
    keep_v: np.ndarray  # float32[neuron]
    reset_value: np.ndarray  # float32[neuron]
    v_min: np.ndarray  # float32[neuron]: -infinity where there is no clamp


class ForwardTrace(NamedTuple):
    """What a forward pass keeps: `before` [sample, step, neuron], the others likewise or of 0 samples if not wanted."""

    before: np.ndarray  # float32: membrane when it was compared, NaN where the neuron was refractory
    late: np.ndarray  # float32: spikes that a late reset acted on
    after: np.ndarray  # float32: membrane at the end of the step
    current: np.ndarray  # float32: u


@inlined
def before_step(stored, start, variable, b, t, i):
    """u (variable 0) or v (1) of a neuron before step t: that of the step before, or of the start (none: 0)."""
    if t:
        return stored[b, t - 1, i]
    if start.shape[1]:
        return start[variable, b, i]
    return np.float32(0)


@inlined
def compared(rule, v, u, late):
    """The membrane that `step` compares, from v before the step, the new u and the spikes that stood before it."""
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
    """Run one layer over steps.

    drive: float32 | float64[sample, step, neuron] of whole numbers -> spikes: float32 likewise; state: int64[3,
    sample, neuron], u, v and since as in `States`, left as they are after the last step; u, v: int64 like drive, or
    of 0 samples where not wanted; scratch: States of one sample.
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
                trace.before[b, t, i] = nan if frozen else compared(rule, old, scratch.u[i], late) * unit[i]
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

    kind: (spikes, reset, timing) of `neuron`; detaches: no gradient through a reset; of_spikes, slope (of a spike
    by the membrane), spikes: float32[sample, step, neuron]; of_after likewise or of 0 samples; start: float32[2,
    sample, neuron], u and v before the first step, or of 0 samples if they were 0 -> of_drive: float32 like of_spikes;
    of_state: float32[2, sample, neuron], in: of the last state, out: of the first; sums: float64[N_SUMS, neuron] added
    to.
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
                        sums[KEEP_V, i] += keeps * g_m * before_step(trace.after, start, 1, b, t, i)
                    of_state[1, b, i] = keeps * units.keep_v[i] * g_m
                g_u = of_state[0, b, i] + g_m
                sums[BIAS_U, i] += g_u
                if learns_keep:
                    sums[KEEP_U, i] += g_u * before_step(trace.current, start, 0, b, t, i)
                of_drive[b, t, i] = g_u * units.drive[i]
                of_state[0, b, i] = units.keep_u[i] * g_u
