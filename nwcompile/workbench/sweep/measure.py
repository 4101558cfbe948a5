"""Measure: compile and run one point of a sweep, and return its figures or the reason why there are none."""

from dataclasses import asdict, dataclass
from math import isfinite
from time import perf_counter

from nwcompile import flow
from nwcompile.code_version import code_version
from nwcompile.cost.energy import predict
from nwcompile.cost.least import find_lower_bounds
from nwcompile.errors import BackendError, NwError
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report import render_files
from nwcompile.report.json.collect import collect_report
from nwcompile.sim import simulate
from nwcompile.sim.accuracy import accuracy
from nwcompile.sim.answers import record_for
from nwcompile.workbench.figures import collect_figures, describe_failure
from nwcompile.workbench.sweep.points import Point, Question

ERROR_CODE = "NW7007"
PREDICTION = "prediction"  # No simulation: the events of the calibration and the floorline's bound.
NO_MEMORY = "not enough memory; give fewer samples or processes, or a machine with more"
OUT_OF_MEMORY = "MemoryError"


@dataclass(frozen=True)
class Measured:
    """The result of a point: figures, or an error as `Kind: sentence`; seconds; and files, if requested."""

    figures: dict
    error: str | None
    seconds: float
    files: dict[str, bytes]


def measure_point(question: Question, point: Point, version: str, keep: bool = False) -> Measured:
    """Compile, run and measure a point in this process; with `keep`, return net.nwc and its report too.

    Errors of the point are returned, not raised. Raises BackendError if nwcompile here is not `version`.
    """
    here = code_version()
    if version != here:
        raise BackendError(f"a worker has nwcompile {here} and the sweep {version}; install one version on both")
    start = perf_counter()
    table: dict = {}
    kept: dict[str, bytes] = {}
    error = point.error
    if error is None:
        try:
            table, kept = _compile_and_run(question, point, keep)
        except MemoryError as e:
            error = f"{OUT_OF_MEMORY}: {describe_failure(e) if isinstance(e, NwError) else NO_MEMORY}"
        except Exception as e:  # A point that fails is a row; the sweep continues.
            defect = "" if isinstance(e, NwError) else "a defect, please report it: "
            error = f"{type(e).__name__}: {defect}{describe_failure(e)}"
    return Measured(table, error, perf_counter() - start, kept)


def _compile_and_run(question: Question, point: Point, keep: bool) -> tuple[dict, dict[str, bytes]]:
    assert point.chip is not None and point.options is not None, "it has no error"
    samples = question.inputs[point.input]
    calibration = question.calibration or samples
    program = flow.compile(question.network, point.chip, calibration.x, point.options, labels=calibration.labels)
    run, part = _run_program(program, samples, question.backend)
    table = {**point_figures(program, run), "accuracy": part, "program": program.hash}
    for name, value in table.items():
        if isinstance(value, float) and not isfinite(value):
            raise ArithmeticError(f"{name} is {value}")
    if not keep:
        return table, {}
    report = render_files(collect_report(program, run, part), "")
    return table, {"net.nwc": program.data, **{path.name: data for path, data in report.items()}}


def _run_program(program: Program, samples, backend: str) -> tuple[Run, float | None]:
    """Run or predict the program, and compute the accuracy if there are labels."""
    if backend != PREDICTION:
        run = simulate(program, samples.x, backend=backend, record=record_for(program.network))
        return run, None if samples.labels is None else accuracy(run, samples.labels)
    if samples.labels is None:
        return predict(program), None
    return predict(program), accuracy(
        simulate(program, samples.x, backend="sequence", record=record_for(program.network)), samples.labels
    )


def point_figures(program: Program, run: Run) -> dict:
    """The figures of a row: those of an estimate (n_cores_used for `n_cores`), the energy-delay product, and bounds."""
    table = collect_figures(program, run)
    n_cores, nj, us = table.pop("n_cores"), table["sample_nj"], table["sample_us"]
    edp = None if nj is None or us is None else nj * us
    bounds = {f"least_{name}": value for name, value in asdict(find_lower_bounds(program, run)).items()}
    return {"n_cores_used": n_cores, **table, "edp_nj_us": edp, **bounds}
