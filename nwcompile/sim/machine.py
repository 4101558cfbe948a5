"""Machine: a model on a backend, with a state and `advance`. Run modes are written once over it.

`runs.py` has whole runs, with or without a checkpoint, and `session.py` streams. A row is a hardware step, or an
aligned step on backends that compute those.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from nwcompile.checkpoint import Recorded
from nwcompile.ir.activity import Activity
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule

NO_END = 1 << 62  # More steps than any stream has.


class Rows(NamedTuple):
    """Results of consecutive rows."""

    spikes: dict[str, np.ndarray]  # by layer, [B, row, *shape]
    states: dict[str, dict[str, np.ndarray]]  # by layer and state name, [B, row, *shape]; recorded layers only
    counts: dict[str, np.ndarray]  # int64[row, ...], summed over samples; those named "peaks" are maxima

    def by_row(self, late: dict[str, range]) -> dict[str, Recorded]:
        """Return views of all arrays by kind and name, [row, ...]; those of each layer are `late` by some rows."""
        arrays = {f"counts/{name}": Recorded(a) for name, a in self.counts.items()}
        for name, a in self.spikes.items():
            arrays |= split_late(f"spikes/{name}", flatten_neurons(a).swapaxes(0, 1), late[name])
        for name, states in self.states.items():
            for state, a in states.items():
                arrays |= split_late(f"states/{name}/{state}", flatten_neurons(a).swapaxes(0, 1), late[name])
        return arrays


class State(Protocol):
    """Samples between two rows."""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next row depends on, except its number."""


class Machine(Protocol):
    """A model on a backend, for runs of `n_steps` aligned steps, or for a stream."""

    backend: str
    device: str
    window: str
    recorded: list[str]  # layers whose states are recorded
    late: dict[str, range]  # rows by which aligned step 0 of neurons 0, 1, ... of each layer is late, repeated
    n_rows: int  # rows of a run; NO_END for a stream
    least_rows: int  # rows of a run that must be simulated together

    @property
    def model(self) -> Network | Program:
        """The model that is simulated."""

    def start(self, n_samples: int, first_sample: int = 0) -> Any:
        """Return the State of samples before their first row. `first_sample`: number of the first one in errors."""

    def advance(self, state: Any, inputs: dict[str, np.ndarray], rows: slice, n_steps: int | None) -> Rows:
        """Simulate the next rows with inputs [B, row, *shape], int32 for a program or a fixed-point network.

        `n_steps`: T, or None while the stream goes on.

        `state` is updated in place. It need not be if all rows of a run are simulated at once.
        """

    def measure(self, inputs: dict[str, np.ndarray], rows: Rows, window: str) -> dict[str, Any]:
        """Return fields of a Run for these rows: its counters, energies and times, and the activity if it counts more.

        The steps of spikes and inputs are those of the `window`.
        """

    def empty_counts(self, n_rows: int) -> dict[str, np.ndarray]:
        """Allocate `Rows.counts`, zeros."""

    def samples_at_once(self, n_samples: int) -> int:
        """Return the largest number of samples that memory holds at the same time."""


def empty_rows(network: Network, recorded, n_samples: int, n_rows: int, counts: dict[str, np.ndarray]) -> Rows:
    """Allocate Rows of zeros, with the states of the `recorded` layers."""
    nodes = {name: network.node(name) for name in network.layers}
    spikes = {n: np.zeros((n_samples, n_rows, *node.shape), node.neuron.spike_dtype) for n, node in nodes.items()}
    states = {}
    for node in (nodes[name] for name in recorded):
        zeros = partial(np.zeros, (n_samples, n_rows, *node.shape), np.int64 if node.neuron.is_fixed else np.float32)
        states[node.name] = {state: zeros() for state in node.neuron.state_names}
    return Rows(spikes, states, counts)


def layer_offsets(schedule: Schedule, window: str = "aligned") -> dict[str, range]:
    """Return the hardware steps by which the recorded steps of each layer and input are late (`Machine.late`)."""
    if schedule.period > 1 or window != "aligned":
        return dict.fromkeys(schedule.offset, range(1))
    return {name: range(first, first + schedule.n_late(name) + 1) for name, first in schedule.offset.items()}


def flatten_neurons(a: np.ndarray) -> np.ndarray:
    """Return a view [B, row, n] of an array [B, row, *shape]."""
    return a.reshape(*a.shape[:2], int(np.prod(a.shape[2:])))


def split_late(name: str, rows: np.ndarray, late: range) -> dict[str, Recorded]:
    """Return views [row, ..., neurons] of rows [row, ..., n], one for neurons that are equally late."""
    return {f"{name}/{k}": Recorded(rows[..., k :: len(late)], at) for k, at in enumerate(late)}


def align_rows(rows: np.ndarray, late: range, n_steps: int, dtype) -> np.ndarray:
    """Return aligned steps [B, T, *shape] of rows [B, row, *shape], without a copy if none is late."""
    if len(late) == 1:
        return np.ascontiguousarray(rows[:, late[0] : late[0] + n_steps], dtype)
    aligned = np.empty((len(rows), n_steps, *rows.shape[2:]), dtype)
    for k, at in enumerate(late):
        part = (..., slice(k, None, len(late)))
        flatten_neurons(aligned)[part] = flatten_neurons(rows)[:, at : at + n_steps][part]
    return aligned


def recorded_layers(network: Network, keep_states: bool) -> list[str]:
    """Return the layers whose states are recorded: all, or those that never fire."""
    return [name for name in network.layers if keep_states or not network.node(name).neuron.fires]


def count_samples(inputs: dict[str, np.ndarray]) -> int:
    """Return the number of samples; 1 for a network without inputs."""
    return len(next(iter(inputs.values()))) if inputs else 1


def build_activity(model: Network | Program, inputs: dict, spikes: dict) -> Activity:
    """Count the messages of inputs and layers."""
    network, repeats = (model.network, model.repeats) if isinstance(model, Program) else (model, False)
    return Activity.from_spikes(network, {**inputs, **spikes}, repeats)
