"""Placement: incremental costs are exact, results are legal, never worse than row-major, best where that is problem."""

import itertools
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nwcompile.cost.traffic.events import count_events
from nwcompile.errors import FitError, ModelError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import placement
from nwcompile.passes.analyze.capacity import site_limits
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place import anneal
from nwcompile.passes.place.direct import hilbert_rank
from nwcompile.passes.place.place import PLACERS, place, routed_cost
from nwcompile.passes.place.problem import cores_at, placement_problem
from tests.long import n_drawn
from tests.made.chips import small_chip
from tests.made.nets import FIXED, dense_net, feed_forward, integers, mixed_net


def scattered(seed: int, n_cores: int, chip, network=None):
    """A net with random cores at random sites, and random activity."""
    rng = np.random.default_rng(seed)
    network = mixed_net(seed) if network is None else network
    core_of = {name: rng.integers(0, n_cores, network.node(name).n_neurons) for name in network.layers}
    mapping = Mapping.from_arrays(core_of, chip.sites[rng.permutation(np.flatnonzero(chip.is_usable))[:n_cores]])
    counts = {n: rng.poisson(0.4, (5, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    return network, mapping, Activity(counts, 2)


def ring(n: int) -> tuple[Network, dict, Activity]:
    """n neurons on n cores, each sending to the next; neuron i sends i + 1 messages."""
    edge = Sparse("a", "a", np.arange(n), (np.arange(n) + 1) % n, integers(n))
    network = Network.from_arrays({"a": (FIXED, (n,))}, [edge], {})
    return network, {"a": np.arange(n)}, Activity({"a": np.arange(1, n + 1, dtype=np.int32)[None]}, n)


@given(seed=st.integers(0, 10**6), n_cores=st.integers(1, 10), kind=st.sampled_from(["mesh", "torus", "detours", "io"]))
def test_routed_cost_is_the_messages_times_the_hops_that_are_counted(seed, n_cores, kind):
    more = {"detours": {"noc__routing": "up-down", "noc__faults": ["0,0", "1,1-2,1"]},
            "torus": {"noc__topology": "torus"}, "io": {"io__sites": ["0,1,0", "2,0,1"]}}  # fmt: skip
    chip = small_chip(noc__virtual_channels=2, **more.get(kind, {}))
    network, mapping, activity = scattered(seed, n_cores, chip)
    events = count_events(emit(network, feed_forward(network), mapping, chip, None, {}), activity)
    ew, ns = (int(events[f"hops_{d}"].sum() + events[f"hops_io_{d}"].sum()) for d in ("ew", "ns"))
    for optimize, cost in (("traffic", ew + ns), ("time", 2 * ew + 3 * ns), ("energy", 5 * ew + 7 * ns)):
        assert routed_cost(mapping, network, chip, activity, optimize) == cost


IO = {"io__sites": ["0,0,0", "2,1,1"]}
SLOW = {"noc__columns": 4, "noc__chip_columns": 2, "noc__chip_hop_cycles": 30}
DETOURS = {**SLOW, "noc__routing": "up-down", "noc__faults": ["1,0", "2,1-3,1"]}
ONE_WAY = {**SLOW, "noc__topology": "torus", "noc__virtual_channels": 2, "noc__chip_columns": 3}  # east over the border


@given(seed=st.integers(0, 10**6), n_cores=st.integers(2, 10), keys=st.sampled_from([SLOW, DETOURS, ONE_WAY, IO]))
def test_swap_delta_is_the_difference_of_full_costs(seed, n_cores, keys):
    chip = small_chip(**keys)
    network, mapping, activity = scattered(seed, n_cores, chip)
    problem = placement_problem(mapping, network, chip, activity, Options())
    site_of = chip.site_index(mapping.site_of)
    core_at = cores_at(site_of, chip.n_cores)
    for new in range(chip.n_cores):
        b = core_at[new]
        if b == 0:
            continue
        moved = site_of.copy()
        moved[0] = new
        if b >= 0:
            moved[b] = site_of[0]
        delta = placement.swap_delta(problem, site_of, 0, b, new)
        assert delta == placement.routed_cost(problem, moved) - placement.routed_cost(problem, site_of)
        if keys in (SLOW, IO):
            lanes = lanes_of(problem, site_of)
            assert placement.swap_delta_by_lanes(problem, lanes, site_of, 0, b, new) == delta


def lanes_of(problem, site_of):
    n_lanes = len(problem.along_x) + len(problem.along_y)
    lanes = placement.Lanes(
        np.zeros((len(site_of), n_lanes), np.int64), problem.other.astype(np.uint32), problem.sent + problem.received
    )
    placement.fill_lanes(problem, site_of, lanes)
    return lanes


def test_lanes_are_kept_only_where_they_are_short_and_ways_cost_the_same_there_and_back():
    for keys, n_cores, is_kept in (({}, 3, False), ({}, 9, True), (ONE_WAY, 9, False)):
        chip = small_chip(noc__cores_per_router=4, **keys)
        network, mapping, activity = scattered(1, n_cores, chip)
        problem = placement_problem(mapping, network, chip, activity, Options())
        site_of = chip.site_index(mapping.site_of)
        lanes = anneal._build_lanes(problem, site_of).of_core
        assert lanes.size > 0 if is_kept else lanes.size == 0, (keys, n_cores, lanes.shape, len(problem.other))
        assert not is_kept or (lanes == lanes_of(problem, site_of).of_core).all()


def test_compiling_leaves_out_what_is_out_of_use():
    chip = small_chip(noc__faults=["0,0", "2,1"], noc__routing="up-down", core__max_neurons=4)
    network = dense_net(3, 13, 9)
    activity = Activity.uniform(network, 1)
    for partitioner, placer in itertools.product(("sequential", "metis"), PLACERS):
        options = Options(partitioner=partitioner, placer=placer)
        mapping = place(partition(network, chip, activity, options).mapping, network, chip, activity, options)
        at = {(int(x), int(y)) for x, y, _ in mapping.site_of}
        assert mapping.n_cores >= 6 and not at & {(0, 0), (2, 1)}


@given(seed=st.integers(0, 10**6), by_lanes=st.booleans())
def test_anneal_kernel_keeps_its_own_account(seed, by_lanes):
    chip = small_chip()
    network, mapping, activity = scattered(seed, 7, chip)
    problem = placement_problem(mapping, network, chip, activity, Options())
    site_of = chip.site_index(mapping.site_of)
    core_at = cores_at(site_of, chip.n_cores)
    before, best = placement.routed_cost(problem, site_of), site_of.copy()
    state = np.array([seed], np.uint64)
    lanes = lanes_of(problem, site_of)
    lanes = lanes if by_lanes else lanes._replace(of_core=np.zeros((0, 0), np.int64))
    change, lowest = placement.anneal_cores(problem, lanes, site_of, core_at, state, before / 10, 500, best)
    assert not by_lanes or (lanes.of_core == lanes_of(problem, site_of).of_core).all()
    assert placement.routed_cost(problem, site_of) == before + change
    assert placement.routed_cost(problem, best) == before + lowest
    assert (core_at[site_of] == np.arange(7)).all()
    assert (core_at >= 0).sum() == 7


@pytest.mark.parametrize("optimize", ["time", "energy", "traffic"])
def test_anneal_finds_the_best_sites_of_a_small_ring(optimize):
    chip = small_chip(noc__cores_per_router=1, core__max_neurons=64)
    network, core_of, activity = ring(6)
    start = Mapping.from_arrays(core_of, chip.sites[[0, 3, 1, 4, 2, 5]])
    best = min(
        routed_cost(Mapping.from_arrays(core_of, chip.sites[list(p)]), network, chip, activity, optimize)
        for p in itertools.permutations(range(6))
    )
    placed = place(start, network, chip, activity, Options(optimize=optimize))
    assert routed_cost(placed, network, chip, activity, optimize) == best
    assert routed_cost(start, network, chip, activity, optimize) > best


@pytest.mark.parametrize("placer", PLACERS)
@settings(max_examples=n_drawn(10))
@given(seed=st.integers(0, 10**6))
def test_every_placer_keeps_limits_and_fixed_sites(placer, seed):
    rng = np.random.default_rng(seed)
    chip = small_chip(core__max_neurons=rng.choice([12, 30, 64], 12).tolist(), noc__routing="up-down",
                      noc__faults=["0,0"])  # fmt: skip
    network = dense_net(5, 40, 30, 20, seed=seed, recurrent=bool(seed % 2))
    activity = Activity.uniform(network)
    fixed = {"fc3": [chip.sites[int(np.argmax(site_limits(chip)[:, 0]))].tolist()]} if seed % 3 == 0 else None
    options = Options(partitioner="sequential", placer=placer, seed=seed, fixed_sites=fixed)
    try:
        start = partition(network, chip, activity, options).mapping
    except FitError:
        assume(False)
    placed = place(start, network, chip, activity, options)
    neurons = sum(np.bincount(cores, minlength=placed.n_cores) for cores in placed.core_of.values())
    assert (neurons <= site_limits(chip)[chip.site_index(placed.site_of), 0]).all()
    assert placed.core_of is start.core_of
    assert placed.note == start.note
    if fixed:
        assert placed.site_of[placed.core_of["fc3"].min()].tolist() == fixed["fc3"][0]
    again = place(start, network, chip, activity, options)
    assert (placed.site_of == again.site_of).all()


@pytest.mark.parametrize("placer", ["anneal", "hill-climb", "pso"])
@settings(max_examples=n_drawn(10))
@given(seed=st.integers(0, 10**6))
def test_searching_placers_are_never_worse_than_where_they_start(placer, seed):
    chip = small_chip()
    network, mapping, activity = scattered(seed, 9, chip)
    placed = place(mapping, network, chip, activity, Options(seed=seed, placer=placer))
    costs = [routed_cost(m, network, chip, activity, "time") for m in (mapping, placed)]
    assert costs[1] <= costs[0]


def test_methods_rank_as_expected_on_a_ring_of_cores():
    chip = small_chip(noc__columns=6, noc__rows=6, noc__cores_per_router=1)
    network, core_of, activity = ring(36)
    start = Mapping.from_arrays(core_of, chip.sites[np.random.default_rng(0).permutation(36)])
    cost = {}
    for placer in PLACERS:
        placed = place(start, network, chip, activity, Options(placer=placer, optimize="traffic"))
        cost[placer] = routed_cost(placed, network, chip, activity, "traffic")
    n_messages = sum(range(1, 37))
    assert n_messages <= cost["force"] <= cost["hilbert"] < 2 * n_messages  # a curve through the grid but for one jump
    assert max(cost[m] for m in ("spectral", "hill-climb", "anneal", "pso")) < cost["random"]
    assert cost["anneal"] < 1.5 * n_messages


@pytest.mark.parametrize(("n_cores", "side"), [(1, 1), (3, 2), (4, 2), (5, 3), (16, 4)])
def test_neumap_places_in_the_smallest_square_that_holds_all_cores(n_cores, side):
    chip = small_chip(noc__columns=6, noc__rows=4, noc__cores_per_router=1)
    network, core_of, activity = ring(n_cores)
    start = Mapping.from_arrays(core_of, chip.sites[np.random.default_rng(0).permutation(24)[:n_cores]])
    placed = place(start, network, chip, activity, Options(placer="neumap"))
    assert placed.site_of[:, :2].max() == side - 1


def test_neumap_leaves_cores_of_fixed_sites_outside_its_square():
    chip = small_chip(noc__columns=6, noc__rows=6, noc__cores_per_router=1)
    network, core_of, activity = ring(4)
    options = Options(placer="neumap", fixed_sites={"a": [(5, 5, 0)]})
    start = Mapping.from_arrays(core_of, chip.sites[[35, 3, 4, 5]])
    placed = place(start, network, chip, activity, options)
    assert placed.site_of[0].tolist() == [5, 5, 0]
    assert placed.site_of[1:, :2].max() == 1


def test_placement_prefers_ways_within_a_chip_to_slow_ones_between_chips():
    board = {"noc__columns": 4, "noc__rows": 2, "noc__cores_per_router": 1, "noc__chip_columns": 2}
    network, core_of, activity = ring(4)
    chip = small_chip(**board, noc__chip_hop_cycles=100)
    start = Mapping.from_arrays(core_of, chip.sites[[1, 2, 5, 6]])
    placed = place(start, network, chip, activity, Options())
    assert len({int(x) // 2 for x, _, _ in placed.site_of}) == 1


def test_hilbert_rank_visits_neighbors_one_after_another():
    chip = small_chip(noc__columns=8, noc__rows=8, noc__cores_per_router=2)
    rank = hilbert_rank(chip)
    way = chip.sites[np.argsort(rank)]
    assert sorted(rank.tolist()) == list(range(128))
    assert (way[:, 2] == np.arange(128) % 2).all()
    assert (np.abs(np.diff(way[::2, :2], axis=0)).sum(1) == 1).all()
    wide = hilbert_rank(small_chip(noc__columns=5, noc__rows=3, noc__cores_per_router=1))
    assert len(set(wide.tolist())) == 15


def test_random_places_every_core_anywhere():
    network, core_of, activity = ring(3)
    chip = small_chip(noc__columns=2, noc__rows=2, noc__cores_per_router=1)
    start = Mapping.from_arrays(core_of, chip.sites[:3])
    found = [place(start, network, chip, activity, Options(placer="random", seed=s)).site_of for s in range(480)]
    routes, count = np.unique([chip.site_index(f) for f in found], axis=0, return_counts=True)
    assert len(routes) == 24 and count.min() > 5


def test_fixed_sites_that_cannot_be_are_refused():
    network, chip = dense_net(3, 20, 4), small_chip(core__max_neurons=16)
    activity = Activity.uniform(network)

    def refused(kind=OptionError, n_cores=None, **fixed):
        with pytest.raises(kind) as error:
            partition(network, chip, activity, Options(partitioner="sequential", n_cores=n_cores, fixed_sites=fixed))
        return str(error.value)

    assert refused(other=[(0, 0, 0)]) == "fixed_sites: unknown layer 'other'; choose one of: fc1, fc2"
    assert refused(fc2=[(0, 0, 0), (1, 0, 0)]) == "fixed_sites: 2 sites for layer 'fc2', which takes 1 cores"
    assert refused(fc1=[(3, 0, 0)]) == (
        "fixed_sites: site 3,0,0 of layer 'fc1' is outside small; the last site is 2,1,1"
    )
    chip = small_chip(core__max_neurons=16, noc__routing="up-down", noc__faults=["2,1"])
    assert refused(fc1=[(2, 1, 1)]) == "fixed_sites: site 2,1,1 of layer 'fc1' is out of use on small"
    assert refused(fc1=[(0, 0, 0)], fc2=[(0, 0, 0)]) == (
        "fixed_sites: site 0,0,0 of layer 'fc2' is fixed for another core already"
    )
    chip = small_chip(core__max_neurons=[4] + [24] * 11)
    assert refused(n_cores=1, fc1=[(1, 0, 0)], fc2=[(0, 1, 0)]) == (
        "fixed_sites: site 0,1,0 of layer 'fc2': its core 0 is fixed at another site already"
    )
    assert refused(FitError, n_cores=1, fc1=[(0, 0, 0)]) == (
        "1 limit exceeded on small\n  neurons  fc1 -> core 0  24 of 4  split fc1 over 6 cores or raise core.max_neurons"
    )


def test_partition_says_when_a_fixed_site_takes_the_room_of_another_core():
    network, chip = dense_net(3, 60, 4), small_chip(core__max_neurons=[60] + [8] * 11)
    with pytest.raises(FitError) as error:
        partition(
            network,
            chip,
            Activity.uniform(network),
            Options(partitioner="sequential", fixed_sites={"fc2": [(0, 0, 0)]}),
        )
    assert str(error.value) == (
        "1 limit exceeded on small\n  sites  cores of the network -> small  2 of 1  use another partitioner, or make "
        "room at fixed_sites, noc.faults or io.sites"
    )


def test_place_refuses_what_a_callable_must_not_change():
    network, chip = dense_net(3, 4), small_chip()
    mapping, activity = Mapping.from_arrays({"fc1": [0, 0, 1, 1]}, chip.sites[:2]), Activity.uniform(network)

    def placer(m, *_):
        return Mapping.from_arrays({"fc1": [0, 1, 1, 1]}, m.site_of)

    with pytest.raises(ModelError) as error:
        place(mapping, network, chip, activity, Options(placer=placer))
    assert str(error.value) == (
        "placer: moved neurons to other cores; a placer gives the same core_of with other sites"
    )
    fixed = Options(placer="row-major", fixed_sites={"fc1": [(2, 0, 0)]})
    with pytest.raises(ModelError) as error:
        place(mapping, network, chip, activity, fixed)
    assert str(error.value) == "placer: core 0 is not at site (2, 0, 0), where fixed_sites has it"


def test_anneal_repeats_itself_for_a_seed_and_not_for_another():
    chip = small_chip(noc__columns=6, noc__rows=6)
    network, mapping, activity = scattered(1, 40, chip)
    first, again, other = (place(mapping, network, chip, activity, Options(seed=s)).site_of for s in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()


def test_anneal_uses_its_time_and_no_more(monkeypatch):
    """By a clock that goes on a second with every look at it."""
    chip = small_chip(noc__columns=6, noc__rows=6)
    network, mapping, activity = scattered(1, 40, chip)
    once = place(mapping, network, chip, activity, Options())
    seconds = count()
    monkeypatch.setattr(anneal, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    longer = place(mapping, network, chip, activity, Options(time_budget_s=400))
    assert next(seconds) in range(401, 405)  # it began at 0, and hears at 400 that the time is up
    costs = [routed_cost(m, network, chip, activity, "time") for m in (longer, once)]
    assert costs[0] <= costs[1]


def test_anneal_looks_at_so_many_messages_a_temperature_and_moves_so_often_at_least(monkeypatch):
    chip = small_chip(noc__columns=6, noc__rows=6)
    network, mapping, activity = scattered(1, 40, chip)
    problem = placement_problem(mapping, network, chip, activity, Options())
    of_move = 1 + 2 * len(problem.other) // mapping.n_cores
    assert of_move > 9
    kernel, found = placement.anneal_cores, []

    def counted(*arguments):
        found.append(arguments[6])
        return kernel(*arguments)

    monkeypatch.setattr(placement, "anneal_cores", counted)
    for looks, fewest in ((10**9, 1), (1000 * of_move, 1), (1, 77)):
        monkeypatch.setattr(anneal, "SITES", replace(anneal.SITES, max_looks=looks, min_moves=fewest))
        place(mapping, network, chip, activity, Options())
    assert list(dict.fromkeys(found)) == [100 * chip.n_cores, 1000, 77]


def test_anneal_interrupted_gives_the_best_so_far_only_within_a_time_budget(monkeypatch):
    chip = small_chip()
    network, mapping, activity = scattered(1, 9, chip)
    kernel, calls = placement.anneal_cores, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 60:
            raise KeyboardInterrupt
        return kernel(*arguments)

    monkeypatch.setattr(placement, "anneal_cores", interrupted)
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
    mapping = partition(network, chip, activity, Options(partitioner="sequential")).mapping
    placed = place(mapping, network, chip, activity, Options(placer="row-major"))
    assert placed.site_of.tolist() == chip.sites[:2].tolist()


def test_place_refuses_an_unknown_placer_and_energies_that_are_not_there():
    network, chip = dense_net(3, 4), small_chip()
    mapping, activity = Mapping.from_arrays({"fc1": [0] * 4}, chip.sites[:1]), Activity.uniform(network)
    with pytest.raises(OptionError) as error:
        place(mapping, network, chip, activity, Options(placer="aneal"))
    others = sorted(set(PLACERS) - {"anneal"})
    assert str(error.value) == f"unknown placer 'aneal'; choose one of: anneal, {', '.join(others)}"
    table = chip.to_dict()
    del table["energy"]["hop_ns_pj"]
    with pytest.raises(OptionError) as error:
        place(mapping, network, type(chip).from_dict(table), activity, Options(optimize="energy"))
    assert str(error.value) == (
        "optimize='energy' needs energy.hop_ew_pj and energy.hop_ns_pj, which small does not give; "
        "use optimize='time' or 'traffic'"
    )


def test_place_takes_a_callable():
    network, chip = dense_net(3, 4), small_chip()
    mapping, activity = Mapping.from_arrays({"fc1": [0] * 4}, chip.sites[:1]), Activity.uniform(network)
    placed = place(mapping, network, chip, activity, Options(placer=lambda m, *_: Mapping(m.core_of, chip.sites[3:4])))
    assert placed.site_of.tolist() == [chip.sites[3].tolist()]


def test_a_core_that_talks_to_the_outside_alone_goes_to_its_gate():
    chip = small_chip(noc__columns=5, noc__rows=5, noc__cores_per_router=2, io__sites=["4,2,0"])
    network = dense_net(6, 4)
    mapping, activity = Mapping.from_arrays({"fc1": [0] * 4}, chip.sites[:1]), Activity.uniform(network)
    for placer in ("anneal", "hill-climb", "pso"):
        placed = place(mapping, network, chip, activity, Options(placer=placer))
        assert placed.site_of.tolist() == [[4, 2, 1]]


@pytest.mark.parametrize("x", [3, 1 << 70, 10**5000], ids=["next", "large", "huge"])
def test_a_site_outside_the_chip_is_refused_however_large_its_number(x):
    network, options = dense_net(4, 6), Options(fixed_sites={"fc1": [(x, 0, 0)]})
    with pytest.raises(OptionError, match="of layer 'fc1' is outside small; the last site is 2,1,1$"):
        partition(network, small_chip(), Activity.uniform(network), options)
