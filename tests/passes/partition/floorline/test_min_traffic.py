"""`optimize="traffic"` finds the fewest routed hops that exist, within every limit, on cores that it also places."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.compare import predicted_figures
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.route_cost import route_cost
from nwcompile.errors import FitError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels.mapping import cluster_state, traffic_anneal
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.floorline import floorline, min_traffic
from nwcompile.passes.partition.floorline.demand import cluster_demand, filled_cores, neuron_load
from nwcompile.passes.partition.floorline.min_traffic import (
    are_full,
    compact_sites,
    empty_flow,
    fill_tiles,
    message_costs,
)
from nwcompile.passes.partition.floorline.objective import max_cycles, verify_step_time
from nwcompile.passes.partition.floorline.search import Partition, Search
from nwcompile.passes.partition.partition import PARTITIONERS, partition
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.schedule import schedule
from tests.made.chips import small_chip
from tests.made.mapped import bursty, groupings, tiny_case
from tests.made.nets import FIXED, integers


def search_of(network, chip, activity, options) -> Search:
    """What the searches of one compilation share, every neuron as heavy as any other."""
    n_neurons = sum(network.node(name).n_neurons for name in network.layers)
    return Search(
        network=network, chip=chip, activity=activity, timing=schedule(network), options=options,
        load=np.ones(n_neurons, np.int64), state=np.zeros(1, np.uint64), deadline=None, n_levels=2, tried={},
    )  # fmt: skip


def is_optimal(seed: int) -> bool:
    """Whether no mapping on all cores of a tiny chip, each a router of a row, has fewer hops and messages."""
    network, chip, activity, n, n_cores = tiny_case(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), np.arange(n), n_cores)
    costs = [message_costs(chip, np.array(sites)) for sites in itertools.permutations(range(n_cores))]

    def cost(core_of, cost) -> int:
        flow = empty_flow(demand, cost)
        traffic_anneal.put_clusters(demand.sends, *flow, np.asarray(core_of, np.int32))
        return int(flow.costs.total[0])

    def fits(core_of) -> bool:
        return filled_cores(demand, chip, core_of).busy.total[cluster_state.EXCESS] == 0

    every = [c for c in groupings(n, n_cores) if max(c) == n_cores - 1 and fits(c)]
    if not every:
        return True
    options = Options(seed=seed, optimize="traffic", n_cores=n_cores)
    found = place(partition(network, chip, activity, options).mapping, network, chip, activity, options)
    at = message_costs(chip, chip.site_index(found.site_of))
    return cost(found.core_of["a"], at) == min(cost(c, k) for c in every for k in costs)


def test_traffic_is_the_least_of_all_mappings_of_tiny_nets():
    assert sum(is_optimal(seed) for seed in range(8)) == 8


@pytest.mark.long
def test_traffic_is_the_least_of_all_mappings_of_100_tiny_nets():
    assert sum(is_optimal(seed) for seed in range(100)) >= 95


def hops_of(network, chip, activity, **options) -> tuple[int, int]:
    """Routed hops and messages of a mapping."""
    options = Options(**options)
    mapping = place(partition(network, chip, activity, options).mapping, network, chip, activity, options)
    counters = count_events(emit(network, schedule(network), mapping, chip, activity, {}), activity)
    return int(counters["hops"].sum()), int(counters["messages_out"].sum())


@pytest.mark.long
def test_no_other_partitioner_has_fewer_hops():
    network, chip, activity = bursty()
    chip = chip.replace({"noc.cores_per_router": 1, "noc.columns": 4, "noc.rows": 3, "core.max_neurons": 30})
    ours, _ = hops_of(network, chip, activity, optimize="traffic", n_cores=6)
    for name in set(PARTITIONERS) - {"hypergraph"}:
        assert ours <= hops_of(network, chip, activity, partitioner=name, optimize="traffic", n_cores=6)[0], name


def test_units_are_as_fine_as_memory_allows_and_coarse_ones_that_it_does_not_are_refused(monkeypatch):
    src, dst = np.random.default_rng(0).integers(0, 200, (2, 1000))
    network = Network.from_arrays({"n": (FIXED, (200,))}, [Sparse("n", "n", src, dst, integers(1000), delay=1)])
    chip, activity = small_chip(core__max_neurons=70), Activity.uniform(network, 2)
    options, sizes, annealed = Options(optimize="traffic", n_cores=3), [], min_traffic._anneal_level

    def seen(search, level, *args):
        sizes.append(min_traffic._table_bytes(level.demand))
        return annealed(search, level, *args)

    monkeypatch.setattr(min_traffic, "_anneal_level", seen)
    partition(network, chip, activity, options)
    coarse, fine = min(sizes), max(sizes)
    assert coarse == sizes[0] < fine
    sizes.clear()
    monkeypatch.setattr(min_traffic, "TRAFFIC", replace(min_traffic.TRAFFIC, max_bytes=coarse))
    partition(network, chip, activity, options).mapping.verify(network, chip)
    assert max(sizes) == coarse
    monkeypatch.setattr(min_traffic, "TRAFFIC", replace(min_traffic.TRAFFIC, max_bytes=coarse - 1))
    with pytest.raises(OptionError, match="would keep 0 GB of tables for 3 cores, more than 0; ask for fewer cores"):
        partition(network, chip, activity, options)


def test_cores_are_where_the_partitioner_put_them_before_they_are_placed():
    network, chip, activity = bursty()
    chip = chip.replace({"noc.cores_per_router": 1, "noc.columns": 4, "noc.rows": 3, "core.max_neurons": 30})
    options = Options(optimize="traffic", n_cores=6)
    mapping = partition(network, chip, activity, options).mapping
    mapping.verify(network, chip)
    assert len(np.unique(mapping.site_of, axis=0)) == mapping.n_cores == 6
    assert mapping.note


def test_compact_sites_lie_side_by_side_and_leave_out_what_is_out_of_use():
    chip = small_chip(noc__columns=4, noc__rows=3, noc__cores_per_router=2)
    sites = compact_sites(chip, 8)
    routers = np.unique(sites // 2)
    x, y = routers % 4, routers // 4
    assert len(np.unique(sites)) == 8 and len(routers) == 4
    assert abs(x[:, None] - x).max() + abs(y[:, None] - y).max() <= 4
    faulty = chip.replace({"noc.routing": "up-down", "noc.faults": ["1,1"]})
    assert 5 not in compact_sites(faulty, 22) // 2


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"noc.cores_per_router": 1, "noc.columns": 5}, {"core.max_neurons": [0, 9, 9] * 4},
        {"noc.topology": "torus", "noc.virtual_channels": 2, "noc.columns": 5},
        {"noc.routing": "up-down", "noc.columns": 4, "noc.rows": 3, "noc.faults": ["1,1", "2,0-3,0"]},
    ],
)  # fmt: skip
def test_compact_sites_are_those_with_the_shortest_routes_between_all_pairs(changes):
    chip = small_chip().replace(changes)
    usable = np.flatnonzero(chip.limit("max_neurons") > 0)
    router = usable // chip.noc.cores_per_router
    length = route_cost(chip, "traffic").between_routers(router[:, None], router)
    for n_cores in range(1, len(usable) + 1):
        nearest = [np.argsort(row, kind="stable")[:n_cores] for row in length]
        wanted = min(nearest, key=lambda cores: length[np.ix_(cores, cores)].sum())
        assert np.array_equal(compact_sites(chip, n_cores), usable[wanted])


def test_compact_sites_take_memory_for_routers_not_for_pairs_of_them():
    chip = Chip.load("loihi2_hala")
    tracemalloc.start()
    sites = compact_sites(chip, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(np.unique(sites // chip.noc.cores_per_router)) == 2
    assert peak < 1000 * chip.n_cores  # one int64 for each pair of routers is 10 GB


def step_us(network, chip, activity, mapping) -> float:
    """The predicted step time."""
    return predicted_figures(emit(network, schedule(network), mapping, chip, activity, {}), activity).step_us


def test_a_step_limit_is_kept_and_costs_hops():
    network, chip, activity = bursty()
    chip = chip.replace({"noc.cores_per_router": 1, "noc.columns": 4, "noc.rows": 3})
    fastest, free = (
        partition(network, chip, activity, Options(optimize=o, n_cores=6)).mapping for o in ("time", "traffic")
    )
    times = [step_us(network, chip, activity, mapping) for mapping in (fastest, free)]
    limit = 0.7 * times[0] + 0.3 * times[1]
    kept = partition(network, chip, activity, Options(optimize="traffic", n_cores=6, step_limit_us=limit)).mapping
    assert times[0] <= step_us(network, chip, activity, kept) <= limit < times[1]
    hops = [count_events(emit(network, schedule(network), mapping, chip, activity, {}), activity)["hops"].sum()
            for mapping in (free, kept, fastest)]  # fmt: skip
    assert hops[0] <= hops[1] < hops[2]


@pytest.mark.long
def test_a_step_limit_is_kept_where_links_are_what_takes_longest():
    network, chip, activity = bursty()
    slow = {"noc.cores_per_router": 1, "noc.columns": 4, "noc.rows": 3, "noc.link_cycles_per_flit": 80}
    chip = chip.replace(slow)
    fastest, free = (
        partition(network, chip, activity, Options(optimize=o, n_cores=6)).mapping for o in ("time", "traffic")
    )
    fastest = place(fastest, network, chip, activity, Options(optimize="traffic"))
    limit = 0.8 * step_us(network, chip, activity, fastest) + 0.2 * step_us(network, chip, activity, free)
    kept = partition(network, chip, activity, Options(optimize="traffic", n_cores=6, step_limit_us=limit)).mapping
    assert step_us(network, chip, activity, kept) <= limit


@pytest.mark.parametrize("kept_steps", [128, 1])
def test_within_the_step_of_metis_traffic_is_never_above_that_of_metis(kept_steps, monkeypatch):
    """Though the other searches find nothing at all."""
    rng, n = np.random.default_rng(0), 300
    pre, post = (ends.astype(np.int32) for ends in np.nonzero(rng.random((n, n)) < 0.1))
    edge = Sparse("a", "a", pre, post, np.ones(len(pre), np.int8), delay=1)
    network = Network.from_arrays({"a": (FIXED, (n,))}, [edge], {})
    activity = Activity({"a": (rng.random((20, n)) < 0.2 * rng.random(n)).astype(np.int32)}, 1)
    chip = small_chip(noc__rows=3, noc__cores_per_router=2, core__max_neurons=80, core__max_in_axons=None,
                      core__max_out_axons=None, core__synapse_bits=None)  # fmt: skip
    options = Options(partitioner="metis", n_cores=5)
    cut = place(partition(network, chip, activity, options).mapping, network, chip, activity, options)
    options = Options(optimize="traffic", n_cores=5, step_limit_us=step_us(network, chip, activity, cut))
    monkeypatch.setattr(min_traffic, "TRAFFIC", replace(min_traffic.TRAFFIC, kept_steps=kept_steps))
    monkeypatch.setattr(floorline, "anneal_hops", lambda *_: iter(()))
    found = partition(network, chip, activity, options).mapping
    assert step_us(network, chip, activity, found) <= options.step_limit_us
    hops = [count_events(emit(network, schedule(network), mapping, chip, activity, {}), activity)["hops"].sum()
            for mapping in (cut, found)]  # fmt: skip
    assert hops[1] <= hops[0]


@pytest.mark.long
def test_where_metis_is_not_the_best_traffic_is_as_without_it(monkeypatch):
    network, chip, activity = bursty()
    options, tried = Options(optimize="traffic", n_cores=6, step_limit_us=1000.0), []

    def of_metis(*given):
        tried.append(found := original(*given))
        return found and (found[0]._replace(cost=np.inf), found[1])

    original = floorline._search_from_metis
    monkeypatch.setattr(floorline, "_search_from_metis", of_metis)
    beside = partition(network, chip, activity, options).mapping
    monkeypatch.setattr(floorline, "_search_from_metis", lambda *_: None)
    without = partition(network, chip, activity, options).mapping
    assert tried[0] is not None
    assert np.array_equal(beside.site_of, without.site_of)
    assert all(np.array_equal(beside.core_of[name], without.core_of[name]) for name in network.layers)


def test_a_try_with_finer_units_that_needs_too_much_memory_leaves_what_was_found(monkeypatch):
    """The first try of traffic finds nothing that fits, the second is refused."""
    network, chip, activity = bursty()
    tried = []

    def refused(search, starts, cluster_of, n_cores, most_time):
        tried.append(cluster_of is None)
        if cluster_of is not None:
            raise OptionError("too many tables")
        yield Partition(np.arange(1), np.zeros(1, np.int32), n_cores, 1 << 40, 0.0), np.zeros(1, np.int64)

    monkeypatch.setattr(floorline, "anneal_hops", refused)
    found = partition(network, chip, activity, Options(optimize="traffic", n_cores=6)).mapping
    assert tried == [True, False] and found.n_cores == 6


def test_cores_within_a_step_limit_are_as_few_as_keep_it():
    network, chip, activity = bursty()
    chip = chip.replace({"cost.barrier_cycles": {"1": 60}})
    fewest = partition(network, chip, activity, Options(optimize="cores")).mapping
    limit = 0.8 * step_us(network, chip, activity, fewest)
    found = partition(network, chip, activity, Options(optimize="cores", step_limit_us=limit)).mapping
    assert step_us(network, chip, activity, found) <= limit
    assert fewest.n_cores < found.n_cores < chip.n_cores


def test_a_step_limit_that_nothing_keeps_is_refused():
    network, chip, activity = bursty()
    with pytest.raises(FitError) as error:
        partition(network, chip, activity, Options(optimize="traffic", n_cores=6, step_limit_us=1e-3))
    first, last = str(error.value).split(" of 0.001 us")
    assert first.startswith("1 limit exceeded on small\n  predicted step time  network -> 6 cores  ")
    assert last == "  raise step_limit_us, or n_cores where it is given"


def test_compile_refuses_a_mapping_of_another_partitioner_that_is_too_slow():
    network, chip, _ = bursty()
    options = Options(partitioner="sequential", optimize="traffic", step_limit_us=0.01)
    with pytest.raises(FitError, match="predicted step time  network -> 4 cores  .* us of 0.01 us"):
        nw.compile(network, chip, options=options)


def test_the_shortest_step_is_told_also_where_the_limit_is_less_than_a_cycle():
    network, chip, activity = bursty()
    told = []
    for limit in (1e-3, 1e-30):
        with pytest.raises(FitError) as error:
            partition(network, chip, activity, Options(optimize="traffic", n_cores=6, step_limit_us=limit))
        told.append(str(error.value).split(" us of ")[0])
    assert told[0] == told[1]


def test_a_step_limit_of_any_length_is_taken():
    network, chip, activity = bursty()
    found = [partition(network, chip, activity, Options(optimize="cores", step_limit_us=limit)).mapping
             for limit in (1e6, 1e308)]  # fmt: skip
    assert found[0].n_cores == found[1].n_cores


@pytest.mark.parametrize("cycle_ns", [1.0, 0.01, 0.7, 3.3])
def test_a_time_that_was_told_is_a_limit_of_just_as_many_cycles(cycle_ns):
    network, chip, activity = bursty()
    chip, timing = chip.replace({"core.cycle_ns": cycle_ns}), schedule(network)
    n_steps = timing.n_hardware_steps(activity.n_steps, "aligned") * activity.n_samples
    search = search_of(network, chip, activity, Options())
    for cycles in range(1_000, 2_000):
        told = cycles / n_steps * cycle_ns / 1000
        for limit, n_cycles in ((told, cycles), (told * (1 - 1e-9), cycles - 1)):
            assert max_cycles(search._replace(options=Options(optimize="cores", step_limit_us=limit))) == n_cycles
    mapping = partition(network, chip, activity, Options(partitioner="sequential")).mapping
    program, told = emit(network, timing, mapping, chip, activity, {}), step_us(network, chip, activity, mapping)
    for less in (0.0, 1e-16, 1e-15):
        verify_step_time(program, told * (1 - less))
    with pytest.raises(FitError):
        verify_step_time(program, told * (1 - 1e-9))


@pytest.mark.parametrize("partitioner", ["floorline", "sequential"])
def test_a_step_limit_needs_costs(partitioner):
    network, chip, _ = bursty()
    table = chip.to_dict()
    del table["cost"]["visit_cycles"]
    options = Options(partitioner=partitioner, optimize="traffic", step_limit_us=1.0)
    with pytest.raises(OptionError) as error:
        nw.compile(network, type(chip).from_dict(table), options=options)
    assert str(error.value) == (
        "step_limit_us needs the cycles of every event, which small does not give; leave it out"
    )


def test_what_does_not_fit_is_told_by_its_limits_with_a_step_limit_too():
    network, chip, activity = bursty()
    with pytest.raises(FitError, match="cores  network -> small  26 of 12"):
        partition(network, chip.replace({"core.max_neurons": 5}), activity,
                  Options(optimize="traffic", step_limit_us=1.0))  # fmt: skip


def full_case():
    """Two maps and a dense layer, unevenly busy, that all but fill nine cores."""
    edges = [Conv2d(a, b, integers((4, n, 3, 3)), padding=1) for a, b, n in (("in", "a", 1), ("a", "b", 4))]
    edges.append(Dense("b", "c", integers((250, 1024), 5)))
    network = Network.from_arrays({"a": FIXED, "b": FIXED, "c": (FIXED, (250,))}, edges, {"in": (1, 16, 16)})
    rng, counts = np.random.default_rng(0), {}
    for name in network.offsets:
        n = network.node(name).n_neurons
        counts[name] = rng.poisson(np.linspace(0, 1.6, n) ** 6, (6, n)).astype(np.int32)
    chip = small_chip(noc__rows=3, noc__cores_per_router=1, core__max_neurons=256, core__max_in_axons=None,
                      core__max_out_axons=None, core__synapse_bits=None)  # fmt: skip
    return network, chip, Activity(counts, 1)


@pytest.mark.long
def test_full_cores_leave_traffic_as_low_with_a_step_limit_as_without():
    network, chip, activity = full_case()
    hops = []
    for limit in (None, 1e6):
        options = Options(optimize="traffic", n_cores=9, step_limit_us=limit)
        mapping = partition(network, chip, activity, options).mapping
        program = emit(network, schedule(network), mapping, chip, None, {})
        hops.append(int(count_events(program, activity)["hops"].sum()))
    assert hops[1] <= 1.1 * hops[0]


def test_cores_are_filled_tile_after_tile_as_far_as_they_hold_all():
    network, chip, activity = full_case()
    chip = chip.replace({"noc.columns": 4})
    load = neuron_load(network, chip, activity)
    search = search_of(network, chip, activity, Options())._replace(load=load)
    core = fill_tiles(search, 9)
    assert np.bincount(core).max() <= 256 and core.max() == 8
    of_map = core[:1024].reshape(4, 16, 16)
    assert (of_map[:, :8, :8] == 0).all() and (np.diff(of_map[0, 8:, 8:].max(0)) >= 0).all()
    assert fill_tiles(search, 8) is None
    assert are_full(search, 9) and not are_full(search, 10)
