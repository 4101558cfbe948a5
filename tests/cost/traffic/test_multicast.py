"""Sources that share a tree, against sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.cost.traffic.multicast import multicast_trees
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import csr_offset
from nwcompile.kernels.mapping import traffic
from tests.made.chips import small_chip
from tests.made.nets import dense_net


@given(seed=st.integers(0, 10**6), n=st.integers(0, 60))
def test_same_destinations_numbers_sources_by_core_and_destinations(seed, n):
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(rng.random(3) < 0.5) for _ in range(n)]
    home = rng.integers(-1, 2, n).astype(np.int32)
    core = np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32)
    group = np.full(n, -1)
    first = traffic.same_destinations(csr_offset(np.array([len(row) for row in rows], np.int64)), core, home, group)
    number: dict[tuple, int] = {}
    expected = []
    for row, at in zip(rows, home.tolist(), strict=True):
        known = number.setdefault((at, *row.tolist()), len(number)) if at >= 0 and len(row) else -1
        expected.append(known)
    assert group.tolist() == expected
    assert first.tolist() == [expected.index(k) for k in range(len(number))]


def test_trees_of_neurons_that_spike_are_enough_for_a_prediction_and_are_not_taken_for_all():
    chip, network = small_chip(noc__multicast="tree", core__max_neurons=5), dense_net(4, 12, 9)
    counts = {name: np.zeros((3, network.node(name).n_neurons), np.int32) for name in network.offsets}
    for count in counts.values():
        count[1, ::3] = 2
    activity = Activity(counts, 1)
    few, whole = (nw.compile(network, chip, options=nw.Options(partitioner="sequential")) for _ in range(2))
    n_all = (multicast_trees(whole).tree_of >= 0).sum()
    runs = [predict(program, activity) for program in (few, whole)]
    for name, counter in runs[1].counters.items():
        assert np.array_equal(runs[0].counters[name], counter), name
    assert runs[1].counters["hops"].any() and np.array_equal(runs[0].link_flits, runs[1].link_flits)
    assert 0 < (multicast_trees(few, activity).tree_of >= 0).sum() < n_all
    assert (multicast_trees(few).tree_of >= 0).sum() == n_all
