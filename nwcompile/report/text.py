"""Text: format figures, the verdict, and tables as lines, from the content of report.json."""

import re
from collections.abc import Sequence
from textwrap import wrap
from unicodedata import combining, east_asian_width

from nwcompile.ir.chip_sections import weakest_basis
from nwcompile.ir.manifest import APPROXIMATE
from nwcompile.ir.options import CORES_RULE, weighs_cores
from nwcompile.ir.resources import RESOURCE_OF
from nwcompile.ir.shown import LEAST_TEXT, WIDTH, count_text, format_figure, grouped, name_energy

FEWEST_FOR_A_SHARE = 10  # With fewer held-out samples, changed answers are shown as a number, not as a share.
MOST_VERDICT = 320  # Characters: four lines of a terminal of 80 columns.
LONG_NAME = 30  # Characters of a name that stays on one line in every table; keys of chip files have at most 29.
NAME_PARTS = re.compile(r".{1,28}$|.{1,27}[./]|.{1,28}")  # Lines of a longer name, before their indent.
MOST_NAME = 24  # Characters of a chip's name in the verdict; shipped chips have at most 16.
PHASES = {
    "visit": "visits", "update": "updates", "spike": "spikes", "message_out": "messages out", "stall": "stalled",
    "message_in": "messages in", "word": "words", "synop": "synops", "idle": "idle", "barrier": "barrier",
}  # fmt: skip
PARTS = {"send": "sending", "stall": "stalled on injection", "network": "in the network", "receive": "receiving",
         "link": "until the last link is idle"}  # fmt: skip

NARROW_HEADINGS = (9, 5)  # Characters at which headings are wrapped, one after the other, until the table fits.
MOST_KEYS = 3  # Keys of the chip file that the row "basis" names for each figure.
QUANTITIES = {  # by unit
    **dict.fromkeys(("us", "s", "ns per synop", "samples per second"), ("time",)),
    **dict.fromkeys(("nJ", "pJ"), ("energy",)),
    "mW": ("energy", "time"),
}
LEFT_OUT = {  # Sentences for kinds that the energy does not include
    "io_pj": "the energy is without input and output: {chip} gives no energy.io_pj",
    "chip_link_pj": "the energy is without links between chips: {chip} gives no energy.chip_link_pj",
    "static_pj": "the energy is without static power: only a run of backend cycle has the times that it takes",
}


def basis_text(doc: dict, unit: str) -> str | None:
    """The basis of a report's figures in this unit: `scaled; -35 % on PilotNet`. Power has that of energy and time."""
    bases = (doc[f"{name}_basis"] for name in QUANTITIES[unit])
    return weakest_basis(basis["text"] for basis in bases if basis is not None)


def figure_text(doc: dict, x: float, unit: str) -> str:
    """Format a time, an energy or a power of a report, with the digits that its basis allows: `98.6 us`."""
    return format_figure(x, unit, basis_text(doc, unit), tells_basis=False)


def energy_name(doc: dict) -> str:
    """The name of a report's energies: `energy of the cores`, or `energy` with static power."""
    return name_energy(doc["energy"]["by_kind_pj_per_sample"].get("static_pj"))


def basis_notes(doc: dict) -> list[str]:
    """Say of time and energy which keys of the chip file decide their basis: `time: scaled (cost.update_cycles)`."""
    notes = []
    for name, figures in (("time", doc["time_basis"]), ("energy", doc["energy_basis"])):
        if figures is not None:
            keys, more = figures["keys"][:MOST_KEYS], len(figures["keys"]) - MOST_KEYS
            listed = ", ".join(keys) + (f" and {more} more" if more > 0 else "")
            what = energy_name(doc) if name == "energy" else name
            notes.append(f"{what}: {figures['basis']}" + (f" ({listed})" if listed else ""))
    return notes


