"""HTML: the content of report.json as one self-contained page: inline style and drawings, nothing from the network."""

from nwcompile.report import html_tables, legalization, quantization
from nwcompile.report.bus import bus_card
from nwcompile.report.host import host_lines, host_text
from nwcompile.report.html.maps import core_map, link_map
from nwcompile.report.html.plots import floorline_plot, step_plot
from nwcompile.report.html.profile_tables import critical_table, message_tables, phase_tables
from nwcompile.report.html.style import STYLE
from nwcompile.report.html_markup import Markup, tag
from nwcompile.report.json import neurobench
from nwcompile.report.text import grouped, number, percent, real_time_text, unknown

DOCTYPE = Markup("<!DOCTYPE html>\n")


def render_html(doc: dict) -> str:
    """The whole page."""
    name = f"{doc['chip']['name']}: report of nwcompile"
    viewport = tag("meta", name="viewport", content="width=device-width, initial-scale=1")
    head = tag("head", tag("meta", charset="utf-8"), viewport, tag("title", name), tag("style", Markup(STYLE)))
    cores = _card("half", "Cores", _about_cores(doc), core_map(doc))
    about_links = ABOUT_SEGMENTS if doc["chip"]["topology"] == "segmented_bus" else ABOUT_LINKS
    links = _card("half", "Links", about_links + ("" if doc["io"] else NO_IO), link_map(doc))
    notes = tag(
        "div",
        *_crosscheck(doc),
        *_multi_spike(doc),
        *_multicast(doc),
        *_host(doc),
        *_io(doc),
        *_real_time(doc),
        _warnings(doc),
        *_unknown(doc),
        class_=f"column {'half' if doc['energy'] else 'whole'}",
    )
    parts = [
        _header(doc),
        _tiles(doc),
        _row(_fit(doc)),
        _row(cores, links),
        *([_row(_floorline(doc), _steps(doc)), _row(_times(doc))] if doc["time"] else []),
        *([_row(_card("whole", "Bus", ABOUT_BUS, bus_card(doc["bus"])))] if doc["bus"] else []),
        *_profile(doc),
        _row(_card("whole", "Layers", ABOUT_LAYERS, html_tables.layer_table(doc))),
        *_legalization(doc),
        *_quantization(doc),
        _row(*_energy(doc), notes),
        _row(_card("whole", "NeuroBench", neurobench.ABOUT, neurobench.neurobench_table(doc))),
        _row(_provenance(doc)),
    ]
    return DOCTYPE + tag("html", head, tag("body", tag("main", *parts)), lang="en")


ABOUT_LINKS = "Mean flits a step on every link; each arrow runs on the right of its direction."
ABOUT_SEGMENTS = (
    "Mean transfers a step on every segment of the bus, its lanes together; squares: the switches of a position, and "
    "the ports of its cores."
)
NO_IO = " Input lines use no links."
ABOUT_BUS = (
    "Messages go in slots, and in a slot no two paths share a switch on a lane. No schedule is shorter than its "
    "busiest port, or busiest switch over all lanes."
)
ABOUT_PHASES = (
    "What every core does in a mean step, in core cycles; the phases of a unit add up to the step. Stalled: it has a "
    "message and the network has no room for it. The cores listed are those that work longest."
)
ABOUT_MESSAGES = (
    "From when a message is ready to be injected until the receiving core takes it. The links are those whose buffers "
    "held most flits, on their way over the link included."
)
ABOUT_CRITICAL = (
    "The slowest steps: the core that finished last, whose message it had been waiting for, the busiest link on its "
    "way (or on that of the one that stalled the core itself longest), and what all of the step's time was spent "
    "on, one after the other."
)
ABOUT_LAYERS = (
    "Means of a step and sample. “Binding resource” is what fills one of the layer's cores most; “of the step "
    "time” is the part of the floorline's bound that the layer's work fills on the busiest core."
)


def _row(*cards: Markup) -> Markup:
    return tag("div", *cards, class_="grid")


