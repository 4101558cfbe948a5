"""The page in a browser: what is clicked, sorted, filtered, slid and zoomed says what report.json says."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.compare import measured_figures, moved_neurons
from nwcompile.cost.energy import predict
from nwcompile.ir.artifact import write_files
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.shown import grouped, round_figure
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.report import render_diff_files, render_files
from nwcompile.report.diff import GATE, collect_diff
from nwcompile.report.json.collect import collect_report
from nwcompile.report.text import figure_text
from nwcompile.sim import simulate
from tests.made.buses import bus_chip
from tests.made.chips import small_chip
from tests.made.nets import dense_net
from tests.made.programs import chip_without, run_of, spikes_in, spread, three_cores
from tests.report.html.browser import chromium

pytestmark = pytest.mark.long
EVIL = '<img src=x onerror="window.hacked=1">&\'</script><script>window.hacked=2</script>'
WIDTHS = (1400, 400)


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a file, or a report.json, as a page that must stay without errors; closes it after the test."""
    pages, errors = [], []

    def go(doc, width=1400, **how):
        file = doc
        if isinstance(doc, dict):
            write_files(render_files(doc, tmp_path))
            file = tmp_path / "report.html"
        page = browser.new_page(viewport={"width": width, "height": 900}, **how)
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or errors.append(request.url))
        page.goto(f"file://{file}")
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.close()
    assert errors == []


