"""Frames: the tables of report.json as pandas DataFrames, for notebooks and plots."""

from nwcompile.cost.energy import predict
from nwcompile.cost.summary import Summary, summarize
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import data_frame
from nwcompile.report.json.collect import core_rows, layer_rows, link_rows

LINK_COLUMNS = ("link", "x", "y", "kind", "flits_per_step")  # the columns if there is no row


def cores_frame(program: Program, run: Run | None = None):
    """One row per core in use; `layers` is a text with numbers of neurons, `hidden: 8, out: 10`."""
    summary = _summarize_run(program, run)
    rows = core_rows(program, summary)
    texts = [{**row, "layers": ", ".join(f"{k}: {n}" for k, n in row["layers"].items())} for row in rows]
    return data_frame(texts, summary.time_basis, summary.energy_basis)


def links_frame(program: Program, run: Run | None = None):
    """One row per link that carried flits."""
    rows = link_rows(program, _summarize_run(program, run))
    return data_frame(rows if rows else {name: [] for name in LINK_COLUMNS})


def layers_frame(program: Program, run: Run | None = None):
    """One row per layer. `cores` is a list; the columns of the quantization table begin with `quantization_`."""
    rows = layer_rows(program, _summarize_run(program, run))
    return data_frame([_flatten_row(row) for row in rows])


def _summarize_run(program: Program, run: Run | None) -> Summary:
    return summarize(program, predict(program) if run is None else run)


def _flatten_row(row: dict) -> dict:
    table = row["quantization"] or {}
    kept = {key: value for key, value in row.items() if key != "quantization"}
    return kept | {f"quantization_{key}": value for key, value in table.items()}
