"""Profile: time breakdown of a run of the cycle backend (`simulate(..., profile=True)`)."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Profile:
    """Times in core cycles, summed over samples, for H hardware steps. Memory does not grow with messages.

    `stall_cycles` float64[H, core]: time that the send side waited for room to inject. A shared unit that receives
    meanwhile does not wait. `done_cycles` float64[H, core]: time from the beginning of a step (of each phase) until the
    receive side, or the shared unit, finished its last work.

    `link_peak` int64[link], `link_mean` float64[link]: flits in the buffers at the end of a link, including those on
    the link. The mean is over the time of all steps without barriers.

    `latency_cycles` int64[k] ascending, `latency_count` int64[k]: histogram of the time from a message being ready for
    injection until the receiving core takes it; exact below 1024 cycles, above it up to 1/512 too long. `latency_sum`
    and `latency_max` are exact. Messages of input lines are at their core from the beginning.

    `path`: the critical path of each hardware step, for the core that finished last in the longest phase. By name, [H]:
    `step`; `sample`; `core`; `source_layer`, the input or layer whose message began the core's last uninterrupted work,
    and `source`, the index of its line or neuron there ("" and -1: the core worked, or waited for injections, from the
    beginning; "" and -2: it received input from the beginning). `link` is the link of this message's route that is
    busiest in the step. For source -1 it is taken from the route of this core's message that waited longest to be
    injected (-1: none waited). The times are float64: `total`; `ready`, when the message was ready; `stalled`, how long
    its core (for -1: this core) had waited for injections before; `injected`; `since`, when the message was taken;
    `end`, when the work ended.

    `flight`: for each of the requested first steps of the first sample, float64[k, 2]: core cycles since the beginning
    of the step, and flits in the network from then on (the maximum over a short interval).
    """

    stall_cycles: np.ndarray
    done_cycles: np.ndarray
    link_peak: np.ndarray
    link_mean: np.ndarray
    latency_cycles: np.ndarray
    latency_count: np.ndarray
    latency_sum: int
    latency_max: int
    path: dict[str, np.ndarray]
    flight: tuple[np.ndarray, ...] = ()
