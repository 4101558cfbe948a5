"""The leaderboard: the nets of publications, their methods, one of one's own, and the page made from the results."""

import argparse
import json
import math

import numpy as np
import pytest

import nwcompile as nw
from benchmarks import leaderboard, leaderboard_page
from benchmarks.leaderboard import Job
from benchmarks.mapping_methods import _HySMap
from benchmarks.mapping_nets import Net
from benchmarks.mapping_published import HYSMAP_HOPS, MersenneTwister64, hysmap
from benchmarks.record import RESULTS
from nwcompile.ir.activity import Activity
from tests.made.chips import small_chip

NET = hysmap(80, 4)
RATE = NET.activity.counts["n"].sum(0) / NET.activity.n_samples


def count_links(core_of: np.ndarray, site_of: np.ndarray) -> dict[tuple, float]:
    """Messages on every link (x, y, x, y) of NET: each spike's routes, X before Y, share their links."""
    (edge,), load = NET.network.connections, {}
    for source, rate in enumerate(RATE):
        links = set()
        for target in edge.post[edge.pre == source]:
            x, y = site_of[core_of[source], :2].tolist()
            end = site_of[core_of[target], :2].tolist()
            while [x, y] != end:
                dx = (end[0] > x) - (end[0] < x)
                dy = 0 if dx else (end[1] > y) - (end[1] < y)
                links.add((x, y, x + dx, y + dy))
                x, y = x + dx, y + dy
        for link in links:
            load[link] = load.get(link, 0.0) + rate
    return load


def measure(*methods: str) -> dict[str, dict]:
    """Rows of NET by method, measured in this process."""
    args = argparse.Namespace(seed=0)
    return {name: leaderboard.measure_row(NET, Job("hysmap80-4", name), args) for name in methods}


def test_random_numbers_are_those_of_the_cpp_standard():
    """[rand.predef] gives the 10,000th number of std::mt19937_64."""
    random = MersenneTwister64(5489)
    assert [random.draw() for _ in range(10_000)][-1] == 9981545732273789042 / 2**64


def test_hysmap_nets_have_the_published_synapses_and_rates():
    """Synapses as in results/bench.csv, and the first rates of examples/net_potjans_80.json, which has seed 1."""
    assert [len(net.network.connections[0].pre) for net in (NET, hysmap(80, 6), hysmap(108, 6))] == [611, 593, 905]
    random = MersenneTwister64(1)
    rates = [math.exp(0.35 * random.draw_normal() + math.log(5.5)) for _ in range(6)]
    assert [float(f"{rate:.6g}") for rate in rates] == [4.80356, 6.99459, 4.16388, 10.8377, 5.73094, 4.3835]


def test_hysmap_counts_its_objective_as_published():
    search = _HySMap(NET.network, NET.chip, NET.activity, nw.Options())
    home, site = search.rng.permutation(80) % 16, search.rng.permutation(16)
    load = np.array(list(count_links(home, NET.chip.sites[site]).values()))
    mean, n_links = load.sum() / 48, 48
    variance = ((load - mean) ** 2).sum() / n_links + (n_links - len(load)) * mean**2 / n_links
    assert search.cost(home, site) == pytest.approx(load.sum() + 0.1 * load.max() + 0.01 * variance, rel=1e-12)


def test_methods_of_publications_map_hysmaps_net():
    """HySMap's steps come within 5 % of its published hops, and ours needs at least 5 % fewer."""
    rows = measure("hysmap+row-major", "neuromap+neuromap", "metis+random", "floorline:traffic")
    hops = {name: row["hops"] for name, row in rows.items()}
    published = HYSMAP_HOPS["hysmap80-4"]
    assert all(row["cores"] == 16 and row["least hops"] < row["hops"] for row in rows.values())
    assert abs(hops["hysmap+row-major"] / published - 1) < 0.05
    assert hops["neuromap+neuromap"] < hops["metis+random"]
    assert hops["floorline:traffic"] < 0.95 * min(published, hops["hysmap+row-major"])


def test_bound_of_hops_counts_the_routers_that_readers_need():
    """One neuron sends 3 spikes to 5 others on cores of 2: one reader may share its core, 4 need two more cores."""
    chip = small_chip(noc__columns=4, noc__rows=4, noc__cores_per_router=1, core__max_neurons=2)
    edge = nw.Sparse("n", "n", np.zeros(5, int), np.arange(1, 6), np.ones(5, np.int8), delay=1)
    network = nw.Network.from_arrays({"n": (nw.NeuronSpec(threshold=1), (6,))}, [edge])
    counts = np.zeros((4, 6), np.int32)
    counts[:3, 0] = 1
    assert leaderboard.least_hops(Net(network, chip, Activity({"n": counts}, 1), None, 4)) == 6.0


def test_own_method_enters_the_leaderboard(tmp_path):
    """The file that the docs show is measured in a process of its own; a failing method is a row that says so."""
    jobs = [Job("hysmap80-4", f"benchmarks.own_method:{name}") for name in ("deal", "share")]
    args = argparse.Namespace(seed=0, limit=60, processes=1, reference=tmp_path)
    found = {row["method"].partition(":")[2]: row for row in leaderboard.measure_all(jobs, args, tmp_path)}
    assert found["deal"]["cores"] == 16 and found["deal"]["hops"] > found["deal"]["least hops"] > 500
    assert "there is no function 'share' in benchmarks.own_method" in found["share"]["outcome"]


def test_page_and_figure_are_made_from_the_results():
    record = json.loads((RESULTS / "leaderboard.json").read_text())
    again = "run `python benchmarks/leaderboard.py --page`"
    assert leaderboard_page.PAGE.read_text() == leaderboard_page.write_page(record), again
    assert leaderboard_page.FIGURE.read_text() == leaderboard_page.draw(record["rows"]), again
    assert leaderboard_page.OWN_METHOD.read_text().strip() in leaderboard_page.PAGE.read_text()
