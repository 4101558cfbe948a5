"""How close the spikes of a scale are: their rate first, then when they come."""

import weakref

import numpy as np
import pytest

from nwcompile.errors import ModelError
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.quantize import scale_search
from nwcompile.passes.quantize.scale_search import Evidence, choose_scale, how_far, spike_distance
from nwcompile.passes.quantize.scaled_layer import describe_layer, scale_layer
from nwcompile.sim import simulate


def test_how_far_says_how_much_a_rate_is_off_and_then_the_distance():
    wanted = np.zeros((2, 50, 4), np.int8)
    wanted[:, ::5] = 1  # 80 spikes
    later, fewer = np.roll(wanted, 1, 1), wanted.copy()
    fewer[:, :10] = 0
    assert how_far(wanted, wanted, 0.05) == (0.0, 0.0)
    assert how_far(later, wanted, 0.05) == (0.0, spike_distance(later, wanted))
    assert how_far(fewer, wanted, 0.05) == (pytest.approx(0.2), spike_distance(fewer, wanted))
    assert how_far(wanted, np.zeros_like(wanted), 0.05)[0] == 0  # nothing is wanted: the distance alone


def test_choose_keeps_the_rate_of_a_layer_whose_spikes_come_at_other_times(monkeypatch):
    rng = np.random.default_rng(0)
    weight = rng.normal(0.02, 0.3, (40, 60)).astype(np.float32)
    network = Network.from_arrays({"a": NeuronSpec(reset="zero")}, [Dense("in", "a", weight)], {"in": 60})
    x, other = (rng.random((2, 12, 20, 60)) < 0.15).astype(np.int8)
    wanted = simulate(network, x).spikes["a"]
    evidence = Evidence(arriving=(other,), wanted=wanted, peak_u=9.0, peak_v=9.0)  # as behind many rounded layers
    chip = Chip.load("loihi1")
    layer = describe_layer(network, "a", chip)

    def rate_over_wanted() -> float:
        return choose_scale(layer, chip, evidence)[1].sum() / wanted.sum()

    assert rate_over_wanted() == pytest.approx(1, abs=0.05)
    monkeypatch.setattr(scale_search, "WELL_MATCHED", np.inf)  # the distance alone
    assert rate_over_wanted() < 0.9


def test_choose_keeps_the_weights_of_one_scale_besides_the_one_it_tries(monkeypatch):
    network = Network.from_arrays({"a": NeuronSpec()}, [Dense("in", "a", np.eye(9, dtype=np.float32))], {"in": 9})
    x = (np.random.default_rng(0).random((4, 20, 9)) < 0.3).astype(np.int8)
    chip = Chip.load("loihi1")
    layer, made, most = describe_layer(network, "a", chip), [], []

    def scaled(*given):
        most.append(sum(one() is not None for one in made))
        one = scale_layer(*given)
        made.append(weakref.ref(one))
        return one

    monkeypatch.setattr(scale_search, "scale_layer", scaled)
    chosen, _ = choose_scale(layer, chip, Evidence(arriving=(x,), wanted=x, peak_u=1.0, peak_v=1.0))
    assert len(made) > 3 and max(most) == 1 and chosen is not None


def test_membranes_beyond_float32_are_refused():
    network = Network.from_arrays(
        {"a": NeuronSpec(leak=3e38, reset="subtract")}, [Dense("in", "a", np.ones((2, 3)))], {"in": 3}
    )
    with pytest.raises(ModelError, match="layer 'a': membranes go beyond float32 in the calibration samples"):
        compile(network, Chip.load("tiny"), np.ones((1, 4, 3), np.int8))
