"""Spike logs: compare the spikes that a chip, an RTL simulation or another simulator logged with a program.

A log names spikes by aligned step, layer and neuron, or by tick and place on the chip. Places come from a table that
an export writes next to the program. Without a table they are logical cores and visiting order, and ticks are hardware
steps. Only what a log contains is compared: for a bus the output neurons, for arrays their layers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

ERROR_CODE = "NW1008"


@dataclass(frozen=True, eq=False)
class Places:
    """Places of neurons: column k of each table belongs to neuron `index[k]` of layer `layer[k]`.

    `core` and `slot`: place on the chip. `output`: number at the bus (-1: none). `first_tick`: tick of its step 0.
    """

    layer: np.ndarray  # str[neuron]
    index: np.ndarray  # int64[neuron]
    core: np.ndarray  # int64[neuron]
    slot: np.ndarray  # int64[neuron]
    output: np.ndarray  # int64[neuron]
    first_tick: np.ndarray  # int64[neuron]

    @classmethod
    def from_program(cls, program: Program) -> "Places":
        """Build the table from a program's logical cores and visiting order; ticks are hardware steps."""
        network, order, core_of = program.network, program.visiting_order, program.core_of
        slot = np.zeros(len(core_of), np.int64)
        slot[order] = np.arange(len(order)) - np.searchsorted(core_of[order], core_of[order])
        sizes = [network.node(name).n_neurons for name in network.layers]
        first = np.flatnonzero(core_of >= 0)
        return cls(
            layer=np.repeat(network.layers, sizes),
            index=np.concatenate([np.arange(n) for n in sizes]),
            core=core_of[first].astype(np.int64),
            slot=slot[first],
            output=np.full(len(first), -1),
            first_tick=program.schedule.first_steps(map(network.node, network.layers)),
        )


@dataclass(frozen=True, eq=False)
class SpikeLog:
    """The log of one sample: by layer, spikes int64[T, n], and states `u`, `v` if the log has them.

    `told[layer]`: bool[n], the neurons that the log covers. `early`: (layer, neuron, step) of the first spike before
    its layer's first step, or None. `window`: "aligned" or "hardware" steps.
    """

    spikes: dict[str, np.ndarray]
    states: dict[str, dict[str, np.ndarray]]
    told: dict[str, np.ndarray]
    early: tuple[str, int, int] | None = None
    window: str = "aligned"


@dataclass(frozen=True)
class LogDifference:
    """The first difference between a log and the program.

    `values`: the neuron's states before and after the step (none before its layer's first step), and its parameters.
    """

    quantity: str
    step: int
    tick: int
    layer: str
    neuron: int
    core: int
    slot: int
    logged: int
    expected: int
    values: dict[str, int]

    def __str__(self) -> str:
        had = ", ".join(f"{name}={value}" for name, value in self.values.items())
        had += ", before the layer's first step" if self.step < 0 else ""
        return (
            f"step {self.step} of layer {self.layer} (tick {self.tick}), neuron {self.neuron} (core {self.core}, slot "
            f"{self.slot}): {self.quantity} is {self.logged} in the log and {self.expected} in the program ({had})"
        )


@dataclass(frozen=True)
class LogCheck:
    """Result of a comparison: `n_spikes` in the log, `n_compared` numbers, and the first difference.

    `untold`: the layers that the log does not cover.
    """

    n_spikes: int
    n_compared: int
    untold: tuple[str, ...]
    first_difference: LogDifference | None

    @property
    def agree(self) -> bool:
        """Whether the whole log equals the program."""
        return self.first_difference is None

    def __str__(self) -> str:
        if self.first_difference is None:
            untold = f"; it tells nothing of {', '.join(self.untold)}" if self.untold else ""
            return f"the log equals the program: {self.n_spikes} spikes, {self.n_compared} numbers compared{untold}"
        return f"the log differs first at {self.first_difference}"