def percent(x: float | None) -> str:
    """Format with one decimal and the sign, `62.5 %`; `< 0.1 %` and `> 99.9 %` near both ends, a dash for None."""
    if x is None or not (0 < x < 0.05 or 99.95 <= x < 100):
        return "–" if x is None else f"{x:.1f} %"
    return "< 0.1 %" if x < 1 else "> 99.9 %"


def format_verdict(doc: dict) -> str:
    """One sentence of at most MOST_VERDICT characters: fit, time, energy, and what to do.

    A part for which there is no room is left out; `verdict_rows` has the details.
    """
    said = ""
    for part in verdict_parts(doc):
        longer = f"{said}; {part}" if said else part
        said = longer if len(longer) <= MOST_VERDICT else said
    return said


def headline(doc: dict) -> str:
    """Return the verdict without its advice, which is the first row below it."""
    return doc["verdict"] if doc["advice"] is None else doc["verdict"].removesuffix(f"; {verdict_parts(doc)[-1]}")


def verdict_parts(doc: dict) -> list[str]:
    """The parts of the verdict, the most important first; unknown parts are left out."""
    fit, energy, accuracy, advice = doc["fit"][0], doc["energy"], doc["accuracy"], doc["advice"]
    fits = "fits" if doc["fits"] else "does not fit"
    chip = doc["chip"]
    name = chip["name"] if len(chip["name"]) <= MOST_NAME else f"{chip['name'][: MOST_NAME - 1]}…"
    board = f" on {chip['n_chips_used']} of {chip['n_chips']} chips" if chip.get("n_chips", 1) > 1 else ""
    parts = [f"{fits} {name}: {grouped(fit['used'])} of {grouped(fit['limit'])} cores{board}"]
    if doc["host"] is not None and not doc["host"]["lands"]:
        parts.append("not landed (all spiking layers on the host)")
    if doc["time"] is not None:
        least = "" if doc["time"]["source"] == "measured" else "at least "
        step = format_figure(doc["time"]["step_us"], "us per step", basis_text(doc, "us"))
        parts.append(f"{least}{step}, {doc['bottleneck']['kind']}-bound")
    elif doc["chip"].get("pool_step_us") is not None:
        parts.append(format_figure(doc["chip"]["pool_step_us"], "us per step", basis_text(doc, "us")))
    if energy is not None:
        least = "at least " if energy["by_kind_pj_per_sample"].get("static_pj", 0) is None else ""
        only = "" if energy_name(doc) == "energy" else ", cores only"
        parts.append(f"{least}{format_figure(energy['sample_nj'], 'nJ per sample', basis_text(doc, 'nJ'))}{only}")
    if accuracy:
        values = [percent(100 * accuracy[k]) for k in ("float", "chip") if accuracy.get(k) is not None]
        parts.append(f"accuracy {' -> '.join(values)}")
    n_approximate = len(_approximate_layers(doc))
    if n_approximate:
        parts.append(f"approximate in {n_approximate} layer{'s' if n_approximate > 1 else ''}")
    if advice is not None:
        parts.append(f"advice: {advice['text']}")
    return parts


def verdict_rows(doc: dict) -> list[list[str]]:
    """The rows below the verdict: pairs of a keyword and its text."""
    b, advice, fewest = doc["bottleneck"], doc["advice"], _fewest_cores(doc)
    rows = []
    if advice is not None:
        rows.append(["advice", advice["text"]])
    if b is not None:
        cause = bottleneck_text(b).replace("-bound", "", 1)
        rows.append(["bound by", f"{cause}; {share_text(b)}"])
    if b is not None and doc["explanation"]["tried_cores"] and weighs_cores(doc["provenance"].get("options", {})):
        rows.append(["cores", CORES_RULE])
    if fewest is not None:
        n, step = fewest["n_cores"], figure_text(doc, fewest["step_us"], "us")
        rows.append(["fewest cores", f"{n} {'is' if n == 1 else 'are'} enough, at {step} per step"])
    if notes := basis_notes(doc):
        rows.append(["basis", "; ".join(notes)])
    if doc["board"] is not None:
        least = "" if doc["time"] is None or doc["time"]["source"] == "measured" else "at least "
        rows.append(["board", least + board_text(doc["board"])])
    if doc["accuracy"] and doc["accuracy"].get("n_samples"):
        rows.append(["accuracy", accuracy_text(doc["accuracy"])])
    if _approximate_layers(doc):
        price = price_text(doc["price"])
        rows.append(["approximate", f"{', '.join(_approximate_layers(doc))}: {price or 'by how much is not known'}"])
    return rows


