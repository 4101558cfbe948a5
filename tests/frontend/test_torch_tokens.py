"""from_torch on what spiking transformers and decoders compute between their neurons: means, masks, products, sizes."""

import numpy as np
import pytest
import snntorch
import torch
from torch.nn import functional as F

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.connection import MatMul
from nwcompile.passes.prepare.normalize import normalize
from tests.frontend.token_nets import with_wrong_spikes
from tests.made.spikes import spike_tensor
from tests.made.tensors import on_grid

HEADS, TOKENS, FEATURES = 2, 6, 3


def leaky(threshold=0.5):
    return snntorch.Leaky(beta=0.75, threshold=threshold, init_hidden=True, reset_mechanism="subtract")


class Between(torch.nn.Module):
    """Two layers of spikes `[B, *shape]`, what `join` makes of them, and a layer that is fed with it."""

    def __init__(self, join, shape=(HEADS, TOKENS, FEATURES), threshold=0.5):
        super().__init__()
        n = int(np.prod(shape))
        self.one, self.two = torch.nn.Linear(4, n), torch.nn.Linear(4, n)
        self.a, self.b, self.out, self.join, self.shape = leaky(), leaky(), leaky(threshold), join, shape

    def forward(self, x):
        a, b = self.a(self.one(x)), self.b(self.two(x))
        return self.out(self.join(a.reshape(-1, *self.shape), b.reshape(-1, *self.shape)))


def assert_equal(module, x, least=0.02):
    """The imported network, as it is and normalized, spikes in every layer as the module does; gives it."""
    network = nw.from_torch(module.eval(), x[:2, :4])
    for computed in (network, normalize(network)):
        rates = with_wrong_spikes(module, computed, x, "B")
        assert all(wrong == 0 and rate > least for wrong, rate in rates.values()), rates
    return network


MAP = torch.randint(-32, 64, (5, FEATURES), generator=torch.Generator().manual_seed(8)) / 64
JOINS = {
    "map of tokens": lambda a, b: F.linear(a + b, MAP),
    "mean of tokens": lambda a, b: a.mean(-2),
    "mean of all": lambda a, b: (a + b).mean((1, 2, 3)),
    "sums kept": lambda a, b: a.sum(dim=2, keepdim=True) - b.mean(axis=2, keepdim=True),
    "of axes apart": lambda a, b: torch.sum(a, (1, 3)),
    "token mask": lambda a, b: a[:, :, :, :1] * b,
    "feature mask": lambda a, b: b * a[:, :, :1],
    "sum with a vector": lambda a, b: a + b[:, :1, :1],
    "attention": lambda a, b: (a @ (b.transpose(-2, -1) @ a)) * 0.125,
    "scores": lambda a, b: torch.matmul(a, b.transpose(-2, -1)),
    "one head for all": lambda a, b: a @ b[:, :1].transpose(-2, -1),
    "bmm": lambda a, b: torch.bmm(a[:, 0], b[:, 1].mT),
    "nearest": lambda a, b: F.interpolate(a, scale_factor=2),
    "nearest of 1-d": lambda a, b: F.interpolate(a[:, 0], size=7, mode="nearest-exact"),
}


@pytest.mark.parametrize("name", JOINS)
def test_from_torch_computes_between_layers_what_torch_does(name):
    torch.manual_seed(1)
    network = assert_equal(on_grid(Between(JOINS[name], threshold=0.3)), spike_tensor(3, 12, 4, seed=5, rate=0.4))
    n_products = sum(isinstance(c, MatMul) for c in network.connections)
    assert n_products == {"attention": 2, "scores": 1, "one head for all": 1, "bmm": 1}.get(name, 0)


def test_from_torch_rounds_a_mean_once():
    """Means of 6 tokens are sixths; a neuron that fires at exactly 1/2 tells them from sums of rounded sixths."""
    module = on_grid(Between(lambda a, b: a.mean(-2), threshold=0.5))
    module.out = snntorch.Leaky(beta=0.0, threshold=0.5 - 2**-25, init_hidden=True, reset_mechanism="none")
    assert_equal(module, spike_tensor(3, 12, 4, seed=5, rate=0.4))


ENLARGED = {
    "1d": (lambda: torch.nn.ConvTranspose1d(2, 4, 3, stride=2, padding=1, output_padding=1), (2, 5)),
    "2d": (lambda: torch.nn.ConvTranspose2d(2, 4, (2, 3), stride=(2, 1)), (2, 5, 4)),
    "grouped": (lambda: torch.nn.ConvTranspose2d(4, 6, 3, stride=3, padding=(0, 1), groups=2, bias=False), (4, 4, 3)),
    "dilated": (lambda: torch.nn.ConvTranspose2d(2, 3, 2, dilation=2, padding=1, stride=2), (2, 4, 5)),
    "cropped": (lambda: torch.nn.ConvTranspose2d(2, 3, 2, padding=2, stride=2), (2, 5, 5)),
    "upsampled": (lambda: torch.nn.Upsample(scale_factor=(2, 1.5)), (2, 4, 4)),
    "uneven": (lambda: torch.nn.UpsamplingNearest2d(size=(7, 5)), (2, 4, 4)),
}


@pytest.mark.parametrize("name", ENLARGED)
def test_from_torch_enlarges_maps_as_torch_does(name):
    torch.manual_seed(2)
    make, shape = ENLARGED[name]
    net = torch.nn.Sequential(torch.nn.Linear(shape[-1], shape[-1]), leaky(0.2), make(), leaky(0.1))
    assert_equal(on_grid(net), spike_tensor(3, 10, *shape, seed=5, rate=0.4))


