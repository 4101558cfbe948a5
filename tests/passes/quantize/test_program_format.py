"""Float neuron programs in whole numbers: close to their float selves, the same in every backend, or refused."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize import program_scale
from nwcompile.passes.quantize.program_format import to_whole_numbers
from nwcompile.passes.quantize.quantize import quantize
from nwcompile.sim.reference.program_step import ProgramState

RNG = np.random.default_rng(0)


@nw.neuron
def alif(state, x, beta=0.9, rho=0.95, jump=0.2):
    v = beta * state.v + (1 - beta) * x
    threshold = 1.0 + state.a
    spike = nw.nn.spike(v, threshold)
    return {"v": v - spike * threshold, "a": rho * state.a + jump * spike}, spike


@nw.neuron(initial={"v": -65.0, "u": -13.0})
def izhikevich(state, x):
    v, u = state.v, state.u
    v = v + 0.5 * (0.04 * v**2 + 5 * v + 140 - u + x)
    u = u + 0.02 * (0.2 * v - u)
    fired = v >= 30
    return {"v": torch.where(fired, -65.0, v), "u": torch.where(fired, u + 8, u)}, fired


@nw.neuron
def counting(state, x, tau=4.0):
    """Several spikes per step, a division by a parameter, every rounding, a clamp."""
    v = state.v + (x - state.v) / tau
    n = torch.clamp(torch.floor(v / 0.5), min=0)
    return {"v": v - 0.5 * n, "trace": torch.maximum(state.trace * 0.75, torch.trunc(v).abs())}, n


NEURONS = {"alif": (alif, 6.0, 0.5), "izhikevich": (izhikevich, 10.0, 45.0), "counting": (counting, 2.0, 0.5)}


@pytest.mark.parametrize("name", NEURONS)
def test_a_step_in_whole_numbers_is_within_some_units_of_the_float_one(name):
    neuron, scale, spread = NEURONS[name]
    program = neuron.program()
    bits, gain, shape = 14, scale / 100, (1, 5000)
    fixed = to_whole_numbers(program, bits, 24, gain).program
    fixed.verify("h", shape[1:])
    x = RNG.integers(-100, 100, shape)
    ours, wanted = (ProgramState.from_program(p, shape, np.float64) for p in (fixed, program))
    start = {key: value + RNG.normal(0, spread, shape) for key, value in wanted.named.items()}
    ours.named = {key: np.rint(value * 2**bits).astype(np.int64) for key, value in start.items()}
    wanted.named = {key: value / 2**bits for key, value in ours.named.items()}
    sent, floats = ours.step(x), wanted.step(x * gain)
    alike = sent == floats  # a membrane at the threshold may be on either side
    assert alike.mean() > 0.995 and floats.any()
    for key, value in wanted.named.items():
        off = np.abs(ours.named[key] - value * 2**bits)[alike]
        assert off.max() <= 150 if name == "izhikevich" else off.max() <= 5, (key, off.max())


@nw.neuron
def adding(state, x):
    """`total` only adds up its input, `n` only counts; what is read of `total` is the old sum and the new."""
    total = state.total + x
    fired = (total + state.total > 1.5).float()
    return {"total": total, "n": state.n + 2 * fired}, fired


def test_sums_of_input_and_counts_are_exact_whatever_the_gain():
    gain, bits, n_steps = 0.0371, 10, 300
    fixed = to_whole_numbers(adding.program(), bits, 24, gain).program
    state, floats = (ProgramState.from_program(p, (1, 40), np.float64) for p in (fixed, adding.program()))
    x = RNG.integers(-9, 10, (n_steps, 1, 40))
    sent = np.array([(state.step(now), floats.step(now * gain)) for now in x])
    assert np.array_equal(state.named["total"], x.sum(0))  # in weight units, no rounding in any step
    assert np.array_equal(state.named["n"], 2 * sent[:, 0].sum(0)) and sent.any()
    assert np.mean(sent[:, 0] == sent[:, 1]) > 0.99  # a sum at the comparison may be on either side


def test_a_state_with_other_input_too_is_no_plain_sum():
    @nw.neuron
    def echo(state, x):
        return {"v": state.v + x}, x > 0.5

    fixed = to_whole_numbers(echo.program(), 10, 24, 0.3).program
    state = ProgramState.from_program(fixed, (1, 1), np.float64)
    state.step(np.array([[100]]))
    assert state.named["v"][0, 0] == pytest.approx(0.3 * 100 * 2**10, abs=2)


@pytest.fixture(scope="module")
def network() -> nw.Network:
    @nw.neuron
    def readout(state, x):
        return {"v": 0.9 * state.v + x}, None

    weights = [RNG.normal(0, 2.4, (20, 12)), RNG.normal(0, 0.2, (20, 20)), RNG.normal(0, 0.3, (4, 20))]
    first, loop, last = (w.astype(np.float32) for w in weights)
    edges = [
        nw.Dense("in", "h", first, bias=RNG.normal(0, 0.1, 20).astype(np.float32)),
        nw.Dense("h", "h", loop),
        nw.Dense("h", "out", last),
    ]
    layers = {"h": alif.program(beta=RNG.uniform(0.8, 0.95, 20)), "out": readout.program()}
    return nw.Network.from_arrays(layers, edges, {"in": 12})


X = (RNG.random((8, 40, 12)) < 0.2).astype(np.int8)


def test_a_float_program_lands_on_a_programmable_chip(network):
    program = nw.compile(network, "loihi2", X)
    assert nw.crosscheck(program, X).agree
    assert not nw.compile(network, "spinnaker2", X).network.node("h").neuron.states[0].bits > 24
    wanted, run = nw.simulate(network, X), nw.simulate(program, X, "sequence")
    n_wanted, n_sent = (int(r.spikes["h"].sum()) for r in (wanted, run))
    assert n_wanted > 200 and abs(n_sent - n_wanted) < 0.05 * n_wanted
    errors = run.output / program.output_scale["out"] - wanted.output
    assert np.abs(errors).mean() < 0.1 * np.abs(wanted.output).mean()
    row = program.manifest["quantization"][0]
    assert 2.0**17 < row["scale"] < 2.0**22 and row["spike_agreement_percent"] > 80
    assert [(state["state"], state["unit"]) for state in row["states"]] == [("v", "membrane"), ("a", "membrane")]
    assert all(0 < state["largest"] < 1 << 23 for state in row["states"])


def test_without_samples_states_get_room_for_16_units(network):
    program = nw.compile(network, "loihi2")
    assert 2.0 ** (23 - 5) < program.output_scale["h"] <= 2.0 ** (23 - 4)


def one_layer(step, weight=1.0) -> nw.Network:
    edges = [nw.Dense("in", "h", np.full((2, 2), weight, np.float32))]
    return nw.Network.from_arrays({"h": nw.neuron(step).program()}, edges, {"in": 2})


def graded(state, x):
    v = 0.5 * state.v + x
    return {"v": v}, v


@pytest.mark.parametrize("chip", ["loihi2", "spinnaker2"])
def test_an_input_that_is_larger_than_every_state_is_not_cut_off(chip):
    """A state holds at most 8 with the most bits after the point; the sums of these samples are far larger."""

    def step(state, x):
        v = 0.5 * state.v + 0.01 * x * torch.sigmoid(state.v)
        z = v > 0.9
        return {"v": v * (1 - z.to(v.dtype))}, z

    network = one_layer(step, weight=70.0)
    x = (np.random.default_rng(0).random((4, 20, 2)) < 0.7).astype(np.float32)
    wanted = nw.simulate(network, x).output
    run = nw.simulate(nw.compile(network, chip, calibration=x), x)
    assert wanted.sum() > 20 and np.array_equal(run.output, wanted)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (graded, "program 'graded' sends 't2', a number that is not whole; messages of chips carry whole numbers"),
    ],
)
def test_what_whole_numbers_cannot_do_is_refused(step, text):
    with pytest.raises(nw.ModelError) as e:
        nw.compile(one_layer(step), "loihi2", on_stage=None, options=nw.Options(on_multi_spike="graded"))
    assert text in str(e.value)


def test_states_beyond_the_chips_are_refused():
    def huge(state, x):
        v = state.v + 1e9 * x
        return {"v": v}, v > 1

    with pytest.raises(
        nw.ModelError, match=r"program 'huge': its states or inputs reach .*e\+\d\d, and a state of loihi2 has 24"
    ):
        nw.compile(one_layer(huge), "loihi2", np.ones((2, 5, 2), np.int8))


@pytest.mark.parametrize(("bits", "share"), [(1, 0.9), (2, 0.7), (3, 0.75), (5, 0.97), (8, 1.0)])
def test_narrow_weights_are_scaled_to_the_least_error(bits, share, network, monkeypatch):
    """The largest weight alone would set the scale, with 2 bits nearly all others would be 0."""
    normal, chip, options = normalize(network), nw.Chip.load("loihi2"), nw.Options(bits=bits)
    quantized = quantize(normal, chip, None, options)
    monkeypatch.setattr(program_scale, "CLIPS", (1.0,))
    error, before = (q.table[0]["weight_error_rms"] for q in (quantized, quantize(normal, chip, None, options)))
    assert error <= share * before
    assert (error == before) == (bits == 8)
