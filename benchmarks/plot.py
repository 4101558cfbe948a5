"""Line plots of benchmarks as SVG files, both axes logarithmic."""

from nwcompile.ir.shown import grouped
from nwcompile.report.html.plots import Axis
from nwcompile.report.html_markup import Markup, tag

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM, LINE = 80, 40, 40, 60, 17
COLORS = ("#1c6fd1", "#d9480f", "#2b8a8a", "#8c5cc9", "#777777", "#a67c00")
STYLE = "font-family:sans-serif;font-size:13px;background:#fff"


def line_plot(
    title: str, label_x: str, label_y: str, series: dict[str, list[tuple[float, float]]], loose: tuple = ()
) -> str:
    """An SVG of named curves, points (x, y) above 0; a mark of each point tells its values. `loose` has no line."""
    points, top = [point for curve in series.values() for point in curve], TOP + LINE * len(series)
    x = Axis([p[0] for p in points], LEFT, WIDTH - RIGHT, log=True)
    y = Axis([p[1] for p in points], HEIGHT - BOTTOM, top, log=True)
    marks: list[Markup] = []
    for v in x.ticks():
        marks += [_line(x.at(v), top, x.at(v), y.start, "#e3e6ea"), _text(grouped(v), x.at(v), y.start + 18, "middle")]
    for v in y.ticks():
        marks += [_line(LEFT, y.at(v), x.end, y.at(v), "#e3e6ea"), _text(grouped(v), LEFT - 8, y.at(v) + 4, "end")]
    for i, (name, curve) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        path = "M" + "L".join(f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in curve)
        if name not in loose:
            marks.append(tag("path", d=path, fill="none", stroke=color, stroke_width=2))
        for a, b in curve:
            about = tag("title", f"{name}: {grouped(a)}, {grouped(b)}")
            marks.append(tag("circle", about, cx=x.at(a), cy=y.at(b), r=4, fill=color))
        marks.append(_text(name, LEFT + 12, TOP + LINE * i, "start", color))
    turned = f"translate(18 {(y.start + y.end) / 2:.0f}) rotate(-90)"
    names = [
        _text(title, WIDTH / 2, 22, "middle"),
        _text(label_x, (LEFT + x.end) / 2, HEIGHT - 14, "middle"),
        tag("text", label_y, text_anchor="middle", transform=turned),
    ]
    place = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
    return tag("svg", *marks, *names, style=STYLE, **place)


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> Markup:
    return tag("path", d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", stroke=color)


def _text(text: str, x: float, y: float, anchor: str, color: str = "#222222") -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor, fill=color)


def ratio_plot(title: str, marked: str, lines: dict[str, tuple[dict[str, float], float | None]]) -> str:
    """An SVG with one line of dots each: ratios by name on a logarithmic axis, and a bar at a bound if it is given.

    The dot of the name `marked` is colored; every dot tells its name and value.
    """
    left, gap = 150, 26
    ratios = [value for dots, bound in lines.values() for value in [*dots.values(), *([bound] if bound else [])]]
    height = TOP + gap * len(lines) + 50
    x = Axis(ratios, left, WIDTH - RIGHT, log=True)
    marks = [_text(title, WIDTH / 2, 22, "middle")]
    for v in x.ticks():
        marks += [
            _line(x.at(v), TOP, x.at(v), height - 40, "#e3e6ea"),
            _text(grouped(v), x.at(v), height - 22, "middle"),
        ]
    for i, (name, (dots, bound)) in enumerate(lines.items()):
        y = TOP + gap * (i + 0.5)
        marks.append(_text(name, left - 10, y + 4, "end"))
        if bound:
            bar = {"d": f"M{x.at(bound):.1f} {y - 9:.1f}V{y + 9:.1f}", "stroke": "#222222", "stroke_width": 2}
            marks.append(tag("path", tag("title", f"bound: {bound:.2f}"), **bar))
        for method, value in sorted(dots.items(), key=lambda pair: pair[0] == marked):
            about, is_marked = tag("title", f"{method}: {value:.2f}"), method == marked
            color = COLORS[0] if is_marked else COLORS[4]
            opacity = None if is_marked else "0.5"
            marks.append(
                tag("circle", about, cx=x.at(value), cy=y, r=6 if is_marked else 4, fill=color, opacity=opacity)
            )
    place = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {height}"}
    return tag("svg", *marks, style=STYLE, **place)
