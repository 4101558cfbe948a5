"""Placement: incremental costs are exact, results are legal, never worse than row-major, best where that is known."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.traffic import count_events
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels import cpu_anneal
from nwcompile.passes import place as placing
from nwcompile.passes.capacity import site_limits
from nwcompile.passes.emit import emit
from nwcompile.passes.partition import partition
from nwcompile.passes.place import PLACERS, hop_weights, place, routed_cost
from tests.chips import small_chip
from tests.cost.test_traffic import mixed_net
from tests.nets import FIXED, dense_net, feed_forward, integers


def scattered(seed: int, n_cores: int, chip, network=None):
    """A net with random cores at random sites, and random activity."""
    rng = np.random.default_rng(seed)
    network = mixed_net(seed) if network is None else network
    core_of = {name: rng.integers(0, n_cores, network.node(name).n_neurons) for name in network.layers}
    mapping = Mapping.from_arrays(core_of, chip.sites[rng.permutation(chip.n_cores)[:n_cores]])
    counts = {n: rng.poisson(0.4, (5, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    return network, mapping, Activity(counts, 2)


def ring(n: int) -> tuple[Network, dict, Activity]:
    """n neurons on n cores, each sending to the next; neuron i sends i + 1 messages."""
    edge = Sparse("a", "a", np.arange(n), (np.arange(n) + 1) % n, integers(n))
    network = Network.from_arrays({"a": (FIXED, (n,))}, [edge], {})
    return network, {"a": np.arange(n)}, Activity({"a": np.arange(1, n + 1, dtype=np.int32)[None]}, n)


@given(seed=st.integers(0, 10**6), n_cores=st.integers(1, 12), topology=st.sampled_from(["mesh", "torus"]))
def test_routed_cost_is_the_messages_times_the_hops_that_are_counted(seed, n_cores, topology):
    chip = small_chip(noc__topology=topology, noc__virtual_channels=2)
    network, mapping, activity = scattered(seed, n_cores, chip)
    events = count_events(emit(network, feed_forward(network), mapping, chip, None, {}), activity)
    ew, ns = int(events["hops_ew"].sum()), int(events["hops_ns"].sum())
    for optimise, cost in (("traffic", ew + ns), ("time", 2 * ew + 3 * ns), ("energy", 5 * ew + 7 * ns)):
        assert routed_cost(mapping, network, chip, activity, optimise) == cost


@given(seed=st.integers(0, 10**6), n_cores=st.integers(2, 12))
def test_swap_delta_is_the_difference_of_full_costs(seed, n_cores):
    chip = small_chip(noc__columns=4)
    network, mapping, activity = scattered(seed, n_cores, chip)
    ground = placing._ground(mapping, network, chip, activity, (41, 65))
    site_of, core_at = chip.site_index(mapping.site_of), np.full(chip.n_cores, -1)
    core_at[site_of] = np.arange(n_cores)
    for new in range(chip.n_cores):
        b = core_at[new]
        if b == 0:
            continue
        moved = site_of.copy()
        moved[0] = new
        if b >= 0:
            moved[b] = site_of[0]
        delta = cpu_anneal.swap_delta(ground, site_of, 0, b, new)
        assert delta == cpu_anneal.routed_cost(ground, moved) - cpu_anneal.routed_cost(ground, site_of)


def test_compiling_leaves_out_what_is_out_of_use():
    chip = small_chip(noc__faults=["0,0", "2,1"], noc__routing="up-down", core__max_neurons=4)
    network = dense_net(3, 13, 9)
    activity = Activity.uniform(network, 1)
    for partitioner, placer in itertools.product(("sequential", "metis"), PLACERS):
        options = Options(partitioner=partitioner, placer=placer)
        mapping = place(partition(network, chip, activity, options), network, chip, activity, options)
        at = {(int(x), int(y)) for x, y, _ in mapping.site_of}
        assert mapping.n_cores >= 6 and not at & {(0, 0), (2, 1)}


@given(seed=st.integers(0, 10**6))
def test_anneal_kernel_keeps_its_own_account(seed):
    chip = small_chip()
    network, mapping, activity = scattered(seed, 7, chip)
    ground = placing._ground(mapping, network, chip, activity, (2, 3))
    site_of, core_at = chip.site_index(mapping.site_of), np.full(chip.n_cores, -1)
    core_at[site_of] = np.arange(7)
    before, best = cpu_anneal.routed_cost(ground, site_of), site_of.copy()
    state = np.array([seed], np.uint64)
    change, lowest = cpu_anneal.anneal(ground, site_of, core_at, state, before / 10, 500, best)
    assert cpu_anneal.routed_cost(ground, site_of) == before + change
    assert cpu_anneal.routed_cost(ground, best) == before + lowest
    assert (core_at[site_of] == np.arange(7)).all()
    assert (core_at >= 0).sum() == 7


@pytest.mark.parametrize("optimise", ["time", "energy", "traffic"])
def test_anneal_finds_the_best_sites_of_a_small_ring(optimise):
    chip = small_chip(noc__cores_per_router=1, core__max_neurons=64)
    network, core_of, activity = ring(6)
    start = Mapping.from_arrays(core_of, chip.sites[[0, 3, 1, 4, 2, 5]])
    best = min(
        routed_cost(Mapping.from_arrays(core_of, chip.sites[list(p)]), network, chip, activity, optimise)
        for p in itertools.permutations(range(6))
    )
    placed = place(start, network, chip, activity, Options(optimise=optimise))
    assert routed_cost(placed, network, chip, activity, optimise) == best
    assert routed_cost(start, network, chip, activity, optimise) > best


@given(seed=st.integers(0, 10**6))
def test_anneal_is_never_worse_than_where_it_starts_and_keeps_limits(seed):
    rng = np.random.default_rng(seed)
    chip = small_chip(core__max_neurons=rng.choice([12, 30, 64], 12).tolist())
    network = dense_net(5, 40, 30, 20, seed=seed, recurrent=bool(seed % 2))
    activity = Activity.uniform(network)
    start = partition(network, chip, activity, Options(partitioner="sequential"))
    placed = place(start, network, chip, activity, Options(seed=seed))
    cost = [routed_cost(m, network, chip, activity, "time") for m in (start, placed)]
    assert cost[1] <= cost[0]
    neurons = sum(np.bincount(cores, minlength=placed.n_cores) for cores in placed.core_of.values())
    assert (neurons <= site_limits(chip)[chip.site_index(placed.site_of), 0]).all()
    assert placed.core_of is start.core_of
    assert placed.note == start.note


def test_anneal_repeats_itself_for_a_seed_and_not_for_another():
    chip = small_chip(noc__columns=6, noc__rows=6)
    network, mapping, activity = scattered(1, 40, chip)
    first, again, other = (place(mapping, network, chip, activity, Options(seed=s)).site_of for s in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()


def test_anneal_uses_its_time_and_no_more():
    chip = small_chip(noc__columns=6, noc__rows=6)
    network, mapping, activity = scattered(1, 40, chip)
    once = place(mapping, network, chip, activity, Options())
    start = time.perf_counter()
    longer = place(mapping, network, chip, activity, Options(time_budget_s=0.5))
    assert 0.5 <= time.perf_counter() - start < 3
    costs = [routed_cost(m, network, chip, activity, "time") for m in (longer, once)]
    assert costs[0] <= costs[1]


def test_anneal_interrupted_gives_the_best_so_far_only_within_a_time_budget(monkeypatch):
    chip = small_chip()
    network, mapping, activity = scattered(1, 9, chip)
    kernel, calls = cpu_anneal.anneal, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 60:
            raise KeyboardInterrupt
        return kernel(*arguments)

    monkeypatch.setattr(cpu_anneal, "anneal", interrupted)
    placed = place(mapping, network, chip, activity, Options(time_budget_s=600))
    costs = [routed_cost(m, network, chip, activity, "time") for m in (placed, mapping)]
    assert costs[0] < costs[1]
    with pytest.raises(KeyboardInterrupt):
        place(mapping, network, chip, activity, Options())


def test_anneal_leaves_a_mapping_without_traffic_between_cores_alone():
    network, chip = dense_net(3, 4), small_chip()
    mapping = Mapping.from_arrays({"fc1": [0, 1, 0, 1]}, chip.sites[[5, 2]])
    for budget in (None, 5):
        placed = place(mapping, network, chip, Activity.uniform(network), Options(time_budget_s=budget))
        assert (placed.site_of == mapping.site_of).all()


def test_row_major_keeps_the_sites_of_the_partition():
    network, chip = dense_net(3, 100), small_chip()
    activity = Activity.uniform(network)
    mapping = partition(network, chip, activity, Options(partitioner="sequential"))
    placed = place(mapping, network, chip, activity, Options(placer="row-major"))
    assert placed.site_of.tolist() == chip.sites[:2].tolist()


def test_hop_weights_are_exact_proportions():
    assert hop_weights(small_chip(noc__hop_cycles_ew=41, noc__hop_cycles_ns=65), "time") == (41, 65)
    assert hop_weights(small_chip(), "energy") == (5, 7)
    assert hop_weights(small_chip(energy__hop_ew_pj=0.0), "energy") == (0, 1)
    assert hop_weights(small_chip(), "traffic") == (1, 1)


def test_place_refuses_an_unknown_placer_and_energies_that_are_not_there():
    network, chip = dense_net(3, 4), small_chip()
    mapping, activity = Mapping.from_arrays({"fc1": [0] * 4}, chip.sites[:1]), Activity.uniform(network)
    with pytest.raises(OptionError) as error:
        place(mapping, network, chip, activity, Options(placer="aneal"))
    assert str(error.value) == "unknown placer 'aneal'; choose one of: anneal, row-major"
    table = chip.to_dict()
    del table["energy"]["hop_ns_pj"]
    with pytest.raises(OptionError) as error:
        place(mapping, network, type(chip).from_dict(table), activity, Options(optimise="energy"))
    assert str(error.value) == (
        "optimise='energy' needs energy.hop_ew_pj and energy.hop_ns_pj, which small does not give; "
        "use optimise='time' or 'traffic'"
    )


def test_place_takes_a_callable():
    network, chip = dense_net(3, 4), small_chip()
    mapping, activity = Mapping.from_arrays({"fc1": [0] * 4}, chip.sites[:1]), Activity.uniform(network)
    placed = place(mapping, network, chip, activity, Options(placer=lambda m, *_: Mapping(m.core_of, chip.sites[3:4])))
    assert placed.site_of.tolist() == [chip.sites[3].tolist()]
    assert set(PLACERS) == {"row-major", "anneal"}
