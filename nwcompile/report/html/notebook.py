"""Notebook: the HTML of a noun (Network, Chip, Mapping, Program, Run) as the last expression of a notebook cell."""

from collections.abc import Sequence
from html import escape

import numpy as np

from nwcompile.cost.basis import find_silicon
from nwcompile.cost.energy import predict
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network, Node
from nwcompile.ir.program import Program
from nwcompile.ir.resources import RESOURCES, Resource
from nwcompile.ir.run import Basis, Run
from nwcompile.ir.shown import count_text, format_figure, grouped
from nwcompile.report.html.maps import Grid, draw_cores, heat_legend
from nwcompile.report.html.page import render_html
from nwcompile.report.html_markup import Markup, keep_names, tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.json.collect import collect_report

PAGE_HEIGHT = 640  # Pixels of a report inside a cell, which scrolls.
BOX_WIDTH = 210  # Pixels, like all lengths here: room for a name, its shape and its number of neurons.
BOX_HEIGHT = 44  # Two lines of text.
GAP_X = 34  # Pixels between boxes of a row; connections that skip the row pass here.
GAP_Y = 40  # Pixels between rows, with room for the kind of a connection.
MOST_CHARACTERS = 26  # Characters of a name in a box; hovering shows the full name.
MOST_HEIGHT = 560  # Pixels of the drawing in a notebook; a deeper network scrolls.
NAME = "nw-network"  # The CSS class of the drawing, which limits its style to the drawing.
RULES = (  # Text has the color of the cell around it, and fills are transparent: a notebook's theme is not known here.
    "text{font:12px system-ui,sans-serif;fill:currentColor;text-anchor:middle}",
    ".soft{fill-opacity:.75;font-size:11px}",
    "rect{fill:#1c6fd1;fill-opacity:.08;stroke:#3d8be6;stroke-width:1.4}",
    ".input{fill:#7b8794;fill-opacity:.12;stroke:#7b8794}",
    ".junction{stroke-dasharray:4 3}",
    "path{fill:none;stroke:#7b8794;stroke-width:1.3}",
    ".back{stroke:#d9480f;stroke-dasharray:4 3}",
)
MAP_NAME = "nw-mapping"  # The CSS class of the map of a mapping.
MAP_RULES = (
    "text{font:12px system-ui,sans-serif;fill:currentColor;fill-opacity:.75}",
    ".middle,.label{text-anchor:middle}",
    ".end{text-anchor:end}",
    ".label{fill:#000000;fill-opacity:1}",
    ".label.light{fill:#ffffff}",
    ".tile{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.25;stroke-width:.7}",
    ".scale{display:inline-block;width:130px;height:10px;border-radius:5px;margin:0 8px}",
    ".what,.mark{margin-left:14px}",
    ".mark{display:inline-block;width:11px;height:11px;border:1px solid;opacity:.3;margin-right:6px}",
)


def html_of_network(network: Network) -> str:
    """Render the first line of a network's repr, and its graph."""
    return keep_names(tag("div", _first_line(network), network_graph(network)), (*network.inputs, *network.nodes))


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
        [row["layer"], grouped(row["neurons"]), grouped(row["spikes"]), grouped(row["spikes_per_neuron_and_step"])]
        for row in run.layer_rows()
    ]
    took = None if run.seconds is None else tag("p", f"time: {format_figure(run.seconds * 1e6, 'us', run.time_basis)}")
    spent = None
    if run.energy_pj is not None:
        energy = format_figure(run.energy_pj["total"] / 1000, "nJ", run.energy_basis)
        spent = tag("p", f"{run.energy_label}: {energy}")
    table = html_table(columns, rows) if rows else None
    return keep_names(tag("div", _first_line(run), table, took, spent), run.spikes)


