"""Page: the table of a sweep as one self-contained page: two figures and the front, parallel coordinates, the points.

`page.js` draws the interactive parts from the rows, which are embedded in the page. Without scripts only the table of
the front is shown. The page loads nothing from the network.
"""

import json
from collections.abc import Callable
from pathlib import Path

from nwcompile.report.html.data import embed_data
from nwcompile.report.html.page import page_title, whole_page
from nwcompile.report.html_markup import Markup, keep_names, tag
from nwcompile.report.html_tables import html_table
from nwcompile.workbench.figures import find_bases, format_cell

SCRIPT = Path(__file__).with_name("page.js").read_text()
WORST_ACCURACY = 0.01  # Distance from the best accuracy at which energy and time decide which point is opened.
MOST_ROWS = 5000  # More rows are unreadable and slow in a browser; only the best and a sample of the others are drawn.
LABELS = {
    "n_cores_used": "cores used", "step_us": "step time, us", "sample_us": "sample time, us",
    "sample_nj": "energy of the cores, nJ", "power_mw": "power, mW", "edp_nj_us": "energy x time, nJ us",
    "accuracy": "accuracy", "least_edp_nj_us": "bound of energy x time, nJ us", "time_basis": "basis of times",
    "energy_basis": "basis of energies",
}  # fmt: skip
SETTINGS = {"n_cores": "number of cores", "bits": "weight bits", "layer_bits": "weight bits of layers"}
BASES = ("time_basis", "energy_basis")
LOOK = """
#plot svg, #lines svg { touch-action: pan-y; }
svg circle.point { fill: #8fa3b8; fill-opacity: .75; stroke: none; cursor: pointer; }
svg circle.front { fill: var(--memory); stroke: var(--card); cursor: pointer; }
svg circle.picked { fill: var(--ink); stroke: var(--card); }
svg path.point { fill: none; stroke: #9fb0c2; stroke-width: 1; stroke-opacity: .55; cursor: pointer; }
svg path.front { fill: none; stroke: var(--memory); stroke-width: 1.6; stroke-opacity: .8; cursor: pointer; }
svg path.picked { stroke: var(--ink); stroke-width: 3; stroke-opacity: 1; }
svg path:hover { stroke-width: 3; stroke-opacity: 1; }
svg .left-out { opacity: .07; }
svg path.front-line { fill: none; stroke: var(--memory); stroke-dasharray: 4 3; pointer-events: none; }
svg .axis { stroke: var(--soft); stroke-width: 1.2; }
svg .handle { fill: transparent; cursor: crosshair; }
svg .range { fill: var(--compute); fill-opacity: .2; }
svg text, svg .name, svg text.tick { font-size: 12px; pointer-events: none; }
#lines text { paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
#lines text.tick { font-size: 11px; }
label { white-space: nowrap; }
select { font: inherit; margin-right: 12px; max-width: 100%; }
button.id { white-space: nowrap; font: inherit; border: 0; padding: 0; }
button.id span { color: var(--memory); }
button.id { background: none; color: var(--compute); cursor: pointer; }
"""


def name_column(name: str) -> str:
    """Name a figure or a setting in words: `step time, us`, `number of cores`, `buffer flits (noc)`."""
    section, _, key = name.partition(".")
    if key:
        return f"weight bits of {key}" if section == "layer_bits" else f"{key.replace('_', ' ')} ({section})"
    return LABELS.get(name) or SETTINGS.get(name) or name.replace("_", " ")


def render_page(swept, has_report: Callable[[str], bool]) -> str:
    """Render the page of a Sweep. `has_report(point_id)` says whether the folder has the report of a point."""
    front, numbers = {row["id"] for row in swept.front}, swept.numbers
    words = [{name: row[name].partition(";")[0] for name in BASES if row.get(name)} for row in swept.rows]
    rows = [row | of_row for row, of_row in zip(swept.rows, words, strict=True)]  # The header has the errors.
    drawn = _select_rows(rows, front)
    columns = _describe_columns(swept, drawn)
    picked, rule = _choose_first(swept)
    data = {
        "columns": columns,
        "objectives": [*swept.minimize, *swept.maximize],
        "x": _first_known(columns, ("sample_us", "step_us", "n_cores_used")),
        "y": _first_known(columns, ("sample_nj", "accuracy", "n_cores_used")),
        "picked": picked,
        "noReport": "The report of this point is not in the folder; --keep all writes those of all points.",
        "rows": [
            {
                "id": row["id"],
                "number": numbers[row["id"]],
                "front": row["id"] in front,
                "cells": _row_cells(row, columns, swept.settings),
                "error": row["error"],
                "report": report_path(row["id"]) if has_report(row["id"]) else None,
            }
            for row in drawn
        ],
    }
    some = f" Drawn: {len(drawn)} of them, the best among them." if len(drawn) < len(rows) else ""
    verdict = tag("p", swept.line + some, class_="verdict")
    header = tag("header", page_title(f"sweep of {swept.title}"), verdict, *(tag("p", line) for line in swept.bases))
    drawn_cards = [
        _card("Two figures", "Each dot is a point. Orange: Pareto-optimal, no other point is better in all objectives.",
              tag("p", tag("label", "x axis ", tag("select", id="x")), tag("label", "y axis ", tag("select", id="y"))),
              tag("div", id="plot")),
        _card("Selected point", f"At first {rule}.", tag("div", id="picked")),
        _card("All figures", "Each line is a point. Drag along an axis to keep a range of points; click the axis to "
              "keep all again.", tag("div", id="lines"), tag("p", id="kept")),
        _card("All points", "Pareto-optimal points, with a ●, come first. Click a number to select its point.",
              _point_table(swept, drawn, front, has_report)),
    ]  # fmt: skip
    failed = _card("Points that failed", None, tag("ul", *(tag("li", line) for line in swept.failures)))
    cards = [*drawn_cards, *([failed] if swept.failed else [])]
    content = tag("main", header, tag("div", *cards, class_="grid"))
    page = whole_page(f"sweep of {swept.title}", content, embed_data(data), more_style=LOOK, script=SCRIPT)
    return keep_names(page, map(name_column, swept.settings))


