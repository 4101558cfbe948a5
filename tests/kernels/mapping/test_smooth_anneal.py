"""Annealing by the smooth time leaves exact loads, never exceeds a limit that was kept, and finds less time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.kernels.mapping import cluster_state, moves, smooth_anneal
from nwcompile.kernels.mapping.cluster_state import Objective
from nwcompile.passes.partition.floorline.cluster_search import empty_norms, find_readers
from nwcompile.passes.partition.floorline.demand import cluster_demand
from nwcompile.passes.prepare.schedule import schedule
from tests.made.chips import small_chip
from tests.made.clusters import N_CORES, REGIONS, assert_equal_states, clustered, filled
from tests.made.nets import FIXED

WEIGHT = Objective(time=1.0, messages_by_cores=1.0)


def annealed(demand, state, temperature: float, n_moves: int, seed: int = 0, keep_all: bool = False) -> int:
    """Moves made by `smooth_anneal.anneal_smoothly`, its norms taken first."""
    smooth = empty_norms(state)
    smooth_anneal.take_norms(demand.rules, state.busy, smooth, False)
    random_state = np.array([seed], np.uint64)
    return smooth_anneal.anneal_smoothly(
        demand, state, WEIGHT, find_readers(demand), smooth, False, temperature, n_moves, keep_all, random_state
    )


@given(seed=st.integers(0, 10**6))
def test_annealing_leaves_loads_as_if_they_were_counted_anew(seed):
    network, chip, activity, cluster_of, rng = clustered(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    cycles = demand.rules.cycles * [rng.integers(2), 1, 1]
    demand = demand._replace(rules=demand.rules._replace(cycles=cycles))
    state = filled(demand, chip, rng.integers(0, N_CORES, cluster_of.max() + 1))
    over = state.busy.total[cluster_state.EXCESS]
    annealed(demand, state, float(rng.choice([0.0, 1000.0])), 60, seed)
    assert_equal_states(state, filled(demand, chip, state.held.core_of))
    assert state.busy.total[cluster_state.EXCESS] <= over


@pytest.mark.parametrize("seed", range(4))
def test_annealing_moves_units_within_their_regions_only(seed):
    network, chip, activity, cluster_of, rng = clustered(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    demand = demand._replace(rules=demand.rules._replace(region=REGIONS, limit=demand.rules.limit + 1000))
    before = rng.integers(0, N_CORES, cluster_of.max() + 1)
    state = filled(demand, chip, before)
    annealed(demand, state, 1e9, 400, seed)
    assert (state.held.core_of != before).any()
    assert np.array_equal(state.held.core_of < 2, before < 2)


def test_a_step_takes_the_norm_of_its_loads():
    network, chip, activity, cluster_of, rng = clustered(3)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    state = filled(demand, chip, rng.integers(0, N_CORES, cluster_of.max() + 1))
    for is_steep, p in ((False, 8), (True, 16)):
        smooth = empty_norms(state)
        smooth_anneal.take_norms(demand.rules, state.busy, smooth, is_steep)
        norm, inverse = smooth.norm, smooth.inverse
        assert np.allclose(norm, np.maximum((state.busy.load.astype(float) ** p).sum(0) ** (1 / p), 1), rtol=1e-12)
        assert np.allclose(inverse * norm, 1)
        value = sum(
            smooth_anneal.column_cost(state.busy.load, c, norm, inverse, is_steep) for c in range(len(state.busy.load))
        )
        assert np.isclose(value * p, norm[state.busy.load.any(0)].sum(), rtol=1e-12)


def test_annealing_sees_what_the_largest_load_does_not_tell():
    n, chip = 8, small_chip(core__max_neurons=8, core__max_in_axons=64, noc__columns=4, noc__rows=1,
                             cost__barrier_cycles={"1": 100})  # fmt: skip
    network = Network.from_arrays({"a": (FIXED, (n,))}, [Dense("in", "a", np.ones((n, 6), np.int8))], {"in": (6,)})
    activity = Activity({"in": np.ones((3, 6), np.int32), "a": np.zeros((3, n), np.int32)}, 1)
    demand = cluster_demand(network, chip, activity, schedule(network), np.arange(n), 4)
    state = filled(demand, chip, np.arange(n) % 2)
    before, more, less = state.busy.total.copy(), empty_norms(state), empty_norms(state)
    smooth_anneal.take_norms(demand.rules, state.busy, more, False)
    moves.relocate(*demand, state.held, state.busy, np.array([0]), np.array([2]))
    moves.refresh_totals(demand.rules, state.held, state.busy)
    assert state.busy.total[cluster_state.TIME] == before[cluster_state.TIME]
    smooth_anneal.take_norms(demand.rules, state.busy, less, False)
    assert less.norm.sum() < more.norm.sum()
    annealed(demand, state, 0.0, 500)
    assert np.bincount(state.held.core_of, minlength=4).tolist() == [2, 2, 2, 2]
    assert state.busy.total[cluster_state.TIME] < before[cluster_state.TIME]


def test_annealing_leaves_no_core_empty_where_all_are_asked_for():
    network, chip, activity, cluster_of, _ = clustered(5)
    demand = cluster_demand(network, chip, activity, schedule(network), np.arange(len(cluster_of)), N_CORES)
    demand = demand._replace(rules=demand.rules._replace(limit=demand.rules.limit + 1000))
    for keep_all in (True, False):
        state = filled(demand, chip, np.minimum(np.arange(len(cluster_of)), N_CORES - 1))
        annealed(demand, state, 1e6, 4000, keep_all=keep_all)
        assert (state.held.n_clusters > 0).all() or not keep_all
