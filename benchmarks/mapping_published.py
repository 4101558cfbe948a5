"""Nets of publications for benchmarks/mapping.py: HySMap's draws, bit for bit, and a sparse MLP on Loihi 2.

The tables of nets of SNEAP (arXiv 2004.01639) and EdgeMap (Sensors 23:6548, 2023), and the layer sizes of the MLPs of
arXiv 2602.04717, could not be read: only the abstracts were accessible. So no net here is named after them.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

import nwcompile as nw
from benchmarks.mapping_nets import NO_AXON_LIMITS, Net, drive
from nwcompile.ir.activity import Activity

HYSMAP_HERTZ = (5.5, 11.0, 8.5, 14.0, 7.0, 12.0, 3.5, 9.0)  # of 2/3e, 2/3i, 4e, 4i, 5e, 5i, 6e, 6i
HYSMAP_SHARES = (0.2681, 0.0756, 0.2840, 0.0710, 0.0629, 0.0138, 0.1865, 0.0382)
HYSMAP_CHANCES = [  # [source, target]; the eighth population has no targets
    [0.101, 0.135, 0.008, 0.069, 0.100, 0.055, 0.016, 0.036],
    [0.169, 0.137, 0.006, 0.003, 0.062, 0.027, 0.007, 0.001],
    [0.088, 0.032, 0.079, 0.100, 0.051, 0.009, 0.003, 0.000],
    [0.082, 0.052, 0.080, 0.130, 0.007, 0.000, 0.000, 0.000],
    [0.032, 0.075, 0.007, 0.006, 0.083, 0.060, 0.004, 0.015],
    [0.000, 0.000, 0.001, 0.000, 0.000, 0.000, 0.000, 0.000],
    [0.008, 0.004, 0.045, 0.000, 0.028, 0.000, 0.016, 0.007],
    [0.000] * 8,
]
HYSMAP_LOOPS = 0.02  # added to the chance within a population
HYSMAP_SLACK = 0.15  # a core holds at most that share more than the mean
HYSMAP_DIGITS = 6  # significant digits of a rate in HySMap's files
HYSMAP_HOPS = {"hysmap80-4": 3351.57804, "hysmap80-6": 5363.67557, "hysmap108-6": 7418.11381}  # its results/bench.csv
WORD = (1 << 64) - 1


class MersenneTwister64:
    """C++'s std::mt19937_64, as numpy has only the variant of 32 bits (Nishimura, ACM TOMACS 10(4), 2000)."""

    def __init__(self, seed: int):
        self.state = [seed]
        for i in range(1, 312):
            last = self.state[-1]
            self.state.append(6364136223846793005 * (last ^ last >> 62) + i & WORD)
        self.at = 312

    def draw(self) -> float:
        """Draw a number in [0, 1)."""
        if self.at == 312:
            for i in range(312):
                both = self.state[i] & ~0x7FFFFFFF | self.state[(i + 1) % 312] & 0x7FFFFFFF
                self.state[i] = self.state[(i + 156) % 312] ^ both >> 1 ^ (0xB5026F5AA96619E9 if both & 1 else 0)
            self.at = 0
        z = self.state[self.at]
        self.at += 1
        z ^= z >> 29 & 0x5555555555555555
        z ^= z << 17 & 0x71D67FFFEDA60000
        z ^= z << 37 & 0xFFF7EEE000000000
        return (z ^ z >> 43) / 2**64

    def draw_normal(self) -> float:
        """Draw from the standard normal distribution by Marsaglia's polar method; one of its two values is unused."""
        while True:
            x, y = 2 * self.draw() - 1, 2 * self.draw() - 1
            r2 = x * x + y * y
            if 0 < r2 <= 1:
                return y * float(np.sqrt(-2 * np.log(r2) / r2))


