"""Compare two mappings of one network: their figures side by side, and the neurons that moved."""

from dataclasses import dataclass, fields

import numpy as np

from nwcompile.cost.energy import predict
from nwcompile.cost.family import find_cost
from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.link_flits import flits_of_run
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.program import Program
from nwcompile.ir.run import Basis, Run
from nwcompile.ir.shown import name_energy

ERROR_CODE = "NW7003"


@dataclass(frozen=True)
class Figures:
    """Costs of a mapping: means per hardware step and per sample; None if the chip's file has no figures for them.

    `hottest_link_cycles`: busy cycles of the link that is busiest over all steps. `step_us`: measured, or the
    floorline's bound, or the formula of a pool of neurons.
    """

    cores: int
    messages_per_step: float
    hops_per_step: float
    hottest_link_cycles: float
    step_us: float | None
    sample_nj: float | None
    time_basis: Basis | None = None
    energy_basis: Basis | None = None
    energy_label: str = name_energy(None)  # what `sample_nj` covers


@dataclass(frozen=True)
class Moved:
    """One layer in both mappings: its cores, and the number of neurons whose site changed."""

    layer: str
    n_neurons: int
    cores_before: int
    cores_after: int
    n_moved: int


NAMES = tuple(f.name for f in fields(Figures))[:6]  # those that are numbers


def predicted_figures(program: Program, activity: Activity) -> Figures:
    """Return the Figures for an activity: exact event counts, and the floorline's bound as time.

    For a pool of neurons, the time follows from its chip's formula.
    """
    run = predict(program, activity)
    cycles = find_cost(program.chip).mean_step_cycles(program, activity)
    if program.chip.has_times:
        bound = compute_work(program, run.counters, flits_of_run(program, run), run.n_samples).bound_cycles
        cycles = float(bound.mean() / run.n_samples)
    return _build_figures(program, run, cycles)


def measured_figures(program: Program, run: Run) -> Figures:
    """Return the Figures of a run of the cycle backend."""
    cycles = None if run.step_cycles is None else float(run.step_cycles.mean() / run.n_samples)
    return _build_figures(program, run, cycles)


def moved_neurons(before: Program, after: Program) -> tuple[Moved, ...]:
    """Compare every layer of two programs. Raises ModelError unless their layers and inputs are the same."""
    sizes = [{name: p.network.node(name).n_neurons for name in p.network.offsets} for p in (before, after)]
    if sizes[0] != sizes[1]:
        differ = next(name for name in {**sizes[0], **sizes[1]} if sizes[0].get(name) != sizes[1].get(name))
        n = " and ".join(str(s.get(differ, 0)) for s in sizes)
        raise ModelError(f"these are not mappings of one network: {differ!r} has {n} neurons; compile both from it")
    rows = []
    for name in before.network.layers:
        cores = [p.mapping.core_of[name] for p in (before, after)]
        sites = [p.mapping.site_of[c] for p, c in zip((before, after), cores, strict=True)]
        n_moved = int((sites[0] != sites[1]).any(1).sum())
        rows.append(Moved(name, len(cores[0]), len(np.unique(cores[0])), len(np.unique(cores[1])), n_moved))
    return tuple(rows)


def change_percent(before: Figures, after: Figures) -> dict[str, float | None]:
    """Return the growth of each figure in percent; None if a figure is unknown or grew from 0."""
    table = {}
    for name in NAMES:
        a, b = getattr(before, name), getattr(after, name)
        known = a is not None and b is not None and (a > 0 or b == a)
        table[name] = (100 * (b - a) / a if a else 0.0) if known else None
    return table


def _build_figures(program: Program, run: Run, step_cycles: float | None) -> Figures:
    flits, counters = flits_of_run(program, run), run.counters
    n = len(flits) * run.n_samples
    busy = program.chip.family.link_busy(program.chip, flits).sum(0).max(initial=0)
    return Figures(
        cores=program.mapping.n_cores,
        messages_per_step=float(counters["messages_out"].sum() / n),
        hops_per_step=float(counters["hops"].sum() / n),
        hottest_link_cycles=float(busy / n),
        step_us=None if step_cycles is None else step_cycles * program.chip.core.cycle_ns / 1000,
        sample_nj=None if run.energy_pj is None else run.energy_pj["total"] / 1000 / run.n_samples,
        time_basis=None if step_cycles is None else run.time_basis,
        energy_basis=run.energy_basis,
        energy_label=run.energy_label,
    )
