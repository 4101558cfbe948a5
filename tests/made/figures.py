"""Figures that appear twice are equal: in the output of `compile` and in a report of simulating its samples."""

import re
from collections.abc import Iterator

from nwcompile.cost.energy import predict
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.json.collect import collect_report

# Everything that depends on times, which a prediction can only bound.
MEASURED = (
    r"verdict|board\.|time\.|time_basis|advice|bottleneck|steps\.(measured_us|power_mw|bottleneck)|energy\.(mean|largest)_mw|"
    r"layers\.\d+\.time_percent|by_step\.(n_steps|missing)|(run|provenance)\.(backend|device)|explanation\.rows\.[04]"
)
WITH_STATIC_POWER = r"steps\.energy_pj|energy\.|energy_basis"


def all_figures(doc, path: tuple = ()) -> Iterator[tuple[str, object]]:
    """Yield (path, value) of every entry of a report."""
    parts = doc.items() if isinstance(doc, dict) else enumerate(doc) if isinstance(doc, list) else ()
    for key, value in parts:
        yield from all_figures(value, (*path, key))
    if not isinstance(doc, dict | list):
        yield ".".join(map(str, path)), doc


def contradictions(program: Program, run: Run) -> list[str]:
    """Figures that are known before `run`, a simulation of the calibration samples, and differ after it."""
    before, after = (dict(all_figures(collect_report(program, of))) for of in (predict(program), run))
    left_out = MEASURED + (f"|{WITH_STATIC_POWER}" if program.chip.energy.static_mw else "")
    return [
        f"{name}: {known}, then {after.get(name)}"
        for name, known in before.items()
        if known is not None and after.get(name) != known and not re.match(left_out, name)
    ]
