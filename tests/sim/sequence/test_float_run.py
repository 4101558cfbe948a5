"""Float networks on backend sequence: every number is the reference's, bit for bit."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import FitError, ModelError
from nwcompile.ir.arithmetic import spike_count
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from nwcompile.sim.sequence import float_run
from tests.made.float_networks import networks
from tests.made.random_neurons import float_neurons


@nw.neuron
def adaptive(state, x, beta=0.9, jump=0.3):
    v = beta * state.v + x
    threshold = 1.0 + state.a
    spike = nn.spike(v, threshold)
    return {"v": v - spike * threshold, "a": 0.95 * state.a + jump * spike}, spike


@nw.neuron
def soft(state, x):
    """A readout with a function that no kernel has."""
    return {"v": 0.9 * state.v + torch.tanh(x)}, None


@nw.neuron
def graded(state, x):
    """Sends real numbers."""
    v = 0.7 * state.v + x
    return {"v": v}, torch.clamp(v, min=0.1)


@nw.neuron
def counting(state, x):
    """Sends how often its membrane holds a threshold of 1/1024, and has no state."""
    return {}, torch.clamp(torch.floor(x * 1024), min=0)


MULTI = nw.NeuronSpec(threshold=2.0**-10, spikes="multi", reset="subtract")


def chain(first, second) -> nw.Network:
    """A line that arrives whole at a neuron of the first kind, whose spikes arrive at one of the second."""
    one = np.ones((1, 1), np.float32)
    edges = [nw.Dense("in", "a", one), nw.Dense("a", "b", one)]
    return nw.Network.from_arrays({"a": (first, (1,)), "b": (second, (1,))}, edges, {"in": (1,)})


def assert_same(network: nw.Network, x, steps=None) -> nw.Run:
    reference, sequence = (nw.simulate(network, x, b, record="all", steps=steps) for b in ("reference", "sequence"))
    assert reference.states.keys() == sequence.states.keys() == set(network.layers)
    for name in network.layers:
        assert reference.spikes[name].dtype == sequence.spikes[name].dtype
        np.testing.assert_array_equal(sequence.spikes[name], reference.spikes[name])
        for state, values in reference.states[name].items():
            assert values.dtype == sequence.states[name][state].dtype
            np.testing.assert_array_equal(sequence.states[name][state], values)
    outputs = [run.output if isinstance(run.output, dict) else {"": run.output} for run in (reference, sequence)]
    for name, values in outputs[0].items():
        np.testing.assert_array_equal(outputs[1][name], values)
    assert sequence.backend == "sequence"
    return sequence


def normal(rng, *shape: int) -> np.ndarray:
    return rng.normal(0, 0.4, shape).astype(np.float32)


def gated(*activation: tuple) -> NeuronProgram:
    """A membrane whose leak is a second input, and that a third one resets; `activation` computes `g` of it."""
    steps = [*activation, ("kept", "mul", "v", "g"), ("total", "add", "kept", "x"), ("far", "lt", 1, "total"),
             ("stops", "lt", "stop", 0.5), ("left", "number", "stops"), ("v2", "mul", "total", "left"),
             ("y", "number", "far")]  # fmt: skip
    operations = tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps)
    states = (StateVariable("v", "v2"),)
    return NeuronProgram("gated", states, operations, "y", "binary", inputs=("x", "leak", "stop"))


GATES = {
    "in a kernel": (("low", "max", "leak", 0), ("g", "min", "low", 1)),
    "by the reference's step": (("g", "tanh", "leak"),),
}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 4)])
def test_neurons_with_several_inputs_compute_what_their_program_says(kind, shape):
    rng = np.random.default_rng(1)
    n = int(np.prod(shape))
    edges = [
        nw.Dense("in", "a", normal(rng, 3 * n, 5), normal(rng, 3 * n)),
        nw.Dense("a", "a", normal(rng, 3 * n, n) / 4, delay=1),
    ]
    network = nw.Network.from_arrays({"a": (gated(*GATES[kind]), shape)}, edges, {"in": 5})
    x = (rng.random((3, 9, 5)) < 0.4).astype(np.float32)
    run = assert_same(network, x)
    weight, back, bias = (a.astype(np.float64) for a in (edges[0].weight, edges[1].weight, edges[0].bias))
    v, sent = np.zeros((3, n), np.float32), np.zeros((3, n))
    for t in range(9):
        from_input = (x[:, t] @ weight.T + bias).astype(np.float32)
        sums = (from_input + (sent @ back.T).astype(np.float32)).reshape(3, 3, n)
        leak = sums[:, 1]
        gate = np.clip(leak, 0, 1) if kind == "in a kernel" else np.tanh(leak.astype(np.float64)).astype(np.float32)
        v = v * gate + sums[:, 0]
        sent = (v > 1).astype(np.float64)
        v = v * (sums[:, 2] < 0.5)
        np.testing.assert_array_equal(run.spikes["a"][:, t].reshape(3, n), sent)
    assert 0 < run.spikes["a"].mean() < 1


def test_channels_of_all_inputs_come_from_one_convolution():
    rng = np.random.default_rng(2)
    network = nw.Network.from_arrays(
        {"a": gated(*GATES["in a kernel"])},
        [nw.Conv2d("in", "a", normal(rng, 6, 1, 3, 3), padding=1)],
        {"in": (1, 4, 4)},
    )
    assert (network.node("a").shape, network.node("a").input_shape) == ((2, 4, 4), (6, 4, 4))
    assert_same(network, (rng.random((2, 6, 1, 4, 4)) < 0.4).astype(np.float32))


def test_weights_of_another_size_than_all_inputs_are_refused():
    with pytest.raises(ModelError, match=r"gives shape \(7,\), but 'a' has shape \(21,\)"):
        nw.Network.from_arrays(
            {"a": (gated(*GATES["in a kernel"]), 7)}, [nw.Dense("in", "a", np.ones((7, 5), np.float32))], {"in": 5}
        )


@pytest.mark.parametrize("chip", ["loihi2", "loihi1"])
def test_neurons_with_gates_need_a_chip_of_several_synapse_types(chip):
    edge = nw.Dense("in", "a", np.ones((21, 5), np.float32))
    network = nw.Network.from_arrays({"a": gated(*GATES["in a kernel"])}, [edge], {"in": 5})
    text = (
        "inputs of a neuron  a  3 of 1  a neuron has one synaptic sum for each synapse type of the chip "
        "(neuron.max_synapse_types); take a chip "
    )
    with pytest.raises(FitError, match=re.escape(f"{text}with more, such as spinnaker2, or train the network without")):
        nw.compile(network, chip)


def network_of_programs(recurrent: bool) -> nw.Network:
    rng = np.random.default_rng(0)
    layers = {
        "map": (adaptive.program(beta=np.array([0.5, 0.9, 0.8]).reshape(3, 1, 1)), (3, 6, 6)),
        "graded": (graded.program(), 20),
        "lif": (nw.NeuronSpec(beta=0.9), 9),
        "out": (soft.program(), 4),
    }
    edges = [
        nw.Conv2d("in", "map", normal(rng, 3, 1, 3, 3), bias=normal(rng, 3)),
        nw.Dense("map", "graded", normal(rng, 20, 108)),
        nw.Dense("graded", "lif", normal(rng, 9, 20), delay=3),
        nw.Dense("lif", "out", normal(rng, 4, 9)),
        nw.Dense("map", "out", normal(rng, 4, 108), delay=2),
    ]
    if recurrent:
        edges += [
            nw.Dense("graded", "graded", 0.2 * normal(rng, 20, 20)),
            nw.Dense("lif", "map", normal(rng, 108, 9), delay=1),
        ]
    return nw.Network.from_arrays(layers, edges, {"in": (1, 8, 8)})


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("real_valued", [False, True])
def test_programs_and_built_in_neurons_give_the_references_numbers(recurrent, real_valued):
    rng = np.random.default_rng(1)
    x = rng.random((3, 11, 1, 8, 8), np.float32)
    run = assert_same(network_of_programs(recurrent), x if real_valued else (x < 0.3).astype(np.float32))
    assert all(run.spikes[name].any() for name in ("map", "graded", "lif"))


@given(networks(), st.integers(0, 99))
@settings(max_examples=10)
def test_drawn_networks_give_the_references_numbers(network, seed):
    rng = np.random.default_rng(seed)
    x = {name: rng.integers(0, 3, (2, 6, *node.shape)) for name, node in network.inputs.items()} or None
    assert_same(network, x, None if x else 6)


@pytest.mark.long
@given(float_neurons(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_drawn_programs_give_the_references_numbers(program, recurrent):
    rng = np.random.default_rng(0)
    edges = [nw.Dense("in", "h", normal(rng, 40, 7))] + [nw.Dense("h", "h", normal(rng, 40, 40))] * recurrent
    network = nw.Network.from_arrays({"h": (program, 40)}, edges, {"in": 7})
    with np.errstate(all="ignore"):
        assert_same(network, rng.integers(0, 2, (2, 9, 7)))


def test_sums_over_many_steps_at_once_are_those_that_float64_holds():
    spikes = np.ones((1, 2, 3), np.float32)
    for row, x, is_exact in (
        ([0.5, 0.25, 2.0**-40], spikes, True),
        ([1.0, 1.0, 2.0**-53], spikes, False),
        ([0.3, 0.2, 0.1], spikes, True),
        ([0.3, 0.2, 0.1], 0.5 * spikes, False),
        ([0.0, 0.0, 0.0], spikes, True),
    ):
        dense = nw.Dense("a", "b", np.array([row], np.float32))
        sparse = nw.Sparse("a", "b", np.arange(3), np.zeros(3, int), np.array(row, np.float32))
        assert float_run._is_exact(dense, x) == float_run._is_exact(sparse, x) == is_exact, row


def test_long_sums_are_taken_in_pieces(monkeypatch):
    monkeypatch.setattr(float_run, "CHUNK_NUMBERS", 1 << 10)
    x = (np.random.default_rng(1).random((3, 11, 1, 8, 8)) < 0.3).astype(np.float32)
    assert_same(network_of_programs(False), x)


def test_other_backends_take_compiled_networks_only():
    network = network_of_programs(False)
    with pytest.raises(nw.BackendError) as caught:
        nw.simulate(network, np.ones((1, 2, 1, 8, 8)), "cycle")
    assert str(caught.value) == (
        "a network that is not compiled runs on backend 'reference' or 'sequence', device 'cpu', window 'aligned' "
        "only, not 'cycle', 'cpu', 'aligned'; compile it for a chip first"
    )


def test_networks_in_integers_are_compiled_for_backend_sequence():
    network = nw.Network.from_arrays(
        {"a": (nw.NeuronSpec(fixed=nw.FixedPoint(), threshold=64), 2)},
        [nw.Dense("in", "a", np.ones((2, 3), np.int8))],
        {"in": 3},
    )
    with pytest.raises(
        nw.BackendError, match="a network in integers that is not compiled runs on backend 'reference', "
    ):
        nw.simulate(network, np.ones((1, 2, 3)), "sequence")


@pytest.mark.parametrize("second", [MULTI, counting.program(), nw.NeuronSpec(threshold=1.0)])
@pytest.mark.parametrize("first", [MULTI, counting.program()])
def test_counts_beyond_32_bits_are_exact_and_alike(first, second):
    run = assert_same(chain(first, second), np.array([2.0**21, 3 * 2.0**30, 0]).reshape(1, 3, 1))
    assert run.spikes["a"].ravel().tolist() == [2**31, 3 * 2**40, 0]
    if second is MULTI:
        assert run.spikes["b"].ravel().tolist() == [2**41, 3 * 2**50, 0]
    assert run.activity.multi["a"].largest == 3 * 2**40


@pytest.mark.parametrize("backend", ["reference", "sequence", "stream"])
@pytest.mark.parametrize("neuron", [MULTI, MULTI.replace(reset="none"), counting.program()])
@pytest.mark.parametrize("x", [2.0**52, 1e38, [2.0**51] * 2])
def test_more_spikes_than_can_be_counted_are_refused(x, neuron, backend):
    network, x = chain(neuron, neuron), np.reshape(x, (1, -1, 1))
    with pytest.raises(ModelError) as error:
        nw.Session(network).feed(x[0]) if backend == "stream" else nw.simulate(network, x, backend)
    assert str(error.value) == (
        "layer 'a' fires more than 2**62 spikes, which cannot be counted; scale its input down, or raise its threshold"
    )


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_membranes_of_too_many_thresholds_fire_as_often_as_64_bits_surely_hold():
    v = np.array([1.0, 2.0**51, 1e38, np.inf], np.float32)
    assert spike_count(v, np.float32(2.0**-10), False, "multi").tolist() == [2**10, 2**61, 2**62, 2**62]


def test_input_beyond_float32_is_refused():
    with pytest.raises(ModelError) as error:
        nw.simulate(chain(MULTI, MULTI), np.full((1, 2, 1), -1e39))
    assert str(error.value) == "input 'in' has values beyond 3.4e+38, the largest float32; scale the data down"
