"""Decays by shift: the nearest time constants, the charge of a spike kept, and one exponent a group of weights."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.grids import find_decay_for_loss, layer_dynamics
from nwcompile.passes.analyze.state_range import state_range
from nwcompile.passes.quantize.quantize import quantize

FORM = FixedPoint(16, 4, 0, "clip", "shift")
CHIP = Chip.load("xylo_imu")


@pytest.mark.parametrize(
    "keep, lowest, shift",
    [(0.5, 0, 1), (0.8, 0, 2), (0.83, 0, 3), (0.99, 0, 7), (1.0, 0, 15), (0.0, 0, 0), (0.0, 1, 1)],
)
def test_shifts_are_the_nearest_time_constants(keep, lowest, shift):
    assert find_decay_for_loss(1 - np.array(keep), FORM, lowest) == shift
    taus = -1 / np.log1p(-np.clip(FORM.lost(np.arange(lowest, 16)), 2.0**-15, 0.99))
    wanted = -1 / np.log(np.clip(keep, 0.01, 1 - 2.0**-15))
    assert np.abs(np.log(taus / wanted)).argmin() + lowest == shift


@pytest.mark.parametrize("order", ["decay_then_add", "add_then_decay", "add_use_decay"])
def test_weights_keep_the_charge_of_a_spike(order):
    """All that one spike of weight 1 adds to the membrane over the steps, on a chip whose current lasts otherwise."""
    spec = NeuronSpec(alpha=0.8, beta=0.5, current_order=order, reset="subtract", threshold=1e9)
    network = Network.from_arrays({"a": (spec.replace(beta=1.0), (1,))}, [Dense("in", "a", [[1.0]])], {"in": (1,)})
    x = np.zeros((1, 200, 1))
    x[0, 0] = 1
    charge = nw.simulate(network, x, record="all").states["a"]["v"][0, -1, 0]
    d = layer_dynamics(network, "a", CHIP)
    lost = FORM.lost(d.decay_u)
    assert d.decay_u == 2 and float(d.factor * (1 - lost) / lost) == pytest.approx(charge, rel=1e-5)


def test_groups_of_weights_share_an_exponent():
    rng = np.random.default_rng(1)
    out = NeuronSpec(threshold=1.0, reset="subtract", strict=False, alpha=0.5, beta=0.75)
    hidden = out.replace(spikes="multi", max_spikes=31)
    sizes = {"in": 8, "a": 30, "b": 30, "o": 4}
    edges = [
        Dense(s, t, rng.normal(0.02, strength, (sizes[t], sizes[s])).astype(np.float32))
        for s, t, strength in (("in", "a", 0.5), ("a", "b", 0.2), ("b", "o", 0.05))
    ]
    edges.append(Dense("b", "b", rng.normal(0, 0.5, (30, 30)).astype(np.float32), delay=1))
    network = Network.from_arrays({"a": (hidden, (30,)), "b": (hidden, (30,)), "o": (out, (4,))}, edges, {"in": (8,)})
    x = (rng.random((10, 30, 8)) < 0.2).astype(np.int8)
    program = nw.compile(network, CHIP, x)
    rows = {row["layer"]: row for row in program.manifest["quantization"]}
    assert len(set(rows["b"]["exponents"])) == 1 and rows["a"]["exponents"] != rows["b"]["exponents"]
    assert rows["a"]["spike_agreement_percent"] > 80
    assert nw.crosscheck(program, x).agree


def test_bounds_hold_where_decays_are_shifts():
    """A shift loses less of small positive states than its share: 3 more in every step end at 7, not at 3 / (1/2)."""
    spec = NeuronSpec(threshold=100, strict=False, reset="subtract", decay_u=1, decay_v=3, fixed=FORM)
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", np.array([[3]], np.int8))], {"in": 1})
    states = nw.simulate(network, np.ones((1, 200, 1), np.int64), record="all").states["a"]
    bound = state_range(network, "a", None, None)
    assert states["v"].max() <= bound.v_bound <= 2 * states["v"].max()
    assert states["u"].max() + 3 <= bound.u_bound < 2 * states["u"].max() + 6


def test_spikes_that_a_loop_makes_more_of_in_every_step_are_refused_by_their_layer():
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False, alpha=0.5, beta=0.5, spikes="multi")
    edges = [Dense("in", "h", np.ones((2, 1), np.float32)), Dense("h", "h", np.full((2, 2), 3, np.float32), delay=1)]
    network = Network.from_arrays({"h": (spec, (2,))}, edges, {"in": (1,)})
    with pytest.raises(ModelError) as error:
        quantize(network, CHIP, np.ones((1, 12, 1), np.float32), Options())
    assert str(error.value).startswith("layer 'h' sends up to ")
    assert str(error.value).endswith("holds 8388607; where it feeds itself, make those weights smaller")


def test_a_current_that_loses_all_leaves_little_of_unbounded_input():
    """Where nothing bounds the counts that arrive, 0 times infinity is no NaN: the current leaves at most 1."""
    many = NeuronSpec(threshold=1, spikes="multi", reset="subtract", decay_u=0, decay_v=0, fixed=FORM)
    one = NeuronSpec(threshold=9, decay_u=0, decay_v=1, fixed=FORM)
    edges = [Dense("in", "a", np.ones((1, 1), int)), Dense("a", "b", np.ones((1, 1), int))]
    network = Network.from_arrays({"a": many, "b": one}, edges, {"in": (1,)})
    with np.errstate(invalid="raise"):
        found = state_range(network, "b", None, None)
    assert found.u_bound is None and found.v_bound == 4  # v loses half, rounded: at most (1 + 1) / (1 - 1/2)
