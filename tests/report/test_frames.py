"""Tidy tables: the rows of report.json and of runs as DataFrames, and what they say without pandas."""

import re
import sys
from html import escape

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError, OptionError
from nwcompile.report.json.collect import collect_report
from tests.made.nets import two_layer_net, two_layer_samples


@pytest.fixture(scope="module")
def program() -> nw.Program:
    return nw.compile(two_layer_net(), "loihi1", two_layer_samples(), nw.Options(n_cores=3))


@pytest.fixture(scope="module")
def run(program) -> nw.Run:
    return nw.simulate(program, two_layer_samples(), backend="cycle")


def test_frames_of_a_program_hold_the_rows_of_its_report(program, run):
    doc = collect_report(program, run)
    cores, links, layers = program.cores_frame(run), program.links_frame(run), program.layers_frame(run)
    assert len(cores) == program.mapping.n_cores == 3 and len(links) == len(doc["links"]) and len(layers) == 2
    for name in ("core", "x", "y", "port", "neurons", "synapse_bits", "synops_per_step", "busy_us_per_step"):
        assert cores[name].tolist() == [row[name] for row in doc["cores"]], name
    assert cores["layers"][0] == ", ".join(f"{name}: {n}" for name, n in doc["cores"][0]["layers"].items())
    assert links["flits_per_step"].tolist() == [row["flits_per_step"] for row in doc["links"]]
    assert layers["spikes_per_step"].tolist() == [row["spikes_per_step"] for row in doc["layers"]]
    assert layers["quantization_bits"].tolist() == [row["quantization"]["bits"] for row in doc["layers"]]


def test_frames_without_a_run_are_predicted_from_the_calibration(program, run):
    predicted, measured = program.cores_frame(), program.cores_frame(run)  # of the same samples
    assert predicted["synops_per_step"].tolist() == pytest.approx(measured["synops_per_step"].tolist())


def test_frames_of_a_run_add_up_to_its_spikes_and_counters(run):
    events = run.to_frame("spikes")
    layers = run.to_frame()
    assert layers["layer"].tolist() == ["hidden", "out"] and layers["neurons"].tolist() == [12, 5]
    assert layers["spikes"].tolist() == events.groupby("layer")["count"].sum()[["hidden", "out"]].tolist()
    assert layers["spikes_per_neuron_and_step"][0] == run.spikes["hidden"].mean()
    row = events.iloc[-1]
    flat = run.spikes[row["layer"]].reshape(4, 9, -1)
    assert flat[row["sample"], row["step"], row["neuron"]] == row["count"] != 0
    steps, cores = run.to_frame("steps"), run.to_frame("cores")
    for name, values in run.counters.items():
        assert np.array_equal(steps[name], values.sum(1)) and np.array_equal(cores[name], values.sum(0)), name
    assert np.array_equal(steps["step_cycles"], run.step_cycles) and cores["core"].tolist() == [0, 1, 2]


def test_frames_say_what_they_lack(program, run, monkeypatch):
    with pytest.raises(OptionError, match="unknown rows 'layer'; choose one of: layers, cores, spikes, steps"):
        run.to_frame("layer")
    totals = nw.simulate(program, two_layer_samples(), backend="cycle", record="totals")
    assert totals.to_frame()["spikes"].tolist() == run.to_frame()["spikes"].tolist()
    with pytest.raises(ModelError, match="the run keeps totals only, no single spikes; simulate with record='spikes'"):
        totals.to_frame("spikes")
    in_float = nw.simulate(program.network, two_layer_samples())
    with pytest.raises(ModelError, match="no counters for rows='steps'; simulate a compiled program for them"):
        in_float.to_frame("steps")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match=r"needs pandas, which is not installed: pip install 'nwcompile\[frames\]'"):
        program.cores_frame()


def test_notebooks_show_the_graph_the_report_and_the_layers(program, run):
    html = program.network._repr_html_()
    assert html.count("<rect") == 3 and html.count("<path") == 2 and "Dense: in to hidden, delay 0" in html
    page = program._repr_html_()
    assert page.startswith("<div><p><b>Program for loihi1: 2 layers, 17 neurons on 3 of 128 cores") and "srcdoc" in page
    assert "<script" not in page
    shown = run._repr_html_()
    assert "<b>Run (cycle, cpu): 4 samples of 9 steps</b>" in shown and "time: " in shown and ">hidden</td>" in shown


def test_notebooks_show_the_cores_of_a_mapping(program):
    html = program.mapping._repr_html_()
    assert "<b>Mapping: 17 neurons on 3 cores at 1 router</b>" in html and html.count("<rect") == 3
    for core in range(3):
        x, y, port = program.mapping.site_of[core]
        held = [f"{name}: {len(neurons)} neuron" for name, neurons in program.mapping.who(core).items()]
        (title,) = re.findall(rf"<title>core {core} at \({x}, {y}\) port {port}\n([^<]*)</title>", html)
        assert [line.removesuffix("s") for line in title.splitlines()] == held
    assert '<td class="left">hidden</td><td>12</td>' in html


def test_notebooks_show_a_chip_with_the_source_of_each_figure():
    chip = nw.Chip.load("loihi1")
    html = chip._repr_html_()
    assert '<td class="left">neurons per core</td><td class="left">1\u00a0024\u00a0neurons</td>' in html
    assert f'title="core.max_neurons: {escape(chip.source_of("core.max_neurons"))}">published</span>' in html
    assert ">+4 to +7\u00a0% on Quartz MNIST, against silicon</td>" in html
    assert "any number" in nw.Chip.load("ladderbus")._repr_html_()


@pytest.mark.parametrize("noun", ["network", "mapping"])
def test_drawings_for_notebooks_take_the_color_of_text_from_the_theme(program, noun):
    html = getattr(program, noun)._repr_html_()
    assert "fill:currentColor" in html and not re.search(r"[{;](?:background|color):", html)


def test_the_style_of_a_drawing_does_not_reach_the_notebook_around_it(program):
    style = re.search("<style>(.*?)</style>", program.network._repr_html_()).group(1)
    rules = [rule for rule in style.split("}") if rule]
    assert len(rules) > 5 and all(rule.startswith(".nw-network ") for rule in rules)
