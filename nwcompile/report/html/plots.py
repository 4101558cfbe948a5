"""Plots: the floorline (step time against the synops of the busiest core), the steps, and power over time."""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, floor, log10
from typing import Any

from nwcompile.ir.shown import grouped
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.text import bottleneck_text, figure_text

WIDTH = 640  # Units of the drawing, which scales with the page.
HEIGHT = 360  # Units: a plot is 16 to 9.
LEFT = 90  # Units from the edge to the plot, with room for the name and the numbers of the y axis on a phone.
RIGHT = 18  # Units from the plot to the edge, without text.
TOP = 18  # Units from the edge to the plot, without text.
BOTTOM = 56  # Units from the plot to the edge, with room for the numbers and the name of the x axis.
MOST_POINTS = 1000  # More points would overlap in a plot 640 units wide.
KINDS = ("memory", "compute", "traffic", "barrier")
SERIES = {
    "core": "a core, mean of the steps",
    "measured": "measured",
    "bound": "bound of this run",
    "predicted": "predicted from calibration",
    "floor": "barrier alone",
}


class Axis:
    """One axis, which maps a value to a position in the drawing; `log` or linear."""

    def __init__(self, values: list[float], start: float, end: float, log: bool):
        self.start, self.end, self.log = start, end, log
        values = [v for v in values if v > 0 or not log] or [1.0]
        low, high = min(values), max(values)
        if log:
            self.low, self.high = 1 / _round_up(1.02 / low), _round_up(high * 1.02)
        else:
            step = _round_up((high or 1.0) / 5)
            self.low, self.high = 0.0, ceil((high or 1.0) / step - 1e-9) * step

    def at(self, value: float) -> float:
        """The position of a value; values below the axis are put at its start."""
        if self.log:
            part = log10(max(value, self.low) / self.low) / log10(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(max(part, 0.0), 1.0)

    @property
    def ends(self) -> str:
        """Values and positions of both ends; report.js uses them to place other values."""
        return f"{self.low!r} {self.high!r} {self.start} {self.end}"

    def ticks(self) -> list[float]:
        """The round values to label along the axis."""
        if not self.log:
            step = _round_up(self.high / 5)
            return [i * step for i in range(round(self.high / step) + 1)]
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        wide = log10(self.high / self.low) > 3.2
        candidates = [m * 10.0**d for d in decades for m in ((1,) if wide else (1, 2, 5))]
        return [v for v in candidates if self.low * 0.999 <= v <= self.high * 1.001]


def _round_up(x: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(x))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= x * 0.999)


def floorline_plot(doc: dict, alike: Sequence[dict] = ()) -> Markup:
    """Plot time against synops (both log): every core in a mean step, the busiest of each step, floor and slope.

    The time of a core is the barrier plus the work of its busiest unit. Points of cores are in the order of `cores` of
    report.json; report.js relies on it. `alike`: the documents whose plots have the same axes, including this one.
    """
    series, cores = _floorline_series(doc), _core_points(doc)
    x_values, y_values = [], []
    for other in alike or [doc]:
        lines, of_steps = other["floorline"], _floorline_series(other)
        points = [*(point for name in of_steps for point in of_steps[name]), *_core_points(other)]
        x_values += [*(p[0] for p in points), _knee_synops(lines) / 2]
        y_values += [*(p[1] for p in points), lines["floor_us"] * 0.7]
    x = Axis(x_values, LEFT, WIDTH - RIGHT, log=True)
    y = Axis(y_values, HEIGHT - BOTTOM, TOP, log=True)
    marks = [tag("g", *(_core_point(doc, c["core"], p, x, y) for c, p in zip(doc["cores"], cores, strict=True)),
                 class_="core-points")]  # fmt: skip
    for name, group in series.items():
        marks += [_step_point(doc, name, h, p, x, y) for h, p in _thin_out(group)]
    label_x, label_y = "synops per step of a core, or of the busiest core (log)", "time per step, us (log)"
    names = ["core", *series]
    return join([_frame("floorline", x, y, label_x, label_y, _floor_and_slope(doc, x, y), *marks), _key(doc, names)])


def _step_times(doc: dict) -> dict[str, list[float]]:
    """Return the known times of each hardware step, in us."""
    steps = doc["steps"]
    return {name: steps[f"{name}_us"] for name in ("predicted", "bound", "measured") if steps[f"{name}_us"] is not None}


