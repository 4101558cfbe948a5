"""Neuron programs on chips of built-in neurons: refused with what these lack, or the nearest of them, if asked for."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import FitError, LossError, OptionError
from nwcompile.passes.quantize.approximate.nearest_program import can_be_built_in
from nwcompile.sim import BACKENDS

CHIPS = "take a chip whose neurons are programs (neuron.programmable: loihi2, spinnaker2), or a built-in neuron in "
NEAREST = nw.Options(approximate="program", partitioner="sequential", placer="row-major")


@nw.neuron
def adaptive(state, x, beta=0.9, rho=0.95, jump=0.2):
    v, a = beta * state.v + x, rho * state.a
    fired = v > 1.0 + a
    return {"v": v - fired * (1.0 + a), "a": a + jump * fired}, fired


@nw.neuron
def resonator(state, x):
    real = 0.9 * state.real - 0.3 * state.imaginary + x
    imaginary = 0.3 * state.real + 0.9 * state.imaginary
    fired = torch.abs(imaginary) * real > 0.5
    return {"real": torch.where(fired, 0.0, real), "imaginary": imaginary, "n": state.n + fired}, fired


@nw.neuron
def changes(state, x):
    step = torch.trunc(x - state.seen)
    return {"seen": state.seen + step}, step


@nw.neuron
def exponential(state, x):
    v = 0.9 * state.v + 0.1 * torch.exp(state.v - 1.0) + x
    fired = v > 2.0
    return {"v": torch.where(fired, 0.0, v)}, fired


@nw.neuron
def leaky(state, x):
    return {"v": state.v + (x - 0.15 * state.v)}, None  # which rounds otherwise than a NeuronSpec's membrane


def weights(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.4, shape).astype(np.float32)


def network(neuron=adaptive, bias: float | None = None) -> nw.Network:
    """in 16 -> h 24, the program -> out 4, a readout that is a program too."""
    given = None if bias is None else np.full(24, bias, np.float32)
    edges = [nw.Dense("in", "h", weights(24, 16, seed=0), bias=given), nw.Dense("h", "out", weights(4, 24, seed=1))]
    layers = {"h": (neuron.program(), (24,)), "out": (leaky.program(), (4,))}
    return nw.Network.from_arrays(layers, edges, {"in": (16,)})


X = (np.random.default_rng(3).random((10, 25, 16)) < 0.2).astype(np.int8)


@pytest.mark.parametrize(
    "chip, neuron, lines",
    [
        (
            "loihi1",
            adaptive,
            "must be built-in neurons (current and membrane), is program adaptive of states v, a and operations add, "
            "lt, mul, number, sub  they lack a threshold that changes; ",
        ),
        (
            "speck",
            resonator,
            "must be built-in neurons (membrane), is program resonator of states real, imaginary, n and operations "
            "abs, add, lt, mul, number, select, sub  they lack 2 more states, abs, products of two values; ",
        ),
        ("xylo_audio3", changes, "they lack messages that are graded, trunc; "),
    ],
)
def test_a_chip_of_built_in_neurons_names_what_a_program_needs_beyond_them(chip, neuron, lines):
    with pytest.raises(FitError) as error:
        nw.compile(network(neuron), chip, X)
    told = str(error.value).splitlines()
    (row,) = [line for line in told if line.startswith("  neuron  h  ")]
    assert lines in row and row.endswith(f"{CHIPS}h")
    (row,) = [line for line in told if line.startswith("  neuron  out  ")]
    has = "membrane" if chip == "speck" else "current and membrane"
    assert f"must be built-in neurons ({has}), is program " in row
    assert f"states v and operations add, mul, sub  they run no programs; {CHIPS}out" in row
    helps = [line for line in told if line.startswith("it fits with ")]
    wanted = (
        "it fits with approximate='program' (--approximate program): the chip's nearest features; the report shows the "
        "loss"
    )
    assert helps == ([wanted] if chip in ("loihi1", "speck") else [])


def test_what_no_built_in_neuron_can_stand_for_is_not_offered():
    loihi1 = nw.Chip.load("loihi1")
    offered = {n.program().name: can_be_built_in(n.program(), loihi1) for n in (adaptive, changes, exponential, leaky)}
    assert offered == {"adaptive": True, "changes": False, "exponential": True, "leaky": True}
    assert not can_be_built_in(adaptive.program(), nw.Chip.load("loihi2"))
    with pytest.raises(FitError, match="they lack exp;"):
        nw.compile(network(exponential), "loihi1", X)
    program = nw.compile(network(exponential), "loihi1", X, NEAREST)
    assert nw.crosscheck(program, X).agree and "tables" not in program.manifest["quantization"][0]


@pytest.mark.parametrize("chip", ["loihi1", "ranc_dense"])
def test_the_nearest_built_in_neuron_fires_as_often_and_its_price_is_measured(chip):
    """On ranc_dense, membranes do not leak, and weights are few kinds: those of the test are, by their inputs."""
    net = network(bias=0.03)
    if chip != "loihi1":
        kinds = (np.where(np.arange(16) % 2, 0.5, -0.25) * np.ones((24, 1))).astype(np.float32)
        edges = [nw.Dense("in", "h", kinds * (weights(24, 16, seed=0) > 0)), net.connections[1]]
        net = nw.Network.from_arrays({"h": (adaptive.program(), (24,))}, edges[:1], {"in": (16,)})
    program = nw.compile(net, chip, X, NEAREST)
    rows = {row["layer"]: row for row in program.manifest["legalization"]}
    assert (rows["h"]["was"], rows["h"]["has"], rows["h"]["label"]) == (
        "program adaptive", "built-in neurons", "approximate")  # fmt: skip
    assert rows["h"]["how"].startswith("reset ") and "threshold" in rows["h"]["how"]
    assert ("no leak" in rows["h"]["how"]) == (chip != "loihi1")
    price = rows["h"]["price"]
    assert price["rate_ideal"] > 0.02 and abs(price["rate_change_percent"]) < 15
    assert 0 < price["spikes_changed_percent"] < 95 and program.manifest["price"]["n_samples"] == 2
    spec = program.network.node("h").neuron
    assert isinstance(spec, nw.NeuronSpec)
    (table,) = [row for row in program.manifest["quantization"] if row["layer"] == "h"]
    assert "program" not in table and table["scale"] is None and table["rate_fixed"] > 0
    backends = BACKENDS if chip == "loihi1" else ("reference", "sequence")
    runs = [nw.simulate(program, X[:2], backend=name).spikes["h"] for name in backends]
    assert all(np.array_equal(run, runs[0]) for run in runs) and runs[0].any()


def test_the_nearest_readout_is_in_the_units_of_the_float_network():
    net = network()
    program = nw.compile(net, "loihi1", X, NEAREST)
    (row,) = [row for row in program.manifest["legalization"] if row["layer"] == "out"]
    assert row["how"].startswith("a membrane that loses ") and row["price"] is None
    got = nw.simulate(program, X).output.reshape(-1) / program.output_scale["out"]
    wanted = nw.simulate(net, X).output.reshape(-1)
    assert np.corrcoef(got, wanted)[0, 1] > 0.8
    assert 0.8 < float((got * wanted).sum() / np.square(wanted).sum()) < 1.2


def test_a_program_in_integers_gets_its_nearest_neuron_too():
    @nw.neuron(bits={"v": 24, "a": 16})
    def whole(state, x, base=3840, jump=600):
        v = torch.div(state.v * 3796, 4096, rounding_mode="trunc") + (x << 6)
        fired = v > base + state.a
        a = torch.div(state.a * 3996, 4096, rounding_mode="trunc")
        return {"v": torch.where(fired, 0, v), "a": a + jump * fired}, fired

    weight = (2 * np.random.default_rng(0).integers(-10, 20, (12, 16))).astype(np.int8)
    net = nw.Network.from_arrays({"h": (whole.program(), (12,))}, [nw.Dense("in", "h", weight)], {"in": (16,)})
    program = nw.compile(net, "loihi1", X, NEAREST)
    (row,) = program.manifest["legalization"]
    assert row["was"] == "program whole" and abs(row["price"]["rate_change_percent"]) < 15


def test_the_nearest_neuron_needs_samples_and_may_cost_too_much():
    with pytest.raises(OptionError, match=r"approximate='program' fits built-in neurons to what programs do on calibrat"
                                          r"ion samples \(h\): give some"):  # fmt: skip
        nw.compile(network(), "loihi1", None, NEAREST)
    limited = nw.Options(approximate="program", max_loss="1%", partitioner="sequential")
    with pytest.raises(LossError, match="approximating costs .* of the spikes on loihi1, more than max_loss=1%"):
        nw.compile(network(), "loihi1", X, limited)


def test_a_program_that_is_silent_in_the_samples_stays_silent():
    program = nw.compile(network(), "loihi1", np.zeros_like(X), NEAREST)
    assert not nw.simulate(program, X).spikes["h"].any()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_nearest_neurons_are_trained_on_and_compile_keeps_their_integers():
    net = network(bias=0.03)
    with pytest.raises(
        FitError, match=r"they lack a threshold that changes; .*\n.*\nit fits with approximate='program'"
    ):
        nw.nn.quantize_aware(net, "loihi1", X)
    trained = nw.nn.quantize_aware(net, "loihi1", X, approximate="program")
    assert [change.was for change in trained.legalization] == ["program adaptive", "program leaky"]
    rate = nw.simulate(net, X).spikes["h"].mean()
    assert abs(trained.record(X)["h"]["spikes"].mean() / rate - 1) < 0.2
    answers = torch.arange(10) % 4
    optimizer = torch.optim.Adam(trained.parameters(), 3e-3)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(trained(X).sum(1), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    program = nw.compile(trained.network(), "loihi1", X, nw.Options(partitioner="sequential", placer="row-major"))
    assert np.array_equal(nw.simulate(program, X).spikes["h"], trained.record(X)["h"]["spikes"])