def html_of_mapping(mapping: Mapping) -> str:
    """Render the first line of a mapping's repr, a map of its cores, and the cores of every layer.

    A mapping does not know its chip: the map ends with the last router in use.
    """
    columns, rows, ports = (int(n) for n in mapping.site_of.max(0, initial=0) + 1)
    grid = Grid({"columns": columns, "rows": rows, "cores_per_router": ports})
    held = {name: np.bincount(cores, minlength=mapping.n_cores) for name, cores in mapping.core_of.items()}
    n_neurons = sum(held.values(), np.zeros(mapping.n_cores, np.int64))
    hottest = max(int(n_neurons.max(initial=0)), 1)
    cores, titles = [], []
    for core, (x, y, port) in enumerate(mapping.site_of.tolist()):
        cores.append({"core": core, "x": x, "y": y, "port": port})
        layers = [f"{name}: {count_text(int(n[core]), 'neuron')}" for name, n in held.items() if n[core]]
        titles.append("\n".join([f"core {core} at ({x}, {y}) port {port}", *layers]))
    drawing = draw_cores(grid, cores, (n_neurons / hottest).tolist(), titles)
    legend = heat_legend("neurons of a core; x to the right, y upwards; hover for layers", hottest)
    style = tag("style", _scope_rules(MAP_NAME, MAP_RULES))
    box = tag("div", drawing, style=f"max-height:{MOST_HEIGHT}px;overflow:auto")
    used: list[list[object]] = [
        [name, grouped(len(of)), grouped(int(np.count_nonzero(held[name])))] for name, of in mapping.core_of.items()
    ]
    table = html_table([("layer", "left"), ("neurons", "right"), ("cores", "right")], used)
    return keep_names(tag("div", style, _first_line(mapping), box, legend, table, class_=MAP_NAME), held)


def html_of_chip(chip: Chip) -> str:
    """Render the first line of a chip's repr and a table of its key figures, each with its basis; hover for sources."""
    noc, reset = chip.noc, ("resets", ", ".join(chip.neuron.reset), "neuron.reset")
    routers = f"{grouped(chip.n_cores)}: {noc.columns} x {noc.rows} routers, {noc.cores_per_router} each"
    figures = [
        ("cores", routers, "noc.columns"),
        *((f"{r.name} per core", _limit_text(chip, r), chip.limit_key(r.limit_key)) for r in RESOURCES),
        ("weights", count_text(chip.weights.bits, "bit"), "weights.bits"),
        ("states", count_text(chip.state.bits, "bit"), "state.bits"),
        ("neurons", "programmable", "neuron.programmable") if chip.neuron.programmable else reset,
        ("spikes", ", ".join(chip.neuron.spikes), "neuron.spikes"),
    ]
    rows: list[list[object]] = []
    for what, value, key in figures:
        basis = tag("span", chip.basis_of(key), title=f"{key}: {chip.source_of(key) or 'default'}")
        rows.append([what, value, basis])
    for what, is_known, quantity in (("times", chip.gives_times, "time"), ("energies", chip.has_energies, "energy")):
        error = Basis("", (), find_silicon(chip, quantity)).error
        rows.append([what, "known" if is_known else "not known", error and f"{error}, against silicon"])
    table = html_table([("figure", "left"), ("value", "left"), ("basis", "left")], rows)
    return tag("div", _first_line(chip), tag("p", chip.description) if chip.description else None, table)


def _limit_text(chip: Chip, resource: Resource) -> str:
    limit = chip.largest_limit(resource)
    prefix = "up to " if isinstance(getattr(chip.core, resource.limit_key), list) else ""
    return "any number" if limit is None else f"{prefix}{grouped(limit)} {resource.unit}"


def _first_line(noun: Network | Program | Run | Mapping | Chip) -> Markup:
    return tag("p", tag("b", repr(noun).splitlines()[0]))


def _scope_rules(name: str, rules: Sequence[str]) -> Markup:
    """Rules of CSS that hold inside elements of one class."""
    return Markup("".join(f".{name} :is({rule.replace('{', '){', 1)}" for rule in rules))