def _floorline_series(doc: dict) -> dict[str, list[tuple[float, float]]]:
    """Return the synops of the busiest core, and the known times, of each hardware step."""
    steps = doc["steps"]
    return {
        name: list(zip(steps["predicted_max_synops" if name == "predicted" else "max_synops"], times, strict=True))
        for name, times in _step_times(doc).items()
    }


def _core_points(doc: dict) -> list[tuple[float, float]]:
    barrier = doc["floorline"]["barrier_us"]
    return [(c["synops_per_step"], barrier + c["busy_us_per_step"]) for c in doc["cores"]]


def _core_point(doc: dict, core: int, point: tuple[float, float], x_axis: Axis, y_axis: Axis) -> Markup:
    synops, us = point
    about = f"core {core}: {grouped(synops)} synops, {figure_text(doc, us, 'us')}"
    return tag("circle", tag("title", about), cx=x_axis.at(synops), cy=y_axis.at(us), r=2.5)


def _knee_synops(lines: dict) -> float:
    """The number of synops at which the slope leaves the floor."""
    above = lines["floor_us"] - lines["barrier_us"]
    return above / lines["us_per_synop"] if above > 0 and lines["us_per_synop"] > 0 else 2.0


def name_floor(doc: dict) -> str:
    """Name what makes the floor: the barrier, or the shortest step of a chip without one, and compute."""
    return "barrier and compute" if doc["floorline"]["barrier_us"] else "shortest step or compute"


def _floor_and_slope(doc: dict, x_axis: Axis, y_axis: Axis) -> Markup:
    """Draw the floor and, from the knee to the end of the axis, the slope."""
    lines = doc["floorline"]
    floor_us, slope, barrier = lines["floor_us"], lines["us_per_synop"], lines["barrier_us"]
    path = f"M{x_axis.start:.1f} {y_axis.at(floor_us):.1f}"
    steps = [x_axis.low * (x_axis.high / x_axis.low) ** (i / 120) for i in range(121)]
    path += "".join(f"L{x_axis.at(v):.1f} {y_axis.at(max(floor_us, barrier + slope * v)):.1f}" for v in steps)
    floor_text, barrier_text = (figure_text(doc, us, "us") for us in (floor_us, barrier))
    about = f"floor {floor_text}, barrier {barrier_text} of it; slope {figure_text(doc, slope * 1000, 'ns per synop')}"
    corner = {"x": x_axis.start + 12, "y": y_axis.at(floor_us) + 20}
    text = tag("text", f"floor: {name_floor(doc)} {floor_text}", **corner, class_="note")
    return join([tag("path", tag("title", about), d=path, class_="floorline"), text])


def _step_point(doc: dict, name: str, h: int, point: tuple[float, float], x_axis: Axis, y_axis: Axis) -> Markup:
    synops, us = point
    kind = doc["steps"]["bottleneck"][h]["kind"] if name == "measured" else ""
    about = f"{SERIES[name]}, step {h}: {figure_text(doc, us, 'us')}, {grouped(synops)} synops on the busiest core"
    about += f", {kind}-bound" if kind else ""
    cx, cy = x_axis.at(synops), y_axis.at(us)
    if name == "predicted":
        d = f"M{cx - 4:.1f} {cy:.1f}h8M{cx:.1f} {cy - 4:.1f}v8"
        return tag("path", tag("title", about), d=d, class_="predicted")
    return tag("circle", tag("title", about), cx=cx, cy=cy, r=5.5 if name == "bound" else 3.5, class_=f"{name} {kind}")


def step_plot(doc: dict, alike: Sequence[dict] = ()) -> Markup:
    """Plot the measured, bound and predicted time of each hardware step; `alike` as in `floorline_plot`."""
    steps, series = doc["steps"], _step_times(doc)
    drawn = [times for other in alike or [doc] for times in _step_times(other).values()]
    x = Axis([1.0], LEFT, WIDTH - RIGHT, log=False)
    x.high = float(max(1, *(len(times) - 1 for times in drawn)))
    y = Axis([us for times in drawn for us in times], HEIGHT - BOTTOM, TOP, log=False)
    barrier = doc["floorline"]["barrier_us"]
    line = tag("path", tag("title", SERIES["floor"]), d=f"M{x.start} {y.at(barrier):.1f}H{x.end}", class_="floor")
    marks, lines = ([line], ["floor line"]) if barrier else ([], [])
    lines = [*(f"{name} line" for name in series), *lines]
    for name, values in series.items():
        d = "M" + "L".join(f"{x.at(h):.1f} {y.at(v):.1f}" for h, v in _thin_out(values))
        marks.append(tag("path", tag("title", SERIES[name]), d=d, class_=f"line {name}"))
    for h, us in _thin_out(steps["measured_us"] or steps["bound_us"]):
        b = steps["bottleneck"][h]
        about = f"step {h}: {figure_text(doc, us, 'us')}, {bottleneck_text(b)}"
        marks.append(tag("circle", tag("title", about), cx=x.at(h), cy=y.at(us), r=4, class_=f"dot {b['kind']}"))
    return join([_frame("steps", x, y, "hardware step", "time per step, us", *marks), _key(doc, lines)])