def wide(n_cores=20, **more):
    """A run of a net that is spread over many cores, profiled."""
    chip = small_chip(noc__columns=4, noc__rows=3, noc__cores_per_router=2)
    network = dense_net(4, n_cores - 4, 8)
    core_of = {"fc1": np.arange(n_cores - 4), "fc2": n_cores - 4 + np.arange(8) // 2}
    mapping = Mapping.from_arrays(core_of, chip.sites[np.random.default_rng(0).permutation(chip.n_cores)[:n_cores]])
    program = emit(network, schedule(network), mapping, chip, None, {})
    x = np.random.default_rng(1).integers(0, 2, (2, 9, 4))
    return program, simulate(program, x, "cycle", profile=True, **more)


@pytest.fixture(scope="module")
def doc():
    return json.loads(json.dumps(collect_report(*wide())))


def slide(page, step):
    page.locator(".steps-bar input").evaluate(
        "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step
    )


def plain(text):
    """The text with spaces instead of the signs that hold a number and its unit together."""
    return text.replace("\u00a0", " ")


def show_all(page, title):
    page.locator(f"section:has(> h2:text-is('{title}'))").get_by_role("button", name="Show all").click()


def rows_of(page, title):
    """The text of the lines of a card's table."""
    table = page.locator(f"section:has(> h2:text-is('{title}')) table").first
    return table.locator("tbody tr").evaluate_all("lines => lines.map(l => [...l.cells].map(c => c.textContent))")


def test_a_core_says_who_sends_to_it_and_what_it_costs(visit, doc):
    page = visit(doc)
    core = max(range(len(doc["cores"])), key=lambda c: len(doc["traffic"]["cores"][c]["rows"]))
    page.locator(".cores > rect").nth(core).click()
    row, listed = doc["cores"][core], doc["traffic"]["cores"][core]
    detail = page.locator(".detail")
    assert detail.locator("h2").inner_text() == f"Core {core} at ({row['x']}, {row['y']}) port {row['port']}"
    text = plain(detail.inner_text())
    for name, n in row["layers"].items():
        assert f"{name}: {n} neuron" in text
    assert f"{row['in_axons']} fan-in, {row['out_axons']} fan-out" in text
    assert f"works {figure_text(doc, row['busy_us_per_step'], 'us')} per step (assumed)" in text
    assert f"{figure_text(doc, row['energy_pj_per_sample'] / 1000, 'nJ')} per sample (assumed)" in text
    per_step = doc["run"]["n_samples"] * doc["run"]["n_hardware_steps"]
    tables = detail.locator("table")
    sent = tables.nth(1).locator("tbody tr").evaluate_all("t => t.map(l => [...l.cells].map(c => c.textContent))")
    expected = [
        [doc["traffic"]["sources"][source], "outside" if home is None else f"core {home}", grouped(n / per_step)]
        for source, home, _, n in listed["rows"]
    ]
    assert [line[:3] for line in sent] == expected
    assert listed["others"] > 0 and f"All others: {grouped(listed['others'] / per_step)} per step" in text
    costs = tables.nth(0).locator("tbody tr").evaluate_all("t => t.map(l => [...l.cells].map(c => c.textContent))")
    spent = [cycles[core] * doc["work"]["cycle_us"] for cycles in doc["work"]["cycles_per_step"].values()]
    assert [plain(line[2]) for line in costs] == [figure_text(doc, us, "us") for us in spent if us > 0]
    detail.get_by_role("button", name=expected[0][1]).first.click()
    assert detail.locator("h2").inner_text().startswith(f"Core {listed['rows'][0][1]} at")
    assert page.evaluate("document.activeElement.tagName") == "H2"
    detail.get_by_role("button", name="Close").click()
    assert not detail.is_visible()


def test_figures_of_a_core_have_units_that_fit(visit, doc):
    large = {"busy_us_per_step": 1234.0, "energy_pj_per_sample": 98.76e6}
    page = visit({**doc, "cores": [{**row, **large} for row in doc["cores"]]})
    page.locator(".cores > rect").nth(0).click()
    text = plain(page.locator(".detail").inner_text())
    assert "works 1.2 ms per step (assumed)" in text and "99 uJ per sample (assumed)" in text


def test_a_link_says_which_messages_cross_it(visit, doc):
    page = visit(doc)
    mesh = [i for i, link in enumerate(doc["links"]) if link["kind"] in "EWNS"]
    i = max(mesh, key=lambda link: doc["links"][link]["flits_per_step"])
    page.locator(".links > *").nth(mesh.index(i)).click()
    link, listed = doc["links"][i], doc["traffic"]["links"][i]
    text = page.locator(".detail").inner_text()
    assert text.startswith(f"Close\nLink ({link['x']}, {link['y']}) {link['kind']}")
    per_step = doc["run"]["n_samples"] * doc["run"]["n_hardware_steps"]
    assert sum(n for *_, n in listed["rows"]) + listed["others"] == round(link["flits_per_step"] * per_step)
    lines = page.locator(".detail tbody tr").evaluate_all("t => t.map(l => [...l.cells].map(c => c.textContent))")
    sources = doc["traffic"]["sources"]
    assert [line[:4] for line in lines] == [
        [sources[source], f"core {home}", f"core {to}", grouped(n / per_step)] for source, home, to, n in listed["rows"]
    ]
    page.locator(".routers > rect").first.click()
    assert page.locator(".detail h2").inner_text().startswith("Router (")


def test_the_slider_colors_cores_and_links_and_marks_the_step(visit, doc):
    page = visit(doc)
    before = page.locator(".cores > rect, .links > *").evaluate_all("marks => marks.map(m => m.getAttribute('fill'))")
    scale = page.locator(".hottest").first.inner_text()
    for step in range(doc["by_step"]["n_steps"]):
        slide(page, step)
        said = page.locator(".steps-bar output").inner_text()
        n = doc["run"]["n_samples"]
        for figure, word in (("synops", "synops"), ("spikes_out", "spikes"), ("messages_in", "messages in")):
            total = sum(row[step] for row in doc["by_step"]["cores"][figure]) / n
            assert f"{grouped(total)} {word}".replace(" ", "\u00a0") in said.replace(" ", "\u00a0")
        assert figure_text(doc, doc["steps"]["measured_us"][step], "us") in plain(said)
        assert page.locator("svg.steps .now").count() == 1
        fills = page.locator(".cores > rect").evaluate_all("marks => marks.map(m => m.getAttribute('fill'))")
        busy = [row[step] for row in doc["by_step"]["cores"]["busy_cycles"]]
        assert fills[int(np.argmax(busy))] == max(set(fills), key=lambda fill: -brightness(fill))
        idle = [i for i, row in enumerate(doc["by_step"]["cores"]["synops"]) if row[step] == 0]
        page.locator(".steps-bar select").select_option("synops")
        fills = page.locator(".cores > rect").evaluate_all("marks => marks.map(m => m.getAttribute('fill'))")
        assert {fills[i] for i in idle} <= {"rgb(254 243 199)"}
        page.locator(".steps-bar select").select_option("busy_cycles")
    page.get_by_role("button", name="Mean of all steps").click()
    after = page.locator(".cores > rect, .links > *").evaluate_all("marks => marks.map(m => m.getAttribute('fill'))")
    assert after == before and page.locator(".hottest").first.inner_text() == scale
    assert page.locator("svg.steps .now").count() == 0


def brightness(fill: str) -> int:
    return sum(map(int, fill[4:-1].split()))


def test_the_slider_is_worked_by_keys(visit, doc):
    page = visit(doc)
    page.locator(".steps-bar input").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".steps-bar output").inner_text().startswith("step 1 of 0 to ")
    page.keyboard.press("End")
    last = doc["by_step"]["n_steps"] - 1
    assert page.locator(".steps-bar output").inner_text().startswith(f"step {last} of 0 to {last}")
    page.locator("svg.steps").click(position={"x": 80, "y": 60})
    assert page.locator(".steps-bar output").inner_text().startswith("step 0 of")


