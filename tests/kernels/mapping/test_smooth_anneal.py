"""Annealing by the smooth time leaves exact loads, never exceeds a limit that was kept, and finds less time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.kernels.mapping import cluster_state, moves, smooth_anneal
from nwcompile.passes.partition.floorline.cluster_search import readers_of, work_arrays
from nwcompile.passes.partition.floorline.demand import unit_demand
from nwcompile.passes.prepare.schedule import schedule
from tests.chips import small_chip
from tests.kernels.mapping.test_moves import N_CORES, ZONES, assert_equal_loads, case, filled
from tests.nets import FIXED

WEIGHT = np.array([0.0, 1, 0, 0, 0, 1, 0, 1])


def annealed(demand, loads, temperature: float, n_moves: int, seed: int = 0, keep_all: bool = False) -> int:
    """Moves made by `smooth_anneal.anneal`, its norms taken first."""
    smooth = work_arrays(loads)
    smooth_anneal.take_norms(loads, *smooth[:2], False)
    state = np.array([seed], np.uint64)
    return smooth_anneal.anneal(
        demand, loads, WEIGHT, readers_of(demand), smooth, False, temperature, n_moves, keep_all, state
    )


@given(seed=st.integers(0, 10**6))
def test_annealing_leaves_loads_as_if_they_were_counted_anew(seed):
    network, chip, activity, unit_of, rng = case(seed)
    demand = unit_demand(network, chip, activity, schedule(network), unit_of, N_CORES)
    demand = demand._replace(cycles=demand.cycles * [rng.integers(2), 1, 1])
    loads = filled(demand, chip, rng.integers(0, N_CORES, unit_of.max() + 1))
    over = loads.total[cluster_state.EXCESS]
    annealed(demand, loads, float(rng.choice([0.0, 1000.0])), 60, seed)
    assert_equal_loads(loads, filled(demand, chip, loads.core_of))
    assert loads.total[cluster_state.EXCESS] <= over


@pytest.mark.parametrize("seed", range(4))
def test_annealing_moves_units_within_their_zones_only(seed):
    network, chip, activity, unit_of, rng = case(seed)
    demand = unit_demand(network, chip, activity, schedule(network), unit_of, N_CORES)
    demand = demand._replace(zone=ZONES, limit=demand.limit + 1000)
    before = rng.integers(0, N_CORES, unit_of.max() + 1)
    loads = filled(demand, chip, before)
    annealed(demand, loads, 1e9, 400, seed)
    assert (loads.core_of != before).any()
    assert np.array_equal(loads.core_of < 2, before < 2)


def test_a_step_takes_the_norm_of_its_loads():
    network, chip, activity, unit_of, rng = case(3)
    demand = unit_demand(network, chip, activity, schedule(network), unit_of, N_CORES)
    loads = filled(demand, chip, rng.integers(0, N_CORES, unit_of.max() + 1))
    for is_steep, p in ((False, 8), (True, 16)):
        norm, inverse = np.ones((2, loads.load.shape[1]))
        smooth_anneal.take_norms(loads, norm, inverse, is_steep)
        assert np.allclose(norm, np.maximum((loads.load.astype(float) ** p).sum(0) ** (1 / p), 1), rtol=1e-12)
        assert np.allclose(inverse * norm, 1)
        value = sum(smooth_anneal.column_cost(loads.load, c, norm, inverse, is_steep) for c in range(len(loads.load)))
        assert np.isclose(value * p, norm[loads.load.any(0)].sum(), rtol=1e-12)


def test_annealing_sees_what_the_largest_load_does_not_tell():
    n, chip = 8, small_chip(core__max_neurons=8, core__max_in_axons=64, noc__columns=4, noc__rows=1,
                             cost__barrier_cycles={"1": 100})  # fmt: skip
    network = Network.from_arrays({"a": (FIXED, (n,))}, [Dense("in", "a", np.ones((n, 6), np.int8))], {"in": (6,)})
    activity = Activity({"in": np.ones((3, 6), np.int32), "a": np.zeros((3, n), np.int32)}, 1)
    demand = unit_demand(network, chip, activity, schedule(network), np.arange(n), 4)
    loads = filled(demand, chip, np.arange(n) % 2)
    before, norm, inverse = loads.total.copy(), *np.ones((2, loads.load.shape[1]))
    smooth_anneal.take_norms(loads, norm, inverse, False)
    moves.move(demand, loads, 0, -1, 2)
    moves.settle(demand, loads)
    assert loads.total[cluster_state.TIME] == before[cluster_state.TIME]
    less, inverse = np.ones((2, len(norm)))
    smooth_anneal.take_norms(loads, less, inverse, False)
    assert less.sum() < norm.sum()
    annealed(demand, loads, 0.0, 500)
    assert np.bincount(loads.core_of, minlength=4).tolist() == [2, 2, 2, 2]
    assert loads.total[cluster_state.TIME] < before[cluster_state.TIME]


def test_annealing_leaves_no_core_empty_where_all_are_asked_for():
    network, chip, activity, unit_of, _ = case(5)
    demand = unit_demand(network, chip, activity, schedule(network), np.arange(len(unit_of)), N_CORES)
    demand = demand._replace(limit=demand.limit + 1000)
    for keep_all in (True, False):
        loads = filled(demand, chip, np.minimum(np.arange(len(unit_of)), N_CORES - 1))
        annealed(demand, loads, 1e6, 4000, keep_all=keep_all)
        assert (loads.n_units > 0).all() or not keep_all
