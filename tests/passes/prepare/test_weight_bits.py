"""Weights of few bits: their grids, that chips hold them, and that what was chosen is what is compiled."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, OptionError
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.capability import weight_violations
from nwcompile.passes.analyze.grids import WeightGrid
from nwcompile.passes.prepare.weights import apply_weight_bits
from nwcompile.passes.quantize.quantize import quantize
from nwcompile.passes.quantize.scale_search import spike_distance
from nwcompile.sim import simulate

TINY, LOIHI = Chip.load("tiny"), Chip.load("loihi1")
BOTH, UP, DOWN = np.array([-1.0, 1.0]), np.array([0.0, 1.0]), np.array([-1.0, 0.0])


@pytest.mark.parametrize(
    ("weight", "bits", "mode", "levels"),
    [
        (BOTH, 1, "mixed", [-128, 128]),
        (UP, 1, "exc", [0, 128]),
        (DOWN, 1, "inh", [-128, 0]),
        (BOTH, 2, "mixed", [-256, -128, 0, 128]),
        (UP, 2, "exc", [0, 64, 128, 192]),
        (DOWN, 2, "inh", [-192, -128, -64, 0]),
    ],
)
def test_weight_grid_of_few_bits_needs_no_sign_where_weights_have_one(weight, bits, mode, levels):
    grid = WeightGrid.from_weights(weight, bits, LOIHI)
    assert (grid.sign_mode, list(range(grid.low, grid.high + 1, grid.step))) == (mode, levels)
    spread = grid.round_within(np.linspace(levels[0] - 20, levels[-1] + 20, 999), levels[-1] or -levels[0])
    assert spread.exponent == 0 and list(np.unique(spread.mantissa)) == levels


def test_weight_grid_of_full_width_keeps_its_sign():
    assert WeightGrid.from_weights(UP, 8, LOIHI).sign_mode == "mixed"


CHIPS = [Chip.load(name) for name in ("tiny", "loihi1", "h1v2", "truenorth", "speck", "spinnaker2", "ladderbus")]
WIDTHS = [(chip, bits) for chip in CHIPS for bits in (1, 2, 3) if bits <= chip.weights.bits]


@pytest.mark.parametrize("chip, bits", WIDTHS, ids=lambda value: getattr(value, "name", value))
def test_weight_grid_is_what_the_chip_and_the_backends_hold(chip, bits):
    rng = np.random.default_rng(bits)
    for weight in (rng.normal(size=99), rng.random(99), -rng.random(99)):
        for size in (0.01, 3.0, 1e4):
            grid = WeightGrid.from_weights(weight, bits, chip)
            found = grid.round_within(weight * size, size * np.abs(weight).mean())
            c = Dense("a", "b", found.mantissa[None], None, None, found.exponent, grid.sign_mode, bits)
            assert not list(weight_violations(c, chip)) and len(np.unique(found.mantissa)) <= 1 << bits
            limit = chip.weights.effective_limit
            assert (effective_weight(found.mantissa, found.exponent, limit) == found.effective).all()


def test_weight_grid_of_a_step_that_is_no_power_of_two_stays_whole():
    chip = TINY.replace({"weights.step": 3, "weights.exponent_min": -8})
    found = WeightGrid.from_weights(BOTH, 8, chip).round_within(np.array([-3.1, 3.1, 6.2]), 6.2)
    assert found.exponent == 0 and list(found.effective) == [-3, 3, 6]


def test_check_names_a_weight_that_is_not_binary():
    edge = Dense("a", "b", np.array([[128, 0]]), weight_bits=1)
    assert [str(v) for v in weight_violations(edge, LOIHI)] == [
        "weight  a -> b  must be -128 or 128, is 0  round the weights to the chip's grid"
    ]


def net(rng):
    spec = NeuronSpec(threshold=1.0, beta=0.9)
    return Network.from_arrays(
        {"conv": (spec, (2, 4, 4)), "out": spec},
        [Conv2d("in", "conv", rng.normal(size=(2, 1, 3, 3)), padding=1),
         Dense("conv", "conv", rng.normal(size=(32, 32)) / 8),
         Dense("conv", "out", np.abs(rng.normal(size=(3, 32))) / 8)],
        {"in": (1, 4, 4)},
    )  # fmt: skip


@pytest.mark.parametrize("bits", [1, 2, 5])
def test_narrow_weights_give_the_same_spikes_in_every_backend(bits):
    rng = np.random.default_rng(bits)
    x = (rng.random((3, 6, 1, 4, 4)) < 0.5).astype(np.int8)
    chip = LOIHI.replace({"noc.columns": 2, "noc.rows": 2})
    program = nw.compile(net(rng), chip, x, Options(bits=bits, layer_bits={"out": 1}))
    assert nw.crosscheck(program, x).agree
    assert [len(np.unique(c.weight)) <= 1 << bits for c in program.network.connections] == [True] * 3
    assert set(np.unique(program.network.connections[2].weight)) & {0} == {0}


def test_binary_weights_are_searched_by_their_spikes():
    rng = np.random.default_rng(4)
    weight = rng.normal(0.05, 0.3, size=(20, 40))
    network = Network.from_arrays({"a": NeuronSpec(beta=0.9)}, [Dense("in", "a", weight)], {"in": 40})
    x = (rng.random((8, 20, 40)) < 0.2).astype(np.int8)
    wanted = simulate(network, x).output
    found = [quantize(network, LOIHI, given, Options(bits=1)) for given in (x, None)]
    distance = [spike_distance(simulate(q.network, x).output, wanted) for q in found]
    assert distance[0] < distance[1] < spike_distance(np.zeros_like(wanted), wanted)


def test_thresholds_follow_narrow_weights_where_that_brings_spikes_closer(monkeypatch):
    rng = np.random.default_rng(0)
    weight = rng.laplace(0.04, 0.2, (20, 60))
    network = Network.from_arrays({"a": NeuronSpec(beta=0.9)}, [Dense("in", "a", weight)], {"in": 60})
    x = (rng.random((8, 20, 60)) < 0.2).astype(np.int8)
    found = quantize(network, LOIHI, x, Options(bits=2))
    row, spec = found.table[0], found.network.node("a").neuron
    assert row["threshold_factor"] != 1 and row["threshold_int"] == spec.threshold
    assert spec.threshold == pytest.approx(row["scale"] * row["threshold_factor"], abs=32)
    wanted = simulate(network, x).output
    monkeypatch.setattr("nwcompile.passes.quantize.scale_search.NARROW_THRESHOLDS", ())
    plain = quantize(network, LOIHI, x, Options(bits=2))
    distance = [spike_distance(simulate(q.network, x).output, wanted) for q in (found, plain)]
    assert distance[0] < distance[1] and plain.table[0]["threshold_factor"] == 1
    assert quantize(network, LOIHI, x, Options(bits=5)).table[0]["threshold_factor"] == 1


def test_narrow_readouts_are_searched_by_their_membranes():
    rng = np.random.default_rng(7)
    weight = rng.normal(size=(4, 40))
    weight[:, :8] *= 4  # where no spike comes
    spec = NeuronSpec(fires=False, beta=0.9, reset="none")
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", weight)], {"in": 40})
    x = (rng.random((8, 12, 40)) < 0.3).astype(np.int8)
    x[..., :8] = 0
    wanted = simulate(network, x).output
    for bits in (1, 2, 3):
        found = [quantize(network, LOIHI, given, Options(bits=bits)) for given in (x, None)]
        got = [simulate(q.network, x).output / q.table[0]["scale"] for q in found]
        error = [np.square(v - wanted).sum() for v in got]
        assert error[0] < 0.8 * error[1]


def test_widths_of_layers_go_before_that_of_all_and_before_the_networks_own():
    rng = np.random.default_rng(0)
    network = net(rng)
    own = Network(network.inputs, network.nodes, tuple(c.replace(weight_bits=7) for c in network.connections))
    assert [c.weight_bits for c in apply_weight_bits(own, TINY, Options()).connections] == [7, 7, 7]
    assert [c.weight_bits for c in apply_weight_bits(own, TINY, Options(layer_bits={"conv": 2})).connections] == [
        2,
        2,
        7,
    ]
    both = apply_weight_bits(own, TINY, Options(bits=4, layer_bits={"conv": 2}))
    assert [c.weight_bits for c in both.connections] == [2, 2, 4]


def test_widths_refuse_layers_and_bits_that_are_not_there():
    network = net(np.random.default_rng(0))
    with pytest.raises(OptionError) as error:
        apply_weight_bits(network, LOIHI, Options(layer_bits={"cnv": 2}))
    assert str(error.value) == "layer_bits: unknown layer 'cnv'; choose one of: conv, out"
    with pytest.raises(OptionError) as error:
        apply_weight_bits(network, LOIHI, Options(bits=16))
    assert str(error.value) == (
        "16-bit weights into layer 'conv' are wider than those of loihi1, which have 8; give 1 to 8, or set "
        "weights.bits = 16"
    )


def test_narrow_weights_fit_where_wide_ones_do_not():
    network = Network.from_arrays({"a": NeuronSpec()}, [Dense("in", "a", np.ones((8, 64)))], {"in": 64})
    chip = TINY.replace({"noc.columns": 1, "noc.rows": 1, "core.synapse_bits": 8 * 64 * 4, "core.max_in_axons": 64})
    with pytest.raises(FitError):
        nw.compile(network, chip)
    assert nw.compile(network, chip, options=Options(bits=2)).mapping.n_cores == 1