UNITS = {"nJ": 1e3, "uJ": 1e6, "mJ": 1e9}  # picojoules


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_maps_of_the_dark_theme_show_large_loads_light(visit, doc, theme):
    page = visit(doc, color_scheme=theme)
    for mark in ("svg.map >> nth=0", "svg.map >> nth=1", ".legend .scale >> nth=0"):
        inverts = page.locator(mark).evaluate("e => getComputedStyle(e).filter").startswith("invert")
        assert inverts == (theme == "dark"), mark


def test_tables_sort_and_filter(visit, doc):
    page = visit(doc)
    card = page.locator("section:has(> h2:text-is('All cores'))")
    cores = [f"core {row['core']}" for row in doc["cores"]]
    assert [line[0] for line in rows_of(page, "All cores")] == cores[:12]
    show_all(page, "All cores")
    assert [line[0] for line in rows_of(page, "All cores")] == cores
    synops = sorted((row["synops_per_step"] for row in doc["cores"]), reverse=True)
    button = card.get_by_role("button", name="synops per step")
    for direction, expected in (("descending", synops), ("ascending", synops[::-1])):
        button.click()
        assert card.locator("th[aria-sort]").get_attribute("aria-sort") == direction
        assert [line[4] for line in rows_of(page, "All cores")] == [grouped(v).replace(" ", "\u00a0") for v in expected]
    button.click()
    assert card.locator("th[aria-sort]").count() == 0 and [line[0] for line in rows_of(page, "All cores")] == cores
    card.get_by_role("button", name="core", exact=False).first.click()
    assert [line[0] for line in rows_of(page, "All cores")] == sorted(cores, key=lambda c: int(c[5:]))
    card.get_by_label("Filter").fill("FC2 core")
    held = [f"core {row['core']}" for row in doc["cores"] if "fc2" in row["layers"]]
    assert [line[0] for line in rows_of(page, "All cores")] == held
    assert f"{len(held)} of {len(cores)} rows" in card.inner_text()
    card.get_by_label("Filter").fill("nothing of the kind")
    assert rows_of(page, "All cores") == []
    layers = page.locator("section:has(> h2:text-is('Layers'))")
    layers.get_by_role("button", name="neurons").click()
    sizes = [row["neurons"] for row in sorted(doc["layers"], key=lambda row: -row["neurons"])]
    assert [line[1] for line in rows_of(page, "Layers")] == [f"{n}\u00a0neurons" for n in sizes]
    energy = page.locator("section:has(> h2:text-is('Energy of the cores'))")
    energy.get_by_role("button", name="energy per sample").click()
    energy.get_by_role("button", name="energy per sample").click()
    assert energy.locator("tr").last.inner_text().startswith("all events")