def energy_plot(doc: dict) -> Markup:
    """Plot the power of each hardware step over the time of a sample, or the energy of each step without times."""
    steps, power = doc["steps"], doc["steps"]["power_mw"]
    values = steps["energy_pj"] if power is None else power
    label_x, label_y, unit = ("hardware step", "energy per step, pJ", "pJ")
    ends = list(range(1, len(values) + 1))
    if power is not None:
        label_x, label_y, unit = ("time, us", "power, mW", "mW")
        ends = list(accumulate(steps["measured_us"] or steps["bound_us"]))
    x = Axis([float(ends[-1])], LEFT, WIDTH - RIGHT, log=False)
    y = Axis(values, HEIGHT - BOTTOM, TOP, log=False)
    d = f"M{x.start:.1f} {y.at(values[0]):.1f}"
    d += "".join(f"V{y.at(values[h]):.1f}H{x.at(end):.1f}" for h, end in _thin_out(ends))
    peak = max(range(len(values)), key=values.__getitem__)
    about = f"most in hardware step {peak}: {figure_text(doc, values[peak], unit)}"
    return _frame("energy", x, y, label_x, label_y, tag("path", tag("title", about), d=d, class_="line measured"))


def _thin_out(values: list) -> list[tuple[int, Any]]:
    """Pair values with their index; if there are more than MOST_POINTS, only evenly spaced ones."""
    every = -(-len(values) // MOST_POINTS)
    return [(i, values[i]) for i in range(0, len(values), max(every, 1))]


def _frame(title: str, x_axis: Axis, y_axis: Axis, label_x: str, label_y: str, *marks: Markup) -> Markup:
    """Draw axes, grid and labels around the marks."""
    grid = []
    for v in y_axis.ticks():
        grid.append(tag("path", d=f"M{x_axis.start} {y_axis.at(v):.1f}H{x_axis.end}", class_="grid-line"))
        grid.append(tag("text", grouped(v), x=x_axis.start - 8, y=y_axis.at(v) + 4, class_="axis end"))
    for i, v in enumerate(x_axis.ticks()):
        grid.append(tag("path", d=f"M{x_axis.at(v):.1f} {y_axis.start}V{y_axis.end}", class_="grid-line"))
        side = "axis middle every-other" if i % 2 else "axis middle"
        grid.append(tag("text", grouped(v), x=x_axis.at(v), y=y_axis.start + 22, class_=side))
    upright = f"translate(16 {(y_axis.start + y_axis.end) / 2:.0f}) rotate(-90)"
    parts = [
        tag("title", title),
        tag("g", *grid, class_="axes"),
        tag("text", label_x, x=(x_axis.start + x_axis.end) / 2, y=HEIGHT - 8, class_="name middle"),
        tag("text", label_y, x=0, y=0, class_="name middle", transform=upright),
        tag("g", *marks, class_="marks"),
    ]
    box, ends = f"0 0 {WIDTH} {HEIGHT}", {"data_x": x_axis.ends, "data_y": y_axis.ends}
    return tag("svg", *parts, viewBox=box, role="img", class_=f"plot {title}", **ends)


def _key(doc: dict, names: list[str]) -> Markup:
    """Draw the legend: the series, as points or as a "line", and the colors of the bottlenecks that occur."""
    entries = [tag("span", tag("i", class_=f"mark {name}"), SERIES[name.partition(" ")[0]]) for name in names]
    kinds_met = {b["kind"] for b in doc["steps"]["bottleneck"]}
    entries += [tag("span", tag("i", class_=f"mark dot {k}"), f"{k}-bound") for k in KINDS if k in kinds_met]
    return tag("div", *entries, class_="legend")
