"""The page: self-contained, well formed, everything escaped, drawings that hold what they show."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.activity import Activity
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.shown import grouped, round_figure
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.report.html import data
from nwcompile.report.html.maps import HEAT, Grid, core_map, heat, link_map
from nwcompile.report.html.page import render_html
from nwcompile.report.html.plots import Axis, floorline_plot, step_plot
from nwcompile.report.html_markup import VOID, Markup, tag
from nwcompile.report.html_tables import html_table, time_shares
from nwcompile.report.json.collect import collect_report
from nwcompile.sim import simulate
from nwcompile.sim.crosscheck import Crosscheck, Difference
from tests.made.chips import small_chip
from tests.made.nets import dense_net
from tests.made.programs import chip_without, run_of, three_cores


class Page(HTMLParser):
    """Checks that tags are balanced; collects the visible text and all addresses."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.words, self.addresses = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.addresses += [v for k, v in attrs if k in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if not {"style", "script"} & set(self.open):
            self.words.append(text)


def page_of(program, run, **more):
    text = render_html(collect_report(program, run, **more))
    page = Page(text)
    assert not page.open
    return text, "\n".join(page.words).replace("\u00a0", " "), page


def test_page_tells_the_basis_of_its_times_and_energies():
    text, words, _ = page_of(three_cores(), run_of(three_cores()))
    time = collect_report(three_cores(), run_of(three_cores()))["time"]
    longest, rate = time["step_us_max"], grouped(round_figure(time["samples_per_second"], "assumed"))
    said_once = ("per sample; assumed", "us per step (assumed)", "Basis: assumed.", f"{rate} samples per second")
    for said in (f"assumed; simulated; longest {longest:.2g} us", *said_once):
        assert said in text.replace("\u00a0", " "), said
    assert text.count("Basis of the times: assumed.") == 3 and "energy of the cores" in words
    data = json.loads(re.search(r'class="data">(.*?)</script>', text)[1])
    assert (data["time_basis"], data["energy_basis"]) == ("assumed", "assumed")


def test_page_has_every_part_and_needs_no_network():
    program = three_cores(calibrated=True, seed=0)
    check = Crosscheck(True, ("reference", "cycle"), 2, 99)
    text, words, page = page_of(program, run_of(program), accuracy={"float": 0.93, "chip": 0.925}, crosscheck=check)
    assert page.addresses == []
    assert not re.search(r"https?:|url\((?!#)|@import|<link|<img|<script[^>]* src", text)
    assert re.findall("<script.*?>", text) == ['<script type="application/json" class="data">', "<script>"]
    for title in ("Fit", "Cores", "Links", "Floorline", "Step by step", "Where the time goes", "Layers",
                  "Energy of the cores", "Do the backends agree?", "Warnings", "NeuroBench", "Provenance"):  # fmt: skip
        assert f"<h2>{title}</h2>" in text
    doc = collect_report(program, run_of(program), {"float": 0.93, "chip": 0.925})
    said, advice = doc["verdict"].split("; advice: ")
    assert (
        f'<p class="verdict">{said.replace(">", "&gt;")}</p>' in text.replace("\u00a0", " ")
        and words.count(advice) == 1
    )
    assert all(word in words and row in words for word, row in doc["verdict_rows"])
    assert program.hash in words
    assert "reference, cycle agree bit for bit on 2 samples" in words


def test_no_line_breaks_inside_a_number_or_before_its_unit():
    text = tag("p", "9.86 uJ, 98 us per step, 62.5 % of 131 072 bits, 2 s; step 3 us, 17 of 128 cores, > 99.9 %")
    held = "9.86_uJ, 98_us per step, 62.5_% of 131_072 bits, 2_s; step 3_us, 17 of 128 cores, &gt;_99.9_%"
    assert text == f"<p>{held}</p>".replace("_", "\u00a0")


