"""Destinations of source classes say what the axons of every source say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.traffic.axons import build_axons, core_use
from nwcompile.cost.traffic.destinations import (
    _distinct_keys,
    core_messages,
    core_pairs,
    count_flows,
    find_destinations,
    rows_by_source,
)
from nwcompile.ir.activity import Activity
from nwcompile.passes.analyze.capacity import count_usage
from tests.long import n_drawn
from tests.made.chips import small_chip
from tests.made.nets import mixed_net

N_CORES = 5


def case(seed: int):
    """A mixed net with drawn spikes and cores; its input lines are on none."""
    rng, network = np.random.default_rng(seed), mixed_net(seed)
    counts = {n: rng.poisson(0.4, (3, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    n_lines = sum(node.n_neurons for node in network.inputs.values())
    core_of = rng.integers(0, N_CORES, sum(len(c[0]) for c in counts.values())).astype(np.int32)
    core_of[:n_lines] = -1
    return network, Activity(counts, 1), core_of, n_lines


@settings(max_examples=n_drawn(30))
@given(seed=st.integers(0, 10**6), sharing=st.booleans())
def test_account_of_source_classes_is_that_of_all_axons(seed, sharing):
    network, _, core_of, n_lines = case(seed)
    chip = small_chip(weights__sharing=sharing, weights__index_bits=5, core__block_synapses=7)
    axons = build_axons(network, core_of, N_CORES, chip)
    used, fan_out, _ = count_usage(network, chip, core_of[n_lines:], N_CORES)
    for name, expected in core_use(axons, core_of, N_CORES).items():
        assert np.array_equal(used[name], expected), name
    assert np.array_equal(fan_out, np.diff(axons.offset)[n_lines:])


@pytest.mark.parametrize("n_keys", [40, 10**6])  # marked in a table; sorted
def test_distinct_keys_of_parts_are_those_of_all_together(n_keys):
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 40, 30) for _ in range(3)]
    assert np.array_equal(_distinct_keys(iter(parts), n_keys, 90), np.unique(np.concatenate(parts)))


@settings(max_examples=n_drawn(30))
@given(seed=st.integers(0, 10**6))
def test_core_messages_of_classes_are_those_of_all_axons(seed):
    network, activity, core_of, _ = case(seed)
    axons = build_axons(network, core_of, N_CORES, small_chip())
    axon_pair, pair = core_pairs(axons, core_of, N_CORES)
    spikes = np.concatenate([activity.counts[name].sum(0, dtype=np.int64) for name in network.offsets])
    is_sent = axon_pair >= 0
    messages = np.bincount(axon_pair[is_sent], spikes[axons.source[is_sent]], len(pair)).astype(np.int64)
    found = find_destinations(network, rows_by_source(network, core_of), N_CORES)
    of_classes, sent = core_messages(found, count_flows(network, found, core_of, activity), N_CORES)
    inside = of_classes[:, 0] >= 0
    assert np.array_equal(of_classes[inside], pair[messages > 0])
    assert np.array_equal(sent[inside], messages[messages > 0])
    from_lines = {name: activity.counts[name].sum(0) for name in network.inputs}
    expected = np.zeros(N_CORES, np.int64)
    for name, total in from_lines.items():
        for line, spikes in enumerate(total, network.offsets[name]):
            expected[axons.core[axons.offset[line] : axons.offset[line + 1]]] += spikes
    of_lines = np.zeros(N_CORES, np.int64)
    of_lines[of_classes[~inside][:, 1]] = sent[~inside]
    assert np.array_equal(of_lines, expected)
