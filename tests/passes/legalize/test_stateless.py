"""Neurons without a state: whatever reset or clamp the chip has, their spikes stay the same."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.passes.legalize.resets import free_resets, is_stateless
from tests.made.chips import small_chip
from tests.made.nets import integers

ANY = nw.NeuronSpec(beta=0.0, threshold=0.5, reset="zero")
FIXED = nw.NeuronSpec(threshold=64, fixed=nw.FixedPoint(), decay_v=1 << 12)
CHIPS = [{"neuron.reset": ["subtract"]}, {"neuron.reset": ["subtract", "none"], "neuron.v_min": "zero"},
         {"neuron.reset_timing": ["next"]}]  # fmt: skip


def network(spec: nw.NeuronSpec) -> nw.Network:
    """Relay neurons over pairs of inputs of both signs."""
    weight = integers((6, 12), 1, -2, 3)
    weight = weight if spec.fixed is not None else weight.astype(np.float32)
    return nw.Network.from_arrays({"a": (spec, 6)}, [nw.Dense("in", "a", weight)], {"in": 12})


@pytest.mark.parametrize(
    "spec",
    [ANY, ANY.replace(refractory=3), ANY.replace(v_min=-1.0), ANY.replace(reset="subtract"),
     FIXED, FIXED.replace(reset="value", reset_value=-3)],
    ids=range(6),
)  # fmt: skip
@pytest.mark.parametrize("changes", CHIPS, ids=str)
def test_stateless_neurons_spike_alike_with_any_reset_of_the_chip(spec, changes):
    chip = small_chip().replace({"neuron.v_min": "none", **changes})
    x = (np.random.default_rng(2).random((4, 20, 12)) < 0.3).astype(np.int8)
    before = network(spec)
    after, rows = free_resets(before, chip, nw.Options())
    neuron = after.node("a").neuron
    assert neuron.reset in chip.neuron.reset and neuron.reset_timing in chip.neuron.reset_timing
    assert neuron.v_min == {"zero": 0, "none": None}[chip.neuron.v_min]
    assert [row.label for row in rows] == ["exact"] * (neuron is not before.node("a").neuron)
    wanted, got = (nw.simulate(net, x).spikes["a"] for net in (before, after))
    assert np.array_equal(got, wanted) and 0 < wanted.mean() < 1


def test_neurons_with_a_state_keep_their_resets():
    for spec in (ANY.replace(beta=0.5), ANY.replace(alpha=0.5), ANY.replace(reset="subtract", reset_timing="next"),
                 ANY.replace(fires=False), FIXED.replace(decay_v=4000)):  # fmt: skip
        assert not is_stateless(spec)
    assert free_resets(network(ANY), small_chip(), nw.Options())[1] == []


def test_pooled_spikes_compile_for_a_chip_that_only_subtracts():
    spec = nw.NeuronSpec(threshold=1.0, reset="subtract", v_min=0.0)
    kernel = integers((2, 1, 3, 3), 1, -3, 6).astype(np.float32) / 4
    net = nw.Network.from_arrays(
        {"a": spec, "pool": ANY},
        [nw.Conv2d("in", "a", kernel, padding=1), nw.Pool2d("a", "pool", 2)],
        {"in": (1, 6, 6)},
    )
    x = (np.random.default_rng(2).random((3, 10, 1, 6, 6)) < 0.4).astype(np.int8)
    chip = small_chip().replace({"neuron.reset": ["subtract"], "neuron.v_min": "zero"})
    program = nw.compile(net, chip, x)
    assert [row["layer"] for row in program.manifest["legalization"]] == ["a", "pool"]
    assert nw.crosscheck(program, x).agree
    spikes = nw.simulate(program, x).spikes
    assert (
        np.array_equal(spikes["pool"], spikes["a"].reshape(3, 10, 2, 3, 2, 3, 2).max((4, 6))) and spikes["pool"].any()
    )
