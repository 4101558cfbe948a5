"""Quantization-aware training: the module computes the integers of the program that is compiled from it."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn

LIF = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3}


def dense(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(12, 9), nn.LIFLayer(9, **LIF), torch.nn.Linear(9, 4), nn.LIFLayer(4, **LIF)
    return nn.Sequential(*layers)


def spikes(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) < 0.6).astype(np.float32)


def assert_equal_bits(module: nn.QuantizedNetwork, x: np.ndarray, backends=("reference", "cycle", "sequence")) -> None:
    """Spikes, u and v of every layer are those of the compiled program."""
    program = nw.compile(module.network(), module.chip, x)
    found = module.record(x)
    for backend in backends:
        run = nw.simulate(program, x, backend=backend, record="all")
        for name, own in found.items():
            np.testing.assert_array_equal(own["spikes"], run.spikes[name])
            np.testing.assert_array_equal(own["u"], run.states[name]["u"])
            np.testing.assert_array_equal(own["v"], run.states[name]["v"])


@pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8])
def test_quantize_aware_trains_what_the_chip_runs(bits):
    x = spikes(6, 8, 12)
    module = nn.quantize_aware(dense(), "loihi1", x, bits=bits)
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    for _ in range(3):
        assert_equal_bits(module, x, ("sequence",))
        loss = torch.nn.functional.cross_entropy(module(x).sum(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_equal_bits(module, x)
