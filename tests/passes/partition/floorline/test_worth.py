"""How many cores `floorline` takes: as many as are worth it, found by trying few numbers of them."""

from dataclasses import fields, replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cli.compile import predict
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip_sections import Cost
from nwcompile.ir.network import Network
from nwcompile.ir.options import CORES_RULE, Options
from nwcompile.passes.partition.floorline import floorline as stage
from nwcompile.passes.partition.floorline.demand import DESTINATIONS, neuron_load
from nwcompile.passes.partition.floorline.floorline import partition_by_floorline
from nwcompile.passes.partition.floorline.search import Partition
from nwcompile.report.json.collect import collect_report
from tests.made.chips import COST, small_chip
from tests.made.nets import FIXED, conv_net, dense_net, sparse_edge


def tried(monkeypatch, time_of, n_neurons: int = 64, board=None, **options) -> tuple[list[int], int]:
    """The numbers of cores that are tried where a short search on n of them gives `time_of(n)`, and the one taken."""
    counts = []

    def begun(search, n_cores):
        counts.append(n_cores)
        return Partition(np.arange(n_neurons), (np.arange(n_neurons) % n_cores).astype(np.int32), n_cores, 0,
                         time_of(n_cores))  # fmt: skip

    monkeypatch.setattr(stage, "_search_coarse", begun)
    monkeypatch.setattr(stage, "_refine_clusters", lambda search, best, level: best)
    network = Network.from_arrays(
        {"a": (FIXED, (n_neurons,))}, [sparse_edge("in", "a", 4, n_neurons, 80)], {"in": (4,)}
    )
    chip = small_chip(noc__columns=8, noc__rows=8, **(board or {}))
    cores = partition_by_floorline(network, chip, Activity.uniform(network), Options(**options)).core_of["a"]
    return counts, int(cores.max()) + 1


def test_time_takes_a_core_more_only_where_it_saves_half_its_share(monkeypatch):
    # 10 + 100 / n times the root of n is least at n = 10
    counts, taken = tried(monkeypatch, lambda n: 10 + 100 / n)
    assert counts == [1, 2, 3, 4, 8, 16, 32, 6, 11]
    assert taken == 11


def test_time_looks_beyond_one_number_of_cores_that_is_worth_less(monkeypatch):
    hump = {1: 100.0, 2: 90.0, 3: 50.0}
    counts, taken = tried(monkeypatch, lambda n: hump.get(n, 100 / n))
    assert counts == [1, 2, 3, 4, 8, 16, 32, 64, 45]
    assert taken == 64


def test_time_takes_one_core_where_more_save_little(monkeypatch):
    assert tried(monkeypatch, lambda n: 80 + 20 / n) == ([1, 2, 3], 1)


def test_a_number_of_cores_that_is_asked_for_is_the_only_one_tried(monkeypatch):
    assert tried(monkeypatch, lambda n: 1.0 / n, n_cores=7) == ([7], 7)


def test_numbers_beyond_one_chip_are_whole_chips(monkeypatch):
    board = {"noc__chip_columns": 4, "noc__chip_rows": 4, "noc__chip_hop_cycles": 200, "noc__cores_per_router": 1}
    counts, taken = tried(monkeypatch, lambda n: 10 + 1000 / n, board=board)
    assert (counts, taken) == ([1, 2, 3, 4, 8, 16, 32, 64], 64)
    counts, taken = tried(monkeypatch, lambda n: 1000 / n if n < 50 else 40, board=board)
    assert (counts, taken) == ([1, 2, 3, 4, 8, 16, 32, 64], 32)


@pytest.mark.parametrize("slow", [20, 2000])
def test_a_second_chip_is_taken_only_where_its_links_are_fast_enough(slow):
    board = {"noc__columns": 4, "noc__rows": 4, "noc__chip_columns": 2, "noc__chip_rows": 4, "core__max_in_axons": None,
             "core__max_out_axons": None, "noc__chip_hop_cycles": slow, "noc__buffer_flits": 1,
             "core__max_neurons": 256, "cost__barrier_cycles": {"1": 1}}  # fmt: skip
    chip, network = small_chip(**board), conv_net((2, 16, 16), channels=4, n_out=8, padding=1)
    cores = partition_by_floorline(network, chip, Activity.uniform(network, 2), Options(optimize="edp")).core_of
    assert 1 + max(c.max() for c in cores.values()) == (32 if slow == 20 else 16)


def test_edp_and_energy_weigh_no_cores(monkeypatch):
    assert tried(monkeypatch, lambda n: 80 + 20 / n, optimize="edp")[1] == 64


@pytest.mark.parametrize("n_least", [1, 2, 3, 7, 8, 9])
def test_fewest_cores_are_found_by_bisection(monkeypatch, n_least):
    counts = []

    def begun(search, n_cores):
        counts.append(n_cores)
        return Partition(np.zeros(1, np.int64), np.zeros(1, np.int32), n_cores, max(0, n_least - n_cores), -n_cores)

    monkeypatch.setattr(stage, "_search_coarse", begun)
    assert [*stage._bisect_core_count(None, 8, 1)][-1].n_cores == min(n_least, 8)
    assert counts[0] == 8 and len(counts) <= 4


