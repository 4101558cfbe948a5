"""The quantization of a network in the report: terminal, page, and networks of which little is known."""

import json

import numpy as np

import nwcompile as nw
from nwcompile.cost.prediction import predict
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect
from nwcompile.report.quantization import overflow_notes, quantization_lines
from nwcompile.report.terminal import render_text
from tests.report.programs import run_of, three_cores

ROW = {
    "layer": "fc1", "bits": 2, "scale": 106057.3, "clipped_weights": 1314, "clipped_percent": 1.31,
    "weight_error_rms": 0.43, "tau_u": [1.4427, 3.476], "tau_u_chip": 1.5, "tau_v": 9.5, "tau_v_chip": 9.49,
    "tau_error_percent": 0.1, "rate_float": 0.173, "rate_fixed": 0.1672, "spike_agreement_percent": 42.8,
    "u_bound": 1 << 20, "v_bound": None, "u_largest": 5, "v_largest": 1 << 21, "state_bits": 24,
    "overflow": "v has no bound",
}  # fmt: skip


def test_quantization_is_a_row_a_layer_and_what_could_overflow():
    program = three_cores(quantization=[ROW, {"layer": "out", "bits": 8}])
    doc = collect(program, run_of(program))
    lines = [" ".join(line.split()) for line in quantization_lines(doc)]
    assert lines == [
        "layer weights scale clipped weights weight error tau tau error rate as in float bits of u bits of v",
        "fc1 2 bits 106 057 units 1 314 weights (1.3 %) 43.0 % u 1.44..3.48 → 1.5, v 9.5 → 9.49 steps 0.1 % "
        "0.173 → 0.167 spikes 42.8 % 4, 22 of 24 bits 23, ∞ of 24 bits",
        "out 8 bits – – – – – – – – –",
        "layer fc1: v has no bound",
    ]
    assert "\n".join(quantization_lines(doc)) in render_text(doc)
    page = render_html(doc)
    assert (
        "<h2>Quantization</h2>" in page and "0.173 → 0.167 spikes</td>" in page and "layer fc1: v has no bound" in page
    )


def test_quantization_that_nobody_made_is_not_shown():
    doc = collect(three_cores(), run_of(three_cores()))
    assert quantization_lines(doc) == [] and overflow_notes(doc) == []
    assert "Quantization" not in render_html(doc) and "tau" not in render_text(doc)


def test_quantization_of_a_compiled_network_is_known_with_and_without_samples():
    network = nw.Network.from_arrays(
        {"a": nw.NeuronSpec(beta=0.9)}, [nw.Dense("in", "a", np.array([[0.5, -0.25]]))], {"in": 2}
    )
    for x in (None, np.ones((1, 5, 2), np.int8)):
        program = nw.compile(network, "tiny", x)
        doc = collect(program, predict(program))
        assert json.loads(json.dumps(doc["layers"][0]["quantization"], allow_nan=False))["bits"] == 8
        row = quantization_lines(doc)[1].split()
        assert row[:3] == ["a", "8", "bits"] and row[-3:] == ["of", "24", "bits"] and ("–" in row) == (x is None)
