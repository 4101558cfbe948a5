"""The floorline partitioner finds what an exhaustive search finds, keeps every limit, and does what it is asked for."""

from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.energy import energy_pj, step_energy_pj
from nwcompile.cost.traffic.events import count_events
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Dense
from nwcompile.ir.flat import neuron_places, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import OBJECTIVES, Options
from nwcompile.kernels.mapping import cluster_state, moves
from nwcompile.passes.emit import emit
from nwcompile.passes.partition.floorline import cluster_search as cluster_search_module
from nwcompile.passes.partition.floorline import floorline as floorline_module
from nwcompile.passes.partition.floorline import search as search_module
from nwcompile.passes.partition.floorline.clusters import fitting_clusters, halve_clusters
from nwcompile.passes.partition.floorline.demand import cluster_demand, filled_cores
from nwcompile.passes.partition.floorline.floorline import partition_by_floorline
from nwcompile.passes.partition.floorline.objective import count_means, fixed_pj, objective_weights
from nwcompile.passes.partition.floorline.search import Partition, Search
from nwcompile.passes.partition.graph_partition import cut_stripes
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.partition.sequential import cut_slices
from nwcompile.passes.prepare.schedule import schedule
from tests.made.chips import small_chip
from tests.made.mapped import bursty, groupings, tiny_case
from tests.made.nets import FIXED, conv_net, dense_net, sparse_edge


def judged(network, chip, activity, core_of, n_cores) -> np.ndarray:
    """The totals of cores int[neuron]."""
    demand = cluster_demand(network, chip, activity, schedule(network), np.arange(len(core_of)), n_cores)
    return filled_cores(demand, chip, core_of).busy.total


def flat(cores: LogicalCores) -> np.ndarray:
    return np.concatenate([*cores.core_of.values()])


def is_optimal(seed: int) -> bool:
    network, chip, activity, n, n_cores = tiny_case(seed)
    demand = cluster_demand(network, chip, activity, schedule(network), np.arange(n), n_cores)

    weight = objective_weights(network, chip, activity, schedule(network).n_hardware_steps(5), "time")

    def rank(core_of) -> tuple[int, float]:
        total = filled_cores(demand, chip, core_of).busy.total
        worth = moves.cost(total, weight) * np.sqrt(total[cluster_state.N_USED])
        return int(total[cluster_state.EXCESS]), worth

    best = min(rank(core_of) for core_of in groupings(n, n_cores))
    found = flat(partition_by_floorline(network, chip, activity, Options(seed=seed)))
    return best[0] > 0 or (found.max() < n_cores and rank(found) == best)


def test_floorline_finds_the_optimum_of_tiny_nets():
    assert sum(is_optimal(seed) for seed in range(20)) >= 19


@pytest.mark.long
def test_floorline_finds_the_optimum_of_500_tiny_nets():
    assert sum(is_optimal(seed) for seed in range(500)) >= 475


def mapped(network, chip, activity, **options) -> np.ndarray:
    return flat(partition_by_floorline(network, chip, activity, Options(**options)))


def test_floorline_is_faster_than_slices_and_stripes():
    network, chip, activity = bursty()
    options = Options(n_cores=6)
    times = {m.__name__: judged(network, chip, activity, flat(m(network, chip, activity, options)), 6)
             for m in (partition_by_floorline, cut_slices, cut_stripes)}  # fmt: skip
    assert times["partition_by_floorline"][cluster_state.EXCESS] == 0
    assert times["partition_by_floorline"][cluster_state.TIME] < 0.98 * times["cut_stripes"][cluster_state.TIME]
    assert times["partition_by_floorline"][cluster_state.TIME] < 0.98 * times["cut_slices"][cluster_state.TIME]


