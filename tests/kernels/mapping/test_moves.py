"""Units that come and go change exactly what a full count of the axons and events of the new mapping changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.time.work import work
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.resources import RESOURCES
from nwcompile.kernels.mapping import cluster_state, moves
from nwcompile.passes.emit.emit import emit
from nwcompile.passes.fit import capacity
from nwcompile.passes.partition.floorline.demand import empty_loads, unit_demand
from nwcompile.passes.prepare.schedule import schedule
from tests.chips import small_chip
from tests.cost.traffic.test_events import mixed_net

N_CORES = 5
ZONES = np.array([[0, 2], [0, 2], [2, 3], [2, 3], [2, 3]])  # first core and how many, for each core


def case(seed: int):
    """A mixed net with drawn spikes, a chip of drawn format, and its neurons in drawn units."""
    rng = np.random.default_rng(seed)
    network = mixed_net(seed)
    chip = small_chip(
        weights__sharing=bool(rng.integers(2)), weights__index_bits=5, core__block_synapses=7,
        cost__units=str(rng.choice(["shared", "overlap"])), cost__word_cycles=int(rng.integers(2)),
        core__max_neurons=60, core__max_in_axons=110, core__max_out_axons=80, core__synapse_bits=20_000,
        noc__multicast=str(rng.choice(["unicast", "tree"])),
    )  # fmt: skip
    counts = {n: rng.poisson(0.4, (4, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    updates = {n: rng.integers(0, 3, counts[n].shape).astype(np.int32) for n in network.layers[:1]}
    n = sum(network.node(name).n_neurons for name in network.layers)
    unit_of = np.unique(rng.integers(0, rng.integers(3, 40), n), return_inverse=True)[1].reshape(-1)
    return network, chip, Activity(counts, 3, updates), unit_of, rng


def filled(demand, chip, core_of):
    """Loads with every unit on its core, in a single go."""
    loads = empty_loads(demand, chip)
    for unit, core in enumerate(core_of):
        moves.put(demand, loads, unit, core)
    moves.settle(demand, loads)
    return loads


def assert_equal_loads(found, expected):
    for name in ("core_of", "n_units", "n_synapses", "n_rows", "n_readers", "fan_out", "used", "excess", "load", "top",
                 "total"):  # fmt: skip
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@given(seed=st.integers(0, 10**6))
def test_search_leaves_loads_as_if_they_were_counted_anew(seed):
    network, chip, activity, unit_of, rng = case(seed)
    demand = unit_demand(network, chip, activity, schedule(network), unit_of, N_CORES)
    loads = filled(demand, chip, rng.integers(0, N_CORES, unit_of.max() + 1))
    weight, state = (
        np.array([0.0, 1, rng.integers(2), 0, rng.integers(2), 1, 0, rng.integers(2)]),
        np.array([seed], np.uint64),
    )
    for temperature in (1e3, 0.0):
        best = loads.core_of.copy()
        over, cost = moves.search(demand, loads, weight, temperature, 40, False, state, best)
        assert_equal_loads(loads, filled(demand, chip, loads.core_of))
        at_best = filled(demand, chip, best)
        assert (at_best.total[cluster_state.EXCESS], moves.cost(at_best.total, weight)) == (over, cost)


@pytest.mark.parametrize("seed", range(4))
def test_search_moves_units_within_their_zones_only(seed):
    network, chip, activity, unit_of, rng = case(seed)
    demand = unit_demand(network, chip, activity, schedule(network), unit_of, N_CORES)._replace(zone=ZONES)
    before = rng.integers(0, N_CORES, unit_of.max() + 1)
    loads = filled(demand, chip, before)
    weight, state = np.array([0.0, 1, 0, 0, 0, 1, 0, 0]), np.array([seed], np.uint64)
    moves.search(demand, loads, weight, 1e9, 400, False, state, loads.core_of.copy())
    assert (loads.core_of != before).any()
    assert np.array_equal(loads.core_of < 2, before < 2)


@pytest.mark.parametrize("seed", range(8))
def test_loads_are_those_of_the_axons_and_events_of_a_mapping(seed):
    network, chip, activity, unit_of, rng = case(seed)
    timing = schedule(network)
    demand = unit_demand(network, chip, activity, timing, unit_of, N_CORES)
    core_of = rng.permutation(np.arange(unit_of.max() + 1) % N_CORES)
    loads = filled(demand, chip, core_of)
    n_cores = int(core_of.max()) + 1
    mapping = Mapping(split_layers(network, core_of[unit_of]), chip.sites[:n_cores])
    program = emit(network, timing, mapping, chip, activity, {}, "repeat")
    counters = count_events(program, activity)
    done = work(program, counters, np.zeros((counters["synops"].shape[0], 1), np.int64), activity.n_samples)
    in_use = np.arange(len(loads.load)) % N_CORES < n_cores
    assert np.array_equal(loads.load[in_use].T, np.concatenate(list(done.busy), 1))
    assert loads.total[cluster_state.TIME] == done.bound_cycles.sum()
    leave = spike_fanout(program, "unicast").messages  # of every source, input lines first
    spikes = np.concatenate([activity.counts[name].sum(0) for name in network.offsets])
    assert loads.total[cluster_state.MESSAGES] == (spikes * leave)[-len(unit_of) :].sum()
    held, _ = capacity.account(network, chip, core_of[unit_of], n_cores)
    assert loads.used[:n_cores].tolist() == np.stack([held[r.key] for r in RESOURCES], 1).tolist()
    limit = capacity.site_limits(chip)[:n_cores, :4]
    assert (loads.total[cluster_state.EXCESS] > 0) == bool((loads.used[:n_cores] > limit).any())