def _fewest_cores(doc: dict) -> dict | None:
    """The first number of cores that was tried, if it holds the network and more were chosen for a shorter step."""
    tried = doc["explanation"]["tried_cores"]
    if not tried or not weighs_cores(doc["provenance"].get("options", {})):
        return None
    is_fewer = tried[0]["fits"] and tried[0]["n_cores"] < doc["fit"][0]["used"]
    return tried[0] if is_fewer and tried[0]["step_us"] is not None else None


def board_text(board: dict) -> str:
    """The parts of a sample's energy and their sum: `29 nJ events + 27 nJ static (3 cores) = 56 nJ per sample (…)`."""
    chips = count_text(board["n_chips"], "chip")
    parts = {
        "events": board["dynamic_nj"],
        f"static ({chips})": board["chip_static_nj"],
        f"static ({count_text(board['n_cores'], 'core')})": board["core_static_nj"],
        f"processors ({count_text(board['n_chips_used'], 'chip')})": board["host_nj"],
    }
    basis = board["basis"]["text"]
    figures = {what: format_figure(nj, "nJ", basis, tells_basis=False) for what, nj in parts.items() if nj is not None}
    text = " + ".join(f"{figure} {what}" for what, figure in figures.items())
    if board["total_nj"] is not None:
        text += f" = {format_figure(board['total_nj'], 'nJ', basis, tells_basis=False)}"
    known = {what.partition(" (")[0] for what in figures}
    unknown = [what for what in ("events", "static", "processors") if what not in known]
    return f"{text} per sample ({basis})" + (f"; no figures for {' and '.join(unknown)}" if unknown else "")


def mapping_lines(doc: dict) -> list[str]:
    """Lines that explain the mapping."""
    return ["why this mapping", *pair_lines(doc["explanation"]["rows"])]


def verdict_lines(doc: dict) -> list[str]:
    """Lines of the verdict and of its rows."""
    return [headline(doc), *pair_lines(doc["verdict_rows"])]


def _approximate_layers(doc: dict) -> list[str]:
    """The layers with approximations, without duplicates."""
    return list(dict.fromkeys(row["layer"] for row in doc["legalization"] if row["label"] == APPROXIMATE))


def interval_text(ends: Sequence[float]) -> str:
    """Format the ends, 0..1, of an interval of an accuracy in percent: `91.7 to 94.7`."""
    return " to ".join(f"{100 * end:.1f}" for end in ends)


def accuracy_text(accuracy: dict) -> str:
    """Format accuracies: `float 93.3 % (91.7 to 94.7), chip 93.0 % (91.3 to 94.4); 1 000 samples, 95 % intervals`."""
    parts = []
    for name in ("float", "chip"):
        if accuracy.get(name) is not None:
            parts.append(f"{name} {percent(100 * accuracy[name])} ({interval_text(accuracy['interval'][name])})")
    n = accuracy["n_samples"]
    return f"{', '.join(parts)}; {grouped(n)} sample{'s' if n > 1 else ''}, 95 % intervals"