def _card(width: str, title: str, about: str | None, *content: Markup) -> Markup:
    return tag(
        "section",
        tag("h2", title),
        None if about is None else tag("p", about, class_="about"),
        *content,
        class_=f"card {width}".strip(),
    )


def _header(doc: dict) -> Markup:
    run = doc["run"]
    samples = "sample" if run["n_samples"] == 1 else "samples"
    how = "predicted, not simulated, from" if run["backend"] == "prediction" else f"{run['backend']} backend,"
    line = f"nwcompile report: {how} {grouped(run['n_samples'])} {samples} of {run['n_hardware_steps']} hardware steps"
    good = doc["fits"] and (doc["crosscheck"] is None or doc["crosscheck"]["agree"])
    return tag("header", tag("h1", line), tag("p", doc["verdict"], class_="verdict"), class_=None if good else "bad")


def _tiles(doc: dict) -> Markup:
    """The main figures, large."""
    cores, time, energy, accuracy = doc["fit"][0], doc["time"], doc["energy"], doc["accuracy"] or {}
    tiles = [
        _tile("cores in use", f"{cores['used']}", f"of {cores['limit']}", percent(cores["percent"]) + " of the chip")
    ]
    if time is not None:
        source = "measured" if time["source"] == "measured" else "at least, by the floorline"
        tiles.append(
            _tile(
                "time of a step", number(time["step_us"]), "us", f"{source}; longest {number(time['step_us_max'])} us"
            )
        )
        tiles.append(
            _tile(
                "time of a sample",
                number(time["sample_us"]),
                "us",
                f"{grouped(time['samples_per_second'])} samples a second",
            )
        )
        share, b = percent(doc["bottleneck"]["share_percent"]), doc["bottleneck"]
        where = (
            f"link {b['link']}"
            if b["link"]
            else f"{b['layer']} on core {b['core']}"
            if b["layer"]
            else "every step waits for it"
        )
        tiles.append(_tile("bound by", b["kind"], "", f"{share} of the step; {where}"))
    if energy is not None:
        tiles.append(
            _tile("energy of a sample", grouped(energy["sample_nj"]), "nJ", "by the chip file's cited figures")
        )
    if accuracy.get("chip") is not None:
        before = f"{percent(100 * accuracy['float'])} in float" if accuracy.get("float") is not None else "on the chip"
        tiles.append(_tile("accuracy", percent(100 * accuracy["chip"])[:-2], "%", before))
    return tag("div", *tiles, class_="tiles")


def _tile(name: str, figure: str, unit: str, more: str) -> Markup:
    value = tag("b", figure, " " if unit else None, tag("span", unit, class_="of") if unit else None)
    return tag("div", tag("div", name, class_="name"), value, tag("div", more, class_="more"), class_="tile-card")


def _fit(doc: dict) -> Markup:
    about = (
        "What the mapping takes of every resource: in the core that comes closest to its limit, and on the whole chip."
    )
    return _card("whole", "Fit", about, html_tables.fit_table(doc))


def _about_cores(doc: dict) -> str:
    return (
        "Every core in use at its place on the chip, x to the right, y upwards, colored by "
        + ("how long its busiest unit works in a mean step." if doc["time"] else "its synops in a mean step.")
        + " Hover for its layers and tables."
    )


def _floorline(doc: dict) -> Markup:
    about = (
        "The line is the floor (barrier and compute) and the slope (reading synapses). Points on the floor are "
        "compute- or barrier-bound, on the slope memory-bound; how far a point lies above both is what messages cost."
    )
    return _card("half", "Floorline", about, floorline_plot(doc))


def _steps(doc: dict) -> Markup:
    return _card(
        "half", "Step by step", "Time of each hardware step, mean of the samples, and what bounds it.", step_plot(doc)
    )


