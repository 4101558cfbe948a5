"""`nwcompile sweep`: what it prints, keeps and returns, and one sentence for a plan that is wrong."""

import json
import re

import pytest

from nwcompile.cli.outputs.progress import clock_text
from tests.made.sweeps import InProcess

PLAN = """
model = "toy:make"
chip = "tiny"
input = "data.npz"

[grid]
n_cores = [1, 2]
noc.buffer_flits = [1, 4]
"""


@pytest.fixture
def plan(model, folder, monkeypatch):
    """plan.toml of four points of toy:make, computed in this process."""
    monkeypatch.setattr("nwcompile.workbench.sweep.sweep.Workers", InProcess)
    InProcess.computed = []
    (folder / "plan.toml").write_text(PLAN)
    return folder / "plan.toml"


def test_sweep_prints_the_best_and_where_all_lies(plan, folder, command):
    code, out, err = command("sweep plan.toml -o made")
    assert code == 0
    lines = out.splitlines()
    assert lines[:4] == [
        "4 points (4 computed) over number of cores, buffer flits (noc); 4 Pareto-optimal",
        "  in step time, energy of the cores, cores used, accuracy (highest)",
        "times: assumed",
        "energies of the cores: assumed",
    ]
    assert max(map(len, lines)) <= 80
    table = lines[5 : lines.index("", 5)]
    assert " ".join(table[-5].split()) == "point cores (noc) used us us nJ mW nJ us accuracy"
    assert [line.split()[0] for line in table[-4:]] == ["1", "2", "3", "4"]
    assert lines[-2:] == ["table: made/sweep.jsonl", "page:  made/sweep.html"]
    assert err.splitlines()[0] == "0 of 4 points, computing"
    assert err.splitlines()[-1].startswith("4 of 4 points, 0:0") and err.endswith("0:00 left\n")
    page = (folder / "made" / "sweep.html").read_text()
    title = re.search("<title>(.*?)</title>", page)
    assert title is not None
    assert re.fullmatch(r"sweep of \S+, input \S+: \d layers? of \d+ neurons on \w+", title[1]), title[1]
    assert list((folder / "made" / "points").iterdir())
    code, out, err = command("sweep plan.toml -o made --json")
    doc = json.loads(out)
    assert (code, err, doc["n_computed"], len(doc["rows"])) == (0, "", 0, 4)
    assert set(doc["front"]) <= {row["id"] for row in doc["rows"]}


def test_sweep_of_files_as_inputs(plan, folder, command):
    plan.write_text(PLAN.replace('input = "data.npz"', "").replace("[grid]", '[grid]\ninput = ["data.npz"]'))
    code, out, _ = command("sweep plan.toml -o made --json --keep none")
    assert code == 0 and {row["input"] for row in json.loads(out)["rows"]} == {"data.npz"}
    assert not (folder / "made" / "points").exists()


def test_sweep_that_fits_nowhere_returns_1(plan, command):
    plan.write_text(PLAN + "core.max_neurons = 1\nnoc.columns = 1\nnoc.rows = 1\nnoc.cores_per_router = 2\n")
    code, out, err = command("sweep plan.toml -o made")
    assert code == 1
    assert "4 points failed: FitError: neurons, network -> tiny: 4 of 2; make out smaller" in out
    assert err.splitlines()[-1] == "nwcompile: no point has figures: all of 4 points failed"


def test_sweep_that_is_interrupted_says_how_to_go_on(plan, command, monkeypatch):
    measured = InProcess.compute_points

    def interrupted(self, points, keep=False):
        for i, pair in enumerate(measured(self, points, keep)):
            if i == 3:
                raise KeyboardInterrupt
            yield pair

    monkeypatch.setattr(InProcess, "compute_points", interrupted)
    code, out, err = command("sweep plan.toml -o made")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        "nwcompile: interrupted; finished points are in made/sweep.jsonl, and the same command continues from there"
    )
    monkeypatch.setattr(InProcess, "compute_points", measured)
    code, out, _ = command("sweep plan.toml -o made")
    assert code == 0 and out.startswith("4 points (1 computed now, 3 before) over number of cores, ")


def test_sweep_reports_ignored_rows(plan, folder, command):
    (folder / "made").mkdir()
    stale = {"id": "a", "version": "0.0.1", "error": None, "seconds": 1.0}
    (folder / "made" / "sweep.jsonl").write_text(json.dumps(stale) + "\nnot a row\n")
    code, _, err = command("sweep plan.toml -o made")
    assert code == 0 and err.splitlines()[-2:] == [
        "nwcompile: 1 point in made/sweep.jsonl of another version, model or samples are stale and ignored",
        "nwcompile: 1 line of made/sweep.jsonl cannot be read and are ignored",
    ]


def test_plan_has_options_at_the_top(plan, command):
    plan.write_text(PLAN.replace("[grid]\n", "bits = [3, 4]\noptimize = 'edp'\n\n[grid]\n"))
    code, out, _ = command("sweep plan.toml -o made --json --keep none")
    rows = json.loads(out)["rows"]
    assert code == 0 and {row["bits"] for row in rows} == {3, 4} and {row["optimize"] for row in rows} == {"edp"}


