"""Networks of snnTorch and of our own layers, with an input each: what the neurobench package and we both count."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import Conv2d, Flatten, Linear, Sequential

from nwcompile import nn

N_SAMPLES, N_STEPS = 4, 6


class Case(NamedTuple):
    """`make()` gives the module, always the same; `x` float32[B, T, *shape]."""

    make: Callable[[], torch.nn.Module]
    x: np.ndarray


def dense() -> torch.nn.Module:
    return filled(Sequential(Linear(784, 128), leaky(), Linear(128, 10), leaky(output=True)), 0.01)


def subtracting() -> torch.nn.Module:
    hidden = leaky(reset_mechanism="subtract", reset_delay=True)
    return filled(Sequential(Linear(20, 12), hidden, Linear(12, 4), leaky(output=True)), 0.3)


def convolution() -> torch.nn.Module:
    """Without biases, so that neurons without input stay as they are."""
    first = Conv2d(1, 4, 5, stride=2, padding=2, bias=False)
    second = Conv2d(4, 6, 3, groups=2, dilation=2, bias=False)
    layers = [first, leaky(), second, leaky(), Flatten(), Linear(54, 10, bias=False), leaky(output=True)]
    return filled(Sequential(*layers), 0.4)


def recurrent() -> torch.nn.Module:
    import snntorch

    hidden = snntorch.RLeaky(beta=0.8, linear_features=16, init_hidden=True, reset_mechanism="subtract")
    return filled(Sequential(Linear(20, 16), hidden, Linear(16, 4), leaky(output=True)), 0.4)


def own_layers() -> torch.nn.Module:
    lif = {"taus": 20e-3, "thresholds": 1.0, "reset_mechanism": "zero", "dt": 2e-3}
    return filled(nn.Sequential(Linear(20, 12), nn.LIFLayer(12, **lif), Linear(12, 4), nn.LIFLayer(4, **lif)), 0.4)


def leaky(**options) -> torch.nn.Module:
    """A LIF neuron of snnTorch, by default reset to zero within the step of the spike."""
    import snntorch

    return snntorch.Leaky(beta=0.8, init_hidden=True, **{"reset_mechanism": "zero", "reset_delay": False, **options})


def filled(net: torch.nn.Module, size: float) -> torch.nn.Module:
    """The net with biases, and with weights of that size, three in ten of them 0, from a fixed seed."""
    rng = np.random.default_rng(7)
    for parameter in net.parameters():
        values = rng.normal(size / 4, size, parameter.shape) * (rng.random(parameter.shape) < 0.7)
        parameter.data = torch.from_numpy(values.astype(np.float32))
    return net


def bernoulli(*shape: int, rate: float = 0.3) -> np.ndarray:
    return (np.random.default_rng(8).random((N_SAMPLES, N_STEPS, *shape)) < rate).astype(np.float32)


def grey(*shape: int) -> np.ndarray:
    """Whole numbers 0..3."""
    return np.random.default_rng(9).integers(0, 4, (N_SAMPLES, N_STEPS, *shape)).astype(np.float32)


CASES = {
    "dense": Case(dense, bernoulli(784)),
    "subtracting": Case(subtracting, bernoulli(20)),
    "grey": Case(subtracting, grey(20)),
    "convolution": Case(convolution, bernoulli(1, 14, 14, rate=0.03)),
    "recurrent": Case(recurrent, bernoulli(20)),
    "own_layers": Case(own_layers, bernoulli(20)),
}
