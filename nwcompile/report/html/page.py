"""HTML: the content of report.json as one self-contained page with style, script and drawings."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from nwcompile import __version__
from nwcompile.families import load_parts
from nwcompile.ir.shown import count_text, grouped, network_title
from nwcompile.report import html_tables, legalization, quantization
from nwcompile.report.host import host_lines, host_text
from nwcompile.report.html.data import page_data, render_within_limit
from nwcompile.report.html.maps import core_map, link_map
from nwcompile.report.html.plots import energy_plot, floorline_plot, name_floor, step_plot
from nwcompile.report.html.profile_tables import critical_table, message_tables, phase_tables
from nwcompile.report.html.style import STYLE
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.json import neurobench
from nwcompile.report.text import (
    basis_text,
    energy_name,
    figure_text,
    headline,
    percent,
    place_text,
    real_time_text,
    share_text,
    unknown_lines,
)

DOCTYPE = Markup("<!DOCTYPE html>\n")
SCRIPT = Path(__file__).with_name("report.js").read_text()
FIGURES = {"busy_cycles": "busy time", "synops": "synops", "spikes_out": "spikes", "messages_in": "messages in"}


def whole_page(title: str, *content: Markup, more_style: str = "", script: str = SCRIPT) -> str:
    """Build a page with the style and script of reports. The script comes last, when all elements exist.

    `more_style` is appended to the style; other pages pass their own `script`.
    """
    viewport = tag("meta", name="viewport", content="width=device-width, initial-scale=1")
    style = tag("style", Markup(STYLE + more_style))
    head = tag("head", tag("meta", charset="utf-8"), viewport, tag("title", title), style)
    return DOCTYPE + tag("html", head, tag("body", *content, tag("script", Markup(script))), lang="en")


def page_title(what: str) -> Markup:
    """Render the first line of a page: `what` it shows, the date and the version."""
    made = tag("span", f"{date.today().isoformat()}, nwcompile {__version__}", style="white-space: nowrap")
    return tag("h1", f"{what}; ", made)


def run_title(doc: dict, chip: str) -> str:
    """Name a run's model and input, if they are known, its network and its chip."""
    title = network_title(len(doc["layers"]), sum(layer["neurons"] for layer in doc["layers"]), chip)
    return title if doc.get("title") is None else f"{doc['title']}: {title}"


def render_html(doc: dict) -> str:
    """Render the page of one run."""
    dropped = [doc["dropped"]["text"]] if doc["run"]["n_dropped"] else []
    notes = tag(
        "div",
        *_crosscheck_card(doc),
        *_text_card(doc, "multi_spike", "Several spikes per step", end=""),
        *_text_card(doc, "multicast", "Multicast"),
        *_host_card(doc),
        *_text_card(doc, "io", "Input and output"),
        *([card("", "Real time", None, tag("p", real_time_text(doc)))] if doc["real_time"] else []),
        _list_card("Warnings", [*doc["warnings"], *dropped]),
        *([_list_card("Notes on figures", unknown)] if (unknown := unknown_lines(doc)) else []),
        class_=f"column {'half' if doc['energy'] else 'whole'}",
    )
    fit = card("whole", "Fit", ABOUT_FIT, html_tables.fit_table(doc))
    head = [_page_header(doc), _main_figures(doc), card_row(fit, _mapping_card(doc))]
    rewrites, integers = legalization.legalization_table(doc), quantization.quantization_table(doc)
    has_integers = any(layer["quantization"] for layer in doc["layers"])
    parts = [
        card_row(cores_card(doc), links_card(doc)),
        DETAIL,
        *([card_row(floorline_card(doc), steps_card(doc)), card_row(_times_card(doc))] if doc["time"] else []),
        *(card_row(card("whole", p.TITLE, p.ABOUT, p.card(doc[p.KEY]))) for p in load_parts("report") if doc[p.KEY]),
        *_profile_rows(doc),
        card_row(card("whole", "Layers", ABOUT_LAYERS, html_tables.layer_table(doc))),
        *([card_row(card("whole", "Legalization", legalization.ABOUT, rewrites))] if doc["legalization"] else []),
        *([card_row(card("whole", "Quantization", quantization.ABOUT, integers))] if has_integers else []),
        card_row(*_energy_card(doc), notes),
        card_row(card("whole", "NeuroBench", neurobench.ABOUT, neurobench.neurobench_table(doc))),
        tag("div", class_="lists"),
        card_row(_provenance_card(doc)),
    ]

    def page(docs: list[dict]) -> str:
        main = tag("main", *head, step_bar(docs), *parts, page_data(docs[0]), class_="run")
        return whole_page(f"{run_title(doc, doc['chip']['name'])}: report of nwcompile", main)

    return render_within_limit(page, [doc])


