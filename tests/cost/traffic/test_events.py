"""Axons, resources and event counts, against a list of every synapse written out by hand."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.traffic.axons import build_axons, core_use
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.memory import row_bits
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Conv2d, Dense, Scale, Sparse
from nwcompile.ir.flat import flat_cores
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.run import COUNTERS
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from tests.made.chips import small_chip
from tests.made.nets import FIXED, conv_net, dense_net, feed_forward, integers, mixed_net, synapses


def naive_axons(network, core_of, chip):
    """{(source, core): [synops by kind, words, row bits]} by walking through every synapse."""
    table = {}
    for c in network.connections:
        kind = 1 if isinstance(c, Sparse) else 2 if isinstance(c, Conv2d) and chip.weights.sharing else 0
        bits = (c.weight_bits or chip.weights.bits) + (chip.weights.index_bits if kind == 1 else 0)
        rows = {}
        for pre, post in synapses(network, c):
            key = (network.offsets[c.source] + pre, int(core_of[network.offsets[c.target] + post]))
            rows[key] = rows.get(key, 0) + 1
        for key, n in rows.items():
            synops, memory = table.setdefault(key, ([0, 0, 0], [0, 0]))
            synops[kind] += n
            if kind == 2:
                memory[0] += -(-n * bits // chip.core.word_bits)
                continue
            while n > 0:
                block = min(n, chip.core.block_synapses)
                words = -(-(block * bits + chip.core.block_overhead_bits) // chip.core.word_bits)
                memory[0] += words
                memory[1] += words * chip.core.word_bits
                n -= block
    return table


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 5))
def test_build_axons_agrees_with_every_synapse_written_out(seed, sharing, n_cores):
    network = mixed_net(seed)
    chip = small_chip(weights__sharing=sharing, weights__index_bits=5, core__block_synapses=7, core__word_bits=16)
    core_of = np.random.default_rng(seed).integers(0, n_cores, sum(network.node(n).n_neurons for n in network.offsets))
    core_of = core_of.astype(np.int32)
    core_of[: network.inputs["in"].n_neurons] = -1
    axons = build_axons(network, core_of, n_cores, chip)
    found = {
        (int(s), int(c)): (synops.tolist(), [int(words), int(bits)])
        for s, c, synops, words, bits in zip(
            axons.source, axons.core, axons.synops, axons.words, axons.row_bits, strict=True
        )
    }
    assert found == naive_axons(network, core_of, chip)
    assert len(found) == axons.n_axons
    assert (np.diff(axons.source * n_cores + axons.core) > 0).all()


def test_build_axons_stores_a_shared_kernel_once_per_core():
    network, chip = conv_net((2, 6, 5), channels=4), small_chip(weights__sharing=True)
    core_of = np.full(60 + 48 + 3, -1, np.int32)
    core_of[60:108] = np.repeat([0, 0, 0, 1], 12)
    core_of[108:] = 1
    axons = build_axons(network, core_of, 2, chip)
    assert axons.kernel_bits.tolist() == [3 * 2 * 9 * 8, 2 * 9 * 8]
    held = core_use(axons, core_of, 2)
    assert held["synapse_bits"].tolist() == [3 * 18 * 8, 18 * 8 + 48 * 64]
    assert held["neurons"].tolist() == [36, 15]
    assert held["in_axons"].tolist() == [60, 60 + 48]
    assert held["out_axons"].tolist() == [36, 12]


def test_build_axons_takes_zero_weights_as_stored_and_padding_as_nothing():
    spec = NeuronSpec()
    edges = [
        Dense("in", "d", np.zeros((3, 4), np.float32)),
        Conv2d("in", "c", np.zeros((1, 1, 3, 3), np.float32), padding=1, source_shape=(1, 2, 2)),
    ]
    network = Network.from_arrays({"d": spec, "c": spec}, edges, {"in": (4,)})
    for sharing, synops in ((False, [7, 0, 0]), (True, [3, 0, 4])):
        chip = small_chip(weights__sharing=sharing)
        axons = build_axons(network, np.array([-1] * 4 + [0] * 7, np.int32), 1, chip)
        assert axons.synops.tolist() == [synops] * 4


def test_build_axons_refuses_a_connection_that_is_not_normalized():
    network = Network.from_arrays({"a": NeuronSpec()}, [Scale("in", "a")], {"in": (4,)})
    with pytest.raises(ModelError) as error:
        build_axons(network, np.array([-1] * 4 + [0] * 4, np.int32), 1, small_chip())
    assert str(error.value) == ("connection 'in' -> 'a': a Scale has no synapses to place; normalize the network first")


def test_row_bits_are_whole_words_of_each_block():
    chip = small_chip()
    assert row_bits(np.array([0, 1, 6, 7, 64, 65]), 8, chip).tolist() == [0, 64, 64, 128, 576, 640]


def naive_counts(program, activity, window):
    """Counters by walking every spike through every axon of its source."""
    pipelined = window == "aligned" and program.schedule.period == 1
    depth = max(program.schedule.offset.values()) if pipelined else 0
    n_steps, n_cores = activity.n_steps + depth, program.mapping.n_cores
    counts = {name: np.zeros((n_steps, n_cores), np.int64) for name in COUNTERS}
    site, axons, core_of = program.mapping.site_of, program.axons, program.core_of
    for name, first in program.network.offsets.items():
        for t, i in np.ndindex(activity.counts[name].shape):
            n, h, own = (
                int(activity.counts[name][t, i]),
                t + pipelined * program.schedule.offset[name],
                core_of[first + i],
            )
            if own >= 0:
                counts["spikes_out"][h, own] += n
                counts["neuron_updates"][h, own] += activity.n_samples
            for a in range(axons.offset[first + i], axons.offset[first + i + 1]):
                core = axons.core[a]
                for kind, word in enumerate(("dense", "sparse", "conv")):
                    counts[f"synops_{word}"][h, core] += n * axons.synops[a, kind]
                    counts["synops"][h, core] += n * axons.synops[a, kind]
                counts["weight_reads"][h, core] += n * axons.words[a]
                counts["messages_in"][h, core] += n
                counts["deliveries"][h, core] += n
                if own >= 0:
                    counts["messages_out"][h, own] += n
                    for axis, word in enumerate(("ew", "ns")):
                        distance = abs(int(site[own, axis]) - int(site[core, axis]))
                        counts[f"hops_{word}"][h, own] += n * distance
                        counts["hops"][h, own] += n * distance
    for core in range(n_cores):
        counts["neuron_visits"][:, core] = activity.n_samples * int((core_of == core).sum())
    return counts


@pytest.mark.parametrize("window", ["aligned", "hardware"])
@pytest.mark.parametrize("execution", ["pipelined", "phased"])
def test_count_events_agrees_with_every_spike_walked(window, execution):
    network, chip, rng = mixed_net(3), small_chip(), np.random.default_rng(0)
    timing = schedule(network, execution) if execution == "phased" else feed_forward(network)
    core_of = {name: rng.integers(0, 5, network.node(name).n_neurons) for name in network.layers}
    program = emit(network, timing, Mapping.from_arrays(core_of, chip.sites[[0, 7, 3, 11, 4]]), chip, None, {})
    activity = Activity(
        {n: rng.poisson(0.3, (4, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}, 3
    )
    found = count_events(program, activity, window)
    assert tuple(found) == COUNTERS
    for name, expected in naive_counts(program, activity, window).items():
        np.testing.assert_array_equal(found[name], expected, name)
    flits = link_flits(program, activity, window)
    assert flits.sum(1).tolist() == (found["hops"].sum(1) + 2 * found["messages_out"].sum(1)).tolist()
    n_mesh, n_physical = 4 * 6, chip.n_cores
    physical = chip.site_index(program.mapping.site_of)
    np.testing.assert_array_equal(flits[:, n_mesh : n_mesh + n_physical][:, physical], found["messages_out"])


def test_count_events_takes_measured_updates():
    network, chip = dense_net(2, 3), small_chip()
    mapping = Mapping.from_arrays({"fc1": [0, 1, 1]}, chip.sites[:2])
    program = emit(network, feed_forward(network), mapping, chip, None, {})
    counts = {"in": np.zeros((2, 2), np.int32), "fc1": np.zeros((2, 3), np.int32)}
    activity = Activity(counts, 4, {"fc1": np.array([[1, 2, 4], [0, 0, 3]], np.int32)})
    assert count_events(program, activity)["neuron_updates"].tolist() == [[0, 0], [1, 6], [0, 3]]


EAST, WEST, NORTH, SOUTH = range(4)


@pytest.mark.parametrize(
    ("keys", "way"),
    [
        ({}, [(2, WEST), (1, WEST), (0, NORTH)]),
        ({"routing": "yx"}, [(2, NORTH), (5, WEST), (4, WEST)]),
        ({"topology": "torus", "virtual_channels": 2}, [(2, EAST), (0, NORTH)]),
        ({"routing": "up-down", "faults": ["1,0", "2,0-2,1"], "topology": "torus"}, [(2, EAST), (0, NORTH)]),
        ({"routing": "up-down", "faults": ["0,0"]}, [(2, WEST), (1, NORTH), (4, WEST)]),
    ],
)
def test_link_flits_take_the_way_of_the_routing(keys, way):
    chip = small_chip(noc__flits_per_message=2, **{f"noc__{key}": value for key, value in keys.items()})
    network = Network.from_arrays(
        {"a": (FIXED, (1,)), "b": (FIXED, (1,))}, [Dense("a", "b", integers((1, 1), 0, 1, 1))], {"in": (1,)}
    )
    mapping = Mapping.from_arrays({"a": [0], "b": [1]}, [(2, 0, 1), (0, 1, 0)])
    program = emit(network, feed_forward(network), mapping, chip, None, {})
    counts = {"in": np.zeros((1, 1), np.int32), "a": np.array([[3]], np.int32), "b": np.zeros((1, 1), np.int32)}
    flits = link_flits(program, Activity(counts, 1), "hardware")
    inject, eject = 24 + 2 * 2 + 1, 24 + 12 + 3 * 2
    used = {4 * router + direction: 6 for router, direction in way} | {inject: 6, eject: 6}
    assert {int(link): int(flits[0, link]) for link in np.flatnonzero(flits[0])} == used
    events = count_events(program, Activity(counts, 1), "hardware")
    assert int(events["hops_ew"].sum()) == 3 * sum(direction < 2 for _, direction in way)
    assert int(events["hops"].sum()) == 3 * len(way)


def test_count_events_agrees_with_sanafe_on_rand1024(reference):
    data = np.load(reference / "sanafe" / "rand1024_c16.npz")
    with (reference / "sanafe" / "rand1024_c16_simple.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    edge = Sparse("a", "a", data["src"], data["dst"], data["w"])
    network = Network.from_arrays({"a": (FIXED, (1024,))}, [edge], {})
    chip = small_chip(noc__columns=8, noc__rows=4, noc__cores_per_router=4, core__max_neurons=1024)
    # SANA-FE numbers its tiles x * 4 + y.
    core, tile = data["core"].astype(np.int32), np.arange(16) // 4
    site = np.stack([tile // 4, tile % 4, np.arange(16) % 4], 1)
    program = emit(network, feed_forward(network), Mapping.from_arrays({"a": core}, site), chip, None, {})
    counts = np.zeros((100, 1024), np.int32)
    np.add.at(counts, (data["spk_t"], data["spk_i"]), 1)
    events = count_events(program, Activity({"a": counts}, 1), "hardware")
    for name, key in (("spikes_out", "fired"), ("hops", "hops"), ("synops", "spikes"), ("neuron_updates", "updated")):
        assert events[name].sum(1).tolist() == [int(row[key]) for row in rows], name
    assert int(events["messages_out"].sum()) == 40_840
    assert int(events["hops"].sum()) == 51_184
    energy = 111e-12 * events["messages_out"] + 3.0e-12 * events["hops_ew"] + 4.2e-12 * events["hops_ns"]
    np.testing.assert_allclose(energy.sum(1), [float(row["network_energy"]) for row in rows], rtol=1e-9)


def test_flat_cores_puts_inputs_on_no_core():
    network = dense_net(2, 3, 1)
    mapping = Mapping.from_arrays({"fc1": [0, 1, 0], "fc2": [1]}, [(0, 0, 0), (1, 0, 0)])
    assert flat_cores(network, mapping).tolist() == [-1, -1, 0, 1, 0, 1]