def test_sweep_sets_keys_of_all_points(plan, command):
    code, out, _ = command("sweep plan.toml -o made --json --set noc.columns=1")
    assert code == 0 and {row["of_cores"] for row in json.loads(out)["rows"]} == {2}
    code, _, err = command("sweep plan.toml -o made --set noc.buffer_flits=1")
    assert (code, err) == (2, "nwcompile: error: --set noc.buffer_flits: the grid of plan.toml has values for this "
                              "key; change them there\n")  # fmt: skip


@pytest.mark.parametrize(
    "text, error",
    [
        ("model = ", "plan plan.toml is not TOML: Invalid value (at end of document)"),
        ("[grid]\nbits = 4", "plan plan.toml: model is missing; every plan names a model and the keys of its [grid]"),
        ('model = "toy:make"', "plan plan.toml: grid is missing; every plan names a model and the keys of its [grid]"),
        ('model = "toy:make"\ngrids = 1',
         "plan plan.toml: unknown key 'grids'; choose one of: grid, backend, calibration, chip, dialect, dt, input, "
         "model, neuron, samples, search"),
        ('model = "toy:make"\nbits = 4\n[grid]\nbits = [2, 4]',
         "plan plan.toml: bits is given at the top and under [grid]; give it once"),
        ('model = "toy:make"\nnoc.buffer_flits = [2, 4]\n[grid]\nbits = 4',
         "plan plan.toml: 'noc' is in the wrong place; put noc under [grid]"),
        ('[grid]\nbits = 4\nmodel = "toy:make"',
         "plan plan.toml: 'grid.model' is in the wrong place; put model at the top, above every [table]"),
        ('model = "toy:make"\n[grid]\nminimize = ["step_us"]',
         "plan plan.toml: 'grid.minimize' is in the wrong place; put minimize under [search]"),
        ('model = "toy:make"\n[grid]\nbits = 4\n[search]\nbackend = "cycle"',
         "plan plan.toml: 'search.backend' is in the wrong place; put backend at the top, above every [table]"),
        ('model = "toy:make"\n[grid]\n[search]\ntrails = 1',
         "plan plan.toml: unknown key 'search.trails'; choose one of: trials, maximize, minimize, seed"),
        ('model = "toy:make"\n[grid]\n[search]\nseed = 1',
         "plan plan.toml: search.trials is missing; say how many points may be tried, like trials = 100"),
        ('model = "toy:make"\n[grid]\n[search]\nminimize = [1]',
         'plan plan.toml: search.minimize = [1] must be names of figures, like ["step_us"]'),
        ("model = 3\n[grid]", "plan plan.toml: model = 3 must be a text"),
        ('model = "toy:make"\ngrid = 3', "plan plan.toml: grid = 3 must be a table, [grid]"),
        ('model = "toy:make"\nsamples = true\n[grid]', "plan plan.toml: samples = True must be a whole number"),
        ('model = "toy:make"\ninput = "data.npz"\nsamples = -3\n[grid]\nbits = 4', "samples = -3 must be 1 or more"),
        ('model = "toy:make"\nsamples = 3\n[grid]\nbits = 4', "samples = 3: there is no input to take samples of"),
        ('model = "toy:make"\nchip = "tiny"\n[grid]',
         "the grid names no key; give at least one, like n_cores = [1, 2, 4]"),
        ('model = "toy:make"\nchip = "tiny"\n[grid]\nbits = []',
         "grid: bits has no value; give at least one, or leave the key out"),
        ('model = "toy:make"\ninput = "data.npz"\n[grid]\ninput = ["data.npz"]',
         "the grid names the files of input; leave out `input` above it"),
        ('model = "toy:make"\n[grid]\ninput = [3]', "grid: input = [3] must be names of files, at least one"),
        ('model = "toy:make"\ninput = "none.npz"\n[grid]\nbits = 4',
         "none.npz: cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_plan_that_is_wrong_is_refused_in_a_sentence(plan, folder, command, text, error):
    plan.write_text(text)
    code, out, err = command("sweep plan.toml -o made")
    assert (code, out, err) == (2, "", f"nwcompile: error: {error}\n")
    assert not (folder / "made").exists()


@pytest.mark.parametrize(
    "line, error",
    [
        ("sweep none.toml -o made", "plan none.toml cannot be read: No such file or directory"),
        ("sweep plan.toml", "sweep: the following arguments are required: -o/--output"),
        ("sweep plan.toml -o plan.toml", "-o plan.toml: plan.toml is not a folder; choose a folder you may write to"),
        (
            "sweep plan.toml -o made --keep bst",
            "sweep: argument --keep: unknown keep 'bst'; choose one of: all, front, none",
        ),
    ],
)
def test_sweep_wrong_usage_is_one_sentence(plan, command, line, error):
    code, out, err = command(line)
    assert (code, out, err) == (2, "", f"nwcompile: error: {error}\n")


def test_clock_shows_hours_where_there_are_some():
    assert [clock_text(s) for s in (0.2, 61, 3599.6, 10931)] == ["0:00", "1:01", "1:00:00", "3:02:11"]
