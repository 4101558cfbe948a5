"""Do the backends agree? Runs one program on several and finds the first difference."""

from dataclasses import dataclass

import numpy as np

from nwcompile.errors import BackendError, unknown_choice
from nwcompile.ir.program import Program
from nwcompile.ir.run import COUNTERS, Run
from nwcompile.sim import BACKENDS, simulate


@dataclass(frozen=True)
class Difference:
    """The first place where two backends differ: earliest step, then layer order, sample, neuron."""

    quantity: str  # "spikes", "u", "v" or the name of a counter
    step: int
    sample: int | None
    layer: str | None
    neuron: int | None
    core: int | None
    values: dict[str, int]

    def __str__(self) -> str:
        place = [f"step {self.step}"]
        place += [f"layer {self.layer}", f"neuron {self.neuron}"] if self.layer is not None else []
        place += [f"sample {self.sample}"] if self.sample is not None else []
        place += [f"core {self.core}"] if self.core is not None else []
        return f"{', '.join(place)}: {self.quantity} " + ", ".join(f"{b}={v}" for b, v in self.values.items())


@dataclass(frozen=True)
class Crosscheck:
    """What comparing gave. `n_compared`: spikes, states and counters looked at in each backend."""

    agree: bool
    backends: tuple[str, ...]
    n_samples: int
    n_compared: int
    first_difference: Difference | None = None

    def __str__(self) -> str:
        if self.agree:
            return (
                f"{', '.join(self.backends)} agree bit for bit on {self.n_samples} samples "
                f"({self.n_compared} spikes, states and counters each)"
            )
        return f"{', '.join(self.backends)} disagree first at {self.first_difference}"


def crosscheck(program: Program, x=None, against=BACKENDS, window="aligned", steps=None) -> Crosscheck:
    """Compare spikes, all states and all integer counters of the backends in `against`, the first being the measure."""
    against = (against,) if isinstance(against, str) else tuple(against)
    for name in against:
        if name not in BACKENDS:
            raise BackendError(unknown_choice("backend", name, BACKENDS))
    if len(set(against)) < 2:
        raise BackendError(f"crosscheck needs two backends or more, got {', '.join(against) or 'none'}")
    runs = {name: simulate(program, x, name, "cpu", window, "all", steps) for name in against}
    return compare(program, runs)


def compare(program: Program, runs: dict[str, Run]) -> Crosscheck:
    """Compare finished runs of one program on one input (recorded with `record="all"`)."""
    first, *others = runs
    n_compared = sum(s.size for s in runs[first].spikes.values())
    n_compared += sum(a.size for states in runs[first].states.values() for a in states.values())
    n_compared += sum(runs[first].counters[name].size for name in COUNTERS)
    differences = [d for other in others if (d := _first(program, runs, first, other)) is not None]
    found = min(differences, key=lambda d: d.step, default=None)
    return Crosscheck(found is None, tuple(runs), runs[first].n_samples, n_compared, found)


def _first(program: Program, runs: dict[str, Run], a: str, b: str) -> Difference | None:
    best = None
    for layer in program.network.layers:
        arrays = [("spikes", runs[a].spikes[layer], runs[b].spikes[layer])]
        arrays += [(s, runs[a].states[layer][s], runs[b].states[layer][s]) for s in runs[a].states[layer]]
        for quantity, x, y in arrays:
            if np.array_equal(x, y):
                continue
            where = np.argwhere((x != y).reshape(*x.shape[:2], -1))
            sample, step, neuron = map(int, where[np.argmin(where[:, 1])])
            if best is None or step < best.step:
                core, _ = program.mapping.where(layer, neuron)
                values = {name: _at(runs[name], quantity, layer, sample, step, neuron) for name in runs}
                best = Difference(quantity, step, sample, layer, neuron, core, values)
    if best is not None:
        return best
    for name in COUNTERS:
        x, y = runs[a].counters[name], runs[b].counters[name]
        if not np.array_equal(x, y):
            step, core = map(int, np.argwhere(x != y)[0])
            values = {run: int(runs[run].counters[name][step, core]) for run in runs}
            return Difference(name, step, None, None, None, core, values)
    return None


def _at(run: Run, quantity: str, layer: str, sample: int, step: int, neuron: int) -> int:
    array = run.spikes[layer] if quantity == "spikes" else run.states[layer][quantity]
    return int(array[sample, step].reshape(-1)[neuron])
