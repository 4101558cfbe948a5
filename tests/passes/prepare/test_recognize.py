"""Neuron programs that are built-in neurons, written down: recognized, with the same numbers; all others are not."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.passes.prepare.programs import recognize_program
from tests.made.nets import integers


def leaky(state, x, beta=0.9):
    v = beta * state.v + x
    spike = nw.nn.spike(v, 1.0)
    return {"v": v - spike * 1.0}, spike


def hard(state, x, beta=0.9, threshold=0.8):
    v = x + state.v * beta
    spike = v > threshold
    return {"v": torch.where(spike, 0.0, v)}, spike


def masked(state, x, threshold=1.2):
    v = state.v + x
    spike = (v >= threshold).float()
    return {"v": v * (1 - spike)}, spike


def current_based(state, x, alpha=0.7, beta=0.9, threshold=1.0):
    i = alpha * state.i + x
    v = i + beta * state.v
    spike = nw.nn.spike(v, threshold)
    return {"i": i, "v": v - threshold * spike}, spike


def to_a_value(state, x):
    v = 0.5 * state.v + x
    spike = v > 1.0
    return {"v": torch.where(spike, -0.25, v)}, spike


def readout(state, x, beta=0.8):
    return {"v": beta * state.v + x}, None


def adaptive(state, x):
    v = 0.9 * state.v + x
    spike = nw.nn.spike(v, 1.0 + state.a)
    return {"v": v - spike, "a": 0.9 * state.a + spike}, spike


def divided(state, x, tau=20.0):
    v = state.v + (x - state.v) / tau
    spike = nw.nn.spike(v, 1.0)
    return {"v": torch.where(spike > 0, torch.zeros_like(v), v)}, spike


def half_reset(state, x):
    v = 0.9 * state.v + x
    spike = nw.nn.spike(v, 1.0)
    return {"v": v - spike * 0.5}, spike


def reset_of_the_old(state, x):
    v = 0.9 * state.v + x
    spike = nw.nn.spike(v, 1.0)
    return {"v": torch.where(spike > 0, 0.0, state.v)}, spike


def fires_below(state, x):
    v = 0.9 * state.v + x
    spike = v < 1.0
    return {"v": torch.where(spike, 0.0, v)}, spike


def weighted_input(state, x):
    v = 0.9 * state.v + 0.5 * x
    spike = v > 1.0
    return {"v": torch.where(spike, 0.0, v)}, spike


def squared(state, x):
    v = 0.9 * state.v + x * x
    spike = v > 1.0
    return {"v": torch.where(spike, 0.0, v)}, spike


BUILT_IN = [leaky, hard, masked, current_based, to_a_value, readout, weighted_input]
OTHERS = [adaptive, divided, half_reset, reset_of_the_old, fires_below, squared]


def network(neuron) -> nw.Network:
    weight = integers((12, 20), 0, -3, 5).astype(np.float32) / 4
    edges = [nw.Dense("in", "a", weight, bias=np.linspace(-0.2, 0.2, 12, dtype=np.float32))]
    return nw.Network.from_arrays({"a": neuron}, edges, {"in": 20})


def samples() -> np.ndarray:
    return (np.random.default_rng(3).random((6, 25, 20)) < 0.3).astype(np.float32)


@pytest.mark.parametrize("step", BUILT_IN, ids=lambda step: step.__name__)
def test_recognized_programs_give_the_same_numbers(step):
    program = nw.neuron(step).program()
    spec = recognize_program(program)
    runs = [nw.simulate(network(neuron), samples(), record="all") for neuron in (program, spec)]
    assert np.array_equal(runs[0].states["a"]["v"], runs[1].states["a"]["v"])
    assert np.array_equal(runs[0].spikes["a"], runs[1].spikes["a"])
    assert spec.fires == (step is not readout) and (not spec.fires or 0.02 < runs[0].spikes["a"].mean() < 0.98)


def test_recognized_resets_are_the_narrowest_that_chips_name():
    resets = {
        step.__name__: recognize_program(nw.neuron(step).program()).reset for step in (leaky, hard, masked, to_a_value)
    }
    assert resets == {"leaky": "subtract", "hard": "zero", "masked": "zero", "to_a_value": "value"}


@pytest.mark.parametrize("step", OTHERS, ids=lambda step: step.__name__)
def test_other_programs_stay_programs(step):
    assert recognize_program(nw.neuron(step).program()) is None


def test_states_that_begin_elsewhere_are_no_built_in_neuron():
    assert recognize_program(nw.neuron(initial={"v": 0.5})(leaky).program()) is None


def test_recognized_programs_compile_exactly_for_chips_without_programs():
    program = nw.compile(network(nw.neuron(hard).program()), "loihi1", samples(), nw.Options(optimize="cores"))
    (row,) = [row for row in program.legalization if row["was"] == "program hard"]
    assert (row["has"], row["label"]) == ("built-in neurons", "exact")
    assert not program.network.programs and nw.crosscheck(program, samples()).agree
    on_loihi2 = nw.compile(network(nw.neuron(hard).program()), "loihi2", samples(), nw.Options(optimize="cores"))
    assert on_loihi2.network.programs == ("a",)
    with pytest.raises(FitError, match="program adaptive"):
        nw.compile(network(nw.neuron(adaptive).program()), "loihi1", samples())
