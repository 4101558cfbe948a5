"""Partitions keep every limit exactly, are as small as can be told beforehand, and never change with the same seed."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.errors import FitError, ModelError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.analyze import capacity
from nwcompile.passes.analyze.capacity import add_binding_notes
from nwcompile.passes.analyze.check import capacity_violations, check
from nwcompile.passes.partition.logical_cores import LogicalCores
from nwcompile.passes.partition.partition import PARTITIONERS, match_sites, partition
from nwcompile.passes.partition.synapse_graph import synapse_graph
from tests.made.chips import small_chip
from tests.made.nets import FIXED, conv_net, dense_net, feed_forward, integers, mixed_net, synapses
from tests.made.partitioners import METHODS


def sizes(mapping) -> list[list[int]]:
    """Neurons of each layer on each core."""
    return [np.bincount(cores, minlength=mapping.n_cores).tolist() for cores in mapping.core_of.values()]


def partitioned(network, chip, method, activity=None, **options):
    options = {"optimize": "cores"} | options  # `floorline` alone would take more than the fewest
    return partition(
        network, chip, activity or Activity.uniform(network), Options(partitioner=method, **options)
    ).mapping


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6))
def test_partition_keeps_every_limit_or_says_which_it_cannot(method, seed):
    rng = np.random.default_rng(seed)
    network = mixed_net(seed)

    def limits(low, high):
        return rng.integers(low, high, 12).tolist() if seed % 2 else int(rng.integers(low, high))

    chip = small_chip(
        core__max_neurons=limits(10, 60), core__max_in_axons=limits(90, 300), core__max_out_axons=limits(20, 400),
        core__synapse_bits=limits(20_000, 60_000), weights__sharing=bool(rng.integers(2)), core__block_synapses=8,
    )  # fmt: skip
    try:
        mapping = partitioned(network, chip, method)
    except FitError as error:
        assert error.violations
        return
    mapping.verify(network, chip)
    flat = np.concatenate([mapping.core_of[name] for name in network.layers])
    assert set(flat.tolist()) == set(range(mapping.n_cores)) == set(mapping.note)
    assert capacity_violations(network, chip, flat, capacity.site_limits(chip)[chip.site_index(mapping.site_of)]) == []


@pytest.mark.parametrize("method", METHODS)
def test_partition_uses_one_core_where_one_holds_all(method):
    mapping = partitioned(dense_net(4, 8, 3), small_chip(), method)
    assert sizes(mapping) == [[8], [3]]
    assert mapping.site_of.tolist() == [[0, 0, 0]]
    assert mapping.note == {0: "neurons 17 %"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layers", [(60, 40), (50, 100, 50), (100, 50, 50), (70, 50, 60, 20), (200,), (1, 1, 198)])
def test_partition_fits_small_nets_on_three_unequal_cores(method, layers):
    mapping = partitioned(dense_net(10, *layers), Chip.load("h1v2"), method)
    assert sum(map(sum, sizes(mapping))) == sum(layers)
    by_site = dict(zip(mapping.site_of[:, 0].tolist(), np.sum(sizes(mapping), 0).tolist(), strict=True))
    assert all(n <= {0: 50, 1: 50, 2: 100}[x] for x, n in by_site.items())


def test_sequential_cuts_contiguous_slices_as_long_as_the_core_holds():
    chip = small_chip(core__max_neurons=8)
    mapping = partitioned(dense_net(3, 20, 8), chip, "sequential")
    assert mapping.core_of["fc1"].tolist() == [0] * 8 + [1] * 8 + [2] * 4
    assert mapping.core_of["fc2"].tolist() == [3] * 8
    assert mapping.site_of.tolist() == chip.sites[:4].tolist()
    assert mapping.note == {0: "neurons 100 %", 1: "neurons 100 %", 2: "neurons 50 %", 3: "neurons 100 %"}


def test_sequential_shares_a_core_between_layers_only_to_save_one():
    network = dense_net(3, 4, 4, 4)
    assert sizes(partitioned(network, small_chip(core__max_neurons=6), "sequential")) == [[4, 0], [2, 2], [0, 4]]
    assert sizes(partitioned(network, small_chip(core__max_neurons=4), "sequential")) == [
        [4, 0, 0],
        [0, 4, 0],
        [0, 0, 4],
    ]


def test_sequential_is_bound_by_the_last_bit_of_synapse_memory():
    network = dense_net(10, 30)
    # 10 rows of n synapses take 64 bits each for n <= 6 and 128 for n <= 14
    assert sizes(partitioned(network, small_chip(core__synapse_bits=1280), "sequential")) == [[14, 14, 2]]
    assert sizes(partitioned(network, small_chip(core__synapse_bits=1279), "sequential")) == [[6] * 5]
    assert partitioned(network, small_chip(core__synapse_bits=1280), "sequential").note[0] == "synapse memory 100 %"


@pytest.mark.parametrize("seed", range(4))
def test_sequential_looks_at_no_synapse_where_only_neurons_are_limited(seed, monkeypatch):
    network, looked_at, fan_in = mixed_net(seed), [], capacity.fan_in

    def told(network, chip):
        looked_at.append(len(network.connections))
        return fan_in(network, chip)

    monkeypatch.setattr(capacity, "fan_in", told)
    chip = small_chip(core__max_neurons=3, core__max_in_axons=None, core__max_out_axons=None)
    chips = chip.replace({"core.synapse_bits": 1 << 40}), chip.replace({"core.synapse_bits": None})
    activity = Activity.uniform(network)
    ample, alone = (PARTITIONERS["sequential"](network, c, activity, Options()).core_of for c in chips)
    assert looked_at == [len(network.connections), 0]
    assert all(np.array_equal(alone[name], cores) for name, cores in ample.items())


def test_sequential_cuts_a_map_by_pixels_where_channels_read_too_much():
    edge = Conv2d("in", "a", integers((8, 8, 3, 3)))
    network = Network.from_arrays({"a": FIXED}, [edge], {"in": (8, 6, 6)})
    mapping = partitioned(network, small_chip(core__max_neurons=32, core__max_in_axons=150), "sequential")
    cores = mapping.core_of["a"].reshape(8, 16)
    assert (cores == cores[0]).all()
    assert mapping.n_cores == 4


def test_partition_counts_on_the_out_axons_that_later_slices_cause():
    network, chip = dense_net(2, 12, 30), small_chip(core__max_neurons=12, core__max_out_axons=20)
    for method in METHODS:
        mapping = partitioned(network, chip, method)
        held, *_ = capacity.count_usage(network, chip, np.concatenate([*mapping.core_of.values()]), mapping.n_cores)
        assert held["out_axons"].max() <= 20


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_cores", [2, 5, 12])
def test_partition_uses_as_many_cores_as_asked(method, n_cores):
    mapping = partitioned(dense_net(6, 30, 11), small_chip(), method, n_cores=n_cores)
    assert mapping.n_cores == n_cores
    assert min(np.sum(sizes(mapping), 0)) > 0


def test_sequential_spreads_the_load_evenly():
    network = dense_net(40, 24, 24)
    activity = Activity.uniform(network, 5, 50)
    mapping = partitioned(network, small_chip(), "sequential", activity, n_cores=8)
    load = capacity.synaptic_load(network, activity)
    per_core = np.bincount(np.concatenate([*mapping.core_of.values()]), load)
    best = min(
        max(load[0] * -(-24 // a), load[24] * -(-24 // (8 - a))) for a in range(1, 8)
    )  # every way to give a cores to fc1 and the others to fc2  # fmt: skip
    assert per_core.max() == best


@pytest.mark.parametrize("method", [m for m in METHODS if m in ("metis", "kernighan-lin", "hypergraph")])
def test_partition_cuts_where_few_spikes_cross(method):
    rng, n = np.random.default_rng(0), 40
    side = rng.permutation(np.repeat([0, 1], n // 2))
    pre, post = zip(*((i, j) for i, j in itertools.permutations(range(n), 2)), strict=True)
    pre, post = np.array(pre), np.array(post)
    dense_inside = (side[pre] == side[post]) | (rng.random(len(pre)) < 0.1)
    edge = Sparse("a", "a", pre[dense_inside], post[dense_inside], integers(int(dense_inside.sum())))
    network = Network.from_arrays({"a": (FIXED, (n,))}, [edge], {})
    mapping = partitioned(network, small_chip(core__max_neurons=20), method)
    core = mapping.core_of["a"]
    assert mapping.n_cores == 2
    assert (core == side).all() or (core == 1 - side).all()


def test_metis_weighs_edges_by_spikes():
    pre, post = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0])
    network = Network.from_arrays({"a": (FIXED, (4,))}, [Sparse("a", "a", pre, post, integers(4))], {})
    for quiet in ([0, 2], [1, 3]):
        counts = np.full((1, 4), 1000, np.int32)
        counts[0, quiet] = 1
        core = partitioned(network, small_chip(core__max_neurons=2), "metis", Activity({"a": counts}, 1000)).core_of[
            "a"
        ]
        cut = {int(i) for i in pre if core[i] != core[(i + 1) % 4]}
        assert cut == set(quiet)


@pytest.mark.parametrize("fine, most", [(1 << 30, 3), (0, 1), (0, 3), (0, 100)])
def test_synapse_graph_joins_both_ends_of_every_synapse(monkeypatch, fine, most):
    monkeypatch.setattr("nwcompile.passes.partition.synapse_graph.FINE", fine)
    network, rng = mixed_net(4), np.random.default_rng(4)
    counts = {n: rng.poisson(0.7, (3, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    graph = synapse_graph(network, Activity(counts, 1), most)
    start, other, of = graph.start, graph.other, graph.vertex_of
    found = {(v, int(other[i])): int(graph.weight[i]) for v in range(len(start) - 1) for i in range(*start[v : v + 2])}
    assert len(found) == len(other)
    expected, partners = {}, {v: set() for v in range(len(of))}
    for c in network.connections:
        for pre, post in synapses(network, c):
            a, b = int(network.offsets[c.source] + pre), int(network.offsets[c.target] + post)
            partners[a].add((id(c), "to", b))
            partners[b].add((id(c), "from", a))
            for ends in ((of[a], of[b]), (of[b], of[a])) if of[a] != of[b] else ():
                expected[ends] = expected.get(ends, 0) + max(1, int(counts[c.source][:, pre].sum()))
    assert found == expected
    n_lines = sum(node.n_neurons for node in network.inputs.values())
    for v in range(len(start) - 1):
        own = np.flatnonzero(of == v)
        assert 1 <= len(own) <= (most if fine == 0 else 1)
        assert all(partners[i] == partners[own[0]] for i in own)
        assert graph.n_neurons[v] == np.count_nonzero(own >= n_lines) in (0, len(own))
    assert (len(start) - 1 < len(of)) == (fine == 0 and most > 1)


def test_metis_refuses_more_edges_than_it_can_hold(monkeypatch):
    monkeypatch.setattr("nwcompile.passes.partition.synapse_graph.LARGEST", 1000)
    network = dense_net(10, 60, 60)
    with pytest.raises(OptionError) as error:
        partitioned(network, small_chip(core__max_neurons=30, core__max_in_axons=60), "metis")
    assert str(error.value) == (
        "partitioner 'metis' makes 4 200 edges of the synapses, at most 1 000; use partitioner='sequential'"
    )


def test_metis_that_gives_up_is_one_sentence(monkeypatch):
    def part_graph(*args, **kept):
        raise RuntimeError("no memory")

    monkeypatch.setattr("pymetis.part_graph", part_graph)
    with pytest.raises(OptionError) as error:
        partitioned(dense_net(10, 60, 60), small_chip(core__max_neurons=30, core__max_in_axons=60), "metis")
    assert str(error.value) == ("METIS gave up on 4 200 edges and 4 parts (no memory); use partitioner='sequential'")


def test_metis_says_when_slices_would_fit():
    # one layer exactly as large as the chip: METIS cannot know that rows are stored in whole words
    network = dense_net(10, 60, 60)
    chip = small_chip(core__max_neurons=12, core__max_in_axons=60, core__synapse_bits=60 * 128)
    with pytest.raises(FitError) as error:
        partitioned(network, chip, "metis")
    assert str(error.value) == (
        "1 limit exceeded on small\n"
        "  cores  network -> metis  more than 12 of 12  use partitioner='sequential', which needs 10"
    )


@pytest.mark.parametrize("method", METHODS)
def test_partition_lists_what_does_not_fit(method):
    network, chip = dense_net(300, 4), small_chip()
    with pytest.raises(FitError) as error:
        partitioned(network, chip, method)
    assert str(error.value) == (
        "1 limit exceeded on small\n"
        "  fan-in axons  fc1 -> core 0  300 of 256  one neuron of fc1 alone takes 300: give it fewer inputs or raise "
        "core.max_in_axons"
    )


def test_partition_says_how_many_cores_slices_need():
    with pytest.raises(FitError) as error:
        partitioned(dense_net(2, 800), small_chip(), "sequential")
    assert str(error.value) == (
        "1 limit exceeded on small\n  cores  network -> small  13 of 12  make fc1 smaller or raise noc.columns"
    )
    with pytest.raises(FitError) as error:
        partitioned(dense_net(2, 130), small_chip(), "sequential", n_cores=2)
    assert str(error.value) == (
        "1 limit exceeded on small\n  cores  network -> n_cores  3 of 2  raise n_cores or leave it out"
    )


def test_partition_refuses_unknown_methods_and_impossible_numbers_of_cores():
    network = dense_net(2, 3)
    with pytest.raises(OptionError) as error:
        partitioned(network, small_chip(), "sequental")
    others = sorted(set(PARTITIONERS) - {"sequential"})
    assert str(error.value) == f"unknown partitioner 'sequental'; choose one of: sequential, {', '.join(others)}"
    with pytest.raises(OptionError) as error:
        partitioned(network, small_chip(), "metis", n_cores=4)
    assert str(error.value) == "n_cores=4 is too many: small has 12 cores, the net 3 neurons"


def test_partition_takes_a_callable_and_checks_its_answer():
    network, chip = dense_net(2, 3, 2), small_chip()
    mapping = partitioned(network, chip, lambda *_: {"fc1": np.array([4, 4, 9]), "fc2": np.array([9, 1])})
    assert sizes(mapping) == [[0, 2, 1], [1, 0, 1]]
    wrong_cores = (np.array([0, -1]), [[0], [1, 2]])
    for wrong in ({"fc1": np.zeros(3, int)}, *({"fc1": np.zeros(3, int), "fc2": cores} for cores in wrong_cores)):
        with pytest.raises(ModelError) as error:
            partitioned(network, chip, lambda *_, wrong=wrong: wrong)
        assert str(error.value) == "partitioner: layer 'fc2' needs the cores, 0 or more, of its 2 neurons as int[2]"
    with pytest.raises(ModelError, match="gave str for a mapping, not a Mapping"):
        partitioned(network, chip, lambda *_: LogicalCores({}, mapping="none"))
    with pytest.raises(FitError, match="cores  network -> small  14 of 12"):
        partitioned(dense_net(1, 14), chip, lambda *_: {"fc1": np.arange(14)})


def test_match_sites_finds_a_site_for_every_core_where_one_exists():
    rng = np.random.default_rng(0)
    for _ in range(200):
        used, limits = rng.integers(0, 6, (4, 2)), rng.integers(0, 6, (5, 2))
        fits = (used[:, None] <= limits[None]).all(2)
        possible = any(all(fits[c, s] for c, s in enumerate(p)) for p in itertools.permutations(range(5), 4))
        found = match_sites(used, limits)
        assert (found is not None) == possible
        if possible:
            assert len(set(found.tolist())) == 4
            assert all(fits[c, s] for c, s in enumerate(found))


def test_partition_of_a_recurrent_conv_net_passes_check():
    network = conv_net((2, 8, 8), channels=6, n_out=20, padding=1)
    network = Network(
        network.inputs, network.nodes, (*network.connections, Dense("out", "out", integers((20, 20)))),
    )  # fmt: skip
    chip = small_chip(core__max_in_axons=600, core__max_out_axons=600)
    for method in METHODS:
        check(network, chip, feed_forward(network), partitioned(network, chip, method))


@pytest.mark.parametrize("method", METHODS)
def test_cores_out_of_use_hold_nothing(method):
    chip = small_chip(core__max_neurons=[0, *[8] * 9, 0, 0])
    network = dense_net(2, 50, 22)
    used = set(chip.site_index(partitioned(network, chip, method).site_of).tolist())
    assert used == set(range(1, 10))
    with pytest.raises(OptionError) as error:
        partitioned(network, chip, method, n_cores=10)
    assert str(error.value) == "n_cores=10 is too many: small has 9 cores, the net 72 neurons"


def test_more_cores_than_are_in_use_is_the_violation_itself():
    chip = small_chip(noc__routing="up-down", noc__faults=["0,0"])
    with pytest.raises(FitError) as error:
        nw.compile(dense_net(2, 12), chip, options=Options(partitioner=lambda *_: {"fc1": np.arange(12)}))
    assert str(error.value) == (
        "1 limit exceeded on small\n  cores  network -> small  12 of 10  make fc1 smaller or raise noc.columns\n"
        "it fits with partitioner='sequential'"
    )


def test_a_mapping_made_elsewhere_is_told_what_fills_its_cores():
    network, chip = dense_net(3, 20, 8), small_chip(core__max_neurons=8)
    ours = partitioned(network, chip, "sequential")
    theirs = Mapping.from_arrays(ours.core_of, ours.site_of)
    noted = add_binding_notes(theirs, network, chip).note
    assert nw.compile(network, chip, mapping=theirs).mapping.note == ours.note == noted
    # on both cores 20 rows of 4 weights and 10 bits in a word, and 3 rows of 8 or 12 in two; 12 and 16 neurons of 64
    chip = small_chip(core__synapse_bits=4 * (20 * 64 + 3 * 128))
    crowded = Mapping.from_arrays({"fc1": [0] * 8 + [1] * 12, "fc2": [0] * 4 + [1] * 4}, chip.sites[[3, 1]])
    assert add_binding_notes(crowded, network, chip).note == {0: "synapse memory 25 %", 1: "neurons 25 %"}


def test_slices_of_many_layers_share_cores_within_the_limit_of_layers():
    network = dense_net(*[4] * 11)
    chip = small_chip(core__max_neurons=100, core__max_layers=4)
    mapping = partitioned(network, chip, "sequential")
    assert mapping.n_cores == 3
    assert np.count_nonzero(sizes(mapping), axis=0).tolist() == [4, 4, 2]


SCRIPT = """
import hashlib
from tests.made.nets import mixed_net
from tests.made.chips import small_chip
from nwcompile.ir.activity import Activity
from nwcompile.ir.options import Options
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place.place import PLACERS, place
network, chip = mixed_net(5), small_chip(core__max_neurons=30)
for method, placer in [*((m, "anneal") for m in {methods}), *(("metis", p) for p in PLACERS)]:
    options = Options(seed=3, partitioner=method, placer=placer)
    activity = Activity.uniform(network)
    mapping = place(partition(network, chip, activity, options).mapping, network, chip, activity, options)
    digest = hashlib.sha256(mapping.site_of.tobytes())
    for name in network.layers:
        digest.update(mapping.core_of[name].tobytes())
    print(digest.hexdigest())
"""


@pytest.mark.long
def test_mapping_is_the_same_for_any_hash_seed_and_thread_count():
    found = set()
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    script = SCRIPT.format(methods=METHODS)
    for hash_seed, threads in (("0", "1"), ("7", "2")):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads,
               "PYTHONPATH": path}  # fmt: skip
        found.add(subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True).stdout)
    assert len(found) == 1
