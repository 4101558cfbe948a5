"""from_torch on modules whose code names a number of samples, as a global `batch_size` or an attribute."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError
from nwcompile.sim.answers import read_out
from tests.made.spikes import spike_tensor

B, T, N_IN, N, N_OUT = 5, 8, 6, 7, 3


def spike(v):
    return (v > 0.5).float()


class Fixed(torch.nn.Module):
    """Two layers whose states have `n` samples; the mean of the spikes."""

    def __init__(self, n=B):
        super().__init__()
        torch.manual_seed(0)
        self.n, self.fc, self.out = n, torch.nn.Linear(N_IN, N), torch.nn.Linear(N, N_OUT)
        self.fc.weight.data *= 3

    def start(self, n_neurons):
        return torch.zeros(self.n, n_neurons)

    def read(self, x, t):
        return x[:, t]

    def forward(self, x):
        v, w, total = self.start(N), self.start(N_OUT), self.start(N_OUT)
        for t in range(T):
            v = 0.8 * v + self.fc(self.read(x, t))
            z = spike(v)
            v = v * (1 - z)
            w = 0.9 * w + self.out(z)
            o = spike(w)
            w = w - 0.5 * o
            total = total + o
        return total / T


class Viewed(Fixed):
    def read(self, x, t):
        return x[:, t].reshape(self.n, -1)


class Reshaped(Fixed):
    def forward(self, x):
        return super().forward(x.view(self.n, -1, N_IN))


class Filled(Fixed):
    def start(self, n_neurons):
        return torch.full((self.n, n_neurons), 0.25)


class Sized(Fixed):
    def start(self, n_neurons):
        return self.fc.weight.new_zeros(size=(self.n, n_neurons))


class Repeated(Fixed):
    def start(self, n_neurons):
        return torch.zeros(n_neurons).repeat(self.n, 1)


class TimeFirst(Fixed):
    def read(self, x, t):
        return x.transpose(0, 1).reshape(T, self.n, -1)[t]


class Kept(Fixed):
    """The states are set before the module runs."""

    def __init__(self, n=B):
        super().__init__(n)
        self.v, self.w = torch.zeros(n, N), torch.zeros(n, N_OUT)

    def start(self, n_neurons):
        return self.v if n_neurons == N else self.w


class OfFramework(Fixed):
    """A layer of nwcompile between neurons of one's own."""

    def __init__(self, n=B):
        super().__init__(n)
        self.lif = nn.LIFLayer(N, 4e-3, 0.75, "subtraction", 1e-3)

    def forward(self, x):
        spikes, _ = self.lif(self.fc(x.reshape(self.n, T, N_IN)))
        return super().forward(spikes[..., :N_IN])


STYLES = (Fixed, Viewed, Reshaped, Filled, Sized, Repeated, TimeFirst, Kept, OfFramework)


@pytest.mark.parametrize("n", [B, N])  # as many as neurons, too
@pytest.mark.parametrize("style", STYLES)
def test_a_module_of_a_fixed_number_of_samples_is_a_network_of_one(style, n):
    module, x = style(n).eval(), spike_tensor(n, T, N_IN)
    network = nw.from_torch(module, x)
    assert sum(network.node(name).n_neurons for name in network.layers) == N + N_OUT + N * (style is OfFramework)
    drawn = spike_tensor(n, T, N_IN, seed=2)
    with torch.no_grad():
        nn.prepare_net(module)
        expected = module(drawn).numpy()
    assert 0 < expected.mean() < 1
    result = read_out(nw.simulate(network, drawn.numpy(), record="all"))
    np.testing.assert_allclose(result.reshape(n, -1, N_OUT).mean(1), expected, 1e-6)  # of all steps, or their mean


@pytest.mark.parametrize("style", [Fixed, Kept])
@pytest.mark.parametrize("n_given", [1, 3])
def test_the_example_may_have_another_number_of_samples_than_the_code(style, n_given):
    module = style(32).eval()
    network = nw.from_torch(module, spike_tensor(n_given, T, N_IN))
    assert module.start(N).shape == (32, N)  # the module is unchanged
    assert sum(network.node(name).n_neurons for name in network.layers) == N + N_OUT


def test_a_module_that_joins_its_fixed_number_of_samples_is_refused():
    class Joined(Fixed):
        def read(self, x, t):
            return x[:, t] - x[:, t].mean(0, keepdim=True).expand(self.n, -1)

    with pytest.raises(ModelError, match="the module takes one sample, but fails on 4"):
        nw.from_torch(Joined().eval(), spike_tensor(B, T, N_IN))


class Images(torch.nn.Module):
    """A convolution and a layer over the steps of one image, with states as the first public code of STBP has them."""

    def __init__(self, n, is_time_first=False):
        super().__init__()
        torch.manual_seed(0)
        self.n, self.is_time_first = n, is_time_first
        self.conv, self.fc = torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.Linear(3 * 16, N_OUT)

    def forward(self, x):
        v = z = torch.zeros(self.n, 3, 4, 4, device=x.device)
        w = o = total = torch.zeros(self.n, N_OUT, device=x.device)
        for t in range(T):
            v = 0.2 * v * (1.0 - z) + 2 * self.conv(x[t] if self.is_time_first else x)
            z = spike(v)
            w = 0.2 * w * (1.0 - o) + 3 * self.fc(z.view(self.n, -1))
            o = spike(w)
            total = total + o
        return total / T


@pytest.mark.parametrize("layout", ["B", "TB"])
def test_a_fixed_number_of_samples_in_any_layout(layout):
    module, x = Images(B, layout == "TB").eval(), spike_tensor(B, T, 1, 4, 4)
    x = x[:, 0] if layout == "B" else x.transpose(0, 1)
    network = nw.from_torch(module, x, layout=layout)
    with torch.no_grad():
        expected = module(x).numpy()
    assert 0 < expected.mean() < 1
    run = nw.simulate(network, x.numpy(), record="all")
    assert sum(network.node(name).n_neurons for name in network.layers) == 3 * 16 + N_OUT
    np.testing.assert_allclose(read_out(run).reshape(B, -1, N_OUT).mean(1), expected, 1e-6)
