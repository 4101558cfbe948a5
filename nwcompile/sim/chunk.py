"""Chunk: one piece of a stream's result, with its complete aligned steps and its hardware steps."""

from dataclasses import dataclass, field

import numpy as np

from nwcompile.ir.run import BusSchedule, Dropped
from nwcompile.ir.shown import count_text, format_lines


@dataclass(frozen=True, eq=False)
class Chunk:
    """A part of the Run of one sample. Concatenated, the arrays of all chunks are the arrays of the Run.

    `spikes`, `states` and `output` `[1, k, *shape]` cover k aligned steps from `first_step` on, which every layer has
    finished; k may be 0. `counters` int64[n, core], `step_cycles`, `step_energy_pj` and `link_flits` cover n hardware
    steps from `first_hardware_step` on, and are None where they are None in a Run. A network that is not compiled has
    no hardware steps.
    """

    backend: str
    first_step: int
    first_hardware_step: int
    spikes: dict[str, np.ndarray]
    states: dict[str, dict[str, np.ndarray]]
    output: np.ndarray | dict[str, np.ndarray]
    counters: dict[str, np.ndarray] = field(default_factory=dict)
    step_cycles: np.ndarray | None = None
    step_energy_pj: dict[str, np.ndarray] | None = None
    link_flits: np.ndarray | None = None
    dropped: Dropped | None = None
    bus: BusSchedule | None = None

    @property
    def n_steps(self) -> int:
        """Number of aligned steps."""
        return next(iter(self.spikes.values())).shape[1]

    @property
    def n_hardware_steps(self) -> int:
        """Number of hardware steps."""
        return len(self.counters.get("synops", ()))

    def __repr__(self) -> str:
        steps, hardware = count_text(self.n_steps, "aligned step"), count_text(self.n_hardware_steps, "hardware step")
        head = f"Chunk ({self.backend}): {steps} from {self.first_step}, {hardware} from {self.first_hardware_step}"
        spikes = {name: int(np.abs(s, dtype=np.int64).sum()) for name, s in self.spikes.items()}
        return format_lines(head, [f"layer {name}: {count_text(n, 'spike')}" for name, n in spikes.items()], "layers")
