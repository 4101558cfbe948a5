"""Units of neuron programs: what scales with the layer, what has no dimension, and the same spikes in any units."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.passes.quantize.program_curves import use_inverses
from nwcompile.passes.quantize.program_units import find_counts, find_units, scale_program
from nwcompile.sim.reference.program_step import ProgramState

RNG = np.random.default_rng(0)


@nw.neuron
def alif(state, x, beta=0.9, gain=0.1, rho=0.95, jump=0.2):
    v = beta * state.v + gain * x
    threshold = 1.0 + state.a
    fired = v > threshold
    return {"v": v - fired * threshold, "a": rho * state.a + jump * fired}, fired


@nw.neuron
def eif(state, x, sharpness=0.2):
    v = state.v + (x - state.v + sharpness * torch.exp((state.v - 0.8) / sharpness)) / 4
    fired = v >= 1.5
    return {"v": torch.where(fired, 0.0, v), "n": state.n + fired}, fired


@nw.neuron
def quadratic(state, x):
    v = state.v + 0.5 * (0.04 * state.v**2 + 5 * state.v + 1.4 - state.u + x)
    u = state.u + 0.02 * (0.2 * state.v - state.u)
    fired = v >= 0.3
    return {"v": torch.where(fired, -0.65, v), "u": torch.where(fired, u + 0.08, u)}, fired


@nw.neuron
def divided(state, x):
    v = 0.8 * state.v + x
    threshold = 1 + state.a
    n = torch.clamp(torch.floor(v / threshold), min=0)
    return {"v": v - n * threshold, "a": 0.9 * state.a + 0.3 * n, "rate": 0.9 * state.rate + n}, n


@nw.neuron
def absolute(state, x):
    v = 0.9 * state.v + torch.sigmoid(x)
    fired = v > 1
    return {"v": torch.where(fired, 0.0, v)}, fired


@nw.neuron
def rooted(state, x):
    v = 0.9 * state.v + torch.sqrt(x.abs())
    return {"v": v}, v > 1


UNITS = {
    alif: {"v": 1, "a": 1, "beta": 0, "rho": 0, "jump": 1},
    eif: {"v": 1, "sharpness": 1, "n": 0},
    quadratic: {"v": 1, "u": 1},
    divided: {"v": 1, "a": 1, "rate": 0},
}


@pytest.mark.parametrize("neuron", UNITS, ids=lambda neuron: neuron.name)
def test_units_follow_from_the_operations(neuron):
    program = neuron.program()
    found = find_units(program, find_counts(program))
    assert found.has_scale and not found.unbound
    assert {name: found[name] for name in UNITS[neuron]} == UNITS[neuron]


@pytest.mark.parametrize("neuron", UNITS, ids=lambda neuron: neuron.name)
def test_in_other_units_spikes_are_the_same_and_states_as_much_larger(neuron):
    program = use_inverses(neuron.program())
    found, factor = find_units(program, find_counts(program)), 0.5
    other = scale_program(program, found, factor)
    x = RNG.normal(0.3, 1.0, (60, 1, 40))
    ours, wanted = (ProgramState.from_program(p, (1, 40), np.float64) for p in (other, program))
    sent = np.array([(ours.step(now * factor), wanted.step(now)) for now in x])
    assert np.array_equal(sent[:, 0], sent[:, 1]) and sent.any()
    for name, values in wanted.named.items():
        assert np.allclose(ours.named[name], values * factor ** found[name], rtol=1e-12), name


@pytest.mark.parametrize("neuron", [absolute, rooted], ids=lambda neuron: neuron.name)
def test_programs_that_measure_their_input_have_no_scale(neuron):
    found = find_units(neuron.program())
    assert not found.has_scale and found["v"] == 0
    assert scale_program(neuron.program(), found, 0.7).structure == neuron.program().structure


def test_a_state_that_nothing_ties_to_the_input_is_said_to_be_taken():
    @nw.neuron
    def idle(state, x):
        fired = x > 1
        return {"w": 0.9 * state.w}, fired

    found = find_units(idle.program())
    assert found.unbound == {"w"} and found["w"] == 1


def test_the_quantization_table_says_units_and_scales():
    weight = RNG.normal(0, 1.0, (6, 5)).astype(np.float32)
    x = (RNG.random((4, 30, 5)) < 0.4).astype(np.int8)
    network = nw.Network.from_arrays({"h": divided.program()}, [nw.Dense("in", "h", weight)], {"in": 5})
    program = nw.compile(network, "loihi2", x)
    row = program.manifest["quantization"][0]
    v, a, rate = row["states"]
    assert (v["unit"], a["unit"], rate["unit"]) == ("membrane", "membrane", "dimensionless")
    assert v["scale"] == a["scale"] == row["scale"] and rate["scale"] == 2.0 ** round(np.log2(rate["scale"]))
    # A weight unit is a power of two of the state's units: sums are shifted, not multiplied.
    (edge,) = program.network.into("h")
    per_weight = row["scale"] / (np.abs(edge.weight * 2.0**edge.exponent).max() / np.abs(weight).max())
    assert np.log2(per_weight) == pytest.approx(round(np.log2(per_weight)), abs=1e-9)
    assert "input_gain" not in program.network.node("h").neuron.parameters
