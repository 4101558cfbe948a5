"""Moves of clusters between cores at sites change the cost of messages by what a count of all of them says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.kernels.mapping import cluster_state, traffic_anneal
from nwcompile.passes.partition.floorline.demand import cluster_demand, filled_cores
from nwcompile.passes.partition.floorline.min_traffic import empty_flow
from nwcompile.passes.prepare.schedule import schedule
from tests.made.clusters import N_CORES, assert_equal_states, clustered, filled


def message_cost(demand, cost: np.ndarray, core_of: np.ndarray) -> int:
    """Spikes of every group times the routes from its core to all cores that read its class, one by one."""
    reads, sends = demand.reads, demand.sends
    readers = [set() for _ in demand.classes.size]
    for cluster, core in enumerate(core_of):
        for row in reads.row[reads.row_offset[cluster] : reads.row_offset[cluster + 1]]:
            readers[demand.rows.source_class[row]].add(int(core))
    total = 0
    for source_class, cluster, spikes in zip(sends.group_class, sends.group_cluster, sends.group_spikes, strict=True):
        total += int(spikes) * sum(int(cost[core_of[cluster], core]) for core in readers[source_class])
    return total


@given(seed=st.integers(0, 10**6))
def test_change_of_a_move_is_that_of_a_full_count(seed):
    network, chip, activity, cluster_of, rng = clustered(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    sends, n_clusters = demand.sends, len(demand.sends.n_neurons)
    cost = rng.integers(0, 9, (N_CORES, N_CORES))
    core_of = rng.integers(0, N_CORES, n_clusters).astype(np.int32)
    flow = empty_flow(demand, cost)
    traffic_anneal.put_clusters(sends, *flow, core_of)
    assert flow.costs.total[0] == message_cost(demand, cost, core_of)
    for _ in range(10):
        cluster, core = int(rng.integers(n_clusters)), int(rng.integers(N_CORES))
        home, there = int(core_of[cluster]), np.flatnonzero(core_of == core)
        if core == home:
            continue
        other = int(rng.choice([-1, *there]))
        before = message_cost(demand, cost, core_of)
        change = traffic_anneal.change_of(sends, flow.readers, flow.costs, cluster, other, home, core)
        traffic_anneal.shift(sends, *flow, cluster, other, home, core)
        core_of[cluster] = core
        if other >= 0:
            core_of[other] = home
        assert change == message_cost(demand, cost, core_of) - before
    anew = empty_flow(demand, cost)
    traffic_anneal.put_clusters(sends, *anew, core_of)
    for name in ("n_readers", "inbound_cost", "outbound_cost", "exclusive_cost"):
        assert np.array_equal(getattr(flow.costs, name), getattr(anew.costs, name)), name
    seats = flow.seats
    assert np.array_equal(seats.core_of, core_of)
    assert np.array_equal(seats.first, anew.seats.first)
    assert np.array_equal(seats.order[seats.place], np.arange(n_clusters))
    assert np.array_equal(core_of[seats.order], np.repeat(np.arange(N_CORES), np.diff(seats.first)))


@given(seed=st.integers(0, 10**6))
def test_anneal_leaves_all_as_if_counted_anew_and_keeps_limits(seed):
    network, chip, activity, cluster_of, rng = clustered(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    cost = rng.integers(0, 9, (N_CORES, N_CORES))
    state = filled(demand, chip, rng.integers(0, N_CORES, len(demand.sends.n_neurons)))
    held, busy, flow, random_state = state.held, state.busy, empty_flow(demand, cost), np.array([seed], np.uint64)
    traffic_anneal.put_clusters(demand.sends, *flow, held.core_of)
    max_time = int(busy.total[cluster_state.TIME]) * int(rng.integers(2))
    at_first = last = int(busy.total[cluster_state.EXCESS])
    for temperature in (1e3, 0.0):
        best = held.core_of.copy()
        excess, least = traffic_anneal.minimize_hops(
            demand, state, flow, max_time, temperature, 60, int(rng.integers(1, 4)), False, random_state, best
        )
        assert flow.costs.total[0] == message_cost(demand, cost, held.core_of)
        assert excess <= last
        assert at_first or not max_time or busy.total[cluster_state.TIME] <= max_time
        last = excess
        assert filled_cores(demand, chip, best).busy.total[cluster_state.EXCESS] <= excess
        assert message_cost(demand, cost, best) == least
        if max_time:
            assert_equal_states(state, filled(demand, chip, held.core_of))
