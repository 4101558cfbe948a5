"""The two ways to send: as the counters of runs of each have it."""

import pytest

from nwcompile.cost.summary import compare_multicast
from nwcompile.sim import simulate
from tests.made.programs import spread


@pytest.mark.parametrize("kind", ["unicast", "tree"])
def test_compare_tells_of_both_what_a_run_of_each_counts(kind):
    program = spread(noc__multicast=kind)
    run = simulate(program, None, "cycle", steps=3, window="hardware")
    found = compare_multicast(program, run.activity, run.window)
    assert {k: (s.messages, s.hops, s.hottest) for k, s in found.items()} == {
        "unicast": (15, 27, 5),
        "tree": (3, 15, 1),
    }
    own = found[kind]
    assert (run.counters["messages_out"].sum(), run.counters["hops"].sum()) == (own.messages, own.hops)
    assert run.link_flits.max() == own.hottest


def test_compare_leaves_trees_out_where_messages_have_several_flits():
    program = spread(noc__flits_per_message=2)
    run = simulate(program, None, steps=1, window="hardware")
    assert list(compare_multicast(program, run.activity, run.window)) == ["unicast"]
