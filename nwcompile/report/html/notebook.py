"""Notebook: what a Network, a Program and a Run show when they are the last line of a notebook's cell."""

from html import escape

from nwcompile.cost.prediction import predict
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.html.network_graph import network_graph
from nwcompile.report.html.page import render_html
from nwcompile.report.html_markup import Markup, tag
from nwcompile.report.html_tables import table
from nwcompile.report.json.collect import collect
from nwcompile.report.text import grouped, number

PAGE_HEIGHT = 640  # Pixels of a report inside a cell; it scrolls.


def html_of_network(network: Network) -> str:
    """The first line of its text, and its graph from top to bottom."""
    return tag("div", _head(network), network_graph(network))


def html_of_program(program: Program) -> str:
    """The report of what its calibration predicts: verdict, fit, cores and links."""
    return tag("div", _head(program), page_in_a_cell(collect(program, predict(program))))


def page_in_a_cell(doc: dict) -> Markup:
    """The page of a report.json in a frame of its own, which scrolls."""
    page = escape(render_html(doc))
    return Markup(f'<iframe srcdoc="{page}" style="width:100%;height:{PAGE_HEIGHT}px;border:0"></iframe>')


def html_of_run(run: Run) -> str:
    """The first line of its text, what every layer sent, and time and energy where they are known."""
    columns = [("layer", "left"), ("neurons", "right"), ("spikes", "right"), ("spikes per neuron and step", "right")]
    rows: list[list[object]] = [
        [row["layer"], grouped(row["neurons"]), grouped(row["spikes"]), number(row["spikes_per_neuron_and_step"])]
        for row in run.layer_rows()
    ]
    took = None if run.seconds is None else tag("p", f"time: {number(run.seconds * 1e6)} us")
    spent = None if run.energy_pj is None else tag("p", f"energy: {number(run.energy_pj['total'] / 1000)} nJ")
    return tag("div", _head(run), table(columns, rows) if rows else None, took, spent)


def _head(noun: Network | Program | Run) -> Markup:
    return tag("p", tag("b", repr(noun).splitlines()[0]))
