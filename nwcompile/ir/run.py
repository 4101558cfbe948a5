"""Run: what simulating gave, and which backend and device gave it."""

from dataclasses import dataclass, field

import numpy as np

from nwcompile.ir.activity import Activity

COUNTERS = (
    "synops",  # stored weights read for messages, counted at the reading core
    "synops_dense",
    "synops_sparse",
    "synops_conv",
    "weight_reads",  # synapse-memory words read
    "neuron_visits",  # every mapped neuron, every hardware step (phase)
    "neuron_updates",  # neurons with an event, a bias, or state that is not zero
    "spikes_out",
    "messages_out",  # one per spike and destination core
    "messages_in",  # in-axon look-ups: messages of other neurons and of input lines
    "deliveries",
    "hops",  # route length of the messages, counted at the source core
    "hops_ew",
    "hops_ns",
)


@dataclass(frozen=True, eq=False)
class Run:
    """Aligned `spikes` and `states` `[B, T, *shape]`, `counters` int64[H, core] per hardware step, summed over B.

    `output`: of the output layer (a dict of them if there are several), spikes, or the membrane `v` of a readout.
    `step_cycles` int64[H], in core cycles, summed over B, `seconds` and `energy_pj` are None where the backend or the
    chip does not give them. In `window="hardware"` step t of every array is hardware step t. Float networks have
    empty `counters`.
    """

    backend: str
    device: str
    window: str
    n_samples: int
    spikes: dict[str, np.ndarray]
    states: dict[str, dict[str, np.ndarray]]
    output: np.ndarray | dict[str, np.ndarray]
    counters: dict[str, np.ndarray] = field(default_factory=dict)
    step_cycles: np.ndarray | None = None
    seconds: float | None = None
    energy_pj: dict[str, float] | None = None
    activity: Activity | None = None
    link_flits: np.ndarray | None = None  # int64[H, link], measured by `cycle`
    n_dropped: int = 0
