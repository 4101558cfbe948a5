"""Maps: the chip from above, north up, with cores colored by work and links by flits; hovering shows details."""

from math import isqrt

from nwcompile.ir.shown import grouped, round_figure
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.text import basis_text, figure_text, percent

WIDTH = 640  # Units of the drawing, which scales with the page.
NARROW = 330  # A drawing of fewer units is not shrunk on a phone, and keeps the size of its text.
MARGIN = 22  # Units around the map, with room for the numbers of columns and rows.
LARGEST_PITCH = 76  # Pixels from router to router of a small chip, whose squares would be clumsy if larger.
SMALLEST_PITCH = 3  # Pixels from router to router of a large chip; less would be invisible.
LABELED_PITCH = 44  # Pixels from router to router from which a core's number fits into its square.
HEAT = ((0.0, (254, 243, 199)), (0.25, (253, 202, 96)), (0.5, (245, 142, 50)), (0.75, (213, 74, 36)),
        (1.0, (127, 29, 29)))  # fmt: skip
DARK_FROM = 0.77  # From this share of the largest load on, white numbers are more readable than black ones.
DIRECTIONS = {"E": (1, 0), "W": (-1, 0), "N": (0, 1), "S": (0, -1)}


def heat(part: float) -> str:
    """The color of a share 0..1 of the largest value: pale yellow, orange, dark red."""
    part = min(max(part, 0.0), 1.0)
    for (low, a), (high, b) in zip(HEAT, HEAT[1:], strict=False):
        if part <= high:
            share = (part - low) / (high - low)
            return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b, strict=True))
    raise AssertionError(part)


