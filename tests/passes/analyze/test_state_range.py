"""The proved range of u and v against what random spikes do, and against states that overflow."""

import numpy as np
import pytest

from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.analyze import state_range as module
from nwcompile.passes.analyze.state_range import state_bits, state_range
from nwcompile.sim.sequence.run import trace_layers

WIDE = FixedPoint(state_bits=32)


def found(network, x):
    """The range of every layer, on samples `x`."""
    spikes, states = trace_layers(network, x)
    sent = {"in": x, **spikes}
    return {name: state_range(network, name, sent, states[name]) for name in network.layers}, states


@pytest.mark.parametrize("seed", range(25))
def test_bound_holds_whatever_the_spikes_are(seed):
    rng = np.random.default_rng(seed)

    def draw(low, high):
        return int(rng.integers(low, high))

    spec = NeuronSpec(
        threshold=draw(1, 900) * 64, fixed=WIDE, reset=str(rng.choice(["zero", "value", "subtract", "none"])),
        reset_value=draw(-9999, 9999), decay_u=draw(500, 4097), decay_v=rng.integers(99, 4097, 6), bias=draw(-999, 999),
        bias_u=rng.integers(-9, 9, 6), spikes=str(rng.choice(["binary", "bipolar"])),
        reset_timing=str(rng.choice(["now", "next"])), v_min=[None, -5000, 700][draw(0, 3)], refractory=draw(0, 3),
    )  # fmt: skip
    if seed % 5 == 0:
        spec = spec.replace(spikes="gated", reset="subtract", reset_timing="now", refractory=0)
    post, pre = np.nonzero(rng.random((6, 6)) < 0.4)
    network = Network.from_arrays(
        {"a": spec.replace(decay_v=300, bias_u=2), "b": (spec, (6,))},
        [Conv2d("in", "a", rng.integers(-99, 99, (2, 1, 2, 2)), exponent=-1, padding=1),
         Dense("a", "b", rng.integers(-99, 99, (6, 24)), bias=rng.integers(-99, 99, 6), exponent=1, delay=2),
         Sparse("b", "b", pre, post, rng.integers(-99, 99, len(pre)))],
        {"in": (1, 3, 2)},
    )  # fmt: skip
    x = rng.integers(-1, 4, (4, 30, 1, 3, 2)).astype(np.int32)
    ranges, states = found(network, x)
    for name, r in ranges.items():
        assert np.abs(states[name]["u"]).max() == r.u_largest <= r.u_bound
        assert np.abs(states[name]["v"]).max() <= r.v_largest <= r.v_bound


def one(spec, weight, x):
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", np.array([[weight]]))], {"in": 1})
    return found(network, np.full((1, 8, 1), x, np.int32))[0]["a"]


def test_bound_is_tight_for_a_steady_input():
    r = one(NeuronSpec(threshold=1 << 30, fixed=WIDE, decay_u=1024, decay_v=4096), 100, 1)
    assert (r.u_bound, r.u_largest, r.v_bound) == (4 * 6400, 23036, 4 * 6400) and r.is_safe
    r = one(NeuronSpec(threshold=1 << 30, reset="none", fixed=WIDE, decay_v=0), 100, 1)
    assert (r.u_bound, r.v_bound, r.v_largest, r.is_safe) == (6400, None, 8 * 6400, False)
    r = one(NeuronSpec(threshold=64, reset="zero", fixed=WIDE, decay_v=0), -100, 1)
    assert (r.v_bound, r.reaches_threshold) == (None, False)
    assert one(NeuronSpec(threshold=6399, fixed=WIDE, decay_v=4096), 100, 1).reaches_threshold
    assert not one(NeuronSpec(threshold=6400, fixed=WIDE, decay_v=4096), 100, 1).reaches_threshold
    assert one(NeuronSpec(threshold=6400, strict=False, fixed=WIDE, decay_v=4096), 100, 1).reaches_threshold


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_range_shows_what_was_lost_to_a_narrow_state(overflow):
    spec = NeuronSpec(threshold=30000, decay_v=4096, fixed=FixedPoint(state_bits=16, overflow=overflow))
    r = one(spec, 100, 6)
    assert (r.u_largest, r.u_bound, r.limit, r.overflowing_states) == (38400, 38400, 32767, ["u"])
    spec = NeuronSpec(threshold=1, fires=False, decay_v=0, fixed=FixedPoint(state_bits=16, overflow=overflow))
    assert one(spec, 100, 1).overflowing_states == ["v"] and one(spec, 100, 1).v_largest == 32767 + 6400


def test_range_of_a_source_that_counts_has_no_bound():
    multi = NeuronSpec(threshold=64, spikes="multi", reset="subtract", fixed=WIDE)
    edges = [Dense("in", "a", np.array([[3]])), Dense("a", "b", np.array([[2]]))]
    network = Network.from_arrays({"a": multi, "b": NeuronSpec(threshold=64, fixed=WIDE)}, edges, {"in": 1})
    r = found(network, np.ones((1, 4, 1), np.int32))[0]["b"]
    assert r.u_bound is None and r.u_largest == 2 * 3 * 64


def test_state_bits_counts_the_sign():
    assert [state_bits(n) for n in (0, 1, 127, 128, None)] == [1, 2, 8, 9, None]


def test_bound_of_v_counts_with_a_current_that_wraps_to_the_other_sign():
    spec = NeuronSpec(threshold=20000, decay_v=2048, fixed=FixedPoint(state_bits=16))
    r = one(spec, -100, 6)
    assert r.u_largest == 38400 and r.reaches_threshold and r.v_largest <= r.v_bound == 2 * 38400
    narrow = spec.replace(fixed=FixedPoint(state_bits=16, overflow="saturate"))
    assert not one(narrow, -100, 6).reaches_threshold


def test_range_of_a_layer_reads_no_weights_but_its_own(monkeypatch):
    """Of a large network, all weights of which are widened for the sums of every layer, gigabytes would be copied."""
    read, effective = [], module.effective_connection
    monkeypatch.setattr(module, "effective_connection", lambda c: read.append(c.target) or effective(c))
    spec = NeuronSpec(threshold=640, fixed=WIDE)
    edges = [Dense("in", "a", np.eye(3, dtype=int)), Dense("a", "b", np.eye(3, dtype=int))]
    network = Network.from_arrays({"a": spec, "b": spec}, edges, {"in": 3})
    x = np.ones((1, 4, 3), np.int32)
    spikes, states = trace_layers(network, x)
    state_range(network, "b", {"in": x, **spikes}, states["b"])
    assert set(read) == {"b"}
