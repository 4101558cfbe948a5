"""Tables of report.html. On a narrow page each table scrolls in its own box."""

import re

from nwcompile.ir.shown import count_text
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.text import binding_text, figure_text, percent, resource_name, with_unit

KINDS = {
    "visit": "neuron visits", "update": "neuron updates", "spike": "spikes", "message_out": "messages out",
    "message_in": "messages in", "synop_dense": "synops, dense", "synop_sparse": "synops, sparse",
    "synop_conv": "synops, convolution", "hop_ew": "hops, east-west", "hop_ns": "hops, north-south",
    "io": "input and output", "chip_link": "links between chips", "static": "static power",
}  # fmt: skip
LAYERS = ("#d9480f", "#e8912d", "#2b8a8a", "#1c6fd1", "#8c5cc9", "#b0567e", "#5c940d", "#a0522d")
LINKS = "#364fc7"  # The color of the links' share of the time, unlike any color of LAYERS.
OTHERS = "#6b5b4b"  # The color of all layers that have no color of their own.
BARRIER = "#aab2bc"  # Gray, as no layer works during the barrier.
LAST_UNIT = re.compile(r"(?<=\d) (?=[a-z]+$)")  # The space of `21 of 24 bits`.
ROWS = {"measured": "measured by the cycle backend", "bound": "bound of this run (floorline)",
        "predicted": "predicted from calibration"}  # fmt: skip


def html_table(columns: list[tuple[str, str]], rows: list[list[object]], foot: list[object] | None = None) -> Markup:
    """Build a table. `columns`: (heading, "left" | "right" | "name"); cells are text, markup, or None for empty.

    `foot`: a row that stays last when the others are sorted. No line breaks between a number and the last word.
    """
    shown = {"left": "left", "name": "left name", "right": None}
    sides = [side for _, side in columns]
    head = [tag("th", heading, class_="left" if side != "right" else None, scope="col") for heading, side in columns]

    def line(row: list[object]) -> Markup:
        kept = (cell if isinstance(cell, Markup | None) else LAST_UNIT.sub("\u00a0", str(cell)) for cell in row)
        return tag("tr", *(tag("td", cell, class_=shown[side]) for side, cell in zip(sides, kept, strict=True)))

    parts = tag("thead", tag("tr", *head)), tag("tbody", *map(line, rows))
    return tag("div", tag("table", *parts, None if foot is None else tag("tfoot", line(foot))), class_="table")


def bar(share_percent: float | None, kind: str = "") -> Markup | None:
    """Draw a bar for a percentage 0..100, with its figure; return None for None."""
    if share_percent is None:
        return None
    full = " full" if kind == "" and share_percent > 100 else ""
    fill = tag("i", style=f"width:{min(max(share_percent, 0.0), 100.0):.1f}%")
    return tag("span", tag("span", fill, class_=f"bar {kind}{full}".strip()), tag("span", percent(share_percent)))


def fit_table(doc: dict) -> Markup:
    """Used, limit and percent of every resource, in the worst core and over the whole chip."""
    right = ("used", "limit", "of limit", "all cores", "chip limit", "of chip")
    columns = [("resource", "name"), ("worst core", "left"), *((heading, "right") for heading in right)]
    rows: list[list[object]] = []
    for r in doc["fit"]:
        unit = r["unit"]
        worst: list[object] = [None] * 4
        if r["core"] is not None:
            worst = [f"core {r['core']}", with_unit(r["used"], unit), _limit_text(r["limit"], unit), bar(r["percent"])]
        whole = with_unit(r["total_used"], unit), _limit_text(r["total_limit"], unit), bar(r["total_percent"])
        rows.append([resource_name(r["resource"]), *worst, *whole])
    return html_table(columns, rows)