def price_text(price: dict | None) -> str:
    """Format the price of all approximations: `2.1 % (1.8 to 2.5) of the spikes changed (20 samples held out)`.

    Intervals are at 95 %. With few samples, changed answers are shown as a number, as a share would be too uncertain.
    Return "" if no price is known.
    """
    if price is None:
        return ""
    n_samples = price["n_samples"]
    interval = _range_text(price, "spikes_changed_interval_percent")
    parts = [f"{percent(price['spikes_changed_percent'])}{interval} of the spikes"]
    if price["output_changed_percent"] is not None:
        share = price["output_changed_percent"]
        n_changed = round(share / 100 * n_samples)
        few = n_samples < FEWEST_FOR_A_SHARE
        parts.append(f"{n_changed} of {n_samples} answers" if few else f"{percent(share)} of the answers")
    text = f"{' and '.join(parts)} changed"
    if price["accuracy_chip"] is not None and price["accuracy_ideal"] is not None:
        before, after = (percent(100 * price[key]) for key in ("accuracy_ideal", "accuracy_chip"))
        points = _range_text(price, "accuracy_lost_interval_points", " points lost")
        text += f", accuracy {before} -> {after}{points}"
    return f"{text} ({grouped(n_samples)} sample{'s' if n_samples > 1 else ''} held out)"


def _range_text(table: dict, key: str, unit: str = "") -> str:
    """Format a 95 % interval as ` (1.2 to 3.4)`; return "" if the table, of an older program, lacks the key."""
    ends = table.get(key)
    return "" if ends is None else f" ({ends[0]:.1f} to {ends[1]:.1f}{unit})"


def bottleneck_text(b: dict) -> str:
    """Format `memory-bound: fc1 on core 3, receive`, `traffic-bound: link (1, 0) E` or `barrier-bound`."""
    place = place_text(b)
    return f"{b['kind']}-bound" + (f": {place}" if place else "")


def share_text(b: dict) -> str:
    """Say how much of the step a bottleneck takes: `memory alone takes 49.7 % of the step`, without its other work."""
    return f"{b['kind'] + ' alone takes ' if place_text(b) else ''}{percent(b['share_percent'])} of the step"


def place_text(b: dict) -> str:
    """Name the place of a bottleneck: `fc1 on core 3, receive`, `link (1, 0) E`, or "" for the barrier."""
    if b["link"] is not None:
        return f"link {b['link']}"
    return "" if b["core"] is None else f"{b['layer']} on core {b['core']}, {b['unit']}"


def multi_spike_text(m: dict) -> str:
    """One sentence: the senders of several spikes per step, how often, how they are sent, and the cost."""
    who, before = [], None
    for r in m["sources"]:
        name = f"input {r['source']}" if r["is_input"] else f"layer {r['source']}"
        does = " sends numbers beyond 1" if r["is_number"] else " sends several spikes"
        verb, before = "" if does == before else does, does
        negative = f", negative in {percent(r['negative_percent'])}" if r["negative_percent"] else ""
        about = f"at most {grouped(r['largest'])} at once{negative}"
        who.append(f"{name}{verb} in {percent(r['several_percent'])} of its spiking steps ({about})")
    option = "" if m["on_multi_spike"] == "refuse" else f" (on_multi_spike={m['on_multi_spike']!r})"
    if m["on_multi_spike"] == "repeat":
        how = f"sent one by one{option}, that is {_cost(m['sent'])} per sample instead of {_cost(m['binary'])}"
        return f"{', '.join(who)}; {how} with binary spikes"
    longer = f" in {m['payload_flits']} more flit{'s' if m['payload_flits'] > 1 else ''}" if m["payload_flits"] else ""
    how = f"a message carries the count{longer}{option}, so it is {_cost(m['sent'])} per sample as with binary spikes"
    return f"{', '.join(who)}; {how}; one by one it would be {_cost(m['one_by_one'])}"


def _cost(row: dict) -> str:
    return f"{grouped(row['messages_per_sample'])} messages and {grouped(row['synops_per_sample'])} synops"


