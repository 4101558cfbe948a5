"""Unipolar: gated neurons are changed only where the chip's messages carry no sign, and a warning says so."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.passes.legalize.drop_signs import drop_signs
from tests.chips import small_chip

GATED = nw.NeuronSpec(threshold=1.0, strict=False, spikes="gated", reset="subtract")


def network(spec: nw.NeuronSpec = GATED) -> nw.Network:
    return nw.Network.from_arrays({"a": spec}, [nw.Dense("in", "a", np.array([[0.5], [-1.0]], np.float32))], {"in": 1})


@pytest.mark.parametrize(
    "spikes, on_multi_spike, kept", [
        (["binary"], "refuse", "binary"), (["binary", "multi"], "repeat", "binary"),
        (["binary"], "graded", "gated"), (["binary", "bipolar"], "refuse", "gated"),
    ],
)  # fmt: skip
def test_drop_signs_keeps_the_sign_where_a_message_carries_it(spikes, on_multi_spike, kept):
    found, warnings = drop_signs(network(), small_chip(neuron__spikes=spikes), on_multi_spike)
    assert found.node("a").neuron.spikes == kept
    assert [text.partition(", so")[0] for text in warnings] == ["small sends no negative spikes"] * (kept == "binary")


def test_drop_signs_leaves_other_neurons_alone():
    bipolar = network(GATED.replace(spikes="bipolar"))
    assert drop_signs(bipolar, small_chip(), "refuse") == (bipolar, [])


@pytest.mark.parametrize("on_multi_spike, least", [("refuse", 0), ("graded", -1)])
def test_drop_signs_program_runs_alike_in_all_backends(on_multi_spike, least):
    chip = small_chip(neuron__strict=[True, False], noc__payload_flits=1)
    x = np.array([1, 1, 1, 0, least, least, 0, 1])[None, :, None]
    program = nw.compile(network(), chip, np.abs(x), nw.Options(on_multi_spike=on_multi_spike))
    assert nw.crosscheck(program, x).agree and nw.simulate(program, x).spikes["a"].min() == least
    assert len([text for text in program.manifest["warnings"] if "negative" in text]) == least + 1
