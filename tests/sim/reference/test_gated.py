"""Calcium-gated bipolar neurons: what was sent too early is taken back, and never more than was sent."""

import numpy as np
import pytest

from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.crosscheck import crosscheck
from tests.made.chips import small_chip

GATED = NeuronSpec(threshold=1.0, strict=False, spikes="gated", reset="subtract")


def one(spec: NeuronSpec, weight) -> Network:
    weight = np.array([[weight]])
    return Network.from_arrays({"a": spec, "b": spec}, [Dense("in", "a", weight), Dense("a", "b", weight)], {"in": 1})


def whole() -> Program:
    chip = small_chip(neuron__spikes=["binary", "multi", "bipolar"], neuron__strict=[True, False])
    network = one(GATED.replace(threshold=64, fixed=FixedPoint()), 1)
    activity = Activity.uniform(network)
    mapping = place(partition(network, chip, activity, Options()).mapping, network, chip, activity, Options())
    return emit(network, schedule(network), mapping, chip, activity, {}, "graded")


@pytest.mark.parametrize("backend", BACKENDS)
def test_gated_neuron_takes_back_spikes_but_no_more_than_it_sent(backend):
    x = np.array([-1, 1, 1, 1, 0, 0, 0, -1, -1, -1, -1, 3, 0, -2])
    x = x[None, :, None]
    spikes = [simulate(*case).spikes["a"].ravel().tolist() for case in ((whole(), x, backend), (one(GATED, 1.0), x))]
    assert spikes == [[0, 0, 1, 1, 0, 0, 0, -1, -1, 0, 0, 1, 0, -1]] * 2


def test_gated_neuron_counts_what_its_inputs_add_up_to():
    """Below one threshold a step its net count is that of a rounded-down ReLU of the sum (DESIGN 4.1)."""
    x = np.random.default_rng(0).uniform(-0.99, 0.99, (40, 30, 1)).astype(np.float32)
    x[:, -3:] = 0  # time to take back
    run = simulate(one(GATED, 1.0), x)
    net = run.spikes["a"].astype(int).cumsum(1)
    assert net.min() == 0 and run.spikes["a"].min() == -1
    total = x.astype(np.float64).sum(1)
    near = np.abs(total - np.round(total)) < 1e-4
    np.testing.assert_array_equal(net[:, -1][~near], np.maximum(np.floor(total), 0)[~near])


@pytest.mark.parametrize("window", ["aligned", "hardware"])
def test_gated_neurons_agree_in_all_backends_over_silence(window):
    x = np.random.default_rng(1).integers(-2, 3, (3, 40, 1)) * (np.arange(40) % 7 < 3)[:, None]
    result = crosscheck(whole(), x, window=window)
    assert result.agree, str(result)