def test_energies_of_several_units_are_sorted_as_numbers(visit, doc):
    kinds = doc["energy"]["by_kind_pj_per_sample"]
    grown = {kind: pj and pj * 1000 ** (i % 2) for i, (kind, pj) in enumerate(kinds.items())}
    page = visit({**doc, "energy": {**doc["energy"], "by_kind_pj_per_sample": grown}})
    energy = page.locator("section:has(> h2:text-is('Energy of the cores'))")
    energy.get_by_role("button", name="energy per sample").click()
    shown = [line[1] for line in rows_of(page, "Energy of the cores")]
    n_sourced = sum(bool(pj) for kind, pj in grown.items() if kind != "total")
    picojoules = [float(x[:-2].replace("\u00a0", "")) * UNITS[x[-2:]] for x in shown[:n_sourced]]
    assert len({x[-2:] for x in shown[:n_sourced]}) > 1 and picojoules == sorted(picojoules, reverse=True)


def test_sums_of_the_tables_are_those_of_the_json(visit, doc):
    page = visit(doc)
    data = page.evaluate("JSON.parse(document.querySelector('script.data').textContent)")
    n_steps = doc["run"]["n_hardware_steps"]
    assert sum(data["cores"]["synops_per_step"]) == pytest.approx(doc["events_per_sample"]["synops"] / n_steps)
    for title in ("All cores", "All links"):
        show_all(page, title)
    shown = sum(float(line[4].replace("\u00a0", "")) for line in rows_of(page, "All cores"))
    assert shown == pytest.approx(sum(row["synops_per_step"] for row in doc["cores"]), rel=5e-3)
    carried = sum(float(line[1].replace("\u00a0", "")) for line in rows_of(page, "All links"))
    assert carried == pytest.approx(sum(link["flits_per_step"] for link in doc["links"]), rel=5e-3)


def test_the_floorline_zooms_with_every_core_a_point(visit, doc):
    page = visit(doc)
    points = page.locator("svg.floorline .core-points circle")
    assert points.count() == len(doc["cores"])

    def places():
        return points.evaluate_all(
            "dots => dots.map(d => [Number(d.getAttribute('cx')), Number(d.getAttribute('cy'))])"
        )

    def distance(at):
        return abs(at[0][0] - at[-1][0]) + abs(at[0][1] - at[-1][1])

    whole, ticks = places(), page.locator("svg.floorline .axes").inner_html()
    card = page.locator("section:has(> h2:text-is('Floorline'))")
    card.get_by_role("button", name="Zoom in").click()
    assert distance(places()) == pytest.approx(1.6 * distance(whole), rel=0.02)
    for _ in range(3):
        card.get_by_role("button", name="Zoom in").click()
    inside = [at for at in places() if 66 <= at[0] <= 622 and 18 <= at[1] <= 304]
    assert inside  # a zoom keeps points in sight
    assert page.locator("svg.floorline .axes").inner_html() != ticks
    card.get_by_role("button", name="Whole").click()
    assert places() == whole and page.locator("svg.floorline .axes").inner_html() == ticks
    box = page.locator("svg.floorline").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.1 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.6 * box["height"], steps=3)
    page.mouse.up()
    assert places() != whole
    page.locator("svg.floorline").focus()
    page.keyboard.press("0")
    assert places() == whole
    slide(page, 3)
    assert places() != whole
    points.first.dispatch_event("click")
    assert page.locator(".detail h2").inner_text().startswith("Core 0 at")


