"""The floorline partitioner finds what an exhaustive search finds, keeps every limit, and does what it is asked for."""

import itertools

import numpy as np
import pytest

from nwcompile.ir.activity import Activity
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.kernels import cpu_moves
from nwcompile.passes.demand import empty_loads, unit_demand
from nwcompile.passes.floorline import floorline
from nwcompile.passes.schedule import schedule
from tests.chips import small_chip
from tests.nets import FIXED, sparse_edge


def judged(network, chip, activity, core_of, n_cores) -> np.ndarray:
    """`Loads.total` of cores int[neuron]."""
    demand = unit_demand(network, chip, activity, schedule(network), np.arange(len(core_of)), n_cores)
    loads = empty_loads(demand, chip)
    cpu_moves.put_all(demand, loads, np.asarray(core_of, np.int32))
    return loads.total


def flat(cores: dict) -> np.ndarray:
    return np.concatenate([*cores.values()])


def tiny_case(seed: int):
    """Up to 8 neurons with drawn synapses and spikes on up to 4 cores, some limit often tight."""
    rng = np.random.default_rng(seed)
    n, n_cores = int(rng.integers(3, 9)), int(rng.integers(2, 5))
    edges = [sparse_edge("in", "a", 4, n, int(rng.integers(1, 16)), seed), sparse_edge("a", "a", n, n, 2 * n, seed)]
    network = Network.from_arrays({"a": (FIXED, (n,))}, edges, {"in": (4,)})
    chip = small_chip(
        noc__columns=n_cores, noc__rows=1, noc__cores_per_router=1, cost__units=str(rng.choice(["shared", "overlap"])),
        cost__barrier_cycles={"1": int(rng.integers(100)), "3": 100}, core__max_neurons=int(rng.integers(2, n + 1)),
        core__max_in_axons=int(rng.integers(7, 13)),
    )  # fmt: skip
    counts = {"in": rng.poisson(0.5, (5, 4)).astype(np.int32), "a": rng.poisson(0.5, (5, n)).astype(np.int32)}
    return network, chip, Activity(counts, 1), n, n_cores


def groupings(n: int, n_cores: int):
    """Every way to put n neurons on up to n_cores equal cores."""
    for cores in itertools.product(range(n_cores), repeat=n):
        if all(c <= max(cores[:i], default=-1) + 1 for i, c in enumerate(cores)):
            yield cores


def is_optimal(seed: int) -> bool:
    network, chip, activity, n, n_cores = tiny_case(seed)
    demand = unit_demand(network, chip, activity, schedule(network), np.arange(n), n_cores)

    def rank(core_of) -> tuple[int, int]:
        loads = empty_loads(demand, chip)
        cpu_moves.put_all(demand, loads, np.asarray(core_of, np.int32))
        return int(loads.total[cpu_moves.EXCESS]), int(loads.total[cpu_moves.TIME])

    best = min(rank(core_of) for core_of in groupings(n, n_cores))
    found = flat(floorline(network, chip, activity, Options(seed=seed)))
    return best[0] > 0 or (found.max() < n_cores and rank(found) == best)


def test_floorline_finds_the_optimum_of_tiny_nets():
    assert sum(is_optimal(seed) for seed in range(20)) >= 19


@pytest.mark.long
def test_floorline_finds_the_optimum_of_500_tiny_nets():
    assert sum(is_optimal(seed) for seed in range(500)) >= 475
