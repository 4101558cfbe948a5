"""Report: write a run of a program as report.json and one self-contained report.html. It computes no figures.

report.json                                json/
report.html                                html/; its elements and tables: html_markup.py, html_tables.py
lines for the terminal; figures, verdict   terminal.py; text.py
parts of all three outputs                 host.py, legalization.py, quantization.py, neuron_states.py
explanation of a mapping                   mapping.py
two mappings; DataFrames; other tools      diff.py; frames.py; export/
plots with matplotlib                      pyplot.py

The module is callable: `nwcompile.report(program, run, path)` is `nwcompile.report.report(program, run, path)`.
"""

import re
import sys
from json import dumps
from pathlib import Path
from types import ModuleType

from nwcompile.argument_types import checked
from nwcompile.ir.artifact import write_files
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.html.diff_page import render_diff
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.pyplot import plot_floorline

__all__ = ["format_json", "plot_floorline", "render_diff_files", "render_files", "report"]

NUMBERS = re.compile(r"\[\n([-+.,\seE\dnul]+)\]")  # No text holds a line break of its own in JSON.


@checked("path", "model_dt", "wall_seconds", "title")
def report(
    program: Program,
    run: Run,
    path: Path | str | None = None,
    accuracy: float | dict | None = None,
    crosscheck=None,
    model_dt: float | None = None,
    wall_seconds: float | None = None,
    title: str | None = None,
) -> dict:
    """Return the content of report.json; with a `path`, write `path`/report.json and `path`/report.html.

    `accuracy`: the chip's, 0..1, or {"float": ..., "chip": ..., "n_samples": ...}; with n_samples the report has 95 %
    intervals. `crosscheck`: the result of `nwcompile.crosscheck`. `model_dt`: seconds per step of the model, and
    `wall_seconds`: the duration of the simulation, for the real-time factors. `title`: names of model and input, which
    the page's title begins with.
    Membrane updates are counted only in runs with `record="all"`. Raises ArtifactError if the folder cannot be written
    (then nothing is written), and ModelError if `run` is not a run of `program`.
    """
    model_dt, wall_seconds = (None if s is None else float(s) for s in (model_dt, wall_seconds))
    doc = collect_report(program, run, accuracy, crosscheck, model_dt, wall_seconds, title)
    if path is not None:
        write_files(render_files(doc, path))
    return doc


def render_files(doc: dict, folder) -> dict[Path, bytes]:
    """Render the files of a report, by path: report.json and report.html."""
    return {Path(folder) / "report.json": format_json(doc), Path(folder) / "report.html": render_html(doc).encode()}


def render_diff_files(doc: dict, reports: dict[str, dict], folder) -> dict[Path, bytes]:
    """Render the files of a comparison, by path, from `doc` of report/diff.py and both reports by program name.

    Two programs of the same name (a file compared with itself) have one report.
    """
    return {
        Path(folder) / "diff.json": format_json({**doc, "reports": reports}),
        Path(folder) / "diff.html": render_diff(doc, reports).encode(),
    }


def format_json(doc: dict) -> bytes:
    """Format JSON for reading: one line per key, and one per list of numbers."""
    text = dumps(doc, indent=1, allow_nan=False)
    return NUMBERS.sub(lambda numbers: "[" + " ".join(numbers[1].split()) + "]", text).encode()


class _Callable(ModuleType):
    """This module, callable, so that the public name `nwcompile.report` is both the package and the function."""

    def __call__(
        self, program: Program, run: Run, path=None, accuracy=None, crosscheck=None, model_dt=None, wall_seconds=None,
        title=None,
    ) -> dict:  # fmt: skip
        return report(program, run, path, accuracy, crosscheck, model_dt, wall_seconds, title)


sys.modules[__name__].__class__ = _Callable