def critical_text(doc: dict) -> str:
    """Describe one critical path."""
    waits = ""
    if doc["source_layer"] is not None:
        waits = f", waits for {sender_text(doc)} over link {doc['link']}"
    elif doc["link"] is not None:
        waits = f", stalled on the way over link {doc['link']}"
    parts = ", ".join(f"{grouped(cycles)} {PARTS[part]}" for part, cycles in doc["parts"].items() if cycles)
    return f"step {doc['step']}: {doc['layer']} on core {doc['core']} ends after {grouped(doc['cycles'])} cycles" + (
        f"{waits}: {parts}" if parts else waits
    )


def sender_text(doc: dict) -> str:
    """Name the sender of the message that a critical path waited for: a layer on its core, or an input."""
    return doc["source_layer"] + ("" if doc["source_core"] is None else f" on core {doc['source_core']}")


def dropped_text(dropped: dict, cause: str = "an injection buffer was full") -> str:
    """Describe how many messages a chip dropped, why, and where most of them."""
    if not dropped["at"]:
        return "no message was dropped"
    at, to = dropped["at"][0], dropped["to"][0]
    crowded = f"most at {at['place']}, link {at['link']} ({grouped(at['messages_per_sample'])})"
    return (
        f"dropped because {cause}: {grouped(dropped['messages_per_sample'])} messages per sample, "
        f"{percent(dropped['percent'])} of all; {crowded}, most to {to['place']} ({grouped(to['messages_per_sample'])})"
    )


def io_text(io: dict) -> str:
    """Describe the messages through the io.sites."""
    sites = "site" if len(io["sites"]) == 1 else "sites"
    come, leave = (grouped(io[f"messages_{way}_per_sample"]) for way in ("in", "out"))
    return f"input and output through {len(io['sites'])} {sites}: {come} messages in and {leave} out per sample"


def profile_lines(doc: dict) -> list[str]:
    """Lines of a profile: latencies, crowded links, the slowest step, energy of a synop, real-time factors."""
    profile, real_time, energy = doc["profile"], doc["real_time"], doc["energy"]
    lines = []
    if profile is not None:
        lines += [latency_text(profile), *(phase_text(profile) if "phases" in profile else [])]
        if profile["congested_links"]:
            links = (f"{r['link']} {grouped(r['mean_flits'])} ({r['peak_flits']})" for r in profile["congested_links"])
            lines.append(
                f"most crowded links, mean (peak) flits waiting in a buffer of "
                f"{profile['buffer_flits']}: {', '.join(links)}"
            )
        lines += [f"critical path of the slowest {path['text']}" for path in profile.get("critical_paths", [])[:1]]
    if energy is not None and energy["pj_per_synop"] is not None:
        spent = format_figure(energy["pj_per_synop"], "pJ", basis_text(doc, "pJ"))
        lines.append(
            f"energy per synop: {spent}, {'cores only' if energy_name(doc) != 'energy' else 'static power included'}"
        )
    if energy is not None and energy["mean_mw"] is not None:
        lines.append(
            f"power{energy_name(doc).removeprefix('energy')}: mean {figure_text(doc, energy['mean_mw'], 'mW')}, "
            f"peak {figure_text(doc, energy['largest_mw'], 'mW')} ({basis_text(doc, 'mW')})"
        )
    return [*lines, *([real_time_text(doc)] if real_time is not None else [])]


def latency_text(profile: dict) -> str:
    """Format the percentiles of the messages' latencies."""
    latency = profile["latency_cycles"]
    if latency["n_messages"] == 0:
        return "messages: none was sent"
    ranks = ", ".join(f"{name} {grouped(latency[name])}" for name in ("p50", "p90", "p99", "max"))
    return f"messages: {grouped(latency['n_messages'])}; latency in cycles: {ranks}"