def layer_table(doc: dict) -> Markup:
    """One row per layer; columns without any figure are left out."""
    columns = [("layer", "name"), ("neurons", "right"), ("cores", "right"), ("binding resource", "left"),
               ("spikes per step", "right"), ("synops per step", "right"), ("of the step time", "right")]  # fmt: skip
    rows: list[list[object]] = []
    for r in doc["layers"]:
        cores = f"{r['n_cores']} core{'s' if r['n_cores'] != 1 else ''}"
        rows.append(
            [
                r["layer"],
                with_unit(r["neurons"], "neurons"),
                tag("span", cores, title=_list_cores(r["cores"])),
                binding_text(r),
                with_unit(r["spikes_per_step"], "spikes"),
                with_unit(r["synops_per_step"], "synops"),
                bar(r["time_percent"], "time"),
            ]
        )
    kept = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    return html_table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def energy_table(doc: dict) -> Markup:
    """Energy of a sample by kind of event, the largest first, then the kinds without a figure in the chip file."""
    kinds = {key.removesuffix("_pj"): pj for key, pj in doc["energy"]["by_kind_pj_per_sample"].items()}
    total = kinds.pop("total")
    columns = [("event", "name"), ("energy per sample", "right"), ("of all", "right")]
    rows: list[list[object]] = [
        [KINDS[kind], figure_text(doc, pj / 1000, "nJ"), bar(100 * pj / total if total else 0.0, "energy")]
        for kind, pj in sorted(kinds.items(), key=lambda item: -(item[1] or 0))
        if pj
    ]
    rows += [
        [KINDS[kind], "not measured" if kind == "static" else "no source", None]
        for kind, pj in kinds.items()
        if pj is None
    ]
    everything = "all together" if kinds.get("static") is not None else "all events"
    return html_table(columns, rows, foot=[everything, figure_text(doc, total / 1000, "nJ"), None])


def time_table(doc: dict) -> Markup:
    """Predicted, bound and measured step time, side by side."""
    rows: list[list[object]] = []
    measured = doc["time"]["rows"].get("measured")
    for name in ROWS:
        row = doc["time"]["rows"].get(name)
        if row is not None:
            figures = [figure_text(doc, row[key], "us") for key in ("step_us", "step_us_max", "sample_us")]
            share = 0 if measured is None or name == "measured" else measured["step_us"]
            part = bar(100 * row["step_us"] / share, "even") if share else None
            rows.append([ROWS[name], *figures, *([] if measured is None else [part])])
    columns = [("time", "name"), ("mean step", "right"), ("longest step", "right"), ("sample", "right"),
               *([] if measured is None else [("of measured", "right")])]  # fmt: skip
    return html_table(columns, rows)


def time_shares(doc: dict) -> Markup:
    """Draw the shares of layers, links and barrier in the step time: a stacked bar and its legend."""
    largest = sorted(doc["layers"], key=lambda r: -r["time_percent"])
    colored = [r for r in doc["layers"] if r in largest[: len(LAYERS)]]
    parts = [(r["layer"], r["time_percent"], color) for r, color in zip(colored, LAYERS, strict=False)]
    rest = [r["time_percent"] for r in largest[len(LAYERS) :]]
    parts += [(count_text(len(rest), "other layer"), sum(rest), OTHERS), ("links", doc["time"]["links_percent"], LINKS)]
    parts.append(("barrier", doc["time"]["barrier_percent"], BARRIER))
    bars, marks = [], []
    for name, part, color in parts:
        if part > 0:
            about = f"{name}: {percent(part)}"
            bars.append(tag("i", style=f"width:{part:.2f}%;background:{color}", title=about))
            marks.append(tag("span", tag("i", class_="mark", style=f"background:{color}"), about))
    return join([tag("div", *bars, class_="stack"), tag("div", *marks, class_="legend")])


def _limit_text(limit: int | None, unit: str) -> str:
    return "no limit" if limit is None else with_unit(limit, unit)


def _list_cores(cores: list[int]) -> str:
    shown = ", ".join(map(str, cores[:24]))
    return f"cores {shown}" + (f" and {len(cores) - 24} more" if len(cores) > 24 else "")