def hysmap(n: int, side: int, repetition: int = 1) -> Net:
    """HySMap's net of `n` neurons like the cortical microcircuit, on `side` x `side` routers of one core.

    The draws of its results (github.com/amineux/HySMap, src/snn_generator.cpp and results/bench.csv): the seed is the
    neurons plus the side plus 17 a repetition, which its file does not say but the published numbers of synapses do.
    A core holds at most 15 % more neurons than the mean, as there; its least number, 15 % fewer, is no limit here.
    Messages fork in the routers. A neuron's rate is its spikes of one sample, one a step and the rest in the last.
    """
    random = MersenneTwister64(n + side + 17 * repetition)
    sizes = [max(1, int(share * n + 0.5)) for share in HYSMAP_SHARES]
    sizes[2] += n - sum(sizes)
    rates = [
        max(0.05, float(np.exp(0.35 * random.draw_normal() + np.log(hertz))))
        for size, hertz in zip(sizes, HYSMAP_HERTZ, strict=True)
        for _ in range(size)
    ]
    inflation = min(max(18 / np.sqrt(n), 1.0), 8.0)
    first, pairs = np.cumsum([0, *sizes]), []
    for a, b in product(range(8), range(8)):
        chance = HYSMAP_CHANCES[a][b] * inflation + (HYSMAP_LOOPS if a == b else 0.0)
        places = product(range(first[a], first[a + 1]), range(first[b], first[b + 1])) if chance else ()
        pairs += [(i, j) for i, j in places if i != j and random.draw() < chance]
    pre, post = np.array(pairs).T
    most = int(np.ceil((1 + HYSMAP_SLACK) * n / side**2))
    keys = {"noc.columns": side, "noc.rows": side, "noc.cores_per_router": 1, "noc.multicast": "tree",
            "noc.flits_per_message": 1, "noc.payload_flits": 0, "core.max_neurons": most, **NO_AXON_LIMITS}  # fmt: skip
    chip = nw.Chip.load("loihi1").replace(keys)
    spec = nw.NeuronSpec(threshold=1000 << 6, fixed=chip.fixed_point)
    edge = nw.Sparse("n", "n", pre, post, np.full(len(pre), 2, np.int8), delay=1)
    network = nw.Network.from_arrays({"n": (spec, (n,))}, [edge])
    rate, unit = np.array([float(f"{x:.{HYSMAP_DIGITS}g}") for x in rates]), 10 ** (HYSMAP_DIGITS - 1)
    n_steps = int(np.ceil(rate.max()))
    counts = np.rint(unit * np.clip(rate - np.arange(n_steps)[:, None], 0, 1)).astype(np.int32)
    return Net(network, chip, Activity({"n": counts}, unit), None, n_steps, runs=False)


def sparse_mlp(n_layers: int = 10, width: int = 2048, density: float = 0.05, active: float = 0.1) -> Net:
    """A sparse multi-layer perceptron on Loihi 2: the first layers fire by biases, `active` of them in a step.

    After the task of arXiv 2602.04717, sparse MLPs on Loihi 2 of which a summary says 10 layers. Sizes, density and
    rates are assumed. Weights are drawn evenly from both signs, with a mean above 0 that keeps deep layers active.
    """
    rng = np.random.default_rng(0)
    chip = nw.Chip.load("loihi2")
    bias = rng.integers(0, round(2000 * active), width, endpoint=True) << 6
    layers, edges = {}, []
    for i in range(n_layers):
        own = {"bias": bias} if i == 0 else {}
        layers[f"layer{i}"] = (nw.NeuronSpec(threshold=1000 << 6, fixed=chip.fixed_point, **own), (width,))
        if i:
            pre, post = np.nonzero(rng.random((width, width)) < density)
            w = (2 * rng.integers(-30, 41, len(pre))).astype(np.int8)
            edges.append(nw.Sparse(f"layer{i - 1}", f"layer{i}", pre, post, w))
    return drive(nw.Network.from_arrays(layers, edges), chip, 100)


PUBLISHED: dict[str, Callable[[Path], Net]] = {
    "hysmap80-4": lambda at: hysmap(80, 4), "hysmap80-6": lambda at: hysmap(80, 6),
    "hysmap108-6": lambda at: hysmap(108, 6), "mlp": lambda at: sparse_mlp(),
}  # fmt: skip
