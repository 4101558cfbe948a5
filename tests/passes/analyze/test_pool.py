"""Chips whose neurons are a pool of hidden ones and outputs apart: what they refuse, and in which words."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, ModelError
from nwcompile.ir.network import Network
from nwcompile.passes.analyze.pool import pool_violations
from tests.made.pool_nets import HIDDEN, OUT, pool_net


def refused(network: Network, chip: str = "xylo_imu") -> list[str]:
    """The lines of the refusal that name a limit."""
    with pytest.raises(FitError) as error:
        nw.compile(network, chip)
    return [" ".join(line.split()) for line in str(error.value).splitlines() if line.startswith("  ")]


def test_pool_fits_what_it_holds():
    program = nw.compile(pool_net(16, 60, 16), "xylo_imu")
    groups = {c.source: c for c in program.network.connections}
    assert program.mapping.n_cores == 1 and set(groups) == {"in", "h"}


@pytest.mark.parametrize(
    "network, line",
    [
        (pool_net(n_in=17), "input lines network -> xylo_imu 17 of 16 use fewer input lines or raise core.max_inputs"),
        (pool_net(n_out=17), "output neurons network -> xylo_imu 17 of 16 use fewer output neurons or raise "
                             "core.max_outputs"),
        (pool_net(extra=[("in", "o", 0)]), "wiring in -> o must be from hidden neurons, is from an input put a hidden "
                                           "layer before o: this chip's outputs are fed by hidden neurons only"),
        (pool_net(extra=[("o", "o", 1)]), "wiring o -> o must be from another layer, is from an output put a layer "
                          "behind o: "
                                          "outputs of this chip feed nothing, hidden neurons do"),
        (pool_net(hidden=OUT), "spikes at once h must be 31, is 1 approximate 'multi-spike', or train h with "
                               "spikes='multi' and max_spikes=31"),
        (pool_net(out=HIDDEN), "spikes at once o must be 1, is 31 approximate 'multi-spike', or train o with "
                               "spikes='binary'"),
        (pool_net(hidden=HIDDEN.replace(reset="zero")), "reset h must be subtract, is zero train h with reset "
                                              "'subtract', or "
                                                        "take a chip whose neuron.reset has it"),
    ],
)  # fmt: skip
def test_pool_refuses_what_it_has_no_room_or_wires_for(network, line):
    lines = refused(network)
    assert len(lines) == 1 and lines[0].startswith(line), lines


def test_pool_limits_fan_out_and_what_feeds_outputs():
    recurrent = [("h", "h", 1)]
    assert refused(pool_net(n_hidden=62, extra=recurrent), "xylo_audio2") == [
        "fan-out of a neuron h 65 of 64 prune the weights out of h to 64 a neuron, or feed smaller layers"
    ]
    assert refused(pool_net(n_hidden=129)) == [
        "hidden neurons fed by inputs network -> xylo_imu 129 of 128 make the first layer smaller",
        "hidden neurons that feed outputs network -> xylo_imu 129 of 128 make the last hidden layer smaller",
    ]
    # 60 neurons that are fed and read, and as many more that both rows of 128 no longer overlap in 60 places
    between = [("h", "b", 0), ("b", "h", 2)]
    assert nw.compile(pool_net(n_hidden=60, extra=between, b=(HIDDEN, 136)), "xylo_imu")
    assert refused(pool_net(n_hidden=60, extra=between, b=(HIDDEN, 137))) == [
        "hidden neurons that inputs feed and outputs read network -> xylo_imu 60 of 59 inputs reach the first 128 "
        "hidden neurons, and outputs read the last 128: use fewer hidden neurons, or another layer before the outputs"
    ]
    assert refused(pool_net(n_hidden=500, extra=recurrent))[:2] == [
        "hidden neurons network -> xylo_imu 500 of 496 use fewer hidden neurons or raise core.max_neurons",
        "synapses of hidden neurons network -> xylo_imu 251500 of 31744 prune weights between hidden neurons and to "
        "outputs",
    ]


def test_pool_inputs_have_a_largest_value():
    program = nw.compile(pool_net(), "xylo_imu")
    with pytest.raises(ModelError) as error:
        nw.simulate(program, np.full((1, 2, 4), 16))
    assert str(error.value) == (
        "input 'in' has values up to 16, but an input line of xylo_imu takes at most 15 in a step (io.max_value); "
        "scale it down, or spread it over more steps"
    )


def test_pool_of_a_network_with_too_many_neurons_is_refused_without_a_list_of_its_synapses(monkeypatch):
    monkeypatch.setattr("nwcompile.passes.analyze.pool.fed_neurons", None)
    edges = [nw.Dense("in", "a", np.ones((2001, 2), np.float32)), nw.Dense("a", "b", np.ones((2, 2001), np.float32))]
    network = nw.Network.from_arrays({"a": nw.NeuronSpec(), "b": nw.NeuronSpec()}, edges, {"in": 2})
    (found,) = pool_violations(network, nw.Chip.load("xylo_audio2"))
    assert (found.what, found.used) == ("hidden neurons", 2001)
