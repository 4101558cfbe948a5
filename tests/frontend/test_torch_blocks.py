"""from_torch on what stands between and around layers in deep networks: residual blocks, states put into inputs."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from tests.made.spikes import spike_tensor
from tests.made.tensors import on_grid

N = 6


def lif(n=N):
    return nn.LIFLayer(n, 4e-3, 0.75, "zero", 1e-3, "FF")


def assert_equal(module, x):
    """The imported network's output spikes are those of `module(x)`, `[B, T, *]`."""
    network = nw.from_torch(module, x[:2, :4])
    nn.prepare_net(module)
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    got = nw.simulate(network, x).output
    assert 0.02 < expected.mean() < 0.98
    np.testing.assert_array_equal(got.reshape(expected.shape), expected)
    return network


class Joined(torch.nn.Module):
    """Two layers of spikes, a and b, joined by `join(a, b)`, and a layer that is fed with the result."""

    def __init__(self, join):
        super().__init__()
        self.one, self.two, self.after = (torch.nn.Linear(n, N) for n in (4, 4, N))
        self.a, self.b, self.out, self.join = lif(), lif(), lif(), join

    def forward(self, x):
        a, b = self.a(self.one(x))[0], self.b(self.two(x))[0]
        return self.out(self.after(self.join(a, b)))[0]


@pytest.mark.parametrize(
    "join",
    [lambda a, b: a * b, lambda a, b: a * (1.0 - b), lambda a, b: (1 - a) * b, lambda a, b: torch.mul(1 - a, 1 - b)],
)
def test_from_torch_makes_neurons_of_a_product_of_spikes(join):
    torch.manual_seed(1)
    network = assert_equal(on_grid(Joined(join)), spike_tensor(3, 20, 4, seed=5))
    made = network.node("mul").neuron
    assert made.fires and made.reset == "zero" and made.beta == 0


class Recurrent(torch.nn.Module):
    """One linear map of the input and the spikes of the step before, together."""

    def __init__(self):
        super().__init__()
        self.both, self.cell = torch.nn.Linear(4 + N, N), lif()

    def forward(self, x):
        before, out = torch.zeros(len(x), N), []
        for x_t in x.unbind(1):
            before, _ = self.cell(self.both(torch.cat([x_t, before], -1)))
            out.append(before)
        return torch.stack(out, 1)


def test_from_torch_follows_a_state_of_zeros_put_together_with_the_input():
    torch.manual_seed(1)
    network = assert_equal(on_grid(Recurrent()), spike_tensor(3, 20, 4, seed=5))
    assert {(c.source, c.aligned_delay) for c in network.connections} >= {("input", 0), ("cell", 1)}


@pytest.mark.parametrize(("wanted", "made"), [((2, 3), "Pool2d"), ((1, None), "Pool2d"), (4, "Sparse"), (9, "Sparse")])
def test_from_torch_takes_means_over_adaptive_windows(wanted, made):
    torch.manual_seed(2)
    conv, pool = torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.AdaptiveAvgPool2d(wanted)
    n = pool(torch.zeros(1, 3, 6, 6)).numel()
    out = torch.nn.Sequential(torch.nn.Linear(n, 5), lif(5))
    for part in (conv, out[0]):
        part.weight.data = torch.randn_like(part.weight)

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.a, self.pool, self.linear, self.b = conv, lif(108), pool, out[0], out[1]

        def forward(self, x):
            s, _ = self.a(self.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2]))
            s = self.pool(s.reshape(-1, 3, 6, 6)).flatten(1)
            return self.b(self.linear(s).unflatten(0, x.shape[:2]))[0]

    network = assert_equal(Pooled(), spike_tensor(2, 8, 2, 6, 6, seed=5))
    assert made in [type(c).__name__ for c in network.connections]
