"""Figures of one point in a table of many: cores, times, energy and bottleneck, or why there are none."""

from nwcompile.cost.family import find_cost
from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.traffic.link_flits import flits_of_run
from nwcompile.errors import FitError
from nwcompile.ir.chip_sections import weakest_basis
from nwcompile.ir.manifest import APPROXIMATE, EXACT, HOST
from nwcompile.ir.program import Program
from nwcompile.ir.run import Basis, Run
from nwcompile.ir.shown import grouped, round_figure

TIMES = ("step_us", "sample_us", "edp_nj_us", "least_step_us", "least_edp_nj_us", "power_mw")
ENERGIES = ("sample_nj", "edp_nj_us", "least_sample_nj", "least_edp_nj_us", "power_mw")


def find_bases(row: dict, name: str) -> list[str]:
    """The bases of a figure in a row of such figures: of its time, its energy, both, or none if it is neither."""
    keys = (("time_basis", TIMES), ("energy_basis", ENERGIES))
    return [row[key] for key, names in keys if name in names and row.get(key) is not None]


def format_cell(row: dict, name: str) -> str:
    """Format a value of a row, with the digits that its basis allows; an empty text if it has none."""
    value, bases = row.get(name), find_bases(row, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return grouped(round_figure(value, weakest_basis(bases)))


def collect_figures(program: Program, run: Run) -> dict:
    """The figures of a program and a run, as in its report; None if the chip file lacks them.

    Times are means of a hardware step and of a sample in microseconds: measured, or the floorline's bound, or the mean
    step of a pool of neurons. `time_basis`, `energy_basis`: texts like "scaled; -35 % on PilotNet". Energy is in
    nanojoules, and power is the mean over the sample in milliwatts. `bound`: what limits the step, None without a
    floorline.
    """
    labels = {change["label"] for change in program.legalization}
    step_us, bound = _mean_step(program, run)
    sample_us = None if step_us is None else step_us * len(run.counters["synops"])
    sample_nj = None if run.energy_pj is None else run.energy_pj["total"] / 1000 / run.n_samples
    return {
        "n_cores": program.mapping.n_cores,
        "of_cores": program.chip.n_cores,
        "label": next((label for label in (APPROXIMATE, HOST) if label in labels), EXACT),
        "step_us": step_us,
        "sample_us": sample_us,
        "time_basis": None if step_us is None else _basis_text(run.time_basis),
        "sample_nj": sample_nj,
        "energy_basis": _basis_text(run.energy_basis),
        "power_mw": sample_nj / sample_us if sample_us and sample_nj is not None else None,
        "bound": bound,
    }


def _basis_text(basis: Basis | None) -> str | None:
    return None if basis is None else str(basis)


def _mean_step(program: Program, run: Run) -> tuple[float | None, str | None]:
    """The mean step in microseconds, and what limits it."""
    cycle_us = program.chip.core.cycle_ns / 1000
    if not program.chip.has_times:
        cycles = find_cost(program.chip).mean_step_cycles(program, run.activity)
        return None if cycles is None else cycles * cycle_us, None
    bound = floorline(program, run.counters, flits_of_run(program, run), run.n_samples, run.activity)
    assert bound is not None, "the chip has times"
    measured = None if run.step_cycles is None else float((run.step_cycles * (cycle_us / run.n_samples)).mean())
    return float(bound.step_us.mean()) if measured is None else measured, bound.bottleneck.kind


def describe_failure(error: Exception) -> str:
    """Say in one sentence why a point has no figures; for a FitError, the first violation and the change that helps."""
    if not isinstance(error, FitError):
        return " ".join((str(error).splitlines() or [""])[0].split()) or type(error).__name__
    first, change = error.violations[0], error.change and f"it fits with {error.change}"
    n_more = len(error.violations) - 1
    more = f"{n_more} more limit{'s are' if n_more > 1 else ' is'} exceeded" if n_more else ""
    reasons = "; ".join(filter(None, (first.relation, first.advice, change, more)))
    return f"{', '.join(filter(None, (first.what, first.where)))}: {reasons}"