def test_time_pays_for_messages_what_it_costs_to_send_and_receive_them_by_hand():
    """The neuron of `a0` is read by the two of `b`, that of `a1` by the two of `c`; they spike in different steps."""
    free = {f"cost__{event}_cycles": 0 for event in ("visit", "update", "spike")}
    chip = small_chip(**free, cost__barrier_cycles={"1": 0})
    rest = {"message_out": 5, "message_in": 16, "word": 1, "synop_dense": 4}
    assert {event: getattr(chip.cost, f"{event}_cycles") for event in rest} == rest
    edges = [Dense(f"a{k}", target, np.ones((2, 1), np.int8)) for k, target in enumerate("bc")]
    network = Network.from_arrays({"a0": (FIXED, 1), "a1": (FIXED, 1), "b": (FIXED, 2), "c": (FIXED, 2)}, edges, {})
    counts = {name: np.zeros((2, network.node(name).n_neurons), np.int32) for name in network.layers}
    counts["a0"][0], counts["a1"][1] = 1, 1
    activity = Activity(counts, 1)
    weight = objective_weights(network, chip, activity, schedule(network).n_hardware_steps(2), "time")
    together, apart = (
        judged(network, chip, activity, np.array(c), 2) for c in ([0, 1, 0, 0, 1, 1], [0, 1, 0, 1, 0, 1])
    )
    # Both readers on one core: a step is one message in (16), a word (1), two synops (2 x 4) = 25; two steps, 50.
    # A reader on each core: one synop less each, 16 + 1 + 4 = 21; two steps, 42. But four messages instead of two.
    assert (together[cluster_state.TIME], together[cluster_state.MESSAGES]) == (50, 2)
    assert (apart[cluster_state.TIME], apart[cluster_state.MESSAGES]) == (42, 4)
    # A message costs 5 to send and 16 to receive, 21, shared by two cores: 50 + 2 x 21 / 2 = 71, 42 + 4 x 21 / 2 = 84.
    assert (moves.cost(together, weight), moves.cost(apart, weight)) == (71.0, 84.0)
    found = judged(network, chip, activity, mapped(network, chip, activity, n_cores=2), 2)
    assert (found[cluster_state.TIME], found[cluster_state.MESSAGES]) == (50, 2)


def test_every_objective_is_served_best_by_its_own_search():
    network, chip, activity = bursty()
    totals = {o: judged(network, chip, activity, mapped(network, chip, activity, optimize=o), chip.n_cores)
              for o in OBJECTIVES}  # fmt: skip
    n_steps = schedule(network).n_hardware_steps(activity.n_steps)
    figure = {
        "traffic": lambda t: t[cluster_state.REMOTE],
        "cores": lambda t: t[cluster_state.N_USED],
        **{
            o: lambda t, o=o: moves.cost(t, objective_weights(network, chip, activity, n_steps, o))
            for o in ("energy", "edp")
        },
        "time": lambda t: (
            moves.cost(t, objective_weights(network, chip, activity, n_steps, "time"))
            * np.sqrt(t[cluster_state.N_USED])
        ),
    }
    for objective, of in figure.items():
        assert of(totals[objective]) <= 1.01 * min(map(of, totals.values())), objective
    assert totals["cores"][cluster_state.N_USED] <= totals["time"][cluster_state.N_USED]


@pytest.mark.parametrize("multicast", ["unicast", "tree"])
def test_fixed_energy_is_that_of_a_mapping_without_messages_to_each_destination_and_hops(multicast):
    network, chip, activity = bursty()
    n = sum(network.node(name).n_neurons for name in network.layers)
    chip = chip.replace({"core.max_neurons": n, "noc.multicast": multicast})
    mapping = Mapping.from_arrays(split_layers(network, np.zeros(n, int)), chip.sites[:1])
    program = emit(network, schedule(network), mapping, chip, activity, {})
    counters = count_events(program, activity)
    n_steps = counters["synops"].shape[0]
    message_pj = objective_weights(network, chip, activity, n_steps, "edp").messages
    assert message_pj == chip.energy.message_in_pj + (multicast == "unicast") * chip.energy.message_out_pj
    expected = energy_pj(step_energy_pj(counters, chip))["total"] - counters["messages_out"].sum() * message_pj
    assert fixed_pj(network, chip, activity, n_steps) == pytest.approx(expected, rel=1e-12)


