"""The quantization of a network in the report: terminal, page, and networks of which little is known."""

import json

import numpy as np

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.quantization import overflow_notes, quantization_lines
from nwcompile.report.terminal import render_text
from tests.made.programs import run_of, three_cores

ROW = {
    "layer": "fc1", "bits": 2, "scale": 106057.3, "clipped_weights": 1314, "clipped_percent": 1.31,
    "weight_error_rms": 0.43, "tau_u": [1.4427, 3.476], "tau_u_chip": 1.5, "tau_v": 9.5, "tau_v_chip": 9.49,
    "tau_error_percent": 0.1, "rate_float": 0.173, "rate_fixed": 0.1672, "spike_agreement_percent": 42.8,
    "u_bound": 1 << 20, "v_bound": None, "u_largest": 5, "v_largest": 1 << 21, "state_bits": 24,
    "overflow": "v has no bound",
}  # fmt: skip


def test_quantization_is_a_row_a_layer_and_what_could_overflow():
    program = three_cores(quantization=[ROW, {"layer": "out", "bits": 8}])
    doc = collect_report(program, run_of(program))
    lines = [" ".join(line.split()) for line in quantization_lines(doc)]
    assert lines == [
        "clipped weight",
        "layer weights scale weights error",
        "fc1 2 bits 106 057 units 1 314 (1.3 %) 43.0 %",
        "out 8 bits – – –",
        "",
        "tau spikes per as in",
        "layer tau error step float",
        "fc1 u 1.44..3.48 → 1.5, v 9.5 → 9.49 steps 0.1 % 0.173 → 0.167 42.8 %",
        "out – – – –",
        "",
        "bits of u: used, bits of v: used,",
        "layer worst case worst case",
        "fc1 4, 22 of 24 bits 23, ∞ of 24 bits",
        "out – –",
        "fc1: v has no bound",
    ]
    assert "\n".join(quantization_lines(doc)) in render_text(doc)
    page = render_html(doc)
    assert "<h2>Quantization</h2>" in page and "0.173 → 0.167</td>" in page and "fc1: v has no bound" in page


def test_bits_of_states_without_calibration_are_those_of_the_worst_case():
    row = ROW | {"u_largest": None, "v_largest": None}
    lines = quantization_lines(collect_report(program := three_cores(quantization=[row]), run_of(program)))
    assert "fc1 –, 22 of 24 bits –, ∞ of 24 bits" in [" ".join(line.split()) for line in lines]


def test_layers_that_overflow_alike_are_named_in_one_sentence():
    rows = [ROW | {"layer": name, "overflow": f"v may need {bits} bits; state.bits = {bits} holds all"}
            for name, bits in (("fc1", 9), ("out", 26))]  # fmt: skip
    program = three_cores(quantization=rows)
    notes = overflow_notes(collect_report(program, run_of(program)))
    assert notes == ["fc1, out: v may need 26 bits; state.bits = 26 holds all"]


def test_quantization_that_nobody_made_is_not_shown():
    doc = collect_report(three_cores(), run_of(three_cores()))
    assert quantization_lines(doc) == [] and overflow_notes(doc) == []
    assert "Quantization" not in render_html(doc) and "tau" not in render_text(doc)


def test_quantization_of_a_compiled_network_is_known_with_and_without_samples():
    network = nw.Network.from_arrays(
        {"a": nw.NeuronSpec(beta=0.9)}, [nw.Dense("in", "a", np.array([[0.5, -0.25]]))], {"in": 2}
    )
    for x in (None, np.ones((1, 5, 2), np.int8)):
        program = nw.compile(network, "tiny", x)
        doc = collect_report(program, predict(program))
        assert json.loads(json.dumps(doc["layers"][0]["quantization"], allow_nan=False))["bits"] == 8
        first, second = (line.split() for line in quantization_lines(doc) if line.startswith("a "))
        assert first[1:3] == ["8", "bits"] and second[-3:] == ["of", "24", "bits"] and ("–" in second) == (x is None)


STATES = [
    {"state": "v", "bits": 24, "overflow": "saturate", "bound": 14_000_000, "largest": 300_000, "unit": "membrane",
     "scale": 123_456.7},
    {"state": "m", "bits": 24, "overflow": "modulo", "bound": 1000, "largest": None, "unit": "dimensionless",
     "scale": 2.0**18},
    {"state": "n", "bits": 24, "overflow": "saturate", "bound": 8_388_610, "largest": 3, "unit": "count", "scale": 1.0},
    {"state": "w", "bits": 16, "overflow": "saturate", "bound": None, "largest": 7, "unit": None, "scale": None},
]  # fmt: skip
TABLE = {
    "of": "exp(v / 0.5)", "argument": "v", "low": -11.0, "high": 1.775, "bounds": "seen", "first": 0.1864,
    "last": 1.775, "entries": 256, "step": 0.0062, "error": 0.0093051, "error_units": 1529.0,
}  # fmt: skip
PROGRAM = {
    "layer": "fc1", "bits": 8, "scale": 123_456.7, "program": "eif", "instructions": 282, "state_words": 4,
    "states": STATES, "parameters": [{"parameter": "base", "unit": "membrane"}, {"parameter": "a", "unit": "membrane"},
                                     {"parameter": "rho", "unit": "dimensionless"}],
    "tables": [TABLE],
}  # fmt: skip


def test_every_state_and_every_table_of_a_program_is_shown():
    doc = collect_report(three_cores(quantization=[PROGRAM]), run_of(three_cores()))
    lines = [" ".join(line.split()) for line in quantization_lines(doc)]
    assert lines[lines.index("layer state unit scale width used enough") :] == [
        "layer state unit scale width used enough",
        "fc1 v membrane 123 457 units 24 bits 20 bits 25 bits",
        "fc1 m dimensionless Q5.18 24 bits – 11 bits",
        "fc1 n count 1 24 bits 3 bits 25 bits",
        "fc1 w – – 16 bits 4 bits –",
        "",
        "layer beyond it",
        "fc1 saturates",
        "fc1 never, proved",
        "fc1 saturates",
        "fc1 saturates",
        "layer fc1: program eif of 282 instructions; parameters: membrane base, a; dimensionless rho",
        "layer fc1: exp(v / 0.5) is a table of 256 entries for v of -11..1.77 (seen; what lies outside 0.186..1.77 "
        "counts as the nearer end), wrong by at most 0.00931 (1 530 units)",
    ]
    page = render_html(doc)
    assert "Q5.18</td>" in page and "never, proved</td>" in page and "wrong by at most 0.00931" in page


def test_a_table_whose_range_is_proved_has_no_rule_for_what_lies_outside():
    proved = TABLE | {"bounds": "proved", "first": -11.0}
    doc = collect_report(three_cores(quantization=[PROGRAM | {"tables": [proved]}]), run_of(three_cores()))
    assert "for v of -11..1.77 (proved), wrong by at most" in overflow_notes(doc)[-1]
