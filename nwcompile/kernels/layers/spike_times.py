"""Neurons in continuous time: their spike times, and the adjoint of these times, in Numba.

A neuron has a membrane, tau_mem v' = i - v, and a current, tau_syn i' = -i, to which an arriving spike adds its weight.
When v reaches the threshold, the neuron spikes and v becomes 0. Between two events both have a closed form, so a spike
time is the root of one function. The adjoint goes backward over the same events (EventProp: T. Wunderlich, C. Pehle,
Event-based backpropagation can compute exact gradients for spiking neural networks, Scientific Reports 11, 12829, 2021,
equations 3 to 7; the gradient of a delay is that of the arrival, as in DelGrad: J. Göltz et al., Nature Communications
16, 2025). It needs the spike times and the currents at them, but no state of any step.
"""

from math import exp, expm1, inf, log1p
from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import compiled, inlined

MOST_ITERATIONS = 100  # Newton's method needs about five; bisection of a float64 bracket never needs more.
MOST_COUNTED = 100_000  # Limit for huge weights, with which a neuron would spike for hours.
PRECISION = 4e-16  # Two units in the last place of a time: no step of Newton's method gets closer.


class Membrane(NamedTuple):
    """Parameters that all neurons of a layer share; time ends at `t_end`; with `once` a neuron spikes at most once."""

    tau_mem: float
    tau_syn: float
    threshold: float
    t_end: float
    once: bool


@inlined
def response(dt, membrane):
    """v at `dt` after a current of 1 began at v = 0; one expression for all time constants, also equal ones.

    All exponents are negative, so long times do not overflow.
    """
    slow, fast = max(membrane.tau_mem, membrane.tau_syn), min(membrane.tau_mem, membrane.tau_syn)
    x = dt * (fast - slow) / (fast * slow)
    ratio = expm1(x) / x if x != 0.0 else 1.0
    return exp(-dt / slow) * (dt / membrane.tau_mem) * ratio


@inlined
def factors(dt, membrane):
    """Decay factors of v and of i over `dt`, and the factor of i that is added to v."""
    return exp(-dt / membrane.tau_mem), exp(-dt / membrane.tau_syn), response(dt, membrane)


@inlined
def voltage(v, i, dt, membrane):
    """v after `dt`, from `v` and the current `i`."""
    return v * exp(-dt / membrane.tau_mem) + i * response(dt, membrane)


@inlined
def time_to_threshold(v, i, longest, membrane):
    """Time until `v`, below the threshold, first reaches it with the current `i`; inf if not within `longest`.

    The membrane rises while it is below the current, and has at most one maximum.
    """
    threshold = membrane.threshold
    if i <= threshold:
        return inf
    ratio = membrane.tau_syn / membrane.tau_mem
    q = (1.0 - v / i) * (1.0 - ratio)
    if q >= 1.0:  # v rises forever, from below 0 towards 0
        return inf
    peak = membrane.tau_syn * (-log1p(-q) / (1.0 - ratio) if ratio != 1.0 else 1.0 - v / i)
    high = min(peak, longest)
    if voltage(v, i, high, membrane) < threshold:
        return inf
    low, dt = 0.0, 0.5 * high
    for _ in range(MOST_ITERATIONS):
        here = voltage(v, i, dt, membrane)
        low, high = (dt, high) if here < threshold else (low, dt)
        slope = (i * exp(-dt / membrane.tau_syn) - here) / membrane.tau_mem
        after = dt - (here - threshold) / slope if slope > 0.0 else low
        if not low < after < high:
            after = 0.5 * (low + high)
        if abs(after - dt) <= PRECISION * after:
            return after
        dt = after
    return dt


@inlined
def propagate_back(of_v, of_i, steps):
    """Adjoints of v and i before an interval between two events, from those after it, with the interval's `factors`."""
    of_mem, of_syn, gain = steps
    return of_v * of_mem, of_i * of_syn + of_v * gain


@compiled()
def order_arrivals(at, of, delay):
    """Arrival times of a sample's spikes at a neuron with these delays [n_in], and their order."""
    arrival = at + delay[of]
    return arrival, np.argsort(arrival, kind="mergesort")


@compiled()
def factors_between(at, membrane):
    """`factors` of the intervals before each of these spikes and up to the end, float64[event + 1, 3]."""
    between, t = np.empty((len(at) + 1, 3)), 0.0
    for k in range(len(at) + 1):
        until = at[k] if k < len(at) else membrane.t_end
        between[k, 0], between[k, 1], between[k, 2] = factors(until - t, membrane)
        t = until
    return between


@inlined
def factors_of_interval(k, between):
    """`factors` of the interval before spike k."""
    return between[k, 0], between[k, 1], between[k, 2]