DETAIL = tag("section", class_="card detail", aria_live="polite", hidden="")


ABOUT_FIT = "Use of every resource: in the core that comes closest to its limit, and on the whole chip."
ABOUT_MAPPING = "The numbers of cores that the partitioner tried, and lower bounds that hold for every mapping."
ABOUT_LINKS = (
    "Mean flits per step on every link; arrows keep to the right of their direction. Click one to see what crosses it."
)
ABOUT_SEGMENTS = (
    "Mean transfers per step on every segment of the bus, its lanes together; squares: the switches of a position, and "
    "the ports of its cores."
)
NO_IO = " Input lines use no links."
ABOUT_PHASES = (
    "What every core does in a mean step, in core cycles; the phases of a unit add up to the step. Stalled: it has a "
    "message and the network has no room for it. The cores listed are those that work longest."
)
ABOUT_MESSAGES = (
    "Latency from when a message is ready to be injected until the receiving core takes it. Below: the links with the "
    "fullest buffers, counting flits on the way."
)
ABOUT_CRITICAL = (
    "The slowest steps: the core that finished last, the sender of the message that it waited for, the busiest link on "
    "that message's way (or on the way of the message that stalled the core longest), and where the time went."
)
ABOUT_LAYERS = (
    "Means per step of the model; figures of cores and links are per hardware step, of which there may be more. "
    "“Binding resource”: what fills one of the layer's cores most. “Of the step time”: the share of the bound that "
    "the layer's work takes on the busiest core, work of every kind, while “bound by” is the share of one kind."
)


def card_row(*cards: Markup) -> Markup:
    """Put cards side by side, if the page is wide enough."""
    return tag("div", *cards, class_="grid")


def card(width: str, title: str, about: str | None, *content: Markup) -> Markup:
    """Build a card with title, description and content. `width`: "half", "whole", or "" for the width of its column."""
    return tag(
        "section",
        tag("h2", title),
        None if about is None else tag("p", about, class_="about"),
        *content,
        class_=f"card {width}".strip(),
    )


def _page_header(doc: dict) -> Markup:
    run = doc["run"]
    how = "predicted, not simulated, from" if run["backend"] == "prediction" else f"{run['backend']} backend,"
    samples = count_text(run["n_samples"], "sample")
    line = f"{run_title(doc, doc['chip']['name'])}; {how} {samples} of {run['n_hardware_steps']} hardware steps"
    good = doc["fits"] and (doc["crosscheck"] is None or doc["crosscheck"]["agree"])
    rows = [cell for word, said in doc["verdict_rows"] for cell in (tag("dt", word), tag("dd", said))]
    verdict = tag("p", headline(doc), class_="verdict")
    return tag("header", page_title(line), verdict, tag("dl", *rows), class_=None if good else "bad")


