"""Rows: hardware steps of a stream, and their conversion to the aligned steps of each layer."""

from typing import Any, NamedTuple

import numpy as np

from nwcompile.cost.energy import step_energy_pj
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.ir.activity import Activity
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule


class Rows(NamedTuple):
    """Results of some hardware steps. `measured`: fields of a Chunk that not every backend has."""

    spikes: dict[str, np.ndarray]  # by layer, [1, row, *shape]
    states: dict[str, dict[str, np.ndarray]]  # by layer and state name, [1, row, *shape]; recorded layers only
    counters: dict[str, np.ndarray]  # int64[row, core]
    measured: dict[str, Any]


def layer_offsets(schedule: Schedule, window: str = "aligned") -> dict[str, int]:
    """Return the hardware steps by which the recorded steps of each layer and input are late."""
    is_late = schedule.period == 1 and window == "aligned"
    return schedule.offset if is_late else dict.fromkeys(schedule.offset, 0)


def kept_layers(network: Network, keep_states: bool) -> list[str]:
    """Return the layers whose states are recorded: all, or those that never fire."""
    return [name for name in network.layers if keep_states or not network.node(name).neuron.fires]


def build_activity(program: Program, inputs: dict, spikes: dict) -> Activity:
    """Build the Activity of rows: counts by hardware step."""
    return Activity.from_spikes(program.network, {**inputs, **spikes}, program.repeats)


def energy_per_row(program: Program, counters: dict, activity: Activity) -> dict[str, np.ndarray] | None:
    """Return the energy of every row, for a backend that measures no times."""
    flits = None if program.chip.energy.chip_link_pj is None else link_flits(program, activity, "hardware")
    return step_energy_pj(counters, program.chip, flits)


class Late:
    """A delay line for rows [1, n, ...]. The first `n_late` rows that it returns are zeros."""

    def __init__(self, n_late: int, shape: tuple[int, ...], dtype):
        self.waiting = np.zeros((1, n_late, *shape), dtype)

    def push_rows(self, rows: np.ndarray) -> np.ndarray:
        """Push rows into the delay line; return the rows of `n_late` steps ago."""
        line = np.concatenate([self.waiting, rows], 1)
        self.waiting = line[:, rows.shape[1] :].copy()
        return line[:, : rows.shape[1]]


class Aligned:
    """Converts the rows of a layer that is `n_late` steps late to consecutive aligned steps."""

    def __init__(self, n_late: int, shape: tuple[int, ...], dtype):
        self.n_skipped = n_late
        self.waiting = np.zeros((1, 0, *shape), dtype)

    def take_steps(self, rows: np.ndarray, n_complete: int) -> np.ndarray:
        """Append rows; return the next `n_complete` aligned steps, and keep the rest for later."""
        skipped = min(self.n_skipped, rows.shape[1])
        self.n_skipped -= skipped
        line = np.concatenate([self.waiting, rows[:, skipped:]], 1)
        self.waiting = line[:, n_complete:].copy()
        return line[:, :n_complete]