def test_floorline_uses_its_time_budget_and_gives_the_best_so_far(monkeypatch):
    network, chip, activity = bursty()
    seconds = count()  # of a clock that goes on a second with every look at it
    with monkeypatch.context() as patched:
        for module in (floorline_module, search_module):
            patched.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
        longer = mapped(network, chip, activity, n_cores=6, time_budget_s=400)
    assert next(seconds) in range(401, 405)  # it began at 0, and hears at 400 that the time is up
    search, calls = moves.anneal_clusters, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return search(*arguments)

    monkeypatch.setattr(moves, "anneal_clusters", interrupted)
    best = mapped(network, chip, activity, n_cores=6, time_budget_s=60)
    with pytest.raises(KeyboardInterrupt):
        mapped(network, chip, activity, n_cores=6)
    both = [judged(network, chip, activity, cores, 6) for cores in (longer, best)]
    assert both[0][cluster_state.TIME] <= both[1][cluster_state.TIME]
    assert max(total[cluster_state.EXCESS] for total in both) == 0


def test_a_seed_gives_one_partition_and_another_seed_another():
    network, chip, activity = bursty()
    first, again, other = (mapped(network, chip, activity, n_cores=6, seed=s) for s in (4, 4, 5))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_warning_says_where_floorline_gives_nothing_but_slices(monkeypatch):
    network, chip, activity = bursty()
    calm = [nw.compile(network, chip, options=Options(partitioner=p)) for p in ("floorline", "sequential")]

    def improvements(search):
        n_neurons = len(search.load)
        yield Partition(np.arange(n_neurons), np.zeros(n_neurons, np.int32), 1, 1, 0.0), None  # exceeds limits

    monkeypatch.setattr(floorline_module, "_improve_all", improvements)
    sliced = nw.compile(network, chip, options=Options(partitioner="floorline"))
    warning = ("partitioner 'floorline' found nothing better within the limits of small than contiguous slices: cores "
               "are cut as with partitioner='sequential'")  # fmt: skip
    assert warning in sliced.manifest["warnings"]
    assert not any(warning in program.manifest["warnings"] for program in calm)


def test_energy_needs_a_chip_that_gives_energies():
    network, chip, activity = bursty()
    table = chip.to_dict()
    del table["energy"]["synop_dense_pj"]
    for objective in ("energy", "edp"):
        with pytest.raises(OptionError) as error:
            mapped(network, type(chip).from_dict(table), activity, optimize=objective)
        assert str(error.value) == (
            f"optimize='{objective}' needs the energy of every event, which small does not give; "
            "use optimize='time' or 'traffic'"
        )


def test_units_are_halved_by_pixels_before_channels_and_fit_a_core():
    network, chip = conv_net((2, 4, 4), channels=2, padding=1), small_chip()
    whole = np.repeat([0, 1], [32, 3])
    halves = halve_clusters(neuron_places(network), whole, np.array([True, True]))
    assert halves[:32].reshape(2, 4, 4).tolist() == [[[0] * 4, [0] * 4, [2] * 4, [2] * 4]] * 2
    assert halves[32:].tolist() == [1, 1, 3]
    pixels = fitting_clusters(network, chip, np.ones(35, int), 17)
    assert np.bincount(pixels).max() <= 2
    assert all(len(np.unique(pixels[i + np.array([0, 16])])) == 1 for i in range(16))
    small = small_chip(core__max_neurons=24)
    for per_core, n_most in ((1, 16), (3, 8), (16, 1)):  # halves of 32 neurons that are as few as that on a core
        clusters = fitting_clusters(network, small, np.ones(35, int), 1, per_core=per_core)
        assert np.bincount(clusters).max() == n_most
    for n_axons, n_most in ((18, 8), (17, 4)):  # a quarter of the map reads 3 x 3 pixels of 2 channels
        clusters = fitting_clusters(network, small_chip(core__max_in_axons=n_axons), np.ones(35, int), 1)
        assert np.bincount(clusters[:32]).max() == n_most


@pytest.mark.parametrize("optimize", ["time", "energy", "edp"])
def test_as_many_cores_as_asked_for_hold_neurons_where_a_few_neurons_do_most(optimize):
    network, chip = dense_net(4, 24, 44), small_chip(noc__columns=8, noc__rows=4, core__max_neurons=8)
    counts = {name: np.zeros((4, network.node(name).n_neurons), np.int32) for name in network.offsets}
    counts["fc1"][:, 3] = 1
    counts["fc2"][:, :4] = 1
    cores = partition_by_floorline(network, chip, Activity(counts, 1), Options(optimize=optimize, n_cores=60))
    assert len(np.unique(flat(cores))) == 60


