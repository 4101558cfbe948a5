"""The account of one core, neuron by neuron, is the one that a whole mapping's axons give."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import neuron_offsets
from nwcompile.ir.resources import RESOURCES
from nwcompile.kernels.mapping import core_usage as kernels
from nwcompile.passes.analyze import capacity
from nwcompile.passes.partition import graph_partition
from tests.made.chips import small_chip
from tests.made.nets import FIXED, mixed_net, synapses


@pytest.mark.parametrize(("sharing", "rows"), [(False, None), (True, None), (True, True)])
@pytest.mark.parametrize("seed", range(4))
def test_fan_in_counts_a_core_as_its_axons_do(seed, sharing, rows):
    network = mixed_net(seed)
    chip = small_chip(
        weights__sharing=sharing, weights__kernel_rows=rows, weights__index_bits=5, core__block_synapses=7,
        core__block_overhead_bits=3,
    )  # fmt: skip
    core_of = np.random.default_rng(seed).integers(0, 3, sum(network.node(n).n_neurons for n in network.layers))
    held, out, _ = capacity.count_usage(network, chip, core_of, 3)
    fan, demand = capacity.fan_in(network, chip), np.stack([out, np.ones_like(out)], 1)
    core, no_limit = capacity.empty_core(fan), np.full(kernels.N_RESOURCES, capacity.NO_LIMIT)
    for c in range(3):
        neurons = np.flatnonzero(core_of == c)
        assert kernels.fill(fan, core, demand, neurons, no_limit) == len(neurons)
        assert core.used[:4].tolist() == [int(held[r.key][c]) for r in RESOURCES]
        kernels.clear(fan, core, demand, neurons[::-1])
        assert not any(part.any() for part in core)


def test_a_connection_that_is_listed_twice_counts_twice():
    edge = nw.Dense("in", "a", np.full((4, 8), 2, np.int8))
    networks = [nw.Network.from_arrays({"a": (FIXED, (4,))}, edges, {"in": (8,)}) for edges in ([edge, edge], [edge])]
    twice, once = (capacity.count_alone(capacity.fan_in(n, small_chip()), np.arange(4))[:, 3] for n in networks)
    assert (twice == 2 * once).all() and once.all()


def test_fill_stops_at_what_does_not_fit():
    network, chip = mixed_net(0), small_chip()
    fan = capacity.fan_in(network, chip)
    n = len(fan.slot_offset) - 1
    demand = np.ones((n, 2), np.int64)
    demand[3, 1] = 100
    limit = np.array([6, *[capacity.NO_LIMIT] * 3, 50])
    assert kernels.fill(fan, capacity.empty_core(fan), demand, np.arange(n), limit) == 3


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_fill_choosing_takes_every_neuron_that_fits_when_it_comes(seed, sharing):
    network, rng = mixed_net(seed), np.random.default_rng(seed)
    chip = small_chip(weights__sharing=sharing, core__block_synapses=7, core__block_overhead_bits=3)
    fan = capacity.fan_in(network, chip)
    n = len(fan.slot_offset) - 1
    out_axons = rng.integers(0, 2, n)
    demand, order = np.stack([out_axons, np.ones(n, np.int64)], 1), rng.permutation(n)
    core = capacity.empty_core(fan)
    no_limit = np.full(kernels.N_RESOURCES, capacity.NO_LIMIT)
    kernels.fill(fan, core, demand, order, no_limit)
    limit = core.used // 2  # of what all neurons take together
    limit[kernels.LOAD] = capacity.NO_LIMIT
    kernels.clear(fan, core, demand, order)
    kind = graph_partition._neuron_kinds(fan, out_axons)
    tried = kernels.Tried(kind, np.full(kind.max() + 1, -1), np.zeros(1, np.int64))
    taken, expected, failed = np.zeros(n, bool), [], 0
    kernels.fill_choosing(fan, core, demand, tried, order, limit, taken)
    alone = capacity.empty_core(fan)
    for neuron in order:
        if alone.used[0] < limit[0]:
            one = np.array([neuron])
            kernels.fill(fan, alone, demand, one, no_limit)
            if (alone.used <= limit).all():
                expected.append(neuron)
            else:
                kernels.clear(fan, alone, demand, one)
                failed += 1
    assert order[taken].tolist() == expected
    assert 0 < failed < n and len(set(kind)) < n


def test_fill_choosing_tries_a_neuron_whose_kernel_is_there_after_one_of_its_kind_had_no_room():
    chip, weight = small_chip(weights__sharing=True), np.array([1, 2, 3], np.int8).reshape(3, 1, 1, 1)
    spec = nw.NeuronSpec(threshold=8, fixed=chip.fixed_point)
    edge = nw.Conv2d("in", "out", weight)
    network = nw.Network.from_arrays({"out": (spec, (3, 1, 2))}, [edge], {"in": (1, 1, 2)})
    fan, out_axons = capacity.fan_in(network, chip), np.zeros(6, np.int64)
    demand, core = np.stack([out_axons, np.ones(6, np.int64)], 1), capacity.empty_core(fan)
    no_limit = np.full(kernels.N_RESOURCES, capacity.NO_LIMIT)
    of_one_channel = np.array([4, 5])
    kernels.fill(fan, core, demand, of_one_channel, no_limit)
    limit = core.used.copy()
    limit[[kernels.NEURONS, kernels.LOAD]] = capacity.NO_LIMIT
    kernels.clear(fan, core, demand, of_one_channel)
    kind = graph_partition._neuron_kinds(fan, out_axons)
    tried = kernels.Tried(kind, np.full(kind.max() + 1, -1), np.zeros(1, np.int64))
    order, taken = np.array([4, 3, 5]), np.zeros(3, bool)
    kernels.fill_choosing(fan, core, demand, tried, order, limit, taken)
    assert kind[3] == kind[5] and taken.tolist() == [True, False, True]


def test_synaptic_load_is_a_visit_a_step_and_an_event_a_synapse_and_spike():
    network, rng = mixed_net(2), np.random.default_rng(0)
    counts = {n: rng.poisson(0.5, (3, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    load = capacity.synaptic_load(network, Activity(counts, 7))
    expected = np.full(len(load), 3 * 7)
    first = neuron_offsets(network)
    for c in network.connections:
        for pre, post in synapses(network, c):
            expected[first[c.target] + post] += counts[c.source][:, pre].sum()
    assert load.tolist() == expected.tolist()
