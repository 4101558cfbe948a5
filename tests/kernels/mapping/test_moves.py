"""Clusters that come and go change exactly what a full count of the axons and events of the new mapping changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.ir.flat import split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.resources import RESOURCES
from nwcompile.kernels.mapping import cluster_state, moves
from nwcompile.kernels.mapping.cluster_state import Objective
from nwcompile.passes.analyze import capacity
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.floorline import demand as demand_module
from nwcompile.passes.partition.floorline.demand import cluster_demand, filled_cores
from nwcompile.passes.prepare.schedule import schedule
from tests.made.clusters import N_CORES, REGIONS, assert_equal_states, clustered, filled


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("few_clusters", (0, 1024))
def test_clusters_put_at_once_leave_what_they_leave_one_by_one(seed, few_clusters, monkeypatch):
    monkeypatch.setattr(demand_module, "FEW_CLUSTERS", few_clusters)  # by either kernel
    network, chip, activity, cluster_of, rng = clustered(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    core_of = rng.integers(0, N_CORES, cluster_of.max() + 1)
    assert_equal_states(filled_cores(demand, chip, core_of), filled(demand, chip, core_of))


@given(seed=st.integers(0, 10**6))
def test_search_leaves_loads_as_if_they_were_counted_anew(seed):
    network, chip, activity, cluster_of, rng = clustered(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    state = filled(demand, chip, rng.integers(0, N_CORES, cluster_of.max() + 1))
    messages, axons, by_cores = (float(rng.integers(2)) for _ in range(3))
    weight = Objective(time=1.0, messages=messages, axons=axons, messages_by_cores=by_cores)
    random_state = np.array([seed], np.uint64)
    for temperature in (1e3, 0.0):
        best = state.held.core_of.copy()
        excess, cost = moves.anneal_clusters(demand, state, weight, temperature, 40, False, random_state, best)
        assert_equal_states(state, filled(demand, chip, state.held.core_of))
        at_best = filled(demand, chip, best).busy.total
        assert (at_best[cluster_state.EXCESS], moves.cost(at_best, weight)) == (excess, cost)


@pytest.mark.parametrize("seed", range(4))
def test_search_moves_clusters_within_their_regions_only(seed):
    network, chip, activity, cluster_of, rng = clustered(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), cluster_of, N_CORES)
    demand = demand._replace(rules=demand.rules._replace(region=REGIONS))
    before = rng.integers(0, N_CORES, cluster_of.max() + 1)
    state = filled(demand, chip, before)
    best, random_state = state.held.core_of.copy(), np.array([seed], np.uint64)
    moves.anneal_clusters(demand, state, Objective(time=1.0), 1e9, 400, False, random_state, best)
    assert (state.held.core_of != before).any()
    assert np.array_equal(state.held.core_of < 2, before < 2)


@pytest.mark.parametrize("seed", range(8))
def test_loads_are_those_of_the_axons_and_events_of_a_mapping(seed):
    network, chip, activity, cluster_of, rng = clustered(seed)
    timing = schedule(network)
    demand = cluster_demand(network, chip, activity, timing, cluster_of, N_CORES)
    core_of = rng.permutation(np.arange(cluster_of.max() + 1) % N_CORES)
    state = filled(demand, chip, core_of)
    held, busy = state.held, state.busy
    n_cores = int(core_of.max()) + 1
    mapping = Mapping(split_layers(network, core_of[cluster_of]), chip.sites[:n_cores])
    program = emit(network, timing, mapping, chip, None, {}, "repeat")
    counters = count_events(program, activity)
    done = compute_work(program, counters, np.zeros((counters["synops"].shape[0], 1), np.int64), activity.n_samples)
    in_use = np.arange(len(busy.load)) % N_CORES < n_cores
    assert np.array_equal(busy.load[in_use].T, np.concatenate(list(done.busy), 1))
    assert busy.total[cluster_state.TIME] == done.bound_cycles.sum()
    leave = spike_fanout(program, "unicast").messages  # of every source, input lines first
    spikes = np.concatenate([activity.counts[name].sum(0) for name in network.offsets])
    assert busy.total[cluster_state.MESSAGES] == (spikes * leave)[-len(cluster_of) :].sum()
    used, *_ = capacity.count_usage(network, chip, core_of[cluster_of], n_cores)
    assert held.used[:n_cores].tolist() == np.stack([used[r.key] for r in RESOURCES], 1).tolist()
    limit = capacity.site_limits(chip)[:n_cores, :4]
    assert (busy.total[cluster_state.EXCESS] > 0) == bool((held.used[:n_cores] > limit).any())