def test_no_line_breaks_before_the_last_word_of_a_cell():
    cells = ["21, 22 of 24 bits", "158 109 units", "core 3", None, tag("b", "4 cores")]
    table = html_table([("", "right")] * 5, [cells]).replace("\u00a0", "_")
    held = ("21, 22 of 24_bits", "158_109_units", "core 3", "", "<b>4 cores</b>")
    assert "".join(f"<td>{cell}</td>" for cell in held) in table


def test_names_that_look_like_a_number_and_its_unit_stay_as_they_are():
    network = nw.Network.from_arrays(
        {"12 us": nw.NeuronSpec(beta=0.9)}, [nw.Dense("< 3 W", "12 us", np.eye(2))], {"< 3 W": 2}
    )
    program = nw.compile(network, "tiny", np.ones((1, 5, 2), np.int8))
    run = nw.simulate(program, np.ones((1, 5, 2), np.int8), backend="cycle")
    for html in (render_html(collect_report(program, run)), run._repr_html_(), network._repr_html_(),
                 program.mapping._repr_html_()):  # fmt: skip
        assert "12 us" in html and "12\u00a0us" not in html and "3\u00a0W" not in html


def test_page_escapes_names_from_outside():
    evil = "<b>&\"'x"
    program = three_cores(hidden=evil, warnings=["<script>alert(1)</script>"])
    text, words, _ = page_of(program, run_of(program))
    assert text.count("<script") == text.count("</script") == 2
    assert "<b>&" not in text
    data = json.loads(re.search('class="data">(.*?)</script>', text)[1])
    assert data["sources"] == ["in", evil, "out"]
    assert "<script>alert(1)</script>" in words
    assert f"{evil}: 3 neurons" in words


def test_page_of_a_run_without_times_shows_no_measured_time():
    text, words, _ = page_of(three_cores(), run_of(three_cores(), "reference"))
    assert "measured by the cycle backend" not in words
    assert "bound of this run (floorline)" in words
    assert "Only the cycle backend measures time; this run has none." in words


def test_page_of_a_chip_without_costs_has_no_times():
    program = three_cores(chip_without("cost.spike_cycles", "energy.visit_pj"))
    text, words, _ = page_of(program, run_of(program))
    for absent in ("Floorline", "Step by step", "Energy of the cores"):
        assert absent not in words
    assert not re.search(r"\d us\b", words)
    assert "colored by its synops in a mean step" in words
    assert "no times: the chip file of small lacks figures that they need" in words
    assert "no energies of events: the chip file of small lacks figures that they need" in words


def test_page_of_backends_that_disagree_is_marked():
    program = three_cores()
    first = Difference("spikes", 1, 0, "fc1", 2, 0, {"reference": 1, "cycle": 0})
    for agree, mark in ((True, "<header>"), (False, '<header class="bad">')):
        check = Crosscheck(agree, ("reference", "cycle"), 2, 8, None if agree else first)
        assert mark in render_html(collect_report(program, run_of(program), crosscheck=check))


def test_every_figure_of_the_tables_has_a_unit():
    program = three_cores(calibrated=True, quantization=[
        {"layer": "fc1", "bits": 8, "weight_error_rms": 0.004, "spike_agreement_percent": 99.0}])  # fmt: skip
    text, _, _ = page_of(program, run_of(program))
    for cell in re.findall(r"<td>(.*?)</td>", text):
        words = re.sub(r"<[^>]*>", "", cell)
        assert words == "" or re.fullmatch(
            r"[\d\s.]+(%|us|nJ|bits|axons|neurons|cores?|spikes|synops|bytes|operations|updates)|no limit", words
        ), cell