class Grid:
    """The positions of routers and cores in the drawing."""

    def __init__(self, chip: dict):
        self.columns, self.rows, self.ports = chip["columns"], chip["rows"], chip["cores_per_router"]
        self.pitch = min(max((WIDTH - 2 * MARGIN) / max(self.columns, self.rows), SMALLEST_PITCH), LARGEST_PITCH)
        self.width = self.columns * self.pitch + 2 * MARGIN
        self.height = self.rows * self.pitch + 2 * MARGIN
        self.across = isqrt(self.ports - 1) + 1
        self.down = -(-self.ports // self.across)

    def center(self, x: int, y: int) -> tuple[float, float]:
        """The center of router (x, y)."""
        return MARGIN + (x + 0.5) * self.pitch, MARGIN + (self.rows - 0.5 - y) * self.pitch

    def squares(self, size: float, class_: str) -> Markup:
        """One square of `size` for every router, as one path."""
        path = []
        for y in range(self.rows):
            for x in range(self.columns):
                cx, cy = self.center(x, y)
                path.append(f"M{cx - size / 2:.1f} {cy - size / 2:.1f}h{size:.1f}v{size:.1f}h-{size:.1f}z")
        return tag("path", d="".join(path), class_=class_)

    def axes(self) -> Markup:
        """Number the columns below and the rows to the left."""
        every = 1 if self.pitch >= 20 else 4 if self.pitch >= 8 else 16
        marks = []
        for x in range(0, self.columns, every):
            marks.append(tag("text", x, x=self.center(x, 0)[0], y=self.height - 6, class_="axis middle"))
        for y in range(0, self.rows, every):
            marks.append(tag("text", y, x=MARGIN - 8, y=self.center(0, y)[1] + 4, class_="axis end"))
        return join(marks)

    def drawing(self, label: str, *children: Markup) -> Markup:
        """Put the children into one drawing."""
        box, style = f"0 0 {self.width:.0f} {self.height:.0f}", f"max-width:{self.width:.0f}px"
        kind = "map" if self.width > NARROW else "map small"
        return tag("svg", tag("title", label), *children, viewBox=box, role="img", class_=kind, style=style)


def draw_cores(grid: Grid, cores: list[dict], parts: list[float], titles: list[str]) -> Markup:
    """Draw cores {core, x, y, port} at their sites, colored by their `parts` 0..1 of the largest figure."""
    tile = grid.pitch * 0.9
    cell = tile / max(grid.across, grid.down)
    squares, labels = [], []
    for core, part, title in zip(cores, parts, titles, strict=True):
        cx, cy = grid.center(core["x"], core["y"])
        x = cx - tile / 2 + core["port"] % grid.across * cell
        y = cy - tile / 2 + core["port"] // grid.across * cell
        size = cell * 0.94
        corner, rounded = {"x": x + cell * 0.03, "y": y + cell * 0.03}, min(3.0, cell / 8)
        square = {**corner, "width": size, "height": size, "rx": rounded, "fill": heat(part)}
        squares.append(tag("rect", tag("title", title), **square))
        if grid.pitch >= LABELED_PITCH:
            shade = "label light" if part > DARK_FROM else "label"
            labels.append(tag("text", core["core"], x=x + cell / 2, y=y + cell / 2 + 4, class_=shade))
    marks = tag("g", *squares, class_="cores")
    return grid.drawing("cores of the chip", grid.squares(tile, "tile"), marks, *labels, grid.axes())


def core_heat(doc: dict) -> tuple[str, str]:
    """The figure that colors the cores, and its unit: busy time, or synops if the chip has no costs."""
    return ("busy_us_per_step", "us per step") if doc["time"] else ("synops_per_step", "synops per step")


def core_map(doc: dict, hottest: float | None = None) -> Markup:
    """Draw every used core at its site, colored by `core_heat`. `hottest` ends the scale (None: the largest figure).

    Squares are in the order of `cores` of report.json; report.js relies on it.
    """
    key, unit = core_heat(doc)
    hottest = hottest or max((c[key] for c in doc["cores"]), default=0) or 1
    parts, titles = [c[key] / hottest for c in doc["cores"]], [_describe_core(doc, c) for c in doc["cores"]]
    drawing = draw_cores(Grid(doc["chip"]), doc["cores"], parts, titles)
    if not doc["time"]:
        return join([drawing, heat_legend(unit, hottest)])
    basis = basis_text(doc, "us")
    return join([drawing, heat_legend(f"busiest unit, {unit} ({basis})", round_figure(hottest, basis))])


def _describe_core(doc: dict, core: dict) -> str:
    lines = [f"core {core['core']} at ({core['x']}, {core['y']}) port {core['port']}"]
    lines += [f"{name}: {grouped(n)} neurons" for name, n in core["layers"].items()]
    if core["busy_us_per_step"] is not None:
        lines.append(f"busy {figure_text(doc, core['busy_us_per_step'], 'us')} per step")
    lines.append(f"{grouped(core['synops_per_step'])} synops per step")
    lines.append(f"{grouped(core['in_axons'])} fan-in axons, {grouped(core['out_axons'])} fan-out axons")
    lines.append(f"{grouped(core['synapse_bits'])} bits of synapse memory")
    return "\n".join(lines)


def link_map(doc: dict, hottest: float | None = None) -> Markup:
    """Draw every link of the mesh that carried flits, and each router colored by the flits of its cores' own links.

    Both are in the order of `links` of report.json; report.js relies on it.
    """
    grid = Grid(doc["chip"])
    hottest = hottest or max((link["flits_per_step"] for link in doc["links"]), default=0) or 1
    size, thick = grid.pitch * 0.42, max(grid.pitch * 0.09, 0.8)
    arrows: list[Markup] = []
    local: dict[tuple[int, int], list[tuple[str, float]]] = {}
    is_bus = doc["chip"]["topology"] == "segmented_bus"
    place = "position" if is_bus else "router"
    busiest = "of a position's switches and core ports" if is_bus else "of a router's links to its cores"
    for link in doc["links"]:
        if link["kind"] == "segment":
            arrows.append(_draw_segment(grid, size, thick, link, hottest))
        elif link["kind"] in DIRECTIONS:
            arrows.append(_draw_arrow(grid, size, thick, link, hottest))
        else:
            local.setdefault((link["x"], link["y"]), []).append((link["kind"], link["flits_per_step"]))
    squares = []
    for (x, y), carried in local.items():
        cx, cy = grid.center(x, y)
        lines = [f"{place} ({x}, {y})", *(f"{kind}: {grouped(flits)} flits per step" for kind, flits in carried)]
        corner, fill = ({"x": cx - size / 2, "y": cy - size / 2}, heat(max(flits for _, flits in carried) / hottest))
        title = tag("title", "\n".join(lines))
        squares.append(tag("rect", title, **corner, width=size, height=size, rx=size / 8, fill=fill))
    marks = tag("g", *arrows, class_="links"), tag("g", *squares, class_="routers")
    drawing = grid.drawing("links of the chip", _draw_mesh(grid), grid.squares(size, "tile"), *marks, grid.axes())
    return join([drawing, heat_legend(f"flits per step; squares: the busiest {busiest}", hottest)])


def _draw_mesh(grid: Grid) -> Markup:
    """Draw all links of the mesh in grey."""
    lines = []
    for y in range(grid.rows):
        lines.append("M{:.1f} {:.1f}H{:.1f}".format(*grid.center(0, y), grid.center(grid.columns - 1, y)[0]))
    for x in range(grid.columns):
        lines.append("M{:.1f} {:.1f}V{:.1f}".format(*grid.center(x, 0), grid.center(x, grid.rows - 1)[1]))
    return tag("path", d="".join(lines), class_="mesh", stroke_width=max(grid.pitch * 0.02, 0.4))


def _draw_arrow(grid: Grid, size: float, thick: float, link: dict, hottest: float) -> Markup:
    """Draw a link as an arrow, on the right-hand side of its direction."""
    dx, dy = DIRECTIONS[link["kind"]][0], -DIRECTIONS[link["kind"]][1]
    cx, cy = grid.center(link["x"], link["y"])
    start, end = size / 2 + 1, grid.pitch - size / 2 - 1
    neck = max(end - thick * 1.6, (start + end) / 2)

    def at(along: float, aside: float) -> tuple[float, float]:
        return cx + dx * along - dy * aside, cy + dy * along + dx * aside

    low, middle, high = 0.25 * thick, 0.75 * thick, 1.25 * thick
    barbs = at(neck, low - 0.4 * thick), at(end, middle), at(neck, high + 0.4 * thick)
    outline = [at(start, low), at(neck, low), *barbs, at(neck, high), at(start, high)]
    flits, part = link["flits_per_step"], link["flits_per_step"] / hottest
    about = f"link ({link['x']}, {link['y']}) {link['kind']}: {grouped(flits)} flits per step"
    about += f", {percent(100 * part)} of the busiest"
    return tag("path", tag("title", about), d=_closed_path(outline), fill=heat(part))


def _closed_path(corners: list[tuple[float, float]]) -> str:
    """Write a closed path compactly, with relative corners and one decimal: a large chip has thousands of paths."""
    x, y = (round(v, 1) for v in corners[0])
    path = f"M{x:g} {y:g}l"
    for corner in corners[1:]:
        dx, dy = round(corner[0] - x, 1), round(corner[1] - y, 1)
        x, y = x + dx, y + dy
        path += f"{dx:g} {dy:g} "
    return path.replace(" -", "-").rstrip() + "z"


def _draw_segment(grid: Grid, size: float, thick: float, link: dict, hottest: float) -> Markup:
    """Draw a segment of a bus, all its lanes together."""
    cx, cy = grid.center(link["x"], link["y"])
    part = link["flits_per_step"] / hottest
    about = f"segment {link['x']}-{link['x'] + 1}: {grouped(link['flits_per_step'])} transfers per step, "
    about += f"{percent(100 * part)} of the busiest link"
    corner, width = {"x": cx + size / 2 + 1, "y": cy - thick}, max(grid.pitch - size - 2, 0.5)
    return tag("rect", tag("title", about), **corner, width=width, height=2 * thick, fill=heat(part))


def heat_legend(what: str, hottest: float) -> Markup:
    """Draw the color scale."""
    stops = ", ".join(f"{heat(part)} {100 * part:.0f}%" for part, _ in HEAT)
    bar = tag("span", class_="scale", style=f"background:linear-gradient(90deg, {stops})")
    ends = tag("span", "0"), bar, tag("span", grouped(hottest), class_="hottest")
    unused = tag("span", tag("i", class_="mark unused"), "not in use")
    return tag("div", *ends, tag("span", what, class_="what"), unused, class_="legend")