def _times(doc: dict) -> Markup:
    tight = doc["time"]["tightness_percent"]
    about = (
        "The bar: which layer's work fills the busiest core of each step, beside the links of the network and the "
        "barrier. The table: no step can be shorter than the bound."
    )
    if tight is None:
        about += " Only the cycle backend measures time; this run has none."
    else:
        about += (
            f" It explains {percent(tight)} of the measured time; the rest is waiting for messages and the network."
        )
    return _card("whole", "Where the time goes", about, html_tables.time_shares(doc), html_tables.time_table(doc))


def _profile(doc: dict) -> list[Markup]:
    p = doc["profile"]
    if p is None:
        return []
    messages = _card("half", "Messages and crowded links", ABOUT_MESSAGES, message_tables(p))
    phases = _card("half", "Phases of the cores", ABOUT_PHASES, phase_tables(p))
    return [_row(phases, messages), _row(_card("whole", "Critical paths", ABOUT_CRITICAL, critical_table(p)))]


def _legalization(doc: dict) -> list[Markup]:
    if not doc["legalization"]:
        return []
    return [_row(_card("whole", "Legalization", legalization.ABOUT, legalization.legalization_table(doc)))]


def _quantization(doc: dict) -> list[Markup]:
    if not any(r["quantization"] for r in doc["layers"]):
        return []
    return [_row(_card("whole", "Quantization", quantization.ABOUT, quantization.quantization_table(doc)))]


def _energy(doc: dict) -> list[Markup]:
    if doc["energy"] is None:
        return []
    about = "Events of a sample times the chip file's figure for each."
    if "static_pj" in doc["energy"]["by_kind_pj_per_sample"]:
        about += " Static power: the chip file's, for as long as the sample takes."
    pj_per_synop = doc["energy"]["pj_per_synop"]
    if pj_per_synop is not None:
        about += f" All of it over the synaptic events: {number(pj_per_synop)} pJ a synop."
    return [_card("half", "Energy", about, html_tables.energy_table(doc))]


def _real_time(doc: dict) -> list[Markup]:
    r = doc["real_time"]
    return [] if r is None else [_card("", "Real time", None, tag("p", real_time_text(r)))]


def _crosscheck(doc: dict) -> list[Markup]:
    c = doc["crosscheck"]
    if c is None:
        return []
    mark = tag("b", "agree" if c["agree"] else "disagree", class_="good" if c["agree"] else "wrong")
    return [_card("", "Do the backends agree?", None, tag("p", mark, ": ", c["text"]))]


def _multi_spike(doc: dict) -> list[Markup]:
    m = doc["multi_spike"]
    return [] if m is None else [_card("", "Several spikes a step", None, tag("p", m["text"]))]


def _multicast(doc: dict) -> list[Markup]:
    multicast = doc["multicast"]
    return [] if multicast is None else [_card("", "Multicast", None, tag("p", multicast["text"], "."))]


def _host(doc: dict) -> list[Markup]:
    host = doc["host"]
    if host is None:
        return []
    return [_card("", "Host", None, *(tag("p", line, ".") for line in (*host_lines(host), host_text(host))))]


def _io(doc: dict) -> list[Markup]:
    io = doc["io"]
    return [] if io is None else [_card("", "Input and output", None, tag("p", io["text"], "."))]


def _warnings(doc: dict) -> Markup:
    texts = list(doc["warnings"])
    if doc["run"]["n_dropped"]:
        texts.append(doc["dropped"]["text"])
    if not texts:
        return _card("", "Warnings", None, tag("p", "none"))
    return _card("", "Warnings", None, tag("ul", *(tag("li", text) for text in texts), class_="warnings"))


def _unknown(doc: dict) -> list[Markup]:
    texts = unknown(doc)
    items = tag("ul", *(tag("li", text) for text in texts), class_="warnings")
    return [_card("", "Not known", None, items)] if texts else []


def _provenance(doc: dict) -> Markup:
    rows = []
    for key, value in doc["provenance"].items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items() if v is not None)
        text = str(value)
        rows += [tag("dt", key.replace("_", " ")), tag("dd", tag("code", text) if key.endswith("hash") else text)]
    return _card("whole", "Provenance", None, tag("dl", *rows))