def phase_text(profile: dict) -> list[str]:
    """One line per unit: the phases of a mean step, summed over the cores."""
    lines = []
    for unit, table in profile["phases"]["mean_cycles_per_step"].items():
        total = sum(map(sum, table.values()))
        shares = (f"{PHASES[phase]} {percent(100 * sum(of) / total)}" for phase, of in table.items() if sum(of))
        lines.append(f"{unit} side of the cores: " + ", ".join(shares))
    return lines


def real_time_text(doc: dict) -> str:
    """Describe the real-time factors."""
    real_time = doc["real_time"]
    on_chip, simulating = real_time["hardware_factor"], real_time["simulator_factor"]
    known = ["an unknown time on the chip"]
    if on_chip is not None:
        known = [f"{format_figure(on_chip, 's', basis_text(doc, 's'))} on the chip"]
    if simulating is not None:
        known.append(f"{simulating:.3g} s to simulate")
    return f"a second of model time (steps of {real_time['model_dt_s']:g} s) takes {' and '.join(known)}"


def unknown_lines(doc: dict) -> list[str]:
    """Sentences about figures that the report lacks on this chip."""
    lacks = f"the chip file of {doc['chip']['name']} lacks figures that they need"
    sentences = [] if doc["energy"] else [f"no energies of events: {lacks}"]
    if doc["energy"] is not None:
        by_kind = doc["energy"]["by_kind_pj_per_sample"]
        sentences += [LEFT_OUT[kind].format(chip=doc["chip"]["name"]) for kind in by_kind if by_kind[kind] is None]
    if doc["chip"].get("pool_step_us") is not None:
        sentences.insert(0, _pool_times(doc))
    elif doc["time"] is None:
        sentences.insert(0, f"no times: {lacks}")
    return sentences


def _pool_times(doc: dict) -> str:
    """Describe the time of a step on a chip with one pool of neurons, which has no bound."""
    measured = doc["steps"]["measured_us"]
    if measured is None:
        mean = format_figure(doc["chip"]["pool_step_us"], "us", basis_text(doc, "us"))
        return f"hardware step: mean {mean}, from the spikes that neurons send; backend cycle gives the longest"
    mean, longest = sum(measured) / len(measured), figure_text(doc, max(measured), "us")
    mean_text = format_figure(mean, "us", basis_text(doc, "us"))
    return f"hardware step: mean {mean_text}, longest {longest}; one pool of neurons has no bound"


def fit_table(doc: dict) -> list[str]:
    """Lines of a table: the use of each resource in the worst core and on the whole chip."""
    rows: list[tuple[str, ...]] = [("resource", "", "used", "limit", "")]
    for r in doc["fit"]:
        places = [(f"core {r['core']}, worst", ""), ("all cores", "total_")][r["core"] is None :]
        for i, (place, key) in enumerate(places):
            used, limit = with_unit(r[f"{key}used"], r["unit"]), r[f"{key}limit"]
            cells = (place, used, "no limit" if limit is None else f"of {grouped(limit)}", percent(r[f"{key}percent"]))
            rows.append(("" if i else resource_name(r["resource"]), *cells))
    return align_rows(rows, n_left=2)


def layer_table(doc: dict) -> list[str]:
    """Lines of a table: binding resource, cores, work, and share of the step time of each layer."""
    counts = ("neurons", "n_cores", "spikes_per_step", "synops_per_step")
    rows = [
        (r["layer"], binding_text(r), *(grouped(r[key]) for key in counts), percent(r["time_percent"]))
        for r in doc["layers"]
    ]
    head = ("layer", "binding resource", "neurons", "cores", "spikes per step", "synops per step", "share of time")
    return align_rows([head, *rows], n_left=2)


def binding_text(layer: dict) -> str:
    """The resource that fills a core of a layer most, with its use: `fan-in axons 19.1 %`."""
    binding_key = layer["binding_resource"]
    return "–" if binding_key is None else f"{resource_name(binding_key)} {percent(layer['binding_percent'])}"