def test_two_runs_side_by_side(visit, tmp_path):
    programs = [wide(20)[0], wide(12)[0]]
    programs[1] = emit(programs[0].network, programs[0].schedule, Mapping.from_arrays(
        {"fc1": np.arange(16) // 2, "fc2": 8 + np.arange(8) // 4}, programs[0].chip.sites[:10]),
        programs[0].chip, None, {})  # fmt: skip
    x = np.random.default_rng(1).integers(0, 2, (2, 9, 4))
    runs = [simulate(program, x, "cycle") for program in programs]
    figures = [measured_figures(program, run) for program, run in zip(programs, runs, strict=True)]
    compared = collect_diff(*figures, moved_neurons(*programs), "measured", GATE, 0.0)
    reports = {name: collect_report(p, run) for name, p, run in zip(("a.nwc", EVIL), programs, runs, strict=True)}
    write_files(render_diff_files(compared, reports, tmp_path))
    page = visit(tmp_path / "diff.html")
    assert page.evaluate("window.hacked") is None
    assert [page.locator(".run").nth(i).locator(".cores > rect").count() for i in (0, 1)] == [20, 10]
    shown = {line[0]: line[1:3] for line in rows_of(page, "Figures")}
    assert shown["cores"] == ["20", "10"]
    assert shown["step time, us"] == [
        grouped(round_figure(compared[side]["step_us"], "assumed")) for side in ("before", "after")
    ]
    slide(page, 4)
    said = page.locator(".steps-bar output").inner_text()
    for side, report in zip(("before", "after"), reports.values(), strict=True):
        assert f"{side}: {figure_text(report, report['steps']['measured_us'][4], 'us')}" in plain(said)
    assert len(set(page.locator(".run .hottest").all_inner_texts()[::2])) == 1
    page.locator(".run").nth(1).locator(".cores > rect").nth(9).click()
    assert [page.locator(".detail").nth(i).is_visible() for i in (0, 1)] == [False, True]
    page = visit(tmp_path / "diff.html")
    for click in (False, True):
        if click:
            page.locator(".run").nth(1).locator(".cores > rect").nth(9).click()
        tops = [
            page.locator(".run")
            .nth(i)
            .locator("h2:visible")
            .evaluate_all("all => Object.fromEntries(all.map(h => [h.textContent, h.getBoundingClientRect().top]))")
            for i in (0, 1)
        ]
        for title in ("Cores", "Links", "Floorline", "Step by step"):
            assert tops[0][title] == tops[1][title], title
    for width in (1000, 400):
        page = visit(tmp_path / "diff.html", width)
        assert page.evaluate("document.documentElement.scrollWidth") == width and hidden_headings(page) == []


def hidden_headings(page) -> list[str]:
    """Return the column headings that a reader has to scroll for."""
    beyond = "e => e.getBoundingClientRect().right > e.closest('.table').getBoundingClientRect().right + 1"
    return [th.inner_text() for th in page.locator(".table th").all() if th.evaluate(beyond)]


def test_names_from_outside_do_nothing(visit):
    program = three_cores(hidden=EVIL, warnings=[EVIL])
    page = visit(collect_report(program, run_of(program, profile=True)))
    page.locator(".cores > rect").nth(2).click()
    assert EVIL in page.locator(".detail").inner_text()
    slide(page, 1)
    page.wait_for_timeout(50)
    assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0


@pytest.mark.parametrize("width", [*WIDTHS, 1000, 760])
def test_nothing_overflows_and_the_verdict_is_three_lines(visit, doc, width):
    page = visit(doc | {"accuracy": {"float": 0.9312, "chip": 0.9254}}, width)
    page.locator(".cores > rect").first.dispatch_event("click")
    slide(page, 2)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert width < 1000 or hidden_headings(page) == []
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})  # of a sheet of paper
    assert page.evaluate("document.documentElement.scrollWidth") == 720
    lines = "e => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight)"
    assert page.locator(".verdict").evaluate(lines) < 3.1


def test_all_that_is_worked_has_a_name_and_shows_its_focus(visit, doc):
    page = visit(doc)
    nameless = "e => !(e.textContent || e.getAttribute('aria-label') || e.labels?.length)"
    assert page.locator("button, input, select").evaluate_all(f"all => all.filter({nameless}).length") == 0
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_without_the_script_and_on_paper_the_page_has_its_figures(visit, doc):
    plain = visit(doc, java_script_enabled=False)
    for title in ("Fit", "Cores", "Links", "Floorline", "Step by step", "Layers", "Energy of the cores", "Provenance"):
        assert plain.locator(f"h2:text-is('{title}')").is_visible()
    assert plain.locator("button:visible, input:visible").count() == 0
    page = visit(doc)
    page.emulate_media(media="print")
    assert page.locator(".steps-bar, .controls").first.is_hidden()
    assert page.locator(".verdict").is_visible()