@pytest.mark.parametrize("multicast", ["unicast", "tree"])
@pytest.mark.parametrize("seed", range(12))
def test_totals_of_large_networks_are_those_of_the_search_with_equal_steps(seed, multicast):
    network, chip, activity, n, n_cores = tiny_case(seed)
    costs = {"cost.word_cycles": 0, "cost.min_step_cycles": None, "cost.units": "shared"}
    chip, timing = chip.replace({"noc.multicast": multicast, **costs}), schedule(network)
    search = Search(
        network=network, chip=chip, activity=activity, timing=timing, options=Options(), load=np.ones(n),
        state=np.zeros(1, np.uint64), deadline=None, n_levels=2, tried={},
    )  # fmt: skip
    drawn = np.unique(np.random.default_rng(seed).integers(0, n_cores, n), return_inverse=True)[1].reshape(-1)
    for cores in (drawn, np.zeros(n, np.int64)):
        exact = judged(network, chip, activity, cores, int(cores.max()) + 1)
        total, n_over = count_means(search, cores)
        for which in (cluster_state.MESSAGES, cluster_state.REMOTE, cluster_state.N_USED):
            assert total[which] == exact[which]
        assert (n_over > 0) == (exact[cluster_state.EXCESS] > 0)
        assert total[cluster_state.TIME] <= exact[cluster_state.TIME]
    if multicast == "unicast":  # with trees, the search lets neurons send that nothing reads
        assert total[cluster_state.TIME] == exact[cluster_state.TIME]  # a single core is the busiest of every step


@pytest.mark.parametrize(
    "options",
    [{}, {"n_cores": 9}, {"optimize": "cores"}, {"optimize": "energy"}, {"optimize": "traffic"}],
)
def test_clusters_of_networks_with_many_listed_sources_are_not_moved(options, monkeypatch):
    edges = [sparse_edge("in", "a", 8, 64, 256), sparse_edge("a", "b", 64, 64, 512)]
    network = Network.from_arrays({"a": (FIXED, (64,)), "b": (FIXED, (64,))}, edges, {"in": (8,)})
    chip = small_chip(noc__columns=8, noc__rows=4, core__max_in_axons=None, core__max_out_axons=None)
    before = mapped(network, chip, Activity.uniform(network), **options)
    monkeypatch.setattr(search_module, "MAX_LISTED_SOURCES", 8 + 64)
    assert np.array_equal(mapped(network, chip, Activity.uniform(network), **options), before)
    monkeypatch.setattr(search_module, "MAX_LISTED_SOURCES", 8 + 64 - 1)
    monkeypatch.setattr(cluster_search_module, "cluster_demand", None)  # the tables by source and core
    monkeypatch.setattr(floorline_module, "_refine_clusters", None)
    found = partition(network, chip, Activity.uniform(network), Options(time_budget_s=60, **options))
    assert found.warnings == (
        "more than 131 072 neurons send through lists of synapses: such networks are cut into even tiles, "
        "and no neurons are moved between cores",
    )
    assert len(np.unique(flat(found))) == options.get("n_cores", len(np.unique(flat(found))))
    assert found.tried[0].step_us > 0


def test_step_limit_of_large_networks_takes_the_shortest_step(monkeypatch):
    """Their step times are means without words, so the fewest cores that seem to keep the limit may not."""
    edges = [sparse_edge("in", "a", 8, 64, 256), sparse_edge("a", "b", 64, 64, 512)]
    network = Network.from_arrays({"a": (FIXED, (64,)), "b": (FIXED, (64,))}, edges, {"in": (8,)})
    chip = small_chip(noc__columns=8, noc__rows=4, core__max_in_axons=None, core__max_out_axons=None)
    monkeypatch.setattr(search_module, "MAX_LISTED_SOURCES", 8)
    found = {}
    for limit in (None, 1e6):
        options = Options(optimize="time" if limit is None else "cores", step_limit_us=limit)
        found[limit] = partition(network, chip, Activity.uniform(network), options)
    assert len(np.unique(flat(found[1e6]))) > 1  # one core keeps the limit
    assert min(t.step_us for t in found[1e6].tried) <= min(t.step_us for t in found[None].tried)