def log_of_events(
    program: Program, places: Places, ticks: np.ndarray, at: tuple[np.ndarray, ...], n_steps: int
) -> SpikeLog:
    """Build a log from spikes at `ticks` int64[event] of neurons `at`: (core, slot) or (output,), int64[event] each.

    Spikes after a layer's last step are ignored. Raises ModelError for a place without a neuron.
    """
    keys = (places.core, places.slot) if len(at) == 2 else (places.output,)
    known = np.ones(len(places.index), bool) if len(at) == 2 else places.output >= 0
    number = {key: k for k, key in zip(np.flatnonzero(known), zip(*(a[known] for a in keys), strict=True), strict=True)}
    sizes = {name: program.network.node(name).n_neurons for name in program.network.layers}
    spikes = {name: np.zeros((n_steps, n), np.int64) for name, n in sizes.items()}
    told = {name: np.zeros(n, bool) for name, n in sizes.items()}
    for layer, index in zip(places.layer[known], places.index[known], strict=True):
        told[layer][index] = program.network.node(layer).neuron.fires
    early = None
    for event, key in enumerate(zip(*at, strict=True)):
        if key not in number:
            what = f"core {key[0]}, neuron {key[1]}" if len(at) == 2 else f"output {key[0]}"
            raise ModelError(f"the log has a spike of {what} at tick {ticks[event]}, where the program has no neuron")
        k = number[key]
        step, layer, index = int(ticks[event] - places.first_tick[k]), str(places.layer[k]), int(places.index[k])
        if 0 <= step < n_steps:
            spikes[layer][step, index] += 1
            told[layer][index] = True
        elif step < 0 and (early is None or step < early[2]):
            early = (layer, index, step)
    some = {name: any_told for name, any_told in told.items() if any_told.any()}
    return SpikeLog({name: spikes[name] for name in some}, {}, some, early)


def compare_log(program: Program, log: SpikeLog, run: Run, places: Places, sample: int = 0) -> LogCheck:
    """Compare a log with one sample of a run of the program, recorded with `record="all"`."""
    first, n_compared = None, 0
    if log.early is not None:
        layer, neuron, step = log.early
        first = _Unequal(step=step, quantity="spikes", layer=layer, neuron=neuron, logged=1, expected=0)
    there = {name: np.zeros(program.network.node(name).n_neurons, bool) for name in program.network.layers}
    for name, index in zip(places.layer, places.index, strict=True):
        there[name][index] = True
    for name, logged_of in log.told.items():
        told = logged_of & there[name]  # neurons without targets may not be loaded
        ours = {"spikes": run.spikes[name], **run.states[name]}
        theirs = {**({"spikes": log.spikes[name]} if name in log.spikes else {}), **log.states.get(name, {})}
        for quantity, logged in theirs.items():
            expected = ours[quantity][sample, : len(logged)].reshape(len(logged), -1).astype(np.int64)
            n_compared += int(told.sum()) * len(logged)
            differs = (logged != expected) & told
            if differs.any():
                step, neuron = (int(n) for n in np.argwhere(differs)[0])
                if first is None or step < first.step:
                    first = _Unequal(
                        step=step,
                        quantity=quantity,
                        layer=name,
                        neuron=neuron,
                        logged=int(logged[step, neuron]),
                        expected=int(expected[step, neuron]),
                    )
    return LogCheck(
        n_spikes=sum(int(spikes.sum()) for spikes in log.spikes.values()) + (log.early is not None),
        n_compared=n_compared,
        untold=tuple(name for name in program.network.layers if name not in log.told),
        first_difference=None if first is None else _describe_difference(program, run, places, sample, first),
    )


class _Unequal(NamedTuple):
    """A logged number that differs from the program's."""

    step: int
    quantity: str
    layer: str
    neuron: int
    logged: int
    expected: int


def _describe_difference(program: Program, run: Run, places: Places, sample: int, first: _Unequal) -> LogDifference:
    """Add the neuron's place, states and parameters to a difference."""
    node, values, step = program.network.node(first.layer), {}, first.step
    neuron = node.neuron
    is_program = isinstance(neuron, NeuronProgram)

    def neuron_number(name: str) -> int:
        return int(neuron.array(name, node.shape).reshape(-1)[first.neuron])

    for name, state in run.states[first.layer].items():
        of_neuron = state[sample].reshape(state.shape[1], -1)[:, first.neuron]
        if step >= 0:  # a layer has no state before its first step
            begins = neuron_number(name) if is_program else 0
            values[f"{name} before"] = int(of_neuron[step - 1]) if step > 0 else begins
            values[f"{name} after"] = int(of_neuron[step])
    for name in neuron.parameters if is_program else ("threshold", "bias", "bias_u"):
        values[name] = neuron_number(name)
    k = int(np.flatnonzero((places.layer == first.layer) & (places.index == first.neuron))[0])
    return LogDifference(
        **first._asdict(),
        tick=step + int(places.first_tick[k]),
        core=int(places.core[k]),
        slot=int(places.slot[k]),
        values=values,
    )