def _choose_first(swept) -> tuple[str | None, str]:
    """Return the id of the point that is selected at first, None if no point has figures, and the rule in words.

    The rule takes the least energy x time, or time, of the Pareto-optimal points; if accuracy is an objective, of those
    at most WORST_ACCURACY below the best.
    """
    front, among = swept.front, ""
    name = next((n for n in ("edp_nj_us", "step_us") if all(row.get(n) is not None for row in front)), None)
    if front and "accuracy" in swept.maximize:
        best = max(row["accuracy"] for row in front)
        front = [row for row in front if row["accuracy"] >= best - WORST_ACCURACY - 1e-9]
        among = f" among those within {100 * WORST_ACCURACY:g} percentage point of the best accuracy"
    which = "first Pareto-optimal point" if name is None else "Pareto-optimal point"
    least = "" if name is None else f" with the least {name_column(name).partition(',')[0]}"
    first = min(front, key=lambda row: 0 if name is None else row[name])["id"] if front else None
    return first, f"the {which}{least}{among}"


def report_path(point_id: str) -> str:
    """The path of a point's report, relative to the page."""
    return f"points/{point_id}/report.html"


def _describe_columns(swept, rows: list[dict]) -> list[dict]:
    """Describe the columns: settings, then known figures, each with name, label, and the texts of a non-numeric axis.

    `lacks`: some points have no number there, such as the energy on a chip without energy figures.
    """
    columns = []
    for name in (*swept.settings, *_list_figures(rows)):
        values = [row.get(name) for row in rows if row["error"] is None or name in swept.settings]
        given = [v for v in values if v is not None]
        numbers = bool(given) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in given)
        texts = None if numbers else list(dict.fromkeys(_cell_text(v) for v in values))
        columns.append(
            {
                "name": name,
                "label": name_column(name),
                "values": texts,
                "varies": len(set(map(_cell_text, values))) > 1,
                "lacks": numbers and len(given) < len(values),
                "digits": _count_digits(name, rows),
            }
        )
    return columns


def _list_figures(rows: list[dict]) -> list[str]:
    """The figures that some rows have; and the bases, if they differ. The page's header tells a common basis."""
    names = []
    for name in LABELS:
        given = {row[name] for row in rows if row.get(name) is not None}
        if given and (len(given) > 1 or name not in BASES):
            names.append(name)
    return names


def _count_digits(name: str, rows: list[dict]) -> int | None:
    """The significant digits of a column of times or energies, as in `round_figure`; None for other columns."""
    bases = [basis for row in rows for basis in find_bases(row, name)]
    return None if not bases else 2 if any(basis.startswith("assumed") for basis in bases) else 3


def _row_cells(row: dict, columns: list[dict], settings: tuple[str, ...]) -> list:
    """The cells of a row: a number, a text or None per column. A failed point has only settings, which are first."""
    of_row = columns if row["error"] is None else columns[: len(settings)]
    cells = [row.get(column["name"]) for column in of_row]
    return [v if column["values"] is None else _cell_text(v) for column, v in zip(of_row, cells, strict=True)]


def _cell_text(value) -> str:
    """Format a value as page.js and the tables do."""
    value = json.dumps(value) if isinstance(value, dict | list) else value
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _first_known(columns: list[dict], names: tuple[str, ...]) -> int:
    places = {column["name"]: i for i, column in enumerate(columns)}
    return next((places[name] for name in names if name in places), 0)


def _select_rows(rows: list[dict], front: set[str]) -> list[dict]:
    """Select all rows, or the front and an even sample of the others, in their order."""
    if len(rows) <= MOST_ROWS:
        return rows
    rest = [row for row in rows if row["id"] not in front]
    step = max(1, -(-len(rest) // max(MOST_ROWS - len(front), 1)))
    kept = front | {row["id"] for row in rest[::step]}
    return [row for row in rows if row["id"] in kept]


def _point_table(swept, drawn: list[dict], front: set[str], has_report: Callable[[str], bool]) -> Markup:
    """Render the points, the front first, each with its settings, its figures and its report."""
    names, numbers = [*swept.settings, *_list_figures(drawn)], swept.numbers
    rows: list[list[object]] = []
    for row in sorted(drawn, key=lambda row: row["id"] not in front):
        link = tag("a", "report", href=report_path(row["id"])) if has_report(row["id"]) else None
        mark = tag("span", " ●") if row["id"] in front else None
        rows.append(
            [
                tag("button", str(numbers[row["id"]]), mark, class_="id", data_id=row["id"], type="button"),
                *(format_cell(row, v) if type(row.get(v)) in (int, float) else _cell_text(row.get(v)) for v in names),
                link,
            ]
        )
    columns = [("point", "name"), *((name_column(name), "right") for name in names), ("", "right")]
    return tag("div", html_table(columns, rows), class_="lists")


def _card(title: str, about: str | None, *content: Markup) -> Markup:
    lines = [] if about is None else [tag("p", about, class_="about")]
    width = "whole" if title in ("All points", "All figures", "Points that failed") else "half"
    return tag("section", tag("h2", title), *lines, *content, class_=f"card {width}")
