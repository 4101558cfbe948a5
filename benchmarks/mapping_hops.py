"""How few hops a mapping of the cortical microcircuit can have: counted over all mappings of the random draw.

    python benchmarks/mapping_hops.py

The net is the one of benchmarks/mapping.py (7,717 neurons), on 8 cores of 1,024 neurons at two routers: a spike takes
one hop for each core of the other router where its neuron has a target. What a mapping's hops are follows from which
blocks of the drawn connections are empty, and the draw puts n synapses into N places, so a block of b places is empty
with a chance of at most exp(-n b / N); empty blocks that do not overlap are negatively associated (Joag-Dev and
Proschan, Ann. Statist. 11, 1983). Chernoff's inequality bounds the chance that one mapping has h hops or fewer, and
the number of mappings times it the chance that any has. It depends only on how many neurons of each population a core
holds: the smallest h over these numbers is looked for by annealing. So it is where the least lies, and no proof: a
search may miss the smallest, and the spikes, which are taken as given, hang on the draw a little, as synapses change
some of them.
"""

import argparse
from math import lgamma
from pathlib import Path

import numpy as np

from benchmarks.mapping import REFERENCE
from benchmarks.mapping_nets import Net, potjans
from benchmarks.record import show, write

CORES, CORES_OF_ROUTER, NEURONS = 8, 4, 1024
LN_CHANCE = 23.0  # Any mapping below the bound: a chance of exp(-23) = 1e-10.
SLOPES = np.array([0.5, 0.7, 0.9, 1.2, 1.6, 2.2])  # Chernoff's exponents that are tried, per hop
OTHER_ROUTER = np.arange(CORES)[:, None] // CORES_OF_ROUTER != np.arange(CORES) // CORES_OF_ROUTER
LN_FACTORIAL = np.array([lgamma(k + 1) for k in range(30_000)])


class Draw:
    """What all draws of a net share: sizes, synapses of two populations over their places, spikes of a neuron."""

    def __init__(self, net: Net):
        network, names = net.network, list(net.network.layers)
        self.sizes = np.array([network.node(name).n_neurons for name in names])
        self.density = np.zeros((len(names), len(names)))
        for edge in network.connections:
            source, target = names.index(edge.source), names.index(edge.target)
            self.density[source, target] = len(edge.pre) / (self.sizes[source] * self.sizes[target])
        counted = [np.unique(net.activity.counts[name].sum(0), return_counts=True) for name in names]
        shape = (len(names), max(len(value) for value, _ in counted))
        self.spikes, self.share = np.zeros(shape), np.zeros(shape)
        for i, (value, n) in enumerate(counted):
            self.spikes[i, : len(value)], self.share[i, : len(value)] = value, n / n.sum()
        ways = LN_FACTORIAL[self.sizes + CORES - 1] - LN_FACTORIAL[self.sizes] - LN_FACTORIAL[CORES - 1]
        self.ln_all = LN_CHANCE + ways.sum() + LN_FACTORIAL[self.sizes].sum()
        hops = np.exp(-SLOPES[:, None, None] * self.spikes)
        self.kept = hops[:, None]  # [slope, 1, population, value]

    def expected(self, held: np.ndarray) -> float:
        """Hops of a mapping that knows only populations. held: int64[core, population] neurons."""
        spikes = (self.spikes * self.share).sum(1)
        return float((OTHER_ROUTER @ held * (1 - np.exp(-held @ self.density.T)) * spikes).sum())

    def least(self, held: np.ndarray) -> float:
        """No mapping with so many neurons of each population in each core has fewer hops, but for the chance."""
        empty = np.exp(-held @ self.density.T)[None, :, :, None]
        exponent = -(np.log(empty + (1 - empty) * self.kept) * self.share).sum(3)
        ln_mappings = self.ln_all - LN_FACTORIAL[held].sum()
        return float((((OTHER_ROUTER @ held * exponent).sum((1, 2)) - ln_mappings) / SLOPES).max())


def smallest(draw: Draw, cost, seed: int, moves: int) -> tuple[float, np.ndarray]:
    """The least `cost(held)` that annealing finds; a move takes neurons from a core to another, or swaps some."""
    rng = np.random.default_rng(seed)
    held = np.diff(np.linspace(0, draw.sizes, CORES + 1).astype(np.int64), axis=0)
    now = cost(held)
    best = now, held
    for i in range(moves):
        (a, b), (p, q) = rng.choice(CORES, 2, replace=False), rng.integers(len(draw.sizes), size=2)
        there = min(held[a, p], rng.integers(1, 1 + 2 ** rng.integers(1, 10)))
        back = min(held[b, q], there) if rng.random() < 0.7 else 0
        tried = held.copy()
        np.add.at(tried, ([a, b, b, a], [p, p, q, q]), [-there, there, -back, back])
        if tried.min() < 0 or tried.sum(1).max() > NEURONS:
            continue
        then = cost(tried)
        if then <= now or rng.random() < np.exp((now - then) / (300 * (1 - i / moves))):
            held, now = tried, then
            best = min(best, (now, held), key=lambda pair: pair[0])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--moves", type=int, default=80_000)
    args = parser.parse_args()
    draw = Draw(potjans(args.reference))
    rows = []
    for seed in range(args.seeds):
        expected, _ = smallest(draw, draw.expected, seed, args.moves)
        least, held = smallest(draw, draw.least, seed, args.moves)
        rows.append({"seed": seed, "least": round(least), "by population": round(expected), "held": held.tolist()})
    write("mapping_hops", rows, {"moves": args.moves, "ln chance": -LN_CHANCE})
    show([{k: v for k, v in row.items() if k != "held"} for row in rows])


if __name__ == "__main__":
    main()
