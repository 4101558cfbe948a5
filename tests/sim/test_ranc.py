"""RANC's recorded RTL runs: neurons that go round at their width and are reset at a negative threshold too."""

import numpy as np
import pytest

from nwcompile.sim import simulate
from nwcompile.sim.crosscheck import crosscheck
from nwcompile.sim.reference.neuron_step import LayerState
from tests.made.ranc_cases import (
    CASES,
    PLAIN,
    case,
    heard_axons,
    recorded_input,
    recorded_network,
    recorded_program,
    weights,
)


@pytest.mark.parametrize("name", CASES)
def test_neurons_fed_with_the_recorded_packets_are_those_of_the_rtl(name):
    rtl = case(name)
    network, numbers = recorded_network(rtl)
    sums = np.einsum("cna,tca->tcn", weights(rtl), heard_axons(rtl)).reshape(rtl["T"], -1)
    for layer, ids in numbers.items():
        state = LayerState.from_spec(network.node(layer).neuron, (1, len(ids)))
        state.v[0] = rtl["v0"].reshape(-1)[ids]
        for t in range(rtl["T"]):
            spikes = state.step(sums[None, t, ids])
            assert np.array_equal(spikes[0], rtl["rtl_spike"][t].reshape(-1)[ids]), (layer, t)
            assert np.array_equal(state.v[0], rtl["rtl_v"][t].reshape(-1)[ids]), (layer, t)


@pytest.mark.parametrize("name", PLAIN)
def test_reference_and_sequence_give_every_recorded_membrane_and_spike(name):
    rtl = case(name)
    program, numbers = recorded_program(rtl)
    for backend in ("reference", "sequence"):
        run = simulate(program, recorded_input(rtl), backend, record="all")
        for layer, ids in numbers.items():
            spikes, v = (rtl[key].reshape(rtl["T"], -1)[:, ids] for key in ("rtl_spike", "rtl_v"))
            assert np.array_equal(run.spikes[layer][0], spikes), (backend, layer)
            assert np.array_equal(run.states[layer]["v"][0], v), (backend, layer)


@pytest.mark.parametrize("window", ["aligned", "hardware"])
def test_backends_agree_on_a_chip_of_merges(window):
    rtl = case("five_8x8_a")
    program, _ = recorded_program(rtl)
    result = crosscheck(program, recorded_input(rtl), window=window)
    assert result.agree, str(result)
