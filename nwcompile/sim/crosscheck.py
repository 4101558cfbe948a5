"""Crosscheck: run one program on several backends and find the first difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import BackendError, OptionError, unknown_choice
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import COUNTERS, Run
from nwcompile.ir.shown import count_text, grouped
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.answers import record_for
from nwcompile.sim.cycle.overload import verify_backend
from nwcompile.sim.float_difference import FloatDifference, check_network, float_difference
from nwcompile.sim.inputs import prepare_inputs

AGAINST = ("float", *BACKENDS)


@dataclass(frozen=True)
class Difference:
    """The first difference between two backends, ordered by step, then layer, sample and neuron."""

    quantity: str  # "spikes", "u", "v" or the name of a counter
    step: int
    sample: int | None
    layer: str | None
    neuron: int | None
    core: int | None
    values: dict[str, int]

    def __repr__(self) -> str:
        place = [f"step {self.step}"]
        place += [f"layer {self.layer}", f"neuron {self.neuron}"] if self.layer is not None else []
        place += [f"sample {self.sample}"] if self.sample is not None else []
        place += [f"core {self.core}"] if self.core is not None else []
        return f"{', '.join(place)}: {self.quantity} " + ", ".join(f"{b}={v}" for b, v in self.values.items())


@dataclass(frozen=True)
class LayerAgreement:
    """Comparison of one layer: `n_spikes` values compared per backend, and `fired`, the non-zero ones by backend."""

    layer: str
    n_neurons: int
    n_spikes: int
    fired: dict[str, int]
    first_difference: Difference | None


@dataclass(frozen=True)
class Crosscheck:
    """Result of a comparison. `n_compared`: spikes, states and counters compared per backend.

    `layers` has one row per layer. `float_difference` is the distance to the float network, if that was compared.
    Quantization causes it, so it does not count as disagreement.
    """

    agree: bool
    backends: tuple[str, ...]
    n_samples: int
    n_compared: int
    first_difference: Difference | None = None
    layers: tuple[LayerAgreement, ...] = ()
    float_difference: FloatDifference | None = None

    def __repr__(self) -> str:
        if len(self.backends) == 1:
            return f"{self.backends[0]} ran alone on {self.n_samples} samples: no other integer backend was named"
        if self.agree:
            return (
                f"{', '.join(self.backends)} agree bit for bit on {count_text(self.n_samples, 'sample')} "
                f"({grouped(self.n_compared)} values each: spikes, states and counters)"
            )
        return f"{', '.join(self.backends)} disagree first at {self.first_difference}"


@checked("program", "against")
def crosscheck(
    program: Program,
    x=None,
    against: str | Sequence[str] = BACKENDS,
    window: str = "aligned",
    steps=None,
    network: Network | None = None,
) -> Crosscheck:
    """Compare spikes, all states and all integer counters of the backends in `against`; the first is the oracle.

    If `against` contains "float", `network` (the float Network that was compiled) runs on the same input, and its
    distance to the first integer backend is reported next to the agreement. Raises BackendError for unknown backends
    or fewer than two, OptionError or ModelError for a missing or different `network`, and the errors of `simulate`.
    """
    against = tuple(dict.fromkeys((against,) if isinstance(against, str) else against))
    for name in against:
        if name not in AGAINST:
            raise BackendError(unknown_choice("backend", name, AGAINST))
    if len(against) < 2:
        raise BackendError(f"crosscheck needs two backends or more, got {', '.join(against) or 'none'}")
    if "float" in against:
        if window != "aligned":
            raise OptionError(f"a float network has no window {window!r}; leave 'float' out, or use window='aligned'")
        check_network(program, network)
    elif network is not None:
        raise OptionError("network= is compared as backend 'float'; put 'float' into `against`")
    integer = [name for name in against if name != "float"]
    for name in integer:
        verify_backend(program, name)
    given = prepare_inputs(program.network, x, steps, program.chip, program.on_multi_spike)[0]
    runs = {name: simulate(program, given, name, "cpu", window, "all") for name in integer}
    wanted = None if network is None else simulate(network, x, steps=steps, record=record_for(network))
    return compare_runs(program, runs, wanted)


def compare_runs(program: Program, runs: dict[str, Run], wanted: Run | None = None) -> Crosscheck:
    """Compare runs of one program on one input, recorded with `record="all"`, and a run of its float network."""
    first = next(iter(runs.values()))
    n_compared = sum(s.size for s in first.spikes.values())
    n_compared += sum(a.size for states in first.states.values() for a in states.values())
    n_compared += sum(first.counters[name].size for name in COUNTERS)
    layers = tuple(_describe_host_layer(program, runs, name) for name in program.host_layers)
    layers += tuple(_compare_layer(program, runs, name) for name in program.network.layers)
    differences = [row.first_difference for row in layers if row.first_difference is not None]
    first_difference = min(differences, key=lambda d: d.step, default=None) or _first_counter_difference(runs)
    gap = None if wanted is None else float_difference(program, wanted, first)
    return Crosscheck(
        agree=first_difference is None,
        backends=tuple(runs),
        n_samples=first.n_samples,
        n_compared=n_compared,
        first_difference=first_difference,
        layers=layers,
        float_difference=gap,
    )


def _describe_host_layer(program: Program, runs: dict[str, Run], layer: str) -> LayerAgreement:
    """Return the row of a host layer. Its spikes are computed once and are the input of every backend."""
    spikes = next(iter(runs.values())).spikes[layer]
    fired = {name: int(np.count_nonzero(run.spikes[layer])) for name, run in runs.items()}
    return LayerAgreement(layer, program.host_layers[layer].n_neurons, spikes.size, fired, None)


def _compare_layer(program: Program, runs: dict[str, Run], layer: str) -> LayerAgreement:
    first = next(iter(runs))
    best = None
    for quantity in ("spikes", *runs[first].states[layer]):
        arrays = {
            name: run.spikes[layer] if quantity == "spikes" else run.states[layer][quantity]
            for name, run in runs.items()
        }
        for other in arrays.values():
            if np.array_equal(arrays[first], other):
                continue
            where = np.argwhere((arrays[first] != other).reshape(*other.shape[:2], -1))
            sample, step, neuron = map(int, where[np.argmin(where[:, 1])])
            if best is None or step < best.step:
                core, _ = program.mapping.where(layer, neuron)
                values = {name: int(a[sample, step].reshape(-1)[neuron]) for name, a in arrays.items()}
                best = Difference(
                    quantity=quantity, step=step, sample=sample, layer=layer, neuron=neuron, core=core, values=values
                )
    fired = {name: int(np.count_nonzero(run.spikes[layer])) for name, run in runs.items()}
    n_neurons = program.network.node(layer).n_neurons
    return LayerAgreement(layer, n_neurons, runs[first].spikes[layer].size, fired, best)


def _first_counter_difference(runs: dict[str, Run]) -> Difference | None:
    """Return the first counter that differs, in the order of COUNTERS. The layers of the runs are equal."""
    first = next(iter(runs))
    for name in COUNTERS:
        for other in runs.values():
            x = runs[first].counters[name]
            y = other.counters[name]
            if not np.array_equal(x, y):
                step, core = map(int, np.argwhere(x != y)[0])
                values = {run: int(runs[run].counters[name][step, core]) for run in runs}
                return Difference(
                    quantity=name, step=step, sample=None, layer=None, neuron=None, core=core, values=values
                )
    return None
