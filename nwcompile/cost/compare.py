"""Compare: the figures of two mappings of one network side by side, and which neurons moved."""

from dataclasses import dataclass, fields

import numpy as np

from nwcompile.cost.energy import energy_pj, step_energy_pj
from nwcompile.cost.time.pool import mean_step_cycles
from nwcompile.cost.time.work import compute_work, link_busy
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import flits_of_run, link_flits
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

ERROR_CODE = "NW7003"


@dataclass(frozen=True)
class Figures:
    """What a mapping costs: means of a hardware step, and of a sample; None: the chip's file has no figures for it.

    `hottest_link_cycles`: those that the link takes which is busy longest in all steps together. `step_us`: measured,
    or the floorline's bound, or of a pool of neurons what its formula gives.
    """

    cores: int
    messages_per_step: float
    hops_per_step: float
    hottest_link_cycles: float
    step_us: float | None
    sample_nj: float | None


@dataclass(frozen=True)
class Moved:
    """One layer in both mappings: cores, and neurons whose site is another."""

    layer: str
    n_neurons: int
    cores_before: int
    cores_after: int
    n_moved: int


NAMES = tuple(f.name for f in fields(Figures))


def predicted_figures(program: Program, activity: Activity) -> Figures:
    """The Figures that `activity` causes: events counted exactly, time as the floorline bounds it.

    Of a pool of neurons it is what the formula of its chip gives.
    """
    counters, flits = count_events(program, activity), link_flits(program, activity)
    cycles = mean_step_cycles(program, activity)
    if program.chip.has_times:
        bound = compute_work(program, counters, flits, activity.n_samples).bound_cycles
        cycles = float(bound.mean() / activity.n_samples)
    return _build_figures(program, counters, flits, activity.n_samples, cycles, None)


def measured_figures(program: Program, run: Run) -> Figures:
    """The Figures of a run of the cycle backend."""
    cycles = None if run.step_cycles is None else float(run.step_cycles.mean() / run.n_samples)
    return _build_figures(program, run.counters, flits_of_run(program, run), run.n_samples, cycles, run.step_cycles)


def moved_neurons(before: Program, after: Program) -> tuple[Moved, ...]:
    """Every layer of two programs; raises ModelError unless their layers and inputs are the same."""
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
    """By how many percent each figure grew; None where one of them is not known, or it grew from 0."""
    table = {}
    for name in NAMES:
        a, b = getattr(before, name), getattr(after, name)
        known = a is not None and b is not None and (a > 0 or b == a)
        table[name] = (100 * (b - a) / a if a else 0.0) if known else None
    return table


def _build_figures(
    program: Program, counters, flits: np.ndarray, n_samples: int, step_cycles: float | None, measured_cycles
) -> Figures:
    spent = energy_pj(step_energy_pj(counters, program.chip, flits, measured_cycles))
    n = len(flits) * n_samples
    busy = link_busy(program.chip, flits).sum(0).max(initial=0)
    return Figures(
        cores=program.mapping.n_cores,
        messages_per_step=float(counters["messages_out"].sum() / n),
        hops_per_step=float(counters["hops"].sum() / n),
        hottest_link_cycles=float(busy / n),
        step_us=None if step_cycles is None else step_cycles * program.chip.core.cycle_ns / 1000,
        sample_nj=None if spent is None else spent["total"] / 1000 / n_samples,
    )
