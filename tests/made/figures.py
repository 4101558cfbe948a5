"""A figure that appears twice is equal: what `compile` says of its samples, and a report of their simulation."""

import re
from collections.abc import Iterator

from nwcompile.cost.prediction import predict
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.json.collect import collect_report

# Whatever follows from times: a prediction has bounds of them.
MEASURED = (r"verdict|time\.|advice|bottleneck|steps\.(measured_us|power_mw|bottleneck)|energy\.(mean|largest)_mw|"
            r"layers\.\d+\.time_percent|by_step\.(n_steps|missing)|(run|provenance)\.(backend|device)")  # fmt: skip
WITH_STATIC_POWER = r"steps\.energy_pj|energy\."


def all_figures(doc, path: tuple = ()) -> Iterator[tuple[str, object]]:
    """(path, value) of all that a report holds."""
    parts = doc.items() if isinstance(doc, dict) else enumerate(doc) if isinstance(doc, list) else ()
    for key, value in parts:
        yield from all_figures(value, (*path, key))
    if not isinstance(doc, dict | list):
        yield ".".join(map(str, path)), doc


def contradictions(program: Program, run: Run) -> list[str]:
    """The figures that were known before `run`, a simulation of the calibration samples, and are others after it."""
    before, after = (dict(all_figures(collect_report(program, of))) for of in (predict(program), run))
    left_out = MEASURED + (f"|{WITH_STATIC_POWER}" if program.chip.energy.static_mw else "")
    return [
        f"{name}: {known}, then {after.get(name)}"
        for name, known in before.items()
        if known is not None and after.get(name) != known and not re.match(left_out, name)
    ]
