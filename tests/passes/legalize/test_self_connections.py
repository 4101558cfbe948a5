"""Subtractions as self-connections on a chip without resets: the same spikes, and where they would not be, none."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.legalize.resets import self_connections
from nwcompile.sim import BACKENDS, simulate
from tests.made.chips import small_chip

NO_RESET = small_chip(neuron__reset=["none"], weights__exponent_max=3, weights__step=2)
SPEC = NeuronSpec(threshold=640, reset="subtract", reset_timing="next", fixed=FixedPoint(), decay_v=600)


def drawn(spec: NeuronSpec, seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    edges = [Dense(*ends, 2 * rng.integers(-3, 6, (5, 5)).astype(np.int8)) for ends in (("in", "a"), ("a", "b"))]
    return Network.from_arrays(dict.fromkeys("ab", (spec, 5)), edges, {"in": 5})


@pytest.mark.parametrize(
    "spec", [SPEC, SPEC.replace(threshold=64 * 260, decay_v=20), SPEC.replace(reset_timing="now", decay_v=0, bias=64)]
)
def test_self_connections_send_the_same_spikes(spec):
    for seed in range(3):
        network = drawn(spec, seed)
        x = np.random.default_rng(seed).integers(0, 2, (3, 60, 5))
        program = nw.compile(network, NO_RESET, x, Options(partitioner="sequential"))
        wanted = simulate(network, x).spikes
        for backend in BACKENDS if seed == 0 else ("sequence",):
            spikes = simulate(program, x, backend).spikes
            assert all(np.array_equal(wanted[n], spikes[n]) for n in "ab"), backend
        never = drawn(spec.replace(reset="none", reset_timing="now"), seed)
        assert wanted["a"].any() and not np.array_equal(simulate(never, x).spikes["a"], wanted["a"])
    assert [(row["layer"], row["was"], row["label"]) for row in program.legalization] == [
        (n, "reset subtract", "exact") for n in "ab"
    ]


@pytest.mark.parametrize(
    "changed",
    [{"threshold": 650}, {"decay_u": 900}, {"reset_timing": "now"}, {"refractory": 3}, {"v_min": 0},
     {"threshold": 64 * 3}, {"reset": "zero"}],
)  # fmt: skip
def test_self_connections_are_not_made_where_spikes_would_differ_or_no_weight_is_as_large(changed):
    network = drawn(SPEC.replace(**changed))
    assert self_connections(network, NO_RESET, Options()) == (network, [])


def test_self_connections_need_a_destination_that_is_left():
    network = drawn(SPEC)
    one = NO_RESET.replace({"core.max_neuron_destinations": 1})
    assert [change.layer for change in self_connections(network, one, Options())[1]] == ["b"]
    assert self_connections(network, small_chip(), Options()) == (network, [])
