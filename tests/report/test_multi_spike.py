"""The report says what sends several spikes per step, how, and what that costs."""

import json

import numpy as np
import pytest

from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.report import report
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.sim import simulate
from tests.made.chips import small_chip
from tests.made.programs import run_of, three_cores

X = np.array([[[3], [0], [2], [1]], [[1], [0], [0], [0]]], np.int32)


def documents(mode: str, kind: str = "multi", x=X):
    """A line and a layer of two neurons that copy it, each sending to both cores: 4 spiking steps, 7 spikes."""
    spec = NeuronSpec(threshold=64, strict=False, spikes=kind, reset="zero", fixed=FixedPoint(), decay_v=4096)
    ones = np.ones((2, 1), np.int8)
    edges = [Dense("in", "a", ones), Dense("a", "b", np.ones((2, 2), np.int8))]
    layers = {"a": (spec, 2), "b": (spec.replace(spikes="binary"), 2)}
    network = Network.from_arrays(layers, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0, 1], "b": [0, 1]}, [[0, 0, 0], [2, 0, 0]])
    chip = small_chip(noc__payload_flits=1, neuron__spikes=["binary", "multi"] if mode == "refuse" else ["binary"])
    program = emit(network, schedule(network), mapping, chip, None, {}, mode)
    return program, simulate(program, x, "sequence")


WHO = (
    "input in sends several spikes in 50.0 % of its spiking steps (at most 3 at once), "
    "layer a in 50.0 % of its spiking steps (at most 3 at once); "
)


@pytest.mark.parametrize(
    "mode, how",
    [
        ("refuse", "a message carries the count in 1 more flit, so it is 12 messages and 12 synops per sample as with "
         "binary spikes; one by one it would be 21 messages and 21 synops"),
        ("graded", "a message carries the count in 1 more flit (on_multi_spike='graded'), so it is 12 messages and 12 "
         "synops per sample as with binary spikes; one by one it would be 21 messages and 21 synops"),
        ("repeat", "sent one by one (on_multi_spike='repeat'), that is 21 messages and 21 synops per sample instead of "
         "12 messages and 12 synops with binary spikes"),
    ],
)  # fmt: skip
def test_report_says_what_several_spikes_a_step_cost(mode, how, tmp_path):
    program, run = documents(mode)
    doc = report(program, run, tmp_path)
    assert doc["multi_spike"]["text"] == WHO + how
    assert WHO + how in render_text(doc).splitlines()
    assert json.loads((tmp_path / "report.json").read_text())["multi_spike"] == doc["multi_spike"]
    page = (tmp_path / "report.html").read_text()
    assert "Several spikes per step" in page and "in 50.0\u00a0% of its spiking steps" in page
    sent = doc["multi_spike"]["sent"]
    assert sent["messages_per_sample"] == run.counters["messages_in"].sum() / 2
    assert sent["synops_per_sample"] == run.counters["synops"].sum() / 2


def test_report_says_how_many_spikes_are_negative():
    doc = collect_report(*documents("graded", "bipolar", X * np.array([1, -1])[:, None, None]))
    assert "layer a in 0.0 % of its spiking steps (at most 1 at once, negative in 25.0 %)" in doc["multi_spike"]["text"]


def test_report_of_binary_spikes_says_nothing_of_several(tmp_path):
    program = three_cores()
    doc = report(program, run_of(program), tmp_path)
    assert doc["multi_spike"] is None
    assert "Several spikes" not in (tmp_path / "report.html").read_text()