@compiled()
def spike_times(time, source, first, weight, delay, membrane, spikes, current):
    """Compute the spikes of every neuron and its currents at them; returns the largest number of spikes of a neuron.

    time: float64[event], source: int64[event]: events first[b] to first[b + 1] of sample b, ordered by time, before
    t_end; first: int64[B + 1]; weight: float64[n_out, n_in]; delay: float64[n_out, n_in], or [0, 0] for no delays.
    Outputs spikes: float64[B, n_out, S], inf for no spike, and current likewise. Spikes of a neuron beyond S are
    counted but not stored; a neuron with MOST_COUNTED spikes ends the computation.

    Without delays all neurons of a sample have the same events, so exponentials are computed once for all of them.
    """
    n_samples, n_out, n_kept = spikes.shape
    n_largest = 0
    for b in range(n_samples):
        at, of = time[first[b] : first[b + 1]], source[first[b] : first[b + 1]]
        arrival, order, between = at, np.arange(len(at)), factors_between(at, membrane)
        for j in range(n_out):
            if len(delay):
                arrival, order = order_arrivals(at, of, delay[j])
            t, v, i, n = 0.0, 0.0, 0.0, 0
            for k in range(len(at) + 1):
                until = min(arrival[order[k]], membrane.t_end) if k < len(at) else membrane.t_end
                of_mem, of_syn, gain = factors(until - t, membrane) if len(delay) else factors_of_interval(k, between)
                v_after, i_after = v * of_mem + i * gain, i * of_syn
                # Below the threshold and below its current, v has risen all the time and has not crossed.
                if v_after >= membrane.threshold or v_after >= i_after:
                    dt = time_to_threshold(v, i, until - t, membrane)
                    while dt != inf:
                        t = min(t + dt, until)
                        i *= exp(-dt / membrane.tau_syn)
                        if n < n_kept:
                            spikes[b, j, n], current[b, j, n] = t, i
                        n += 1
                        if n == MOST_COUNTED:
                            return n
                        v_after, i_after = (
                            voltage(0.0, i, until - t, membrane),
                            i * exp(-(until - t) / membrane.tau_syn),
                        )
                        dt = time_to_threshold(0.0, i, until - t, membrane) if not membrane.once else inf
                t, v, i = until, v_after, i_after
                if t >= membrane.t_end or (n > 0 and membrane.once):
                    break
                i += weight[j, of[order[k]]]
            n_largest = max(n_largest, n)
    return n_largest


@compiled()
def spike_time_adjoint(
    time, source, first, weight, delay, membrane, spikes, current, grad_spikes, grad_weight, grad_delay, grad_time
):
    """Gradients of weights, delays and arrival times, from the gradients of these neurons' spike times.

    The inputs are those of `spike_times`, with its outputs and grad_spikes: float64[B, n_out, S]. Added to, in the
    order of the samples: grad_weight: float64[n_out, n_in], grad_delay: as `delay`, grad_time: float64[event].
    """
    n_samples, n_out, n_kept = spikes.shape
    for b in range(n_samples):
        at, of = time[first[b] : first[b + 1]], source[first[b] : first[b + 1]]
        arrival, order, between = at, np.arange(len(at)), factors_between(at, membrane)
        for j in range(n_out):
            if len(delay):
                arrival, order = order_arrivals(at, of, delay[j])
            n_spikes = 0
            while n_spikes < n_kept and spikes[b, j, n_spikes] != inf:
                n_spikes += 1
            # Adjoints of v and i just after time t; after the last spike both are 0.
            of_v, of_i, n = 0.0, 0.0, n_spikes
            t = spikes[b, j, n - 1] if n > 0 else 0.0
            for k in range(len(at) - 1, -1, -1):
                arrived = arrival[order[k]]
                while n > 0 and spikes[b, j, n - 1] > arrived:
                    n -= 1
                    i = current[b, j, n]
                    of_v, of_i = propagate_back(of_v, of_i, factors(t - spikes[b, j, n], membrane))
                    of_v = (of_v * i - grad_spikes[b, j, n] * membrane.tau_mem) / (i - membrane.threshold)
                    t = spikes[b, j, n]
                if n < n_spikes:
                    if len(delay) == 0 and k + 1 < len(at) and t == at[k + 1]:
                        of_v, of_i = propagate_back(of_v, of_i, factors_of_interval(k + 1, between))
                    else:
                        of_v, of_i = propagate_back(of_v, of_i, factors(t - arrived, membrane))
                    t = arrived
                    pre = of[order[k]]
                    later = weight[j, pre] * (of_i / membrane.tau_syn - of_v / membrane.tau_mem)
                    grad_weight[j, pre] += of_i
                    grad_time[first[b] + order[k]] += later
                    if len(delay):
                        grad_delay[j, pre] += later
