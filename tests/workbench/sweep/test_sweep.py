"""Sweeps: rows equal single compiles, are kept point by point, and are computed once."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError, NotEnoughMemoryError, OptionError
from nwcompile.workbench.sweep.measure import point_figures
from nwcompile.workbench.sweep.store import FILE
from tests.made.sweeps import GRID, InProcess, figures, network, samples


@pytest.fixture(autouse=True)
def computed(monkeypatch):
    """The ids of the points that are computed, in this process."""
    monkeypatch.setattr("nwcompile.workbench.sweep.sweep.Workers", InProcess)
    InProcess.computed = []
    return InProcess.computed


def swept(folder=None, grid=None, **given):
    return nw.sweep(network(), samples(), GRID if grid is None else grid, "tiny", folder=folder, **given)


def test_sweep_rows_equal_single_compiles():
    made = swept(labels=np.array([0, 1, 2]))
    assert len(made.rows) == 4 and made.n_computed == 4 and made.settings == tuple(GRID)
    for row in made.rows:
        chip = nw.Chip.load("tiny").replace({"noc.buffer_flits": row["noc.buffer_flits"]})
        program = nw.compile(network(), chip, samples(), nw.Options(n_cores=row["n_cores"], bits=4))
        run = nw.simulate(program, samples(), backend="cycle")
        single = point_figures(program, run)
        assert row["program"] == program.hash and row["error"] is None
        assert {name: row[name] for name in single} == single
        assert row["accuracy"] == np.mean(run.output.sum(1).argmax(1) == [0, 1, 2])
        assert row["n_cores_used"] == row["n_cores"] == program.mapping.n_cores


def test_sweep_goes_on_from_its_folder(tmp_path, computed):
    first = swept(tmp_path, {**GRID, "n_cores": [1]})
    again = swept(tmp_path)
    assert (first.n_computed, again.n_computed) == (2, 2) and len(computed) == len(set(computed)) == 4
    assert figures(again.rows) == figures(swept().rows)
    assert again.rows[:2] == first.rows and swept(tmp_path).n_computed == 0
    said = "4 points (2 computed now, 2 before) over number of cores, buffer flits (noc); 4 Pareto-optimal in step time"
    assert " ".join(repr(again).split()).startswith(said)


def test_sweep_computes_anew_what_is_stale(tmp_path, monkeypatch):
    swept(tmp_path)
    other = nw.sweep(network(), samples()[:2], GRID, "tiny", folder=tmp_path)
    assert (other.n_computed, other.n_stale) == (4, 4)
    places = [f"nwcompile.workbench.sweep.{name}" for name in ("points", "sweep", "measure")]
    for module in (*places, "tests.made.sweeps"):
        monkeypatch.setattr(f"{module}.code_version", lambda: "9.9")
    later = swept(tmp_path)
    assert (later.n_computed, later.n_stale) == (4, 8) and {row["version"] for row in later.rows} == {"9.9"}


def test_sweep_keeps_a_failed_point_as_a_row(tmp_path, computed):
    made = swept(tmp_path, {"core.max_neurons": [2, 1], "noc.columns": 1, "noc.rows": 1, "noc.cores_per_router": 2})
    good, bad = made.rows
    assert good["error"] is None and "step_us" not in bad
    assert bad["error"].startswith("FitError: neurons, network -> tiny: 4 of 2; ") and made.failed == [bad]
    assert made.to_frame()["step_us"].isna().tolist() == [False, True]
    assert made.failures == [f"1 point failed: {bad['error']}"] and made.failures[0] in " ".join(repr(made).split())
    assert (
        swept(tmp_path, {"core.max_neurons": 1, "noc.columns": 1, "noc.rows": 1, "noc.cores_per_router": 2}).n_computed
        == 0
    )


@pytest.mark.parametrize(
    "error, text",
    [
        (MemoryError(), "MemoryError: not enough memory; give fewer samples or processes, or a machine with more"),
        (NotEnoughMemoryError("needs 2 TiB; give fewer"), "MemoryError: needs 2 TiB; give fewer"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: a defect, please report it: by zero"),
    ],
)
def test_sweep_goes_on_after_any_error_of_a_point(monkeypatch, tmp_path, error, text):
    compiled = nw.compile

    def breaks(network, chip, x, options, labels=None):
        if options.n_cores == 2:
            raise error
        return compiled(network, chip, x, options, labels=labels)

    monkeypatch.setattr("nwcompile.flow.compile", breaks)
    assert [row["error"] for row in swept(tmp_path).rows] == [None, None, text, text]
    monkeypatch.undo()
    monkeypatch.setattr("nwcompile.workbench.sweep.sweep.Workers", InProcess)
    again = swept(tmp_path)  # what was for want of memory may go better now
    assert again.n_computed == (2 if isinstance(error, MemoryError) else 0)


def test_sweep_has_no_figure_that_is_no_number(monkeypatch):
    monkeypatch.setattr("nwcompile.workbench.sweep.measure.point_figures", lambda *_: {"step_us": float("nan")})
    made = swept()
    assert {row["error"] for row in made.rows} == {"ArithmeticError: a defect, please report it: step_us is nan"}
    assert len(made.failed) == 4 and made.front == []


def test_sweep_keeps_programs_and_reports(tmp_path, computed):
    made = swept(tmp_path, keep="front", minimize=("step_us",))
    kept = {path.name for path in (tmp_path / "points").iterdir()}
    assert kept == {row["id"] for row in made.front} and len(kept) < 4
    for row in made.front:
        program = nw.Program.load(tmp_path / "points" / row["id"] / "net.nwc")
        assert program.hash == row["program"]
        report = json.loads((tmp_path / "points" / row["id"] / "report.json").read_text())
        assert report["time"]["step_us"] == row["step_us"]
        assert f'"points/{row["id"]}/report.html"' in (tmp_path / "sweep.html").read_text()
    before = len(computed)
    assert len((tmp_path / FILE).read_text().splitlines()) == 4
    swept(tmp_path, keep="front", minimize=("step_us",))
    assert len(computed) == before
    everything = swept(tmp_path, keep="all")
    assert everything.n_computed == 4 - len(kept) and len(list((tmp_path / "points").iterdir())) == 4


def test_sweep_goes_over_inputs():
    grid = {"input": {"few": (samples(2), np.array([0, 1])), "many": (samples(3), np.array([0, 1, 2]))}, "bits": 4}
    made = nw.sweep(network(), None, grid, "tiny")
    assert [row["input"] for row in made.rows] == ["few", "many"] and made.rows[0]["data"] != made.rows[1]["data"]
    assert made.maximize == ("accuracy",)


def test_sweep_without_samples_predicts():
    made = nw.sweep(network(), None, {"n_cores": [1, 2]}, "tiny")
    assert [row["accuracy"] for row in made.rows] == [None, None] and made.maximize == ()
    assert all(row["step_us"] > 0 for row in made.rows)


def test_sweep_prints_a_few_of_the_best():
    made = swept(grid={"seed": {"from": 0, "to": 14}, "n_cores": 1})
    assert len(made.front) == 15 and repr(made).splitlines()[-1] == "... and 3 more"
    lines = repr(made).splitlines()
    assert " ".join(lines[:2]).startswith(
        "15 points (15 computed) over seed; 15 Pareto-optimal in step time, energy of the"
    )
    assert max(map(len, lines[:2])) <= 80 and lines[2:4] == ["times: assumed", "energies of the cores: assumed"]
    assert len(lines[lines.index("") :]) == 1 + 5 + 12 + 1 and made._repr_html_().count("<tr>") == 16


def test_sweep_tells_how_far_it_is():
    seen = []
    swept(on_point=lambda row, n_done, n_points: seen.append((row["error"], n_done, n_points)))
    assert seen == [(None, n, 4) for n in (1, 2, 3, 4)]


@pytest.mark.long
def test_search_finds_the_best_of_a_small_space(tmp_path, computed):
    grid = {"n_cores": [1, 2, 3, 4], "bits": [2, 4], "optimize": ["time", "edp"]}
    whole = min(row["edp_nj_us"] for row in swept(grid=grid).rows)
    computed.clear()
    found = swept(tmp_path, grid, search=30, minimize=("edp_nj_us",))
    assert min(row["edp_nj_us"] for row in found.rows) == whole
    assert len(found.rows) == len(computed) == len(set(computed)) <= 16
    again = swept(tmp_path, grid, search=30, minimize=("edp_nj_us",))
    assert again.n_computed == 0 and figures(again.rows) == figures(found.rows)
    first = found.rows[0]
    assert (first["n_cores"], first["optimize"]) == (1, "time")  # where the compiler's defaults are no value, the first


def test_search_goes_on_where_points_fail():
    grid = {"core.max_neurons": [1, 2, 4], "noc.columns": [1, 2], "noc.rows": 1, "noc.cores_per_router": 1}
    made = swept(grid=grid, search=20, minimize=("step_us",), maximize=())
    assert made.failed and len(made.front) >= 1


@pytest.mark.parametrize(
    "given, text",
    [
        ({"keep": np.ones(2), "folder": "x"}, "unknown keep '[1. 1.]'; choose one of: all, front"),
        ({"keep": "best", "folder": "x"}, "unknown keep 'best'; choose one of: all, front"),
        ({"keep": "all"}, "keep='all' needs a folder to keep programs and reports in"),
        ({"backend": "cycl"}, "unknown backend 'cycl'; choose one of: cycle, prediction, reference, sequence"),
        ({"minimize": ("steps",)},
         "unknown figure 'steps'; choose one of: step_us, accuracy, edp_nj_us, n_cores_used, power_mw, sample_nj, "
         "sample_us"),
        ({"maximize": ("accuracy",)}, "accuracy cannot be an objective: the sweep has samples without labels"),
        ({"minimize": (), "maximize": ()},
         "no figure is named to be least or largest; choose from: n_cores_used, step_us, sample_us, sample_nj, "
         "power_mw, edp_nj_us, accuracy"),
        ({"minimize": ("step_us",), "maximize": "step_us"},
         "step_us is an objective twice; name each figure once, to be least or to be largest"),
        ({"search": 0}, "trials=0 must be a whole number from 1 to 1000000"),
        ({"search": 2.5}, "trials=2.5 must be a whole number from 1 to 1000000"),
        ({"options": {"bits": 3}}, "options must be an nw.Options(...), not dict"),
        ({"grid": {"input": ["a"]}}, "grid: input = ['a'] must be {name: samples} or {name: (samples, labels)}"),
        ({"grid": {"input": {"a": 1}}}, "grid: input names the samples of each point; leave out x and labels"),
    ],
)  # fmt: skip
def test_sweep_refuses_what_it_cannot_do(given, text):
    with pytest.raises(OptionError) as e:
        swept(**given)
    assert str(e.value) == text


def test_sweep_refuses_samples_that_every_point_would_refuse():
    with pytest.raises(ModelError, match="sweep takes a Network, not str; make one with nw.from_torch"):
        nw.sweep("net", None, GRID)
    with pytest.raises(ModelError, match=r"input 'in' must be \[B, T, 6\], got shape \[3, 5, 7\]"):
        nw.sweep(network(), np.zeros((3, 5, 7)), GRID, "tiny")
    with pytest.raises(ModelError, match=r"labels of shape \[2\] and type int64 must be whole numbers, one"):
        swept(labels=np.array([0, 1]))
    with pytest.raises(ModelError, match=r"labels y are 0..9, but the output has 4 neurons"):
        swept(labels=np.array([0, 1, 9]))
    with pytest.raises(OptionError, match=r"grid: input 'a' must be samples or \(samples, labels\), not 3 things"):
        nw.sweep(network(), None, {"input": {"a": (1, 2, 3)}}, "tiny")
    with pytest.raises(OptionError, match="backend 'cycle' needs samples to run; give x, or backend 'prediction'"):
        nw.sweep(network(), None, GRID, "tiny", backend="cycle")
