"""Notebook: the HTML of a Network, a Program and a Run as the last expression of a notebook cell."""

from html import escape

from nwcompile.cost.prediction import predict
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import format_figure, grouped, number
from nwcompile.report.html.network_graph import network_graph
from nwcompile.report.html.page import render_html
from nwcompile.report.html_markup import Markup, tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.json.collect import collect_report

PAGE_HEIGHT = 640  # Pixels of a report inside a cell, which scrolls.


def html_of_network(network: Network) -> str:
    """Render the first line of a network's repr, and its graph."""
    return tag("div", _first_line(network), network_graph(network))


def html_of_program(program: Program) -> str:
    """Render the report that is predicted from the program's calibration."""
    return tag("div", _first_line(program), render_frame(collect_report(program, predict(program))))


def render_frame(doc: dict) -> Markup:
    """Render a report in its own frame, which scrolls."""
    page = escape(render_html(doc))
    return Markup(f'<iframe srcdoc="{page}" style="width:100%;height:{PAGE_HEIGHT}px;border:0"></iframe>')


def html_of_run(run: Run) -> str:
    """Render the first line of a run's repr, the spikes of every layer, and time and energy if known."""
    columns = [("layer", "left"), ("neurons", "right"), ("spikes", "right"), ("spikes per neuron and step", "right")]
    rows: list[list[object]] = [
        [row["layer"], grouped(row["neurons"]), grouped(row["spikes"]), number(row["spikes_per_neuron_and_step"])]
        for row in run.layer_rows()
    ]
    took = None if run.seconds is None else tag("p", f"time: {format_figure(run.seconds * 1e6, 'us', run.time_basis)}")
    spent = None
    if run.energy_pj is not None:
        energy = format_figure(run.energy_pj["total"] / 1000, "nJ", run.energy_basis)
        spent = tag("p", f"{run.energy_label}: {energy}")
    return tag("div", _first_line(run), html_table(columns, rows) if rows else None, took, spent)


def _first_line(noun: Network | Program | Run) -> Markup:
    return tag("p", tag("b", repr(noun).splitlines()[0]))
