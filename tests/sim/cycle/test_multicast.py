"""Trees against single messages: the same spikes, one message a spike, no more hops, and link loads as counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import ChipError
from nwcompile.passes.emit import emit
from nwcompile.sim import simulate
from tests.made.chips import small_chip
from tests.made.programs import spread
from tests.made.random_programs import SIXTY, inputs, programs


@SIXTY
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