def _main_figures(doc: dict) -> Markup:
    """Render the main figures in large type."""
    cores, time, energy, accuracy = doc["fit"][0], doc["time"], doc["energy"], doc["accuracy"] or {}
    share, used = percent(cores["percent"]), f"{grouped(cores['used'])} of\u00a0{grouped(cores['limit'])}"
    tiles = [_tile("cores in use", used, f"{share} of all cores")]
    if time is not None:
        source = "simulated" if time["source"] == "measured" else "at least, by the floorline"
        tiles.append(
            _tile(
                "time per step",
                figure_text(doc, time["step_us"], "us"),
                f"{basis_text(doc, 'us')}; {source}; longest {figure_text(doc, time['step_us_max'], 'us')}",
            )
        )
        per_second = time["samples_per_second"]
        tiles.append(
            _tile(
                "time per sample",
                figure_text(doc, time["sample_us"], "us"),
                "no step takes any" if per_second is None else figure_text(doc, per_second, "samples per second"),
            )
        )
        b = doc["bottleneck"]
        where = place_text(b) or "every step waits for it"
        tiles.append(_tile("bound by", b["kind"], f"{share_text(b)}; {where}"))
    elif doc["chip"].get("pool_step_us") is not None:
        step = figure_text(doc, doc["chip"]["pool_step_us"], "us")
        tiles.append(_tile("time per step", step, f"{basis_text(doc, 'us')}; mean"))
    if energy is not None:
        spent = figure_text(doc, energy["sample_nj"], "nJ")
        tiles.append(_tile(energy_name(doc), spent, f"per sample; {basis_text(doc, 'nJ')}"))
    if accuracy.get("chip") is not None:
        before = f"{percent(100 * accuracy['float'])} in float" if accuracy.get("float") is not None else "on the chip"
        tiles.append(_tile("accuracy", percent(100 * accuracy["chip"]), before))
    return tag("div", *tiles, class_="tiles")


def _tile(name: str, text: str, more: str) -> Markup:
    """Render a figure in large type, what follows its last space (the unit) in small type, and a line below."""
    figure, _, unit = text.rpartition(" ")
    value = tag("b", figure, " ", tag("span", unit, class_="of")) if figure else tag("b", text)
    return tag("div", tag("div", name, class_="name"), value, tag("div", more, class_="more"), class_="tile-card")


def cores_card(doc: dict, hottest: float | None = None) -> Markup:
    """Render the map of the cores; `hottest` as in `core_map`."""
    about = (
        "Every core in use at its site (x to the right, y upwards), colored by "
        + ("how long its busiest unit works in a mean step." if doc["time"] else "its synops in a mean step.")
        + " Hover for its layers and tables; click for its senders."
    )
    return card("half", "Cores", about, core_map(doc, hottest))


def links_card(doc: dict, hottest: float | None = None) -> Markup:
    """Render the map of the links; `hottest` as in `link_map`."""
    about = ABOUT_SEGMENTS if doc["chip"]["topology"] == "segmented_bus" else ABOUT_LINKS
    return card("half", "Links", about + ("" if doc["io"] else NO_IO), link_map(doc, hottest))


def floorline_card(doc: dict, alike: Sequence[dict] = ()) -> Markup:
    """Render the floorline plot of a run on a chip with times; `alike`: the documents with the same axes."""
    barrier = ", the barrier included" if doc["floorline"]["barrier_us"] else ""
    about = (
        f"The line is the floor ({name_floor(doc)}) and the slope (reading synapses). Points on the floor are "
        "compute- or barrier-bound, on the slope memory-bound; how far a point lies above both is what messages cost. "
        f"Small dots are cores: what each would take alone in a mean step{barrier}.{_basis_sentence(doc)}"
    )
    return card("half", "Floorline", about, floorline_plot(doc, alike))


def steps_card(doc: dict, alike: Sequence[dict] = ()) -> Markup:
    """Render the times of the steps of a run on a chip with times; `alike`: the documents with the same axes."""
    about = f"Time of each hardware step, mean of the samples, and what bounds it.{_basis_sentence(doc)}"
    return card("half", "Step by step", about, step_plot(doc, alike))


def _basis_sentence(doc: dict) -> str:
    """Say how the times of a plot or a table are known."""
    return f" Basis of the times: {basis_text(doc, 'us')}."


def _times_card(doc: dict) -> Markup:
    tight = doc["time"]["tightness_percent"]
    about = (
        "The bar: each layer's work of every kind on the busiest core of each step (“bound by” counts one kind alone), "
        "the links, and the barrier. The table: no step can be shorter than the bound."
    )
    if tight is None:
        about += " Only the cycle backend measures time; this run has none."
    else:
        about += f" The bound accounts for {percent(tight)} of the measured time; the rest is waiting for messages."
    if doc["time"]["sync"]:
        about += f" What the barrier costs: {doc['time']['sync']['text']}."
    about += _basis_sentence(doc)
    return card("whole", "Where the time goes", about, html_tables.time_shares(doc), html_tables.time_table(doc))