def stage_line(index: int, n_stages: int, name: str, size: str, seconds: float, figure: str = "") -> str:
    """Format a line of progress: `[4/6] place  132 cores  1.8 s  hops/step 41 210 -> 17 904`."""
    return "  ".join(part for part in (f"[{index}/{n_stages}] {name}", size, f"{seconds:.1f} s", figure) if part)


def change_text(what: str, before: float, after: float) -> str:
    """Format the figure that a stage improved: `hops/step 41 210 -> 17 904`."""
    return f"{what} {grouped(before)} -> {grouped(after)}"


def resource_name(name: str) -> str:
    """The name of a resource: `fan-in axons`, `synapse memory`, `cores`."""
    return RESOURCE_OF[name].name if name in RESOURCE_OF else name


def with_unit(used: float, unit: str) -> str:
    """Format an amount and its unit, `1 core` or `17 cores`."""
    return f"{grouped(used)} {unit.removesuffix('s') if used == 1 else unit}"


def align_rows(rows: Sequence[Sequence[str]], n_left: int) -> list[str]:
    """Format a table, whose first row has the headings: `n_left` columns to the left, the others to the right."""
    return fold_table(rows, [i >= n_left for i in range(len(rows[0]))])


def fold_table(rows: Sequence[Sequence[str]], to_right: Sequence[bool]) -> list[str]:
    """Format a table as lines of at most WIDTH characters, with columns two spaces apart.

    If the table is too wide, headings take several lines. Columns that still do not fit follow below, next to the first
    column again, whose long names then take several lines. Texts of the last column may be longer, for `wrap_lines` to
    wrap.
    """
    given, (head, *body), n = rows, rows, len(to_right)
    widths = _column_widths(rows)
    for least in NARROW_HEADINGS:
        if sum(widths) + 2 * (n - 1) > WIDTH:
            sizes = [max(width, least) for width in _column_widths([*body, [""] * n])]
            heads = [
                wrap(text, size, break_long_words=False, break_on_hyphens=False)
                for text, size in zip(head, sizes, strict=True)
            ]
            depth = max(map(len, heads))
            rows = [*zip(*([""] * (depth - len(words)) + words for words in heads), strict=True), *body]
            widths = _column_widths(rows)
    blocks = [[0]]
    for i in range(1, n):
        least = widths[i] if i < n - 1 or to_right[i] else min(widths[i], LEAST_TEXT)
        if len(blocks[-1]) > 1 and sum(widths[j] + 2 for j in blocks[-1]) + least > WIDTH:
            blocks.append([0])
        blocks[-1].append(i)
    if len(blocks) > 1 and len(broken := _break_names(given)) > len(given):
        return fold_table(broken, to_right)
    lines: list[str] = []
    for block in blocks:
        cells = ([_pad_cell(row[i], widths[i], to_right[i]) for i in block] for row in rows)
        lines += [*([""] if lines else []), *("  ".join(line).rstrip() for line in cells if any(map(str.strip, line)))]
    return lines


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(count_columns, column)) for column in zip(*rows, strict=True)]


def count_columns(text: str) -> int:
    """Count the columns of a terminal that a text takes: two for a wide character (CJK), none for a combining mark."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _pad_cell(text: str, width: int, to_right: bool) -> str:
    spaces = " " * (width - count_columns(text))
    return f"{spaces}{text}" if to_right else f"{text}{spaces}"


def _break_names(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Break long names in the first column, at dots if they have some; a row's other cells are on its first line."""
    broken: list[Sequence[str]] = []
    for name, *cells in rows:
        first, *rest = NAME_PARTS.findall(name) if len(name) > LONG_NAME else [name]
        broken += [(first, *cells), *((f"  {part}", *[""] * len(cells)) for part in rest)]
    return broken


def pair_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format pairs of a keyword and its text."""
    width = max((len(word) for word, _ in rows), default=0)
    return [f"{word:<{width}}  {text}" for word, text in rows]
