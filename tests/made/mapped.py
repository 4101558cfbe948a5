"""Networks and spikes for the mapper: with a random mapping, with bursts, and small enough to try every mapping."""

import itertools

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from tests.made.chips import small_chip
from tests.made.nets import FIXED, conv_net, dense_net, sparse_edge


def scattered_net(seed: int, chip, n_cores: int):
    """A recurrent net with random spikes on random cores at random sites."""
    rng = np.random.default_rng(seed)
    network = dense_net(3, 3 * n_cores, 2 * n_cores, seed=seed, recurrent=True)
    cores = {n: rng.permutation(np.arange(network.node(n).n_neurons) % n_cores) for n in network.layers}
    counts = {n: rng.poisson(1, (3, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    open_sites = np.flatnonzero(chip.limit("max_neurons") > 0)
    return network, Mapping.from_arrays(cores, chip.sites[rng.permutation(open_sites)[:n_cores]]), Activity(counts, 1)


def tiny_case(seed: int):
    """Up to 8 neurons with random synapses and spikes on up to 4 cores; a limit is often tight."""
    rng = np.random.default_rng(seed)
    n, n_cores = int(rng.integers(3, 9)), int(rng.integers(2, 5))
    edges = [sparse_edge("in", "a", 4, n, int(rng.integers(1, 16)), seed), sparse_edge("a", "a", n, n, 2 * n, seed)]
    network = Network.from_arrays({"a": (FIXED, (n,))}, edges, {"in": (4,)})
    chip = small_chip(
        noc__columns=n_cores, noc__rows=1, noc__cores_per_router=1, cost__units=str(rng.choice(["shared", "overlap"])),
        cost__barrier_cycles={"1": int(rng.integers(100)), "3": 100}, core__max_neurons=int(rng.integers(2, n + 1)),
        core__max_in_axons=int(rng.integers(7, 13)),
        cost__min_step_cycles={"1": int(rng.integers(400)), "2": 300} if rng.integers(2) else None,
    )  # fmt: skip
    counts = {"in": rng.poisson(0.5, (5, 4)).astype(np.int32), "a": rng.poisson(0.5, (5, n)).astype(np.int32)}
    return network, chip, Activity(counts, 1), n, n_cores


def groupings(n: int, n_cores: int):
    """Yield every assignment of n neurons to up to n_cores equal cores."""
    for cores in itertools.product(range(n_cores), repeat=n):
        if all(c <= max(cores[:i], default=-1) + 1 for i, c in enumerate(cores)):
            yield cores


def bursty(seed: int = 0):
    """A convolution whose pixels are active one after another, and a small chip with free cores."""
    network, rng = conv_net((2, 5, 5), channels=5, padding=1), np.random.default_rng(seed)
    counts = {n: rng.poisson(0.02, (12, network.node(n).n_neurons)).astype(np.int32) for n in network.offsets}
    for t in range(12):
        counts["in"].reshape(12, 2, 5, 5)[t, :, t % 5, :] = 1
    return (
        network,
        small_chip(core__max_neurons=40, core__max_in_axons=600, core__max_out_axons=2000),
        Activity(counts, 1),
    )