def test_from_torch_takes_a_functional_transposed_convolution():
    torch.manual_seed(2)
    weight = on_grid(torch.nn.ConvTranspose2d(2, 3, 3)).weight.detach()
    module = Between(lambda a, b: F.conv_transpose2d(a + b, weight, stride=2, padding=1, output_padding=1), (2, 3, 4))
    assert_equal(on_grid(module), spike_tensor(3, 10, 4, seed=5, rate=0.4))


class Head(torch.nn.Module):
    """Spikes of all steps, their mean over the tokens and steps, and a linear map of that."""

    def __init__(self, pool):
        super().__init__()
        self.fc, self.lif, self.head, self.pool = torch.nn.Linear(4, 4), nw.nn.LIFLayer(4, 4e-3, 0.5), None, pool
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.pool(self.lif(self.fc(x))[0]))


@pytest.mark.parametrize(
    "pool",
    [lambda s: s.mean(1), lambda s: torch.mean(s, dim=1), lambda s: s.mean((1,)) * 2.0],
    ids=["mean", "dim", "scaled"],
)
def test_from_torch_reads_a_mean_over_steps_as_that_of_the_readout(pool):
    torch.manual_seed(3)
    module, x = Head(pool), spike_tensor(4, 9, 4, seed=5, rate=0.4)
    network = nw.from_torch(module, x[:2])
    nw.nn.prepare_net(module)
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    got = nw.simulate(network, x).states["head"]["v"].mean(1)
    assert np.ptp(expected) > 0.05
    np.testing.assert_allclose(got, expected, atol=1e-6)


REFUSED = {
    "a mean over steps": (
        lambda a: a.mean(1, keepdim=True).expand(-1, 6, -1),
        "layer 'out' is fed by the result of torch's mean, which",
    ),
    "a sum over steps": (
        lambda a: a.sum(1)[:, None].expand(-1, 6, -1),
        "layer 'out' is fed by the result of torch's sum, which from",
    ),
    "samples": (lambda a: a + a.mean(0, keepdim=True), "torch's mean gives a sample other values in a batch than"),
    "layer norm": (lambda a: F.layer_norm(a, (4,)), "torch's layer_norm normalizes every sample and step"),
}


class Refused(torch.nn.Module):
    def __init__(self, between):
        super().__init__()
        self.fc, self.lif, self.out = torch.nn.Linear(4, 4), nw.nn.LIFLayer(4, 4e-3, 0.5), nw.nn.LIFLayer(4, 4e-3, 0.5)
        self.between = between

    def forward(self, x):
        return self.out(self.between(self.lif(self.fc(x))[0]))[0]


@pytest.mark.parametrize("name", REFUSED)
def test_from_torch_refuses_what_no_step_can_compute(name):
    between, text = REFUSED[name]
    torch.manual_seed(0)
    with pytest.raises(ModelError) as error:
        nw.from_torch(Refused(between), spike_tensor(2, 6, 4, seed=5, rate=0.4))
    assert text in str(error.value)


@pytest.mark.parametrize("norm", [torch.nn.LayerNorm(4), torch.nn.GroupNorm(2, 4)])
def test_from_torch_says_why_a_norm_of_samples_is_refused(norm):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), leaky(), norm, torch.nn.Linear(4, 2), leaky())
    with pytest.raises(ModelError) as error:
        nw.from_torch(net, spike_tensor(2, 6, 4, seed=5, rate=0.4))
    name = "layer_norm" if isinstance(norm, torch.nn.LayerNorm) else "group_norm"
    assert str(error.value) == (
        f"'2': torch's {name} normalizes every sample and step by its own statistics, which no fixed weights can do; "
        "train with BatchNorm"
    )


def test_a_matrix_product_of_a_network_has_a_hash_and_errors():
    def network(left=(2, 3, 4), right=(2, 4, 5), n=64):
        edge = MatMul("x", "out", left=left, right=right)
        return nw.Network.from_arrays({"out": nw.NeuronSpec(beta=0.5)}, [edge], {"x": n})

    x = spike_tensor(2, 3, 64, seed=5, rate=0.4)
    a, b = x[..., :24].reshape(2, 3, 2, 3, 4), x[..., 24:].reshape(2, 3, 2, 4, 5)
    run = nw.simulate(network(), x, record="all")
    np.testing.assert_array_equal(run.spikes["out"][:, 0], ((a @ b)[:, 0] > 1).flatten(1))
    assert network().hash != network((2, 3, 2), (2, 2, 13)).hash
    assert repr(network()).count("MatMul from x") == 1
    for wrong, text in {
        ((2, 3, 4), (2, 5, 4), 64): "left (2, 3, 4) and right (2, 5, 4) must be (n, i, k) and (n, k, j)",
        ((2, 3, 4), (2, 4, 5), 65): "left (2, 3, 4) and right (2, 4, 5) do not fill the source (65,)",
        ((2, 3), (2, 4, 5), 64): "left=(2, 3) and right=(2, 4, 5) must be three whole numbers >= 1",
    }.items():
        with pytest.raises(ModelError, match="^connection 'x' -> 'out': ") as error:
            network(*wrong)
        assert str(error.value).endswith(text)
    with pytest.raises(ModelError, match="NIR has no product of spikes; keep the module, or save the program that"):
        nw.to_nir(network(), "/nonexistent/x.nir")
