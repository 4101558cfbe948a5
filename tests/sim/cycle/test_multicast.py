"""Trees against single messages: the same spikes, one message a spike, no more hops, and link loads as counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import ChipError
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.passes.emit.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from tests.chips import small_chip
from tests.random_programs import inputs, programs
from tests.sim.test_backends_agree import EXAMPLES


@EXAMPLES
@given(data=st.data())
def test_a_tree_brings_what_single_messages_bring(data):
    program = data.draw(programs())
    x, runs = data.draw(inputs(program)), {}
    for kind in ("unicast", "tree"):
        chip = program.chip.replace({"noc.flits_per_message": 1, "noc.payload_flits": 0, "noc.multicast": kind})
        own = emit(program.network, program.schedule, program.mapping, chip, None, {}, program.on_multi_spike)
        run = runs[kind] = simulate(own, x, "cycle", profile=True)
        assert np.array_equal(link_flits(own, run.activity), run.link_flits)
    single, tree = runs["unicast"], runs["tree"]
    for name, spikes in single.spikes.items():
        assert np.array_equal(spikes, tree.spikes[name])
    for name in ("synops", "weight_reads", "messages_in", "deliveries", "neuron_updates", "messages_io"):
        assert np.array_equal(single.counters[name], tree.counters[name])
    assert (tree.counters["hops"] <= single.counters["hops"]).all()
    assert (tree.counters["messages_out"] <= tree.counters["spikes_out"]).all()
    assert (tree.link_flits <= single.link_flits).all()
    n_sent = single.counters["messages_out"].sum() + single.counters["messages_io"].sum()
    for run in runs.values():  # every copy that a core took is one latency
        assert run.profile.latency_count.sum() == n_sent


def spread(**keys):
    """One neuron at a corner that spikes in every step, and one on each of the other cores of 3 x 2 routers."""
    chip = small_chip(noc__cores_per_router=1, noc__columns=3, noc__rows=2, **keys)
    spec = NeuronSpec(threshold=0, bias=1, fixed=chip.fixed_point)
    fed = NeuronSpec(threshold=1 << 20, fixed=chip.fixed_point)
    network = Network.from_arrays({"a": (spec, (1,)), "b": (fed, (5,))}, [Dense("a", "b", np.ones((5, 1), np.int8))])
    mapping = Mapping.from_arrays(
        {"a": [0], "b": [1, 2, 3, 4, 5]}, [[0, 0, 0], *((i % 3, i // 3, 0) for i in range(1, 6))]
    )
    return emit(network, schedule(network, "pipelined"), mapping, chip, None, {}, "refuse")


def test_a_spike_to_a_whole_chip_is_one_message_over_a_spanning_tree():
    counters = {}
    for kind in ("unicast", "tree"):
        run = simulate(spread(noc__multicast=kind), None, "cycle", steps=1, window="hardware")
        counters[kind] = {n: int(run.counters[n].sum()) for n in ("messages_out", "messages_in", "hops", "deliveries")}
    assert counters["unicast"] == {"messages_out": 5, "messages_in": 5, "hops": 1 + 2 + 1 + 2 + 3, "deliveries": 5}
    assert counters["tree"] == {"messages_out": 1, "messages_in": 5, "hops": 5, "deliveries": 5}


def test_a_tree_costs_its_core_one_message():
    program = spread(noc__multicast="tree", cost__message_out_cycles=1000)
    single = spread(cost__message_out_cycles=1000)
    times = [simulate(p, None, "cycle", steps=1, window="hardware").step_cycles[0] for p in (program, single)]
    assert times[1] - times[0] == 4 * 1000


def test_trees_of_longer_messages_are_refused():
    with pytest.raises(ChipError) as caught:
        small_chip(noc__multicast="tree", noc__flits_per_message=2)
    assert str(caught.value) == (
        'small: noc.multicast: "tree" forks messages of one flit only, longer ones could deadlock; set '
        'noc.flits_per_message = 1 and noc.payload_flits = 0, or noc.multicast = "unicast"'
    )
