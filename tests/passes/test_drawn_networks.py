"""Drawn networks with junctions, maxima, products and delays: a program gives their spikes, or a chip refuses them.

All numbers are multiples of a power of two, so that most chips hold them exactly.
"""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.connection import MatMul

SHAPE = (1, 4, 4)
N = 16
CHIPS = ("loihi2", "spinnaker2", "loihi1")
ONES = np.ones(N, np.float32)
ROUNDED = 0.95  # least share of equal spikes where neurons send currents, whose weights have a unit of their own


class Drawing:
    """A network that grows by one drawn connection after the other; each is exact in float32."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.layers: dict[str, tuple] = {}
        self.edges: list[nw.Connection] = []
        self.spiking: list[str] = []
        for i in range(self.rng.integers(2, 5)):
            name = f"l{i}"
            for k in range(self.rng.integers(1, 4)):
                kinds = [self.direct, self.junction, *([self.maximum, self.product] if self.spiking else [])]
                kinds[self.rng.integers(len(kinds))](name, f"{name}/junction{k}")
            beta, threshold = self.rng.choice([0, 0.5, 1.0]), self.rng.choice([0.5, 1.0, 1.5])
            spec = nw.NeuronSpec(beta=beta, threshold=threshold, reset=str(self.rng.choice(["zero", "subtract"])))
            self.layers[name] = (spec, SHAPE)
            self.spiking.append(name)
        self.network = nw.Network.from_arrays(self.layers, self.edges, {"x": SHAPE})

    def weights(self, *size: int) -> np.ndarray:
        return (self.rng.integers(-4, 6, size) / 8).astype(np.float32)

    def source(self, with_input: bool = True) -> str:
        return str(self.rng.choice(["x", *self.spiking] if with_input else self.spiking))

    def direct(self, target: str, _: str) -> None:
        pre, post = self.rng.integers(0, N, (2, 20))
        source, delay = self.source(), int(self.rng.choice([0, 0, 1, 2]))
        self.edges.append(
            [
                nw.Dense(source, target, self.weights(N, N), delay=delay),
                nw.Conv2d(source, target, self.weights(1, 1, 3, 3), padding=1, delay=delay),
                nw.Scale(source, target, float(self.rng.choice([-0.5, 1.0])), delay=delay),
                nw.Sparse(source, target, pre=pre, post=post, weight=self.weights(20), delay=delay),
            ][self.rng.integers(4)]
        )

    def junction(self, target: str, name: str) -> None:
        self.layers[name] = (None, SHAPE)
        self.edges += [nw.Dense(self.source(), name, self.weights(N, N), self.weights(N) / 2)]
        self.edges += [nw.Scale(self.source(), name, 0.5), nw.Scale(name, target, 1.0)]

    def maximum(self, target: str, name: str) -> None:
        window = int(self.rng.choice([1, 3]))
        if self.rng.random() < 0.4:  # of spikes
            self.edges.append(nw.MaxPool2d(self.source(False), target, window, 1, window // 2))
            return
        self.layers[name] = (None, SHAPE)
        self.edges.append(nw.Dense(self.source(False), name, self.weights(N, N)))
        self.edges.append(nw.MaxPool2d(name, target, window, 1, window // 2))

    def product(self, target: str, name: str) -> None:
        self.layers[name] = (None, (2 * N,))
        every, first = np.arange(N), self.source(False)
        if self.rng.random() < 0.5:
            self.edges.append(nw.Sparse(first, name, pre=every, post=every, weight=ONES))
        else:
            self.edges.append(nw.Dense(first, name, np.concatenate([self.weights(N, N), np.zeros((N, N), np.float32)])))
        self.edges.append(nw.Sparse(self.source(False), name, pre=every, post=N + every, weight=ONES))
        self.edges.append(MatMul(name, target, left=(1, 4, 4), right=(1, 4, 4)))


def judge(seed: int) -> str:
    """Compile a drawn network; return "equal", "near" or "refused", or raise AssertionError."""
    network, chip = Drawing(seed).network, CHIPS[seed % len(CHIPS)]
    x = (np.random.default_rng(seed + 1_000_000).random((3, 9, *SHAPE)) < 0.3).astype(np.float32)
    wanted = nw.simulate(network, x).spikes
    try:
        program = nw.compile(network, chip, x)
    except nw.FitError:
        return "refused"
    sent = nw.simulate(program, x, backend="sequence").spikes
    least = min(float((sent[name] == wanted[name]).mean()) for name in network.layers)
    sends_currents = any(name.endswith(("/sums", "/currents")) for name in program.network.layers)
    assert least == 1 or (sends_currents and least >= ROUNDED), (seed, chip, least)
    return "equal" if least == 1 else "near"


def test_programs_of_drawn_networks_give_their_spikes():
    assert [judge(seed) for seed in (1, 124)] == ["equal", "near"]  # 124: two products in one layer


@pytest.mark.long
def test_programs_of_many_drawn_networks_give_their_spikes():
    verdicts = [judge(seed) for seed in range(100, 140)]
    assert verdicts.count("equal") >= 15, verdicts
