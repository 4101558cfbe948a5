"""Profile: where time went in a run of the cycle backend that was asked to look (`simulate(..., profile=True)`)."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Profile:
    """Times in core cycles, summed over samples; H hardware steps. The memory it takes does not grow with messages.

    `stall_cycles` float64[H, core]: the send side waited for room to inject (a shared unit that received meanwhile did
    not wait). `done_cycles` float64[H, core]: from the beginning of a step (of each phase) until the receive side, or
    the shared unit, had done its last work.

    `link_peak` int64[link], `link_mean` float64[link]: flits in the buffers that a link leads to, those on their way
    over the link included; the mean is over the time of all steps, barriers left out.

    `latency_cycles` int64[k] ascending, `latency_count` int64[k]: how many messages took so long from being ready to
    be injected until the receiving core took them; exact below 1024 cycles, above it up to 1/512 too long.
    `latency_sum` and `latency_max` are exact. Messages of input lines are at their core from the beginning.

    `path`: of the longest phase of each hardware step, what the core that finished last had been waiting for, by name
    [H]: `step`; `sample`; `core`; `source_layer`, the input or layer whose message began its last uninterrupted work,
    and `source`, the number of its line or neuron there ("" and -1: it worked, or waited for injections, from the
    beginning; "" and -2: it received input from the beginning); `link`, the busiest in this step of those that this
    message took, or, for -1, that the message of this core takes which waited longest to be injected (-1: none did);
    and float64 times: `total`; `ready`, when that message was ready; `stalled`, how long its core (for -1: this core)
    had waited for injections before; `injected`; `since`, when it was taken; `end`, when the work ended.

    `flight`: for each of the first steps of the first sample (as many as were asked for), float64[k, 2]: core cycles
    since the step's beginning, and flits in the network from then on (the most of a short while).
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