def _profile_rows(doc: dict) -> list[Markup]:
    p = doc["profile"]
    if p is None:
        return []
    messages = card("half", "Messages and crowded links", ABOUT_MESSAGES, message_tables(p, basis_text(doc, "us")))
    phases = card("half", "Phases of the cores", ABOUT_PHASES, phase_tables(p))
    return [card_row(phases, messages), card_row(card("whole", "Critical paths", ABOUT_CRITICAL, critical_table(p)))]


def _energy_card(doc: dict) -> list[Markup]:
    if doc["energy"] is None:
        return []
    about = "Events of a sample times the chip file's figure for each."
    if energy_name(doc) == "energy":
        about += " Static power: the chip file's, for as long as the sample takes."
    about += f" Basis: {basis_text(doc, 'nJ')}."
    pj_per_synop = doc["energy"]["pj_per_synop"]
    if pj_per_synop is not None:
        about += f" Total over synaptic events: {figure_text(doc, pj_per_synop, 'pJ')} per synop."
    return [card("half", energy_name(doc).capitalize(), about, html_tables.energy_table(doc), energy_plot(doc))]


def _crosscheck_card(doc: dict) -> list[Markup]:
    c = doc["crosscheck"]
    if c is None:
        return []
    mark = tag("b", "agree" if c["agree"] else "disagree", class_="good" if c["agree"] else "wrong")
    return [card("", "Do the backends agree?", None, tag("p", mark, ": ", c["text"]))]


def _text_card(doc: dict, key: str, title: str, end: str = ".") -> list[Markup]:
    """A card with the text of `doc[key]`, if it is not None."""
    return [] if doc[key] is None else [card("", title, None, tag("p", doc[key]["text"], end))]


def _host_card(doc: dict) -> list[Markup]:
    host = doc["host"]
    if host is None:
        return []
    return [card("", "Host", None, *(tag("p", line, ".") for line in (*host_lines(host), host_text(host))))]


def _list_card(title: str, texts: list[str]) -> Markup:
    items = tag("ul", *(tag("li", text) for text in texts), class_="warnings")
    return card("", title, None, items if texts else tag("p", "none"))


def _mapping_card(doc: dict) -> Markup:
    rows = [cell for word, text in doc["explanation"]["rows"] for cell in (tag("dt", word), tag("dd", text))]
    return card("whole", "Why this mapping", ABOUT_MAPPING, tag("dl", *rows))


def _provenance_card(doc: dict) -> Markup:
    rows = []
    known = {"compiled_by": None, **doc["provenance"]}
    known["compiled_by"] = " ".join(str(known.pop(key)) for key in ("tool", "version") if key in known) or "unknown"
    for key, value in known.items():
        if key == "seed" and "seed" in known.get("options", {}):
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items() if v not in (None, [], ()))
        text = str(value)
        rows += [tag("dt", key.replace("_", " ")), tag("dd", tag("code", text) if key.endswith("hash") else text)]
    return card("whole", "Provenance", None, tag("dl", *rows))


def step_bar(docs: list[dict]) -> Markup:
    """Render the bar for the runs of a page, hidden until report.js runs, or a sentence if there are no steps."""
    by_step = [doc["by_step"] for doc in docs]
    texts = dict.fromkeys(text for steps in by_step for text in (steps["missing"], steps["left_out"]) if text)
    said = [tag("p", text, class_="steps-note") for text in texts]
    n_steps = max(steps["n_steps"] for steps in by_step)
    if not all(steps["n_steps"] for steps in by_step):
        return join(said)
    figures = [name for name in FIGURES if all(name in steps["cores"] for steps in by_step)]
    options = [tag("option", FIGURES[name], value=name) for name in figures]
    slider = tag("input", type="range", min=0, max=n_steps - 1, step=1, value=0)
    parts = [
        _step_button("mean", "Mean of all steps", aria_pressed="true"),
        _step_button("back", "‹", aria_label="one step back"),
        tag("label", "Hardware step ", slider),
        _step_button("on", "›", aria_label="one step on"),
        tag("label", "Cores by ", tag("select", *options)),
        tag("output", "mean of all steps"),
    ]
    bar = tag("div", *parts, class_="steps-bar", role="group", aria_label="Hardware step that is shown", hidden="")
    return join([bar, *said])


def _step_button(do: str, text: str, **attributes) -> Markup:
    return tag("button", text, type="button", data_do=do, **attributes)
