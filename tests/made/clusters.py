"""Neurons in random clusters on cores, in the form that the annealers use."""

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.kernels.mapping import moves
from nwcompile.passes.partition.floorline.demand import empty_cores
from tests.made.chips import small_chip
from tests.made.nets import mixed_net

N_CORES = 5
REGIONS = np.array([[0, 2], [0, 2], [2, 3], [2, 3], [2, 3]])  # first core and size of each core's region


def clustered(seed: int):
    """A mixed net with random spikes, a chip of random format, and its neurons in random clusters."""
    rng = np.random.default_rng(seed)
    network = mixed_net(seed)
    chip = small_chip(
        weights__sharing=bool(rng.integers(2)), weights__kernel_rows=bool(seed % 2), weights__index_bits=5,
        core__block_synapses=7,
        cost__units=str(rng.choice(["shared", "overlap"])), cost__word_cycles=int(rng.integers(2)),
        core__max_neurons=60, core__max_in_axons=110, core__max_out_axons=80, core__synapse_bits=20_000,
        noc__multicast=str(rng.choice(["unicast", "tree"])),
    )  # fmt: skip
    counts = {n: rng.poisson(0.4, (4, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    updates = {n: rng.integers(0, 3, counts[n].shape).astype(np.int32) for n in network.layers[:1]}
    n = sum(network.node(name).n_neurons for name in network.layers)
    cluster_of = np.unique(rng.integers(0, rng.integers(3, 40), n), return_inverse=True)[1].reshape(-1)
    return network, chip, Activity(counts, 3, updates), cluster_of, rng


def filled(demand, chip, core_of):
    """The annealer state after placing every cluster on its core, one after another."""
    state = empty_cores(demand, chip)
    for cluster, core in enumerate(core_of):
        moves.relocate(*demand, state.held, state.busy, np.array([cluster]), np.array([core]))
    moves.refresh_totals(demand.rules, state.held, state.busy)
    return state


def assert_equal_states(state, expected):
    for name, value in expected.held._asdict().items():
        assert np.array_equal(getattr(state.held, name), value), name
    for name in ("load", "top", "total"):
        assert np.array_equal(getattr(state.busy, name), getattr(expected.busy, name)), name
