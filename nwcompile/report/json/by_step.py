"""By step: the work of every core and link in every hardware step, as plain values for report.json."""

import numpy as np

from nwcompile.cost.summary import Summary
from nwcompile.ir.run import Run

MOST_VALUES = 300_000  # More are slow to write and read; later steps are left out, and the report says so.
ALIKE = (
    "Every step is alike in this prediction, as without calibration samples. "
    "nwcompile report PROGRAM.nwc --input SAMPLES.npz -o DIR shows every step."
)
COUNTERS = ("synops", "spikes_out", "messages_in")


def collect_by_step(run: Run, summary: Summary) -> dict:
    """Integer sums over the samples: `cores[figure]` and `flits` are lists by core or link, each a list by step.

    They are in the order of `cores` and `links` of report.json. `busy_cycles` is the work of each core's busiest unit
    in core cycles, absent on a chip without times. The first `n_steps` steps are included; `left_out` says why the
    others are not, and `missing` says how to get steps if there are none.
    """
    empty = {"n_steps": 0, "cores": {}, "flits": [], "left_out": None, "missing": None}
    if run.backend == "prediction" and run.activity is not None:
        counts = {n for sent in run.activity.counts.values() for n in np.unique(sent).tolist()}
        if len(counts) == 1:  # All neurons send equally in all steps, the assumption without calibration.
            return empty | {"missing": ALIKE}
    if summary.n_steps < 2:
        return empty | {"missing": "The run has one hardware step; simulate more of them to see how they differ."}
    tables = {name: run.counters[name] for name in COUNTERS}
    if summary.bound is not None:
        tables = {"busy_cycles": summary.bound.work.busy.max(0), **tables}
    flits = summary.step_flits[:, summary.link_flits > 0]
    n_values = sum(table.shape[1] for table in tables.values()) + flits.shape[1]
    n_steps = min(summary.n_steps, max(MOST_VALUES // n_values, 1))
    left_out = None
    if n_steps < summary.n_steps:
        left_out = (
            f"Steps {n_steps} to {summary.n_steps - 1} are left out: {n_values} values a step are many; "
            "nwcompile simulate -o OUT.npz writes them all."
        )
    cores = {name: table[:n_steps].T.tolist() for name, table in tables.items()}
    return empty | {"n_steps": n_steps, "cores": cores, "flits": flits[:n_steps].T.tolist(), "left_out": left_out}