def network_graph(network: Network) -> Markup:
    """Draw a network in its own box, which scrolls if the drawing is large."""
    rank = _rank_nodes(network)
    rows: list[list[str]] = [[] for _ in range(max(rank.values(), default=0) + 1)]
    for name, level in rank.items():
        rows[level].append(name)
    widest = max(map(len, rows))
    width = widest * (BOX_WIDTH + GAP_X) + GAP_X
    height = len(rows) * (BOX_HEIGHT + GAP_Y)
    place = {}
    for level, row in enumerate(rows):
        left = (width - len(row) * (BOX_WIDTH + GAP_X) + GAP_X) / 2
        for i, name in enumerate(row):
            place[name] = (left + i * (BOX_WIDTH + GAP_X), GAP_Y / 2 + level * (BOX_HEIGHT + GAP_Y))
    lines = [_draw_connection(c, place, rank) for c in network.connections]
    boxes = [
        _box(node, place[name], name in network.inputs) for name, node in {**network.inputs, **network.nodes}.items()
    ]
    size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    drawing = tag(
        "svg",
        tag("style", _scope_rules(NAME, RULES)),
        *lines,
        *boxes,
        class_=NAME,
        xmlns="http://www.w3.org/2000/svg",
        **size,
    )
    return tag("div", drawing, style=f"max-height:{MOST_HEIGHT}px;overflow:auto")


def _rank_nodes(network: Network) -> dict[str, int]:
    """The row of every input and node: one below the lowest that feeds it, without feedback connections."""
    rank = dict.fromkeys(network.inputs, 0)
    for name in network.order:
        rank[name] = 1 + max((rank[c.source] for c in network.into(name) if c.source in rank), default=0)
    return rank


def _box(node: Node, at: tuple[float, float], is_input: bool) -> Markup:
    x, y = at
    kind = "input" if is_input else "layer" if node.neuron is not None else "junction"
    name = node.name if len(node.name) <= MOST_CHARACTERS else f"{node.name[: MOST_CHARACTERS - 1]}…"
    shape = " x ".join(map(str, node.shape))
    about = f"{kind}, {shape}" if len(node.shape) == 1 else f"{kind}, {shape} = {grouped(node.n_neurons)}"
    return tag(
        "g",
        tag("title", f"{node.name}: {node.neuron if node.neuron is not None else kind}"),
        tag("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=6, class_=kind),
        tag("text", name, x=x + BOX_WIDTH / 2, y=y + 18),
        tag("text", about, x=x + BOX_WIDTH / 2, y=y + 35, class_="soft"),
    )


def _draw_connection(edge: Connection, place: dict[str, tuple[float, float]], rank: dict[str, int]) -> Markup:
    """Draw a connection from source to target; one that skips rows or points back bends around on the right."""
    (x0, y0), (x1, y1) = place[edge.source], place[edge.target]
    is_back = rank[edge.source] >= rank[edge.target]
    title = tag("title", f"{type(edge).__name__}: {edge.source} to {edge.target}, delay {edge.aligned_delay}")
    if is_back or rank[edge.target] - rank[edge.source] > 1:
        x0, x1, y0, y1 = x0 + BOX_WIDTH, x1 + BOX_WIDTH, y0 + BOX_HEIGHT / 2, y1 + BOX_HEIGHT / 2
        turn = max(x0, x1) + GAP_X * 0.8
        return tag("path", title, d=f"M{x0:.0f} {y0:.0f}C{turn:.0f} {y0:.0f} {turn:.0f} {y1:.0f} {x1:.0f} {y1:.0f}",
                   class_="back" if is_back else None)  # fmt: skip
    x0, x1, y0 = x0 + BOX_WIDTH / 2, x1 + BOX_WIDTH / 2, y0 + BOX_HEIGHT
    middle = (y0 + y1) / 2
    kind = tag("text", type(edge).__name__, x=(x0 + x1) / 2 + 34, y=middle + 4, class_="soft")
    path = tag("path", title, d=f"M{x0:.0f} {y0:.0f}C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}")
    return tag("g", path, kind)