@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_load_of_a_neuron_is_its_share_of_what_is_sent_or_received(units):
    edges = [sparse_edge("in", "a", 4, 3, 9), sparse_edge("a", "b", 3, 2, 6)]
    network = Network.from_arrays({"a": (FIXED, (3,)), "b": (FIXED, (2,))}, edges, {"in": (4,)})
    rng = np.random.default_rng(0)
    counts = {n: rng.integers(0, 9, (5, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    chip = small_chip(cost__units=units)
    each = COST["spike_cycles"] + DESTINATIONS * COST["message_out_cycles"]
    sent = np.concatenate([counts[n].sum(0) for n in "ab"]) * each + 5 * (COST["visit_cycles"] + COST["update_cycles"])
    read = np.zeros(5)
    for edge, first in zip(edges, (0, 3), strict=True):
        np.add.at(read, first + edge.post, counts[edge.source].sum(0)[edge.pre])
    load = neuron_load(network, chip, Activity(counts, 1))
    if units == "shared":
        slowest = max(COST[f"synop_{kind}_cycles"] for kind in ("dense", "sparse", "conv"))
        assert (load == sent + slowest * read).all()
    else:
        np.testing.assert_allclose(load / (1 << 40), np.maximum(sent / sent.sum(), read / read.sum()), rtol=1e-9)


def test_stripes_are_moved_where_coarse_clusters_fit_on_no_number_of_cores(monkeypatch):
    network = conv_net((2, 8, 8), channels=8, padding=1)
    chip = small_chip(noc__columns=4, noc__rows=4, core__max_neurons=80, core__max_in_axons=600)
    begun = stage._search_coarse
    monkeypatch.setattr(stage, "_search_coarse", lambda *args: begun(*args)._replace(excess=1))
    given = []

    def of_given(search, cores, other):
        given.append(cores.max() + 1)
        return made(search, cores, other)

    made = stage._search_from
    monkeypatch.setattr(stage, "_search_from", of_given)
    partition_by_floorline(network, chip, Activity.uniform(network), Options())
    assert len(given) == 2


def test_large_networks_get_clusters_of_few_neurons_where_coarse_ones_fit_on_no_number_of_cores(monkeypatch):
    network = conv_net((2, 8, 8), channels=8, padding=1)
    chip = small_chip(noc__columns=4, noc__rows=4, core__max_neurons=80, core__max_in_axons=600)
    begun, finer = stage._search_coarse, []

    def never_fits_coarsely(search, n_cores, per_core=1):
        partition = begun(search, n_cores, per_core)
        if per_core == 1:
            return partition._replace(excess=1)
        finer.append((n_cores, per_core))
        return partition

    monkeypatch.setattr(stage, "FLOORLINE", replace(stage.FLOORLINE, max_cut_neurons=100))
    monkeypatch.setattr(stage, "_search_coarse", never_fits_coarsely)
    monkeypatch.setattr(stage, "_search_from", None)  # its tables would take gigabytes
    cores = partition_by_floorline(network, chip, Activity.uniform(network), Options())
    assert finer == [(32, stage.FLOORLINE.clusters_per_core)] and not cores.warnings


@pytest.mark.parametrize("n_neurons", [60, 200])
def test_a_chip_without_times_gets_the_fewest_cores_that_hold_the_network(n_neurons):
    keys = {f"cost__{f.name}": None for f in fields(Cost) if f.name != "units"}
    chip, network = small_chip(noc__columns=8, noc__rows=8, core__max_neurons=32, **keys), dense_net(20, n_neurons)
    cores = partition_by_floorline(network, chip, Activity.uniform(network), Options())
    assert not chip.has_times and {tried.step_us for tried in cores.tried} == {None}
    assert 1 + cores.core_of["fc1"].max() == -(-n_neurons // 32)


def test_a_program_keeps_the_numbers_of_cores_that_were_tried():
    keys = {"noc__columns": 8, "noc__rows": 8, "core__max_neurons": 100, "cost__barrier_cycles": {"1": 1}}
    chip, network = small_chip(**keys), dense_net(20, 90, 90)
    activity = Activity.uniform(network, 4)
    cores = partition_by_floorline(network, chip, activity, Options())
    n_cores = 1 + max(c.max() for c in cores.core_of.values())
    assert n_cores > cores.tried[0].n_cores == 2 and all(tried.fits for tried in cores.tried)
    assert len({tried.n_cores for tried in cores.tried}) == len(cores.tried) > 3
    fewest = partition_by_floorline(network, chip, activity, Options(optimize="cores"))
    assert [(tried.n_cores, tried.fits) for tried in fewest.tried] == [(2, True)]
    program = nw.compile(network, chip, options=Options(n_cores=2))
    more = nw.compile(network, chip)
    assert [row["n_cores"] for row in program.manifest["tried_cores"]] == [2]
    bound, told = predict(program), more.manifest["tried_cores"][0]["step_us"]
    slowest = collect_report(program, bound)["time"]["step_us"]
    assert slowest <= told <= 1.5 * slowest  # the number that is told is of a shorter search
    doc = collect_report(more, predict(more))
    rows = dict(doc["verdict_rows"])
    assert rows["cores"] == CORES_RULE and "n_cores=" not in doc["advice"]["text"]
    assert not {"cores", "fewest cores"} & dict(collect_report(program, bound)["verdict_rows"]).keys()
    assert rows["fewest cores"].startswith("2 are enough, at ")
