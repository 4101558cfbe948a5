"""Biases as weights from an input line that is always on: the same spikes on chips whose neurons have none."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.legalize.bias_lines import bias_lines
from nwcompile.sim import BACKENDS, simulate
from tests.made.chips import small_chip

NO_BIAS = small_chip(neuron__bias=False, neuron__delay_max_steps=0)
SPEC = NeuronSpec(threshold=640, fixed=FixedPoint(), decay_v=600)


def drawn(seed: int, spec: NeuronSpec = SPEC) -> Network:
    """Three layers, all with biases, in their neurons or their connections."""
    rng = np.random.default_rng(seed)
    conv = Conv2d("in", "a", rng.integers(-5, 9, (3, 1, 3, 3)).astype(np.int8), padding=1, bias=np.array([3, -2, 4]))
    edges = [conv, Dense("a", "b", rng.integers(-4, 6, (7, 48)).astype(np.int8)),
             Dense("b", "c", rng.integers(-4, 8, (5, 7)).astype(np.int8))]  # fmt: skip
    layers = {"a": spec, "b": spec.replace(bias_u=rng.integers(-4, 9, 7)), "c": spec.replace(bias=128)}
    return Network.from_arrays(layers, edges, {"in": (1, 4, 4)})


@pytest.mark.parametrize("spec", [SPEC, SPEC.replace(refractory=3, reset="subtract")])
def test_bias_lines_send_the_same_spikes_on_every_backend(spec, tmp_path):
    for seed in range(3):
        network = drawn(seed, spec)
        x = np.random.default_rng(seed).integers(0, 2, (2, 12, 1, 4, 4))
        folded = simulate(nw.compile(network, small_chip(), x, Options(partitioner="sequential")), x).spikes
        program = nw.compile(network, NO_BIAS, x, Options(partitioner="sequential"))
        program.save(tmp_path / "net.nwc")
        program = Program.load(tmp_path / "net.nwc")
        for backend in BACKENDS if seed == 0 else ("sequence",):
            spikes = simulate(program, x, backend).spikes
            assert all(np.array_equal(spikes[name], folded[name]) for name in "abc"), backend
        assert folded["c"].any() and not np.any(program.network.node("c").neuron.bias)
        silent = simulate(program, None, "sequence", steps=12).spikes  # no input, but the line is on
        assert np.array_equal(silent["a"], simulate(nw.compile(network, small_chip()), None, steps=12).spikes["a"])
    rows = [row for row in program.legalization if row["was"] == "a bias"]
    assert [(row["layer"], row["has"], row["label"]) for row in rows] == [(n, "no bias", "exact") for n in "abc"]


def test_bias_lines_leave_what_no_weight_holds_and_what_acts_behind_a_current():
    far = Network.from_arrays({"a": SPEC.replace(bias_u=500)}, [Dense("in", "a", np.eye(2, dtype=int))], {"in": 2})
    current = Network.from_arrays({"a": SPEC.replace(bias=64, decay_u=900)}, far.connections, {"in": 2})
    for network in (far, current):
        assert bias_lines(network, NO_BIAS, Options()) == (network, [])
        with pytest.raises(FitError, match="bias  a  must be no bias, is a bias"):
            nw.compile(network, NO_BIAS)
    assert bias_lines(far, small_chip(), Options()) == (far, [])


@pytest.mark.parametrize("chip", ["h1v1", "h1v2"])
def test_compile_puts_the_biases_of_a_float_network_on_lines(chip):
    rng = np.random.default_rng(1)
    spec = NeuronSpec(threshold=1.0, beta=0.5, reset="subtract", v_min=0.0)
    weights = [(rng.integers(-3, 5, shape) / 8).astype(np.float32) for shape in ((8, 6), (4, 8))]
    edges = [Dense("in", "a", weights[0], bias=np.full(8, 0.25)), Dense("a", "b", weights[1], bias=np.full(4, 0.125))]
    network = Network.from_arrays({"a": spec, "b": spec}, edges, {"in": 6})
    x = rng.integers(0, 2, (4, 20, 6)).astype(np.float32)
    program = nw.compile(network, chip, x)
    wanted, got = simulate(network, x).spikes, simulate(program, x).spikes
    assert all(np.array_equal(wanted[name], got[name]) for name in "ab") and wanted["b"].any()
    assert [row["layer"] for row in program.legalization if row["was"] == "a bias"] == ["a", "b"]
    assert nw.crosscheck(program, x).agree
