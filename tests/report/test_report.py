"""The files of a report: report.json with its keys and figures, report.html beside it, and what is refused."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.errors import ArtifactError, ModelError
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.sim.crosscheck import Crosscheck, Difference
from tests.made.chips import small_chip
from tests.made.figures import contradictions
from tests.made.nets import conv_net, dense_net, float_net
from tests.made.programs import chip_without, run_of, spread, three_cores

KEYS = [
    "verdict", "verdict_rows", "report_schema", "title", "fits", "chip", "run", "fit", "time", "time_basis",
    "bottleneck", "advice", "steps", "floorline", "profile", "real_time", "energy", "energy_basis", "board",
    "events_per_sample", "neurobench", "multi_spike", "multicast", "io", "host", "dropped", "bus", "layers", "cores",
    "links", "traffic", "by_step", "work", "accuracy", "crosscheck", "legalization", "price", "warnings", "provenance",
    "explanation",
]  # fmt: skip


def test_report_writes_both_files(tmp_path):
    program = three_cores(calibrated=True)
    accuracy = {"float": None, "chip": np.float32(0.75)}
    doc = nw.report(program, run_of(program), tmp_path / "new" / "report", accuracy=accuracy)
    assert doc["accuracy"] == {"chip": 0.75}
    assert sorted(p.name for p in (tmp_path / "new" / "report").iterdir()) == ["report.html", "report.json"]
    written = json.loads((tmp_path / "new" / "report" / "report.json").read_text())
    assert written == json.loads(json.dumps(doc))
    assert list(written) == KEYS
    assert written["report_schema"] == 1


def test_report_without_a_path_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    doc = nw.report(three_cores(), run_of(three_cores()))
    assert doc["verdict"].startswith("fits small") and list(tmp_path.iterdir()) == []


def test_report_page_begins_with_its_title(tmp_path):
    nw.report(three_cores(), run_of(three_cores()), tmp_path, title="net & co, input x.npz")
    page = (tmp_path / "report.html").read_text()
    named = "net &amp; co, input x.npz: 2 layers of "
    assert f"<title>{named}" in page and f"<h1>{named}" in page and "on small" in page.partition("</h1>")[0]


def test_report_of_steps_that_take_no_time_has_no_rate(tmp_path):
    """A chip all of whose cycles are 0, without input: nothing is divided by its time."""
    costs = {f"cost__{key}_cycles": 0 for key in ("visit", "update", "spike", "message_out", "message_in")}
    program = three_cores(small_chip(cost__barrier_cycles={"1": 0}, **costs))
    doc = nw.report(program, nw.simulate(program, None, "cycle", steps=1), tmp_path)
    assert (doc["time"]["sample_us"], doc["time"]["samples_per_second"]) == (0, None)
    assert "no step takes any" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("network", [dense_net(20, 90, 90), conv_net((2, 8, 8), padding=1)], ids=["dense", "conv"])
def test_figures_of_compile_are_those_of_the_report_of_the_same_samples(network):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (3, 6, *network.inputs["in"].shape)).astype(np.int32)
    program = nw.compile(network, small_chip(noc__columns=8, noc__rows=8), x)
    run = nw.simulate(program, x, "cycle")
    assert contradictions(program, run) == []
    assert (
        collect_report(program, run)["time"]["step_us"] >= collect_report(program, predict(program))["time"]["step_us"]
    )


@pytest.mark.parametrize("on_multi_spike", ["graded", "repeat"])
def test_figures_of_input_of_several_spikes_are_the_same_before_and_after_simulation(on_multi_spike):
    x = np.random.default_rng(0).integers(0, 4, (3, 6, 20))
    program = nw.compile(float_net(20, 30, 8), "loihi1", x, nw.Options(on_multi_spike=on_multi_spike))
    run = nw.simulate(program, x, "cycle")
    assert contradictions(program, run) == []
    sent = x if on_multi_spike == "repeat" else x > 0
    assert program.activity.counts["in"].tolist() == sent.sum(0).tolist()
    assert program.activity.multi["in"].spikes.tolist() == x.sum((0, 1)).tolist()


def test_report_figures_equal_a_hand_count():
    program = three_cores(calibrated=True)
    doc = collect_report(program, run_of(program), 0.8)
    assert doc["run"] == {"backend": "cycle", "device": "cpu", "window": "aligned", "n_samples": 2,
                          "n_hardware_steps": 4, "n_dropped": 0}  # fmt: skip
    assert doc["fit"][2] == {
        "resource": "in_axons", "unit": "axons", "core": 2, "used": 6, "limit": 256, "percent": 100 * 6 / 256,
        "total_used": 14, "total_limit": 3072, "total_percent": 100 * 14 / 3072,
    }  # fmt: skip
    assert doc["time"]["source"] == "measured"
    assert doc["steps"]["bound_us"] == pytest.approx([1.0725, 1.15, 1.15, 1.08])
    assert doc["steps"]["predicted_us"] == doc["steps"]["bound_us"]
    assert doc["steps"]["max_synops"] == [7.5, 12, 12, 0]
    assert all(b <= m for b, m in zip(doc["steps"]["bound_us"], doc["steps"]["measured_us"], strict=True))
    assert doc["time"]["step_us"] == pytest.approx(sum(doc["steps"]["measured_us"]) / 4)
    assert doc["time"]["samples_per_second"] == pytest.approx(1e6 / sum(doc["steps"]["measured_us"]))
    assert doc["time"]["tightness_percent"] == pytest.approx(
        100 * sum(doc["steps"]["bound_us"]) / sum(doc["steps"]["measured_us"])
    )
    assert doc["floorline"] == pytest.approx(
        {"barrier_us": 1.0, "floor_us": 1.018, "us_per_synop": (4 * 54 + 22) / 54e3}
    )
    assert doc["energy"]["by_kind_pj_per_sample"]["visit_pj"] == pytest.approx(32 * 51.2)
    assert doc["energy"]["sample_nj"] == pytest.approx(sum(
        doc["energy"]["by_kind_pj_per_sample"].values()) / 2 / 1000)  # fmt: skip
    assert doc["accuracy"] == {"chip": 0.8}
    assert doc["layers"][0] == {
        "layer": "fc1", "neurons": 6, "n_cores": 2, "cores": [0, 1], "binding_resource": "neurons",
        "binding_percent": 100 * 3 / 64, "spikes_per_step": 6.0, "synops_per_step": 15.0,
        "time_percent": pytest.approx(100 * 145 / 8905), "quantization": None,
    }  # fmt: skip
    assert doc["cores"][2] == {
        "core": 2, "x": 1, "y": 0, "port": 0, "layers": {"out": 2}, "neurons": 2, "in_axons": 6, "out_axons": 0,
        "synapse_bits": 384, "synops_per_step": 6.0, "busy_us_per_step": pytest.approx(0.075), "note": None,
        "energy_pj_per_sample": pytest.approx((16 * 51.2 + 8 * (21.6 + 69.3) + 48 * 35.5) / 2),
    }  # fmt: skip
    flits = {(link["x"], link["y"], link["kind"]): link["flits_per_step"] for link in doc["links"]}
    assert flits == {(0, 0, "E"): 3, (0, 0, "port 0 inject"): 1.5, (0, 0, "port 1 inject"): 1.5,
                     (1, 0, "port 0 eject"): 3}  # fmt: skip


def test_report_says_where_it_comes_from():
    program = three_cores(version="0.1.0", seed=7, options={"placer": "anneal"})
    provenance = collect_report(program, run_of(program))["provenance"]
    assert provenance == {
        "reported_by": f"nwcompile {nw.__version__}", "version": "0.1.0", "seed": 7, "options": {"placer": "anneal"},
        "backend": "cycle", "device": "cpu", "chip": "small", "chip_hash": program.chip.hash,
        "network_hash": program.network.hash, "program_hash": program.hash,
    }  # fmt: skip


def test_report_of_a_run_without_times_shows_the_bound_only():
    doc = collect_report(three_cores(), run_of(three_cores(), "reference"))
    assert doc["time"]["source"] == "bound"
    assert doc["time"]["tightness_percent"] is None
    assert list(doc["time"]["rows"]) == ["bound"]
    assert doc["steps"]["measured_us"] is None
    assert len(doc["links"]) == 4


def test_report_of_a_chip_without_costs_gives_no_times_and_no_energies():
    program = three_cores(chip_without("cost.spike_cycles", "energy.visit_pj"))
    doc = collect_report(program, run_of(program))
    for key in ("time", "time_basis", "bottleneck", "advice", "floorline", "energy", "energy_basis"):
        assert doc[key] is None
    assert doc["steps"]["bound_us"] is doc["steps"]["bottleneck"] is None
    assert doc["cores"][0]["busy_us_per_step"] is doc["layers"][0]["time_percent"] is None
    assert doc["cores"][0]["synops_per_step"] == 3.75


def test_report_keeps_the_quantization_of_each_layer():
    rows = [{"layer": "out", "bits": 8, "weight_error_rms": 0.0041, "spike_agreement_percent": 99.1}]
    layers = collect_report(three_cores(quantization=rows), run_of(three_cores()))["layers"]
    assert [row["quantization"] for row in layers] == [
        None, {"bits": 8, "weight_error_rms": 0.0041, "spike_agreement_percent": 99.1}
    ]  # fmt: skip


def test_report_quotes_the_crosscheck():
    first = Difference("v", 3, 0, "fc1", 5, 1, {"reference": 4, "cycle": 5})
    doc = collect_report(
        three_cores(), run_of(three_cores()), crosscheck=Crosscheck(False, ("reference", "cycle"), 2, 99, first)
    )
    assert doc["crosscheck"]["agree"] is False
    assert doc["crosscheck"]["first_difference"] == str(first)
    assert doc["crosscheck"]["text"].startswith("reference, cycle disagree first at step 3, layer fc1, neuron 5")


def test_report_of_another_programs_run_is_refused():
    program = three_cores()
    with pytest.raises(ModelError) as e:
        collect_report(program, nw.simulate(program.network, [[[1, 0, 0, 0]]]))
    assert str(e.value) == "the run is not one of this program of 3 cores; simulate the program and report that"
    with pytest.raises(ModelError, match="the run is not one of this program of 3 cores; simulate the program"):
        run = nw.simulate(program, [[[1, 0, 0, 0]]])
        first = next(iter(program.network.layers))
        cut = {**run.activity.counts, first: run.activity.counts[first][:, 1:]}
        collect_report(program, replace(run, activity=replace(run.activity, counts=cut)))
    with pytest.raises(ModelError, match="figures of a program need a Run, not int; nw.simulate returns one"):
        program.cores_frame(3)


@pytest.mark.parametrize(
    "accuracy, text",
    [
        (91, "accuracy of chip is 91; give the part of samples that are right, 0..1"),
        (float("nan"), "accuracy of chip is nan; give the part of samples that are right, 0..1"),
        ({"float": "high"}, "accuracy of float is 'high'; give the part of samples that are right, 0..1"),
        ({"flaot": 0.9}, "unknown accuracy 'flaot'; choose one of: float, chip"),
        ({"chip": 0.9, "n_samples": 0}, "n_samples of accuracy is 0; give the number of samples, 1 or more"),
    ],
)
def test_report_refuses_an_accuracy_that_is_none(accuracy, text):
    with pytest.raises(ModelError) as e:
        collect_report(three_cores(), run_of(three_cores()), accuracy)
    assert str(e.value) == text


def test_report_has_the_interval_of_an_accuracy_of_so_many_samples():
    program = three_cores()
    doc = collect_report(program, run_of(program), {"float": 15 / 148, "chip": 0, "n_samples": 148})
    low, high = doc["accuracy"]["interval"]["float"]
    assert (low, high) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    row = ["accuracy", "float 10.1 % (6.2 to 16.0), chip 0.0 % (0.0 to 2.5); 148 samples, 95 % intervals"]
    assert row in doc["verdict_rows"] and " ".join(row[1].split()) in " ".join(render_text(doc).split())


def test_report_refuses_nouns_of_another_kind():
    with pytest.raises(ModelError) as e:
        collect_report(run_of(three_cores()), three_cores())
    assert str(e.value) == "a report takes a Program, a Run and a Crosscheck or None, not Run"


@pytest.mark.parametrize("taken", ["report.json", "report.html"])
def test_report_that_finds_a_folder_in_its_way_changes_nothing(tmp_path, taken):
    (tmp_path / taken).mkdir()
    with pytest.raises(ArtifactError) as e:
        nw.report(three_cores(), run_of(three_cores()), tmp_path)
    assert str(e.value) == (
        f"{tmp_path / taken} cannot be written: there is a folder of that name; choose a folder you may write to"
    )
    assert os.listdir(tmp_path) == [taken]


def test_report_into_a_folder_that_cannot_be_made_leaves_nothing(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ArtifactError) as e:
        nw.report(three_cores(), run_of(three_cores()), tmp_path / "taken")
    assert str(e.value) == (
        f"{tmp_path / 'taken' / 'report.json'} cannot be written: {tmp_path / 'taken'} is not a folder; "
        "choose a folder you may write to"
    )
    assert os.listdir(tmp_path) == ["taken"]
    assert (tmp_path / "taken").read_text() == "a file"


def test_report_is_the_same_every_time(tmp_path):
    for name in ("a", "b"):
        nw.report(three_cores(small_chip()), run_of(three_cores()), tmp_path / name)
    for file in ("report.json", "report.html"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("kind", ["unicast", "tree"])
def test_report_compares_single_messages_with_trees(kind):
    program = spread(noc__multicast=kind)
    doc = collect_report(program, nw.simulate(program, None, "cycle", steps=3, window="hardware"))
    texts = {
        "unicast": "single messages: 15 messages and 27 hops per sample, at most 5 flits over a link in a step",
        "tree": "trees: 3 messages and 15 hops per sample, at most 1 flits over a link in a step",
    }
    other = {"unicast": "tree", "tree": "unicast"}[kind]
    assert doc["multicast"]["text"] == f"sent as {texts[kind]}; as {texts[other]}"
    assert doc["multicast"]["text"] in render_text(doc) and doc["multicast"]["text"] in render_html(doc)


@pytest.mark.parametrize("model_dt", [0.0, -1.0, float("inf"), float("nan")])
def test_report_refuses_a_step_of_no_time(model_dt, tmp_path):
    program = three_cores()
    with pytest.raises(ModelError, match="give the seconds that a step of the model stands for, above 0"):
        nw.report(program, run_of(program), tmp_path, model_dt=model_dt)


def test_report_takes_seconds_of_numpy(tmp_path):
    program = three_cores()
    nw.report(program, run_of(program), tmp_path, model_dt=np.int64(3), wall_seconds=np.float32(2))
    assert json.loads((tmp_path / "report.json").read_text())["real_time"]
