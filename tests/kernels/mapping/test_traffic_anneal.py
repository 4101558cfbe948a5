"""Moves of units between cores at sites change the cost of messages by what a count of all of them says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.kernels.mapping import cluster_state, moves, traffic_anneal
from nwcompile.passes.partition.floorline.demand import empty_loads, unit_demand
from nwcompile.passes.partition.floorline.min_traffic import flow_of
from nwcompile.passes.prepare.schedule import schedule
from tests.kernels.mapping.test_moves import N_CORES, assert_equal_loads, case, filled


def message_cost(demand, cost: np.ndarray, core_of: np.ndarray) -> int:
    """Spikes of every group times the ways from its core to all cores that read its atom, one by one."""
    readers = [set() for _ in demand.atom_size]
    for unit, core in enumerate(core_of):
        for row in demand.in_row[demand.in_offset[unit] : demand.in_offset[unit + 1]]:
            readers[demand.row_atom[row]].add(int(core))
    total = 0
    for atom, unit, spikes in zip(demand.group_atom, demand.group_unit, demand.group_spikes, strict=True):
        total += int(spikes) * sum(int(cost[core_of[unit], core]) for core in readers[atom])
    return total


@given(seed=st.integers(0, 10**6))
def test_change_of_a_move_is_that_of_a_full_count(seed):
    network, chip, activity, unit_of, rng = case(seed)
    demand = unit_demand(network, chip, activity, schedule(network), unit_of, N_CORES)
    cost, n_units = rng.integers(0, 9, (N_CORES, N_CORES)), len(demand.size)
    core_of = rng.integers(0, N_CORES, n_units).astype(np.int32)
    flow = flow_of(demand, cost)
    traffic_anneal.put_units(demand, flow, core_of)
    assert flow.total[0] == message_cost(demand, cost, core_of)
    for _ in range(10):
        unit, core = int(rng.integers(n_units)), int(rng.integers(N_CORES))
        home, there = int(core_of[unit]), np.flatnonzero(core_of == core)
        if core == home:
            continue
        other = int(rng.choice([-1, *there]))
        before = message_cost(demand, cost, core_of)
        change = traffic_anneal.change_of(demand, flow, unit, other, home, core)
        traffic_anneal.shift(demand, flow, unit, other, home, core)
        core_of[unit] = core
        if other >= 0:
            core_of[other] = home
        assert change == message_cost(demand, cost, core_of) - before
    anew = flow_of(demand, cost)
    traffic_anneal.put_units(demand, anew, core_of)
    for name in ("n_readers", "pull", "reach", "alone", "core_of", "first"):
        assert np.array_equal(getattr(flow, name), getattr(anew, name)), name
    assert np.array_equal(flow.order[flow.place], np.arange(n_units))
    assert np.array_equal(core_of[flow.order], np.repeat(np.arange(N_CORES), np.diff(flow.first)))


@given(seed=st.integers(0, 10**6))
def test_anneal_leaves_all_as_if_counted_anew_and_keeps_limits(seed):
    network, chip, activity, unit_of, rng = case(seed)
    demand = unit_demand(network, chip, activity, schedule(network), unit_of, N_CORES)
    cost = rng.integers(0, 9, (N_CORES, N_CORES))
    loads = filled(demand, chip, rng.integers(0, N_CORES, len(demand.size)))
    flow, state = flow_of(demand, cost), np.array([seed], np.uint64)
    traffic_anneal.put_units(demand, flow, loads.core_of)
    most_time = int(loads.total[cluster_state.TIME]) * int(rng.integers(2))
    at_first = last = int(loads.total[cluster_state.EXCESS])
    for temperature in (1e3, 0.0):
        best = loads.core_of.copy()
        over, least = traffic_anneal.anneal(
            demand, loads, flow, most_time, temperature, 60, int(rng.integers(1, 4)), False, state, best
        )
        assert flow.total[0] == message_cost(demand, cost, loads.core_of)
        assert over <= last
        assert at_first or not most_time or loads.total[cluster_state.TIME] <= most_time
        last = over
        at_best = empty_loads(demand, chip)
        moves.put_all(demand, at_best, best)
        assert at_best.total[cluster_state.EXCESS] <= over
        assert message_cost(demand, cost, best) == least
        if most_time:
            assert_equal_loads(loads, filled(demand, chip, loads.core_of))