CASES = {
    "no costs": lambda: collect_report(*_ran(three_cores(chip_without("cost.word_cycles", "energy.visit_pj")))),
    "one core": lambda: collect_report(*_one_core()),
    "no spikes": lambda: collect_report(three_cores(), simulate(three_cores(), np.zeros((1, 3, 4)), "cycle",
                                                                profile=True)),
    "one step": lambda: collect_report(three_cores(), simulate(three_cores(), spikes_in(1), "cycle",
                                                               window="hardware")),
    "predicted": lambda: collect_report(three_cores(), predict(three_cores())),
    "calibrated": lambda: collect_report(three_cores(calibrated=True), predict(three_cores(calibrated=True))),
    "board": lambda: collect_report(*_ran(three_cores(small_chip(noc__chip_columns=1, noc__chip_hop_cycles=9)))),
    "io sites": lambda: collect_report(*_ran(three_cores(small_chip(io__sites=["2,1,1"])))),
    "trees": lambda: collect_report(spread(noc__multicast="tree"), simulate(spread(noc__multicast="tree"), None,
                                                                   "cycle", steps=4, window="hardware")),
    "bus": lambda: collect_report(*_on_bus()),
    "pool": lambda: collect_report(*_pool()),
}  # fmt: skip


def _ran(program):
    return program, run_of(program, profile=program.chip.has_times)


def _one_core():
    network = dense_net(4, 6, 2)
    mapping = Mapping.from_arrays({"fc1": [0] * 6, "fc2": [0] * 2}, [[0, 0, 0]])
    program = emit(network, schedule(network), mapping, small_chip(), None, {})
    return program, simulate(program, spikes_in(), "cycle", profile=True)


def _on_bus():
    network = dense_net(4, 6, 2)
    mapping = Mapping.from_arrays({"fc1": [0, 0, 1, 1, 2, 2], "fc2": [3, 3]}, [[i, 0, 0] for i in range(4)])
    program = emit(network, schedule(network), mapping, bus_chip(), None, {})
    return program, simulate(program, spikes_in(), "cycle")


def _pool():
    network = nw.Network.from_arrays(
        {
            "hidden": (nw.NeuronSpec(threshold=1.0, beta=0.9), (6,)),
            "out": (nw.NeuronSpec(threshold=1.0, beta=0.9), (2,)),
        },
        [nw.Dense("in", "hidden", np.full((6, 4), 0.6)), nw.Dense("hidden", "out", np.full((2, 6), 0.5))],
        {"in": (4,)},
    )
    program = nw.compile(network, "xylo_audio2", spikes_in(6), nw.Options(approximate="all"))
    return program, simulate(program, spikes_in(6), "cycle")


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_makes_a_page_that_works(visit, name):
    case = CASES[name]()
    for width in WIDTHS:
        page = visit(case, width)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        n_steps = case["by_step"]["n_steps"]
        assert page.locator(".steps-bar").count() == (n_steps > 0)
        if n_steps == 0:
            assert case["by_step"]["missing"] in page.inner_text("main")
        else:
            slide(page, n_steps - 1)
            for figure in case["by_step"]["cores"]:
                page.locator(".steps-bar select").select_option(figure)
            page.get_by_role("button", name="Mean of all steps").click()
        for kind in (".cores > rect", ".links > *", ".routers > rect", ".core-points > circle"):
            marks = page.locator(kind)
            for i in range(marks.count()):
                marks.nth(i).dispatch_event("click")
                assert page.locator(".detail").is_visible()
                text = page.inner_text("main")
                assert not any(word in text for word in ("NaN", "undefined", "null"))


NAME_OVER_NUMBER = """() => [...document.querySelectorAll('svg.plot')].flatMap((plot) => {
  const box = (e) => e.getBoundingClientRect();
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  return [...plot.querySelectorAll(':scope > .name')].flatMap((name) =>
    [...plot.querySelectorAll('.axis')].filter((n) => meet(box(name), box(n))).map((n) => n.textContent));
})"""


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_axes_are_beside_the_numbers(visit, doc, width):
    large = {name: [1000 * us for us in doc["steps"][name]] for name in ("measured_us", "bound_us")}
    page = visit({**doc, "steps": {**doc["steps"], **large}}, width)
    assert page.locator("svg.plot > .name").count() > 0 and page.evaluate(NAME_OVER_NUMBER) == []


def test_text_of_a_small_map_is_no_larger_on_a_phone(visit):
    program = three_cores()
    page = visit(json.loads(json.dumps(collect_report(program, run_of(program)))), 400)
    size = "texts => texts.map(t => t.getBoundingClientRect().height)"
    assert max(page.locator("svg.map text").evaluate_all(size)) < 20
