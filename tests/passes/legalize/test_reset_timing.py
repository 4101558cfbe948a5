"""Late resets made at once: the same spikes on integers where it is done, and other ones where it is not."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.legalize.resets import is_same_now, reset_now
from nwcompile.sim import simulate
from tests.made.chips import small_chip

NOW = small_chip(neuron__reset=["zero", "value", "subtract"], neuron__strict=[True, False],
                 neuron__spikes=["binary", "multi", "bipolar"], neuron__v_min="any")  # fmt: skip
LATE = NeuronSpec(threshold=200, reset="subtract", reset_timing="next", fixed=FixedPoint())


def drawn(spec: NeuronSpec, seed: int) -> Network:
    """Two layers of such neurons, each joined onto itself, with a bias."""
    rng = np.random.default_rng(seed)
    edges = [
        Dense(a, b, rng.integers(-6, 9, (6, n)).astype(np.int8)) for a, b, n in (("in", "a", 5), ("a", "b", 6))
    ] + [Dense(n, n, rng.integers(-4, 4, (6, 6)).astype(np.int8)) for n in "ab"]
    return Network.from_arrays(dict.fromkeys("ab", (spec, 6)), edges, {"in": 5})


def spikes_of(spec: NeuronSpec, seed: int) -> dict:
    x = np.random.default_rng(seed + 50).integers(0, 2, (3, 40, 5))
    spikes = simulate(drawn(spec, seed), x).spikes
    assert all(s.any() for s in spikes.values())
    return spikes


def now(spec: NeuronSpec) -> NeuronSpec:
    network, changes = reset_now(drawn(spec, 0), NOW, Options())
    assert [(c.layer, c.label) for c in changes] == [("a", "exact"), ("b", "exact")]
    return network.node("a").neuron


SAME = {
    "subtract": LATE,
    "a current": LATE.replace(decay_u=700, bias=3),
    "refractory": LATE.replace(refractory=4),
    "not strict": LATE.replace(strict=False),
    "several spikes": LATE.replace(spikes="multi"),
    "bipolar": LATE.replace(spikes="bipolar"),
    "clamped": LATE.replace(v_min=0, refractory=2),
    "zero": LATE.replace(reset="zero", decay_v=600, v_min=-100, refractory=3),
    "both, several spikes": LATE.replace(reset_timing="both", spikes="multi", decay_v=600),
    "both, a clamp": LATE.replace(
        reset_timing="both", spikes="multi", decay_v=600, decay_u=900, v_min=-30, strict=False
    ),
    "value 0": LATE.replace(reset="value", decay_v=600),
}


@pytest.mark.parametrize("name", SAME)
def test_reset_now_sends_the_same_spikes(name):
    spec = SAME[name]
    at_once = now(spec)
    assert at_once.reset_timing == "now"
    for seed in range(6):
        late, same = spikes_of(spec, seed), spikes_of(at_once, seed)
        assert all(np.array_equal(late[n], same[n]) for n in "ab"), seed


OTHER = {
    "leak": LATE.replace(decay_v=600),
    "both": LATE.replace(reset_timing="both"),
    "value": LATE.replace(reset="value", reset_value=50, decay_v=600),
    "a clamp above 0": LATE.replace(v_min=60),
    "a bipolar clamp": LATE.replace(spikes="bipolar", v_min=-210),
    "a threshold below 0": LATE.replace(threshold=-40),
}


@pytest.mark.parametrize("name", OTHER)
def test_reset_now_leaves_what_spikes_otherwise(name):
    spec = OTHER[name]
    assert not is_same_now(spec, NOW)
    at_once = spec.replace(reset_timing="now")
    differ = [not np.array_equal(spikes_of(spec, seed)["b"], spikes_of(at_once, seed)["b"]) for seed in range(6)]
    assert any(differ)


def test_reset_now_leaves_late_resets_to_chips_that_have_them():
    network = drawn(LATE, 0)
    assert reset_now(network, nw.Chip.load("tiny"), Options()) == (network, [])


@pytest.mark.parametrize("reset", ["zero", "subtract"])
def test_compile_makes_a_late_reset_of_a_float_network_exact(reset):
    rng = np.random.default_rng(0)
    spec = NeuronSpec(threshold=1.0, beta=1.0, reset=reset, reset_timing="next")
    weight = rng.integers(-4, 6, (6, 5)).astype(np.float32) / 8
    network = Network.from_arrays({"a": (spec, 6)}, [Dense("in", "a", weight)], {"in": 5})
    x = rng.integers(0, 2, (4, 30, 5))
    program = nw.compile(network, NOW, x)
    assert np.array_equal(simulate(program, x).spikes["a"], simulate(network, x).spikes["a"])
    assert [(row["layer"], row["was"], row["label"], row["price"]) for row in program.legalization] == [
        ("a", f"reset {reset}, next", "exact", None)
    ]
