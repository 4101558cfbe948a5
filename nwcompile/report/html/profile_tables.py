"""Profile tables: cards of report.html about a profiled run: core phases, messages and links, critical paths."""

from nwcompile.ir.shown import grouped, round_figure
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.text import PARTS, PHASES, latency_text, percent, sender_text

MOST_CORES = 8  # Cores listed, those that work longest; the others are similar.
COLORS = {
    "visit": "#1c6fd1", "update": "#4c93e6", "spike": "#8fbdf0", "message_out": "#7a3fc4", "stall": "#b91c1c",
    "message_in": "#a87be0", "word": "#f2a65a", "synop": "#d9480f", "idle": "var(--track)", "barrier": "#aab2bc",
}  # fmt: skip
PART_COLORS = {"send": "#1c6fd1", "stall": "#b91c1c", "network": "#7a3fc4", "receive": "#d9480f", "link": "#aab2bc"}


def phase_tables(profile: dict) -> Markup:
    """Render a legend, the mean phases of all cores, and those of the cores that work longest."""
    units = profile["phases"]["mean_cycles_per_step"]
    columns = [("core", "name"), ("unit", "left"), ("working", "right"), ("stalled", "right"),
               ("cycles of a mean step", "left")]  # fmt: skip
    rows: list[list[object]] = []
    for unit, of in units.items():
        cells = {phase: sum(cycles) / len(cycles) for phase, cycles in of.items()}
        rows.append(["mean of all", unit, *_work_shares(cells), stacked_bar(cells, PHASES, COLORS)])
    order = sorted(
        ((unit, core) for unit, of in units.items() for core in range(len(of["idle"]))),
        key=lambda place: units[place[0]]["idle"][place[1]],
    )
    for unit, core in order[:MOST_CORES]:
        cells = {phase: cycles[core] for phase, cycles in units[unit].items()}
        rows.append([f"core {core}", unit, *_work_shares(cells), stacked_bar(cells, PHASES, COLORS)])
    used = [phase for phase in PHASES if any(sum(of.get(phase, [])) for of in units.values())]
    return join([bar_legend(used, PHASES, COLORS), html_table(columns, rows)])


def _work_shares(cells: dict[str, float]) -> list[str]:
    total = sum(cells.values()) or 1.0
    stalled = cells.get("stall", 0.0)
    works = total - stalled - cells["idle"] - cells["barrier"]
    return [percent(100 * works / total), percent(100 * stalled / total)]


def message_tables(profile: dict, basis: str | None) -> Markup:
    """Render the latencies, times of this basis, and the most crowded links."""
    latency, ns = profile["latency_cycles"], profile["cycle_ns"]
    if latency["n_messages"] == 0:
        return tag("p", latency_text(profile))
    ranks = ("p50", "p90", "p99", "max")
    latencies = html_table(
        [("messages", "name"), *((rank, "right") for rank in ranks)],
        [
            [f"cycles of {grouped(ns)} ns", *(grouped(latency[rank]) for rank in ranks)],
            ["us", *(grouped(round_figure(latency[rank] * ns / 1000, basis)) for rank in ranks)],
        ],
    )
    room = profile["buffer_flits"]
    columns = [("link", "name"), ("flits", "right"), ("most in a step", "right"),
               (f"mean waiting, of {room}", "right"), ("peak", "right")]  # fmt: skip
    rows: list[list[object]] = []
    for r in profile["congested_links"]:
        flits, longest, peak = (grouped(r[key]) for key in ("flits", "flits_max_step", "peak_flits"))
        rows.append([r["link"], flits, longest, grouped(r["mean_flits"]), peak])
    total = tag("p", f"{grouped(latency['n_messages'])} messages in all.", class_="about")
    return join([latencies, total, html_table(columns, rows)])


def critical_table(profile: dict) -> Markup:
    """Render one row for each of the slowest steps."""
    columns = [("step", "name"), ("cycles", "right"), ("ends with", "left"), ("waits for", "left"),
               ("over link", "left"), ("where the time goes", "left")]  # fmt: skip
    rows: list[list[object]] = []
    for r in profile["critical_paths"]:
        waits = None if r["source_layer"] is None else sender_text(r)
        ends, spent = f"{r['layer']} on core {r['core']}", stacked_bar(r["parts"], PARTS, PART_COLORS)
        rows.append([f"step {r['step']}", grouped(r["cycles"]), ends, waits, r["link"], spent])
    used = [part for part in PARTS if any(r["parts"][part] for r in profile["critical_paths"])]
    return join([bar_legend(used, PARTS, PART_COLORS), html_table(columns, rows)])


def stacked_bar(cells: dict[str, float], names: dict[str, str], colors: dict[str, str]) -> Markup:
    """Draw a bar of parts, each as wide as its share of the sum."""
    total = sum(cells.values()) or 1.0
    bars = [
        tag(
            "i",
            style=f"width:{100 * cycles / total:.2f}%;background:{colors[key]}",
            title=f"{names[key]}: {grouped(cycles)} cycles, {percent(100 * cycles / total)}",
        )
        for key, cycles in cells.items()
        if cycles > 0
    ]
    return tag("div", *bars, class_="stack low")


def bar_legend(keys: list[str], names: dict[str, str], colors: dict[str, str]) -> Markup:
    """Draw the legend of the colors of a bar."""
    marks = [tag("span", tag("i", class_="mark", style=f"background:{colors[key]}"), names[key]) for key in keys]
    return tag("div", *marks, class_="legend")
