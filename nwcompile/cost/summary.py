"""Summary: every figure that a report shows about a program and one run of it."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from nwcompile.cost.energy import energy_pj
from nwcompile.cost.floorline import Floorline, floorline, tightness
from nwcompile.cost.layers import synops_into
from nwcompile.cost.traffic import count_events, link_flits, resources
from nwcompile.errors import ModelError
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

LIMIT_OF = {"neurons": "max_neurons", "in_axons": "max_in_axons", "out_axons": "max_out_axons",
            "synapse_bits": "synapse_bits"}  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """One resource: the core that comes closest to its limit, and all cores of the chip together; None: no limit."""

    resource: str
    core: int | None
    used: int
    limit: int | None
    total_used: int
    total_limit: int | None

    @property
    def part(self) -> float | None:
        """used / limit of the worst core."""
        return None if self.limit is None else self.used / self.limit


@dataclass(frozen=True)
class LayerFigures:
    """One layer: its size, cores and what bounded them; means per sample and aligned step; its part of the step time."""

    name: str
    n_neurons: int
    cores: tuple[int, ...]
    binding: str | None
    spikes: float
    synops: float
    time_share: float | None


@dataclass(frozen=True, eq=False)
class Summary:
    """Figures of one run, means per sample; H hardware steps, times in microseconds, energies in picojoules.

    `core_use[resource]` int64[core]; `core_synops`, `core_busy_us` float64[core]: mean of a step, `core_busy_us` of the
    busiest unit; `link_flits` float64[link]: mean of a step; `max_synops` float64[H]: of the busiest core. `bound` is
    the floorline of the run, `predicted` that of the calibration activity (`predicted_synops` its max_synops). What the
    chip, backend or program does not give is None.
    """

    fits: tuple[Fit, ...]
    layers: tuple[LayerFigures, ...]
    core_use: dict[str, np.ndarray]
    core_synops: np.ndarray
    core_busy_us: np.ndarray | None
    link_flits: np.ndarray
    max_synops: np.ndarray
    predicted_synops: np.ndarray | None
    bound: Floorline | None
    predicted: Floorline | None
    measured_us: np.ndarray | None
    tightness: float | None
    energy_pj: dict[str, float] | None
    counts: dict[str, float]

    @property
    def step_us(self) -> np.ndarray | None:
        """float64[H]: the measured step times, or else their bound."""
        return self.measured_us if self.measured_us is not None else self.bound.step_us if self.bound else None


def summarise(program: Program, run: Run) -> Summary:
    """The Summary of a run of `program`; raises ModelError for a run of something else."""
    n_cores = program.mapping.n_cores
    if not run.counters or run.counters["synops"].shape[1] != n_cores:
        raise ModelError(
            f"the run was not made by this program of {n_cores} cores; simulate the program and report that"
        )
    n_steps, per_sample = len(run.counters["synops"]), 1 / run.n_samples
    flits = run.link_flits if run.link_flits is not None else link_flits(program, run.activity, run.window)
    bound = floorline(program, run.counters, flits, run.n_samples, run.activity)
    measured = None
    if run.step_cycles is not None:
        measured = run.step_cycles * (program.chip.core.cycle_ns / 1000 * per_sample)
    spent = energy_pj(run.counters, program.chip)
    return Summary(
        fits=fit(program),
        layers=_layers(program, run, bound),
        core_use=resources(program.axons, program.core_of, n_cores),
        core_synops=run.counters["synops"].mean(0) * per_sample,
        core_busy_us=_busy_us(bound),
        link_flits=flits.mean(0) * per_sample,
        max_synops=run.counters["synops"].max(1) * per_sample,
        **_predicted(program, run.window),
        bound=bound,
        measured_us=measured,
        tightness=None if bound is None or measured is None else tightness(bound.bound_cycles, run.step_cycles),
        energy_pj=None if spent is None else {kind: pj * per_sample for kind, pj in spent.items()},
        counts={name: float(c.sum()) * per_sample for name, c in run.counters.items()} | {"steps": n_steps},
    )


def fit(program: Program) -> tuple[Fit, ...]:
    """What a program uses of the chip: cores first, then each resource of the cores."""
    chip, mapping = program.chip, program.mapping
    rows = [Fit("cores", None, mapping.n_cores, chip.n_cores, mapping.n_cores, chip.n_cores)]
    site = chip.site_index(mapping.site_of)
    for resource, used in resources(program.axons, program.core_of, mapping.n_cores).items():
        limit = chip.limit(LIMIT_OF[resource])
        worst = int(np.argmax(used if limit is None else used / limit[site]))
        most = (None, None) if limit is None else (int(limit[site][worst]), int(limit.sum()))
        rows.append(Fit(resource, worst, int(used[worst]), most[0], int(used.sum()), most[1]))
    return tuple(rows)


def _layers(program: Program, run: Run, bound: Floorline | None) -> tuple[LayerFigures, ...]:
    network, mapping, activity = program.network, program.mapping, run.activity
    synops = synops_into(network, activity)
    n = activity.n_samples * activity.n_steps
    rows = []
    for name in network.layers:
        cores = tuple(int(c) for c in np.unique(mapping.core_of[name]))
        notes = Counter(mapping.note[c] for c in cores if c in mapping.note)
        binding = notes.most_common(1)[0][0] if notes else None
        part = None if bound is None else bound.time_share[name]
        rows.append(
            LayerFigures(name, network.node(name).n_neurons, cores, binding, float(activity.counts[name].sum() / n),
                         float(synops[name].sum() / n), part)
        )  # fmt: skip
    return tuple(rows)


def _busy_us(bound: Floorline | None) -> np.ndarray | None:
    """float64[core]: microseconds that the busiest unit of each core works in a mean step."""
    if bound is None:
        return None
    return bound.work.busy.sum(1).max(0) * (bound.cycle_ns / 1000 / bound.n_samples / len(bound.bound_cycles))


def _predicted(program: Program, window: str) -> dict:
    """The floorline of the calibration activity, and its `max_synops`; None without calibration."""
    activity = program.activity
    if activity is None:
        return {"predicted": None, "predicted_synops": None}
    events = count_events(program, activity, window)
    line = floorline(program, events, link_flits(program, activity, window), activity.n_samples)
    return {"predicted": line, "predicted_synops": events["synops"].max(1) / activity.n_samples}