@pytest.mark.parametrize("draw", [core_map, link_map, floorline_plot, step_plot])
def test_drawing_is_well_formed_and_stays_inside_its_box(draw):
    doc = collect_report(three_cores(calibrated=True), run_of(three_cores(calibrated=True)))
    svg = ET.fromstring(re.search(r"<svg.*</svg>", draw(doc), re.S)[0])
    _, _, width, height = (float(v) for v in svg.get("viewBox").split())
    for e in svg.iter("rect"):
        assert 0 <= float(e.get("x")) <= float(e.get("x")) + float(e.get("width")) <= width
        assert 0 <= float(e.get("y")) <= float(e.get("y")) + float(e.get("height")) <= height
    for e in svg.iter("circle"):
        assert 0 <= float(e.get("cx")) <= width and 0 <= float(e.get("cy")) <= height


def test_core_map_shows_each_core_once_at_its_site():
    doc = collect_report(three_cores(), run_of(three_cores()))
    svg = ET.fromstring(re.search(r"<svg.*</svg>", core_map(doc), re.S)[0])
    rects = list(svg.iter("rect"))
    titles = [r.find("title").text.splitlines() for r in rects]
    assert [t[0] for t in titles] == ["core 0 at (0, 0) port 0", "core 1 at (0, 0) port 1", "core 2 at (1, 0) port 0"]
    assert titles[2][1:3] == ["out: 2 neurons", "busy 0.075\u00a0us per step"]
    assert rects[0].get("fill") == rects[1].get("fill") == heat(1)
    assert float(rects[1].get("x")) > float(rects[0].get("x")) and float(rects[2].get("x")) > float(rects[1].get("x"))


def test_maps_have_north_at_the_top():
    grid = Grid({"columns": 3, "rows": 2, "cores_per_router": 1})
    (west, south), (east, north) = grid.center(0, 0), grid.center(2, 1)
    assert west < east and north < south


def test_link_map_draws_links_with_their_flits():
    program = three_cores()
    titles = re.findall(r"<title>(link [^<]*|router [^<]*)</title>", link_map(collect_report(program, run_of(program))))
    assert titles == [
        "link (0, 0) E: 3 flits per step, 100.0\u00a0% of the busiest",
        "router (0, 0)\nport 0 inject: 1.5 flits per step\nport 1 inject: 1.5 flits per step",
        "router (1, 0)\nport 0 eject: 3 flits per step",
    ]


def test_plots_show_one_point_a_step():
    program = three_cores(calibrated=True)
    doc = collect_report(program, run_of(program))
    plot = floorline_plot(doc)
    assert plot.count("measured, step ") == plot.count("bound of this run, step ") == 4
    assert plot.count("predicted from calibration, step ") == 4
    assert step_plot(doc).count("barrier-bound</title>") == 4


def test_large_chip_and_long_run_still_render():
    chip = small_chip(noc__columns=32, noc__rows=32, noc__cores_per_router=4)
    network = dense_net(4, 60, 10)
    rng = np.random.default_rng(0)
    mapping = Mapping.from_arrays(
        {"fc1": np.arange(60), "fc2": 60 + np.arange(10)}, chip.sites[rng.permutation(chip.n_cores)[:70]]
    )
    program = emit(network, schedule(network), mapping, chip, Activity.uniform(network, 1500), {})
    text, words, _ = page_of(program, simulate(program, rng.integers(0, 2, (1, 9, 4)), backend="reference"))
    assert "70 cores" in words
    assert text.count("predicted from calibration, step ") <= 1000
    assert len(text) < 1_000_000


