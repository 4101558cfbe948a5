"""RANC's recorded RTL runs: neurons that go round at their width and are reset at a negative threshold too."""

import numpy as np
import pytest

from nwcompile.sim import simulate
from tests.ranc_cases import case, recorded_input, recorded_network

# Nothing is lost in these, and no axon hears two neurons.
PLAIN = ("one_neuron", "five_8x8_a", "five_8x8_b", "five_256x256", "grid3x3_two_layers", "two_layers_types_hardware",
         "dense_9bit_aligned")  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_reference_gives_every_recorded_membrane_and_spike(name):
    rtl = case(name)
    network, numbers = recorded_network(rtl)
    run = simulate(network, recorded_input(rtl), record="all")
    for layer, ids in numbers.items():
        spikes, v = (rtl[key].reshape(rtl["T"], -1)[:, ids] for key in ("rtl_spike", "rtl_v"))
        assert np.array_equal(run.spikes[layer][0], spikes) and np.array_equal(run.states[layer]["v"][0], v), layer
