"""The page of a sweep: whole in itself, and no text of a setting can leave its place."""

import json
import re
from dataclasses import replace

import pytest

from nwcompile.workbench.sweep import page as module
from nwcompile.workbench.sweep.page import render_page
from nwcompile.workbench.sweep.sweep import PAGE, Sweep
from tests.report.html.browser import chromium


def swept(rows: list[dict], settings=("n_cores",)) -> Sweep:
    return Sweep(rows=tuple(rows), settings=settings, minimize=("step_us", "sample_nj"), maximize=(), folder=None,
                 n_computed=len(rows), n_stale=0, n_unreadable=0)  # fmt: skip


def row(n: int, **more) -> dict:
    good = {"id": f"p{n}", "n_cores": n, "step_us": 10 - n / 2, "sample_nj": 3.0 + n, "error": None, "seconds": 0.1}
    return {**good, **more}


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" class="data">(.*?)</script>', text)[1])


def test_page_holds_all_rows_and_needs_nothing_else():
    failed = {"id": "p9", "n_cores": 9, "error": "FitError: neurons", "seconds": 0.1}
    text = render_page(swept([row(1), row(2), row(3, sample_nj=99.0, step_us=9.9), failed]), {"p1"}.__contains__)
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == [] and "<link" not in text
    data = data_of(text)
    assert [r["front"] for r in data["rows"]] == [True, True, False, False]
    assert [r["report"] for r in data["rows"]] == ["points/p1/report.html", None, None, None]
    assert [c["name"] for c in data["columns"]] == ["n_cores", "step_us", "sample_nj"]
    assert data["rows"][3]["cells"] == [9] and data["rows"][3]["error"] == "FitError: neurons"
    assert text.count('href="points/') == 1 and "1 point failed: FitError: neurons" in text


def test_page_tells_the_bases_once_or_of_each_point():
    known = {"time_basis": "fitted; +4 % on A", "energy_basis": "assumed"}
    alike = render_page(swept([row(1, **known), row(2, **known)]), lambda _: False)
    assert "<p>times: fitted; +4 % on A</p><p>energies of the cores: assumed</p></header>" in alike.replace(
        "\u00a0", " "
    )
    columns = {c["name"]: c["digits"] for c in data_of(alike)["columns"]}
    assert columns == {"n_cores": None, "step_us": 3, "sample_nj": 2}
    changed = [row(1, **known), row(2, **known), row(3, **known | {"time_basis": "fitted"})]
    assert swept(changed).bases == [
        "times: fitted; +4 % on A (2 points), fitted (1 point)",
        "energies of the cores: assumed",
    ]
    differ = data_of(render_page(swept([row(1, **known), row(2, **known | {"time_basis": "scaled"})]), lambda _: False))
    assert differ["columns"][-1]["label"] == "basis of times" and [r["cells"][-1] for r in differ["rows"]] == [
        "fitted",
        "scaled",
    ]


def test_page_opens_with_the_best_point():
    rows = [row(1, edp_nj_us=9.0), row(2, edp_nj_us=4.0), row(3, edp_nj_us=1.0, step_us=99.0, sample_nj=99.0)]
    assert data_of(render_page(swept(rows), lambda _: False))["picked"] == "p2", "p3 is not among the best"
    assert data_of(render_page(swept([row(1), row(4)]), lambda _: False))["picked"] == "p4", "by the first objective"
    page = render_page(swept(rows), lambda _: False)
    assert ">2<span>" in page and ">p2<" not in page
    assert [one["number"] for one in data_of(page)["rows"]] == [1, 2, 3]
    assert "At first the Pareto-optimal point with the least energy x time.</p>" in page
    failed = {"id": "a", "n_cores": 1, "error": "FitError: x", "seconds": 0.1}
    assert data_of(render_page(swept([failed]), lambda _: False))["picked"] is None


def test_page_opens_with_a_point_that_is_as_accurate_as_the_best():
    figures = ((0.80, 1.0), (0.971, 2.0), (0.969, 1.5), (0.98, 3.0))
    rows = [row(n, accuracy=share, edp_nj_us=edp) for n, (share, edp) in enumerate(figures, 1)]
    page = render_page(replace(swept(rows), maximize=("accuracy",)), lambda _: False)
    assert data_of(page)["picked"] == "p2"
    assert "energy x time among those within 1 percentage point of the best accuracy.</p>" in page


