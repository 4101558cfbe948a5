"""Integer neurons of 24 bits on a chip of 32-bit programs: every spike, u and v as on the chip of their own format."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.frontend.lava.neurons import sigma_delta, sigma_readout
from nwcompile.ir.chip import Chip
from nwcompile.passes.legalize.write_programs import find_common_shift, fold_exponents

BACKENDS = ("reference", "sequence", "cycle")
N_IN, N, N_STEPS = 24, 12, 40

NEURONS = {
    "wraps": {"decay_u": 40, "decay_v": 300, "threshold": 64 * 900},
    "loses nothing": {"decay_u": 0, "decay_v": 0, "threshold": (1 << 23) - 64, "reset": "none"},
    "saturates": {"fixed": nw.FixedPoint(overflow="saturate"), "decay_u": 40, "decay_v": 300},
    "16 bits": {"fixed": nw.FixedPoint(16, 11, 2, "saturate"), "decay_u": 900, "decay_v": 100, "threshold": 640},
    "refractory": {"refractory": np.arange(N) % 5, "decay_u": 2000, "decay_v": 300, "threshold": 6400},
    "subtracts": {"reset": "subtract", "decay_u": 2000, "decay_v": 300, "threshold": 64 * 2000, "strict": False},
    "reset to a value, clamped": {"reset": "value", "reset_value": -500, "v_min": -700, "threshold": 6400},
    "biases": {"bias": np.arange(N) * 64 - 300, "bias_u": np.arange(N) - 4, "decay_u": 2000, "decay_v": 300},
    "reads": {"fires": False, "reset": "none", "decay_u": 100, "decay_v": 5},
}


def build_network(fields: dict, seed: int = 0) -> nw.Network:
    """Two layers, the first with a loop and a bias of its connection; weights are even, of up to 16 * 254."""
    rng = np.random.default_rng(seed)

    def weight(*shape):
        return 2 * rng.integers(-127, 128, shape)

    spec = nw.NeuronSpec(**({"fixed": nw.FixedPoint(), "threshold": 6400, "decay_v": 128} | fields))
    last = nw.NeuronSpec(fixed=nw.FixedPoint(), fires=False, reset="none", threshold=1 << 20)
    edges = [
        nw.Dense("in", "a", weight(N, N_IN), exponent=4, bias=rng.integers(-9, 9, N)),
        nw.Dense("in", "a", weight(N, N_IN), exponent=4, delay=3),
    ]
    if not spec.fires:
        return nw.Network.from_arrays({"a": (spec, N)}, edges, {"in": N_IN})
    edges += [nw.Dense("a", "a", weight(N, N), exponent=4), nw.Dense("a", "b", weight(3, N))]
    return nw.Network.from_arrays({"a": (spec, N), "b": (last, 3)}, edges, {"in": N_IN})


def spikes(*shape, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) < 0.4).astype(np.int8)


@pytest.mark.parametrize("name", NEURONS)
def test_programs_compute_the_numbers_of_neurons_of_another_format(name):
    network, x = build_network(NEURONS[name]), spikes(2, N_STEPS, N_IN)
    wanted = nw.simulate(network, x, record="all")
    program = nw.compile(network, "spinnaker2", x)
    assert {"a", *program.network.programs} == {*program.network.layers}
    for backend in BACKENDS:
        run = nw.simulate(program, x, backend=backend, record="all")
        assert np.array_equal(run.output, wanted.output), backend
        for layer in network.layers:
            assert np.array_equal(run.spikes[layer], wanted.spikes[layer]), (backend, layer)
            for state in "uv":
                assert np.array_equal(run.states[layer][state], wanted.states[layer][state]), (backend, layer, state)


def test_the_cases_reach_what_they_are_named_for():
    x = spikes(2, N_STEPS, N_IN)
    runs = {name: nw.simulate(build_network(fields), x, record="all") for name, fields in NEURONS.items()}
    u = runs["wraps"].states["a"]["u"]
    assert np.abs(np.diff(u, axis=1)).max() > 1 << 23  # a jump from one end to the other
    assert np.abs(runs["saturates"].states["a"]["u"]).max() == (1 << 23) - 1
    assert all(run.spikes["a"].any() for name, run in runs.items() if name != "reads")


def test_the_network_gives_the_same_on_the_chip_of_its_format():
    network, x = build_network({"decay_u": 2000, "decay_v": 300, "threshold": 64 * 900}), spikes(2, N_STEPS, N_IN)
    runs = [nw.simulate(nw.compile(network, chip, x), x, record="all") for chip in ("loihi1", "spinnaker2")]
    for layer in network.layers:
        assert np.array_equal(runs[0].spikes[layer], runs[1].spikes[layer])
        assert all(np.array_equal(runs[0].states[layer][s], runs[1].states[layer][s]) for s in "uv")


def test_every_change_has_its_row():
    x = spikes(1, 5, N_IN)
    changes = nw.compile(build_network({}), "spinnaker2", x).manifest["legalization"]
    (form, weights) = [change for change in changes if change["layer"] == "a"]
    assert form["was"] == "states of 24 bits that wrap, decays of 12 bits" and form["label"] == "exact"
    assert form["has"] == "states of 32 bits that saturate, decays of 16 bits"
    assert (weights["was"], weights["how"]) == ("wider weights", "weights / 32, inputs * 32")


def test_a_program_takes_the_common_factor_of_its_weights():
    rng = np.random.default_rng(0)
    first = nw.Dense("in", "a", 2 * rng.integers(-80, 81, (N, N_IN)))
    network = nw.Network.from_arrays(
        {"a": (sigma_delta(2, bias=np.arange(N)), N), "b": (sigma_readout(), 3)},
        [first, nw.Dense("a", "b", rng.integers(-5, 6, (3, N)), delay=1)],
        {"in": N_IN},
    )
    x = rng.integers(-3, 4, (2, 20, N_IN))
    wanted = nw.simulate(network, x)
    program = nw.compile(network, "spinnaker2", options=nw.Options(on_multi_spike="graded"))
    for backend in BACKENDS:
        run = nw.simulate(program, x, backend=backend)
        assert run.spikes["a"].any() and np.array_equal(run.spikes["a"], wanted.spikes["a"])
        assert np.array_equal(run.output, wanted.output)


@pytest.mark.parametrize(("chip", "exponent"), [("spinnaker2", -1), ("spinnaker2", -6), ("loihi1", -9)])
def test_weight_exponents_below_those_of_the_chip_are_folded(chip, exponent):
    """Effective weights are rounded down to whole numbers (DESIGN 4.1), so they are weights without an exponent."""
    rng, least = np.random.default_rng(2), Chip.load(chip).weights.exponent_min
    spec = nw.NeuronSpec(fixed=nw.FixedPoint(), threshold=640, decay_u=2000, decay_v=300)
    edges = [
        nw.Dense("in", "a", 4 * rng.integers(-30, 50, (N, N_IN)), exponent=exponent, weight_bits=7),
        nw.Dense("in", "a", 2 * rng.integers(20, 60, (N, N_IN)), exponent=0, delay=1),
    ]
    network, x = nw.Network.from_arrays({"a": (spec, N)}, edges, {"in": N_IN}), spikes(2, N_STEPS, N_IN)
    wanted = nw.simulate(network, x, record="all")
    program = nw.compile(network, chip, x)
    (row,) = [change for change in program.manifest["legalization"] if "exponents" in change["was"]]
    assert (row["was"], row["label"]) == (f"weight exponents below {least}", "exact")
    for backend in BACKENDS:
        run = nw.simulate(program, x, backend=backend, record="all")
        assert run.spikes["a"].any() and np.array_equal(run.spikes["a"], wanted.spikes["a"])


def test_float_weights_are_not_rounded_for_an_exponent():
    chip, weight = Chip.load("loihi1").replace({"weights.exponent_min": 1}), np.array([[0.3, -0.7]], np.float32)
    network = nw.Network.from_arrays({"a": (nw.NeuronSpec(threshold=1.0), 1)}, [nw.Dense("in", "a", weight)], {"in": 2})
    folded, changes = fold_exponents(network, chip)
    assert not changes and np.array_equal(folded.connections[0].weight, weight)


@pytest.mark.parametrize(("weight", "shift"), [([127, 3], 0), ([254, 2], 1), ([1016, -8], 3), ([254, 3], 0), ([0], 0)])
def test_common_shift_is_the_least_that_lets_weights_fit(weight, shift):
    assert find_common_shift([nw.Dense("in", "a", np.array([weight]))], Chip.load("spinnaker2")) == shift


def test_weights_beyond_the_effective_limit_are_refused_not_clipped():
    network = nw.Network.from_arrays(
        {"a": (nw.NeuronSpec(fixed=Chip.load("spinnaker2").fixed_point, threshold=64), 1)},
        [nw.Dense("in", "a", np.array([[141, 0]]), sign_mode="exc")],
        {"in": 2},
    )
    with pytest.raises(FitError, match="weight  in -> a  must be -128..128, is 141  scale"):
        nw.compile(network, "spinnaker2")


@pytest.mark.parametrize("fields", [{"reset": "subtract", "reset_timing": "next"}, {"spikes": "multi"}])
def test_neurons_that_no_program_computes_keep_their_rule(fields):
    with pytest.raises(FitError, match=r"must be 32, is 24  quantize a .* \(no program computes late resets"):
        nw.compile(build_network(fields), "spinnaker2")


def test_a_current_that_one_wrap_does_not_hold_is_refused():
    spec = nw.NeuronSpec(fixed=nw.FixedPoint(), threshold=6400)
    network = nw.Network.from_arrays({"a": (spec, 1)}, [nw.Dense("in", "a", np.full((1, 3), 1 << 17))], {"in": 3})
    with pytest.raises(FitError, match=r"wrap twice in a step\)\n  .*\n  overflow  a  must be saturate, is wrap"):
        nw.compile(network, "spinnaker2")
