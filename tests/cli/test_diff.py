"""`nwcompile report --diff A B`: figures side by side, and an exit code that a gate can use."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from nwcompile.ir.mapping import Mapping
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.report.diff import diff_verdict, figure_rows


@pytest.fixture
def one_core(folder):
    """one.nwc: the net of net.nwc with all its neurons on one core."""
    p = Program.load("net.nwc")
    one = Mapping.from_arrays({"fc1": [0] * 8, "fc2": [0] * 4}, [[0, 0, 0]])
    emit(p.network, p.schedule, one, p.chip, p.activity, {}).save("one.nwc")


def test_cli_diff_of_a_program_with_itself_is_no_worse(command, folder):
    code, out, err = command("report --diff net.nwc net.nwc --json")
    found = json.loads(out)
    assert (code, err, found["ok"], found["worse"], found["source"]) == (0, "", True, [], "predicted")
    assert set(found["change_percent"].values()) == {0.0}
    assert [row["n_moved"] for row in found["layers"]] == [0, 0]


def test_cli_diff_fails_where_a_gated_figure_is_worse(command, one_core):
    code, out, _ = command("report --diff one.nwc net.nwc --json")
    found = json.loads(out)
    assert code == 1 and not found["ok"]
    assert "cores" in found["worse"] and found["change_percent"]["cores"] == 100
    assert found["layers"][0] == {
        "layer": "fc1", "n_neurons": 8, "cores_before": 1, "cores_after": 2, "n_moved": 4
    }  # fmt: skip
    assert command("report --diff one.nwc net.nwc --gate cores --tolerance 100")[0] == 0
    assert command("report --diff one.nwc net.nwc --gate cores --tolerance 99")[0] == 1
    code, out, _ = command("report --diff one.nwc net.nwc --gate cores")
    assert out.splitlines()[0] == "worse: cores +100.0 %"
    assert [line.split()[:3] for line in out.splitlines() if line.startswith("fc")] == [
        ["fc1", "8", "1"],
        ["fc2", "4", "1"],
    ]


def test_cli_diff_tells_the_basis_of_times_and_energies(command, one_core):
    found = json.loads(command("report --diff one.nwc net.nwc --json")[1])
    assert found["before"]["time_basis"]["text"] == found["after"]["energy_basis"]["text"] == "assumed"
    assert found["before"]["time_basis"]["keys"] and found["before"]["time_basis"]["silicon"] == []
    rows = {row[0]: row[1:] for row in figure_rows(found)}
    assert (
        rows["step time, us"][-1] == rows["energy of the cores per sample, nJ"][-1] == "assumed"
        and rows["cores"][-1] == ""
    )
    assert rows["step time, us"][0] == f"{found['before']['step_us']:.2g}"
    found["before"]["time_basis"]["text"] = "fitted; +4 % on A"
    assert {row[0]: row[-1] for row in figure_rows(found)}["step time, us"] == "fitted; +4 % on A -> assumed"


def test_cli_diff_measures_both_on_an_input(command, one_core):
    code, out, _ = command("report --diff one.nwc net.nwc --input data.npz --json --gate cores,hops_per_step")
    found = json.loads(out)
    assert (code, found["source"], found["gate"]) == (1, "measured", ["cores", "hops_per_step"])
    assert found["before"]["hops_per_step"] == 0 < found["after"]["hops_per_step"]
    assert found["change_percent"]["hops_per_step"] is None and "hops_per_step" in found["worse"]
    assert np.isfinite(found["after"]["step_us"])
    verdict = command("report --diff one.nwc net.nwc --input data.npz --gate cores,hops_per_step")[1].splitlines()[0]
    assert verdict == f"worse: cores +100.0 %, hops per step 0 -> {found['after']['hops_per_step']:.3g}"


def test_diff_says_how_small_a_change_is_and_what_is_no_longer_known():
    change = {"cores": None, "hops_per_step": 0.0, "step_us": 0.0123, "sample_nj": 12.34}
    before = dict.fromkeys(change, 1.0)
    doc = {"worse": list(change), "change_percent": change, "before": before, "after": {**before, "cores": None},
           "tolerance_percent": 0, "gate": list(change)}  # fmt: skip
    assert diff_verdict(doc) == (
        "worse: cores no longer known, hops per step +0.0 %, step time +0.01 %, energy per sample +12.3 %"
    )
    doc |= {"worse": ["cores"], "change_percent": {**change, "step_us": -8.0, "sample_nj": -0.04}}
    assert diff_verdict(doc) == "worse: cores no longer known; better: step time -8.0 %, energy per sample -0.04 %"


def test_diff_says_a_growth_above_a_hundred_percent_as_a_factor():
    change = {"cores": 700.0, "hops_per_step": 100.0}
    doc = {"worse": list(change), "change_percent": change, "tolerance_percent": 0, "gate": list(change),
           "after": {"cores": 8, "hops_per_step": 2}}  # fmt: skip
    assert diff_verdict(doc) == "worse: cores x8.0, hops per step +100.0 %"


def test_diff_says_better_where_every_figure_is():
    doc = {"worse": [], "change_percent": {"step_us": -8.0, "cores": -50.0}, "tolerance_percent": 0}
    assert diff_verdict({**doc, "gate": ["step_us", "cores"]}) == "better: step time -8.0 %, cores -50.0 %"
    doc["change_percent"] = {"step_us": -8.0, "cores": 0.0}
    assert diff_verdict({**doc, "gate": ["step_us", "cores"]}) == "no worse: step time -8.0 %, cores +0.0 %"
    assert diff_verdict({**doc, "gate": []}) == "no worse: "


def test_cli_diff_refuses_in_one_sentence(command, folder):
    for line, text in (
        ("report", "report: the following arguments are required: PROGRAM.nwc, -o/--output"),
        ("report net.nwc --input data.npz -o out --tolerance 3",
         "--tolerance and --gate say what --diff judges; name two programs with --diff"),
        ("report net.nwc --diff net.nwc net.nwc",
         "--diff names both programs; leave PROGRAM.nwc out"),
        ("report --diff net.nwc net.nwc --tolerance -1", "--tolerance -1 must be a number of percent, 0 or more"),
        ("report --diff net.nwc", "report: argument --diff: expected 2 arguments"),
        ("report --diff net.nwc other.nwc", "other.nwc cannot be read: No such file or directory"),
        ("report --diff net.nwc net.nwc --gate time",
         "report: argument --gate: unknown figure 'time'; choose one of: cores, hops_per_step, hottest_link_cycles, "
         "messages_per_step, sample_nj, step_us"),
    ):  # fmt: skip
        code, out, err = command(line)
        assert (code, out, err) == (2, "", f"nwcompile: error: {text}\n")


def test_cli_diff_writes_both_runs_side_by_side(command, one_core):
    for flags, source in (("", "predicted"), (" --input data.npz", "measured")):
        code, out, _ = command(f"report --diff one.nwc net.nwc{flags} -o both --json")
        doc = json.loads(Path("both/diff.json").read_text())
        assert code == 1 and doc["source"] == source
        assert json.loads(out) == {"page": "both/diff.html", **{k: v for k, v in doc.items() if k != "reports"}}
        steps = [report["time"]["step_us"] for report in doc["reports"].values()]
        assert steps == pytest.approx([doc["before"]["step_us"], doc["after"]["step_us"]])
        page = Path("both/diff.html").read_text()
        told = "one.nwc before, net.nwc after" + (", input data.npz" if flags else "")
        assert f"<title>{told}: 2 layers of " in page and f"<h1>{told}: 2 layers of " in page
        assert "before: one.nwc" in page and "after: net.nwc" in page and page.count('class="data">') == 2
        scales = re.findall('<span class="hottest">(.*?)</span>', page)
        assert scales[:2] == scales[2:]
        axes = re.findall('data-x="(.*?)" data-y="(.*?)"', page)
        assert len(axes) == 4 and axes[:2] == axes[2:], "the plots of both runs have the same axes"
    assert command("report --diff one.nwc net.nwc -o both")[1].splitlines()[-1] == "page: both/diff.html"


def test_cli_diff_of_a_program_with_itself_is_a_page_too(command, folder):
    assert command("report --diff net.nwc net.nwc -o both")[0] == 0
    assert Path("both/diff.html").read_text().count('class="data">') == 2