@pytest.mark.parametrize("factor", [1, 100_000])
def test_steps_are_left_out_where_the_page_would_be_larger_than_its_limit(monkeypatch, factor):
    program = three_cores()
    doc = collect_report(program, simulate(program, np.ones((2, 100, 4)), "cycle", profile=True))
    tables = {name: (factor * np.array(table)).tolist() for name, table in doc["by_step"]["cores"].items()}
    doc["by_step"]["cores"] = tables  # counts of more digits take more bytes
    n_steps, whole = doc["by_step"]["n_steps"], len(render_html(doc).encode())
    kept = []
    for n_bytes in (whole + 500, whole - 500, whole - 10_000):
        monkeypatch.setattr(data, "MOST_BYTES", n_bytes)
        text = render_html(doc)
        shown = json.loads(re.search(r'class="data">(.*?)</script>', text)[1])["by_step"]
        kept.append(shown["n_steps"])
        n_values = unpacked_values(shown["cores"]["synops"])
        assert n_values == [n for core in tables["synops"] for n in core[: kept[-1]]]
        assert f'max="{kept[-1] - 1}"' in text
        said = f"Steps {kept[-1]} to {n_steps - 1} are left out: with them this page would be larger than "
        assert (said in text) == (kept[-1] < n_steps)
        assert len(text.encode()) <= n_bytes or kept[-1] == 1
    assert kept[0] == n_steps > kept[1] > kept[2] == 1


def unpacked_values(text: str) -> list[int]:
    """Numbers of seven bits a byte, the lowest first; the last byte of each is below 128."""
    numbers, digits = [], []
    for byte in base64.b64decode(text):
        digits.append(byte & 127)
        if byte < 128:
            numbers.append(sum(digit << 7 * i for i, digit in enumerate(digits)))
            digits = []
    return numbers


def test_heat_runs_from_pale_to_dark():
    assert heat(0) == "#fef3c7" and heat(1) == "#7f1d1d" == heat(2) and heat(-1) == heat(0)
    brightness = [sum(int(heat(i / 20)[k : k + 2], 16) for k in (1, 3, 5)) for i in range(21)]
    assert brightness == sorted(brightness, reverse=True)
    assert len(HEAT) == 5


def test_axis_covers_its_values_with_round_ticks():
    log = Axis([3.0, 700.0], 0, 100, log=True)
    assert log.low <= 3 and log.high >= 700
    assert log.ticks() == [2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert log.at(0) == 0 and log.at(log.high) == 100
    linear = Axis([0.2, 9.3], 0, 100, log=False)
    assert linear.ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis([], 0, 1, log=False).ticks()[-1] == 1


def test_tag_escapes_text_and_attributes_but_not_markup():
    assert tag("p", "a<b", Markup("<i></i>"), None, title='"q"') == '<p title="&quot;q&quot;">a&lt;b<i></i></p>'
    assert (
        tag("rect", x=1.25, stroke_width=2, class_="core", rx=None)
        == '<rect x="1.2" stroke-width="2" class="core"></rect>'
    )


def test_page_of_a_profiled_run_shows_phases_messages_and_critical_paths():
    program = three_cores()
    text, words, page = page_of(program, run_of(program, profile=True), model_dt=0.001, wall_seconds=2.0)
    assert page.addresses == []
    for title in ("Phases of the cores", "Messages and crowded links", "Critical paths", "Real time"):
        assert f"<h2>{title}</h2>" in text
    assert "stalled" not in re.findall(r"</i>([a-z ]+)</span>", text)  # nothing was: the legend leaves it out
    assert {"step 1", "out on core 2", "fc1 on core 0", "(1, 0) port 0 eject"} <= set(words.split("\n"))
    assert "receiving: 150 cycles, 73.5 %" in text and "24 messages in all." in words
    silent = simulate(program, np.zeros((1, 1, 4)), backend="cycle", profile=True)
    assert "messages: none was sent" in page_of(program, silent)[1]
    plain, _, _ = page_of(program, run_of(program))
    assert "Critical paths" not in plain and "Real time" not in plain


def test_layers_beyond_the_colors_share_one():
    layers = [{"layer": f"l{i}", "time_percent": float(i)} for i in range(11)]
    text = time_shares({"layers": layers, "time": {"links_percent": 0.0, "barrier_percent": 45.0}})
    assert "3 other layers: 3.0 %" in text and "barrier: 45.0 %" in text
    colors = re.findall(r'class="mark" style="background:(#\w+)"', text)
    assert len(colors) == len(set(colors)) == 10
