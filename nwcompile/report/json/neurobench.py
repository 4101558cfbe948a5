"""NeuroBench in the report: the complexity figures that this benchmark defines for a network and a run."""

from dataclasses import asdict

from nwcompile.cost.neurobench import neurobench
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import grouped
from nwcompile.report.html_markup import Markup
from nwcompile.report.html_tables import html_table
from nwcompile.report.text import align_rows, percent

PER_SAMPLE = ("dense_synops", "effective_macs", "effective_acs", "membrane_updates")
ABOUT = (
    "Complexity of the network on this chip and in this run, by the definitions of the benchmark NeuroBench. Weights "
    "that were rounded to 0 count as 0. Operations and updates are means of a sample."
)
NO_STATES = "not counted: the run kept no states; simulate with record='all'"


def collect_neurobench(program: Program, run: Run) -> dict:
    """Bytes, ratios 0..1, and operations per sample; membrane updates are null for a run without recorded states."""
    figures = neurobench(program, run)
    named = {f"{name}_per_sample" if name in PER_SAMPLE else name: value for name, value in asdict(figures).items()}
    return {"footprint_bytes": figures.footprint_bytes, **named}


def neurobench_lines(doc: dict) -> list[str]:
    """Lines for the terminal, one per figure."""
    rows = [(name, value or "–") for name, value, _ in _figure_rows(doc["neurobench"])]
    return align_rows([("NeuroBench", ""), *rows], n_left=1)


def neurobench_table(doc: dict) -> Markup:
    """Render the figures for the page, one per row."""
    columns = [("figure", "name"), ("value", "right"), ("what it counts", "left")]
    return html_table(columns, [list(row) for row in _figure_rows(doc["neurobench"])])


def _figure_rows(n: dict) -> list[tuple[str, str | None, str]]:
    size = {name: f"{grouped(n[f'{name}_bytes'])} bytes" for name in ("footprint", "synapse", "neuron", "state")}
    parts = f"synapses {size['synapse']}, neurons {size['neuron']}; plus states {size['state']}"
    dense, mac, ac, updates = (n[f"{name}_per_sample"] for name in PER_SAMPLE)
    return [
        ("footprint", size["footprint"], parts),
        ("connection sparsity", percent(100 * n["connection_sparsity"]), "weights that are 0"),
        ("activation sparsity", percent(100 * n["activation_sparsity"]), "neurons and steps without a spike"),
        ("dense synops", f"{grouped(dense)} operations", "if no weight and no input were 0"),
        ("effective MACs", f"{grouped(mac)} operations", "on inputs with values other than -1, 0 and 1"),
        ("effective ACs", f"{grouped(ac)} operations", "on spikes"),
        ("membrane updates", None if updates is None else f"{grouped(updates)} updates",
         NO_STATES if updates is None else "neurons and steps that change a membrane"),
    ]  # fmt: skip