def test_page_has_a_table_of_all_points_the_front_first():
    rows = [row(1, sample_nj=2000.4), row(2), row(3, step_us=1.0)]
    page = render_page(swept(rows), {"p3"}.__contains__).partition("<h2>All points</h2>")[2]
    lines = re.findall(r'<tr><td class="left name"><button[^>]*>(\d)(<span> ●</span>)?</button>', page)
    assert [(number, bool(mark)) for number, mark in lines] == [("2", True), ("3", True), ("1", False)]
    assert "<td>2\u00a0000</td>" in page and page.count('href="points/') == 1


def test_page_of_settings_that_are_no_numbers():
    nasty = "</script><script>alert(1)</script>"
    rows = [row(1, placer=nasty, bits=None), row(2, placer="anneal", bits={"out": 3})]
    text = render_page(swept(rows, ("placer", "bits")), lambda _: False)
    assert "alert(1)</script>" not in text and data_of(text)["rows"][0]["cells"][0] == nasty
    columns = data_of(text)["columns"]
    assert columns[0]["values"] == [nasty, "anneal"] and columns[1]["values"] == ["–", '{"out": 3}']


def test_page_of_many_rows_draws_the_best_and_some_others(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 20)
    rows = [row(n, step_us=100.0 + n, sample_nj=100.0 + n) for n in range(1, 100)]
    rows[50] = row(51, step_us=1.0, sample_nj=1.0)
    text = render_page(swept(rows), lambda _: False)
    drawn = [r["id"] for r in data_of(text)["rows"]]
    assert len(drawn) <= 20 and "p51" in drawn and f"Drawn: {len(drawn)} of them, the best among them." in text


def test_page_of_points_that_all_failed():
    text = render_page(swept([{"id": "a", "n_cores": 1, "error": "FitError: x", "seconds": 0.1}]), lambda _: False)
    assert "1 point failed: FitError: x" in text and data_of(text)["rows"][0]["front"] is False


def test_page_places_points_whose_chip_gives_no_figure_beside_those_that_have_one():
    rows = [row(1, step_limit_us=None), row(2, step_limit_us=2.0), row(3, sample_nj=None, step_limit_us=0.123456)]
    data = data_of(render_page(swept(rows, ("n_cores", "step_limit_us")), lambda _: False))
    kinds = {c["name"]: (c["values"], c["lacks"]) for c in data["columns"]}
    assert kinds["sample_nj"] == kinds["step_limit_us"] == (None, True) and kinds["step_us"] == (None, False)
    assert [r["cells"][-1] for r in data["rows"]] == [4.0, 5.0, None]


def test_page_has_cells_of_a_column_of_texts_as_its_axis_has_them():
    rows = [row(1, placer="x"), row(2, placer=2.0), row(3, placer=True), row(4, placer=None)]
    data = data_of(render_page(swept(rows, ("placer",)), lambda _: False))
    assert data["columns"][0]["values"] == [r["cells"][0] for r in data["rows"]] == ["x", "2.0", "true", "–"]


@pytest.mark.long
@pytest.mark.parametrize("width", [1400, 400])
def test_page_draws_every_point_that_has_figures(tmp_path, width):
    failed = {"id": "p0", "n_cores": 9, "error": "FitError: neurons", "seconds": 0.1}
    rows = [failed, *(row(n, sample_nj=None if n % 3 == 0 else 3.0 + n) for n in range(1, 9))]
    (tmp_path / PAGE).write_text(render_page(swept(rows), lambda _: False))
    with chromium() as browser:
        tab = browser.new_page(viewport={"width": width, "height": 900})
        errors: list[str] = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto((tmp_path / PAGE).as_uri())
        assert tab.locator("#plot circle").count() == tab.locator("#lines path").count() == 8
        ticks = tab.locator("#lines text.tick").all_text_contents()
        sizes = tab.locator("svg text").evaluate_all("all => all.map(t => parseFloat(getComputedStyle(t).fontSize))")
        assert max(sizes) <= 12, "larger names would lie over the numbers of the axes"
        assert ticks[:4] == ["2", "4", "6", "8"] and "–" in ticks
        assert tab.locator("#picked dd").first.text_content() == "9", "the shortest step"
        assert tab.evaluate("document.documentElement.scrollWidth") == width and errors == []
