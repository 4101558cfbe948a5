"""from_torch on modules as people have them: compiled, wrapped, of short floats, with constants of their own."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, NwWarning
from tests.frontend.frameworks import framework
from tests.made.spikes import spike_tensor

N = 6


def lif(n=N):
    return nn.LIFLayer(n, 4e-3, 0.75, "zero", 1e-3, "FF")


class Net(torch.nn.Module):
    """A layer, `between(its spikes)`, a linear map and another layer, one step `[B, *]` at a time."""

    def __init__(self, first=None, between=lambda x: x, n_between=N, shape=()):
        super().__init__()
        self.one, self.a = first or torch.nn.Linear(4, N), lif(N)
        self.two, self.b = torch.nn.Linear(n_between, 5), lif(5)
        self.two.weight.data = 2 * self.two.weight.data + 0.2
        self.between, self.shape = between, shape

    def forward(self, x):
        spikes = self.a(self.one(x).flatten(1))[0]
        return self.b(self.two(self.between(spikes.reshape(len(x), *self.shape, -1)).flatten(1)))[0]


def output(module, x):
    nn.prepare_net(module)
    with torch.no_grad():
        found = torch.stack([module.eval()(x[:, t]) for t in range(x.shape[1])], 1).numpy()
    nn.prepare_net(module)
    assert 0.02 < found.mean() < 0.98
    return found


def assert_equal(module, x, wrapped=None):
    expected = output(module, x)
    network = nw.from_torch(module if wrapped is None else wrapped, x[:2, :4])
    np.testing.assert_array_equal(nw.simulate(network, x).output, expected)
    return network


def compiled(module):
    return torch.compile(module, backend="eager")


@pytest.mark.parametrize(
    "wrap", [torch.nn.DataParallel, compiled, lambda module: torch.nn.DataParallel(compiled(module))]
)
def test_from_torch_imports_what_is_wrapped(wrap):
    torch.manual_seed(1)
    module = Net()
    network = assert_equal(module, spike_tensor(3, 12, 4, seed=5), wrap(module))
    assert list(network.layers) == ["a", "b"]


def test_from_torch_runs_compiled_parts_as_they_were_written():
    torch.manual_seed(1)
    module = Net()
    x = spike_tensor(3, 12, 4, seed=5)
    expected = output(module, x)
    module.one = compiled(module.one)
    module.compile(backend="eager")
    np.testing.assert_array_equal(nw.simulate(nw.from_torch(module, x[:2, :4]), x).output, expected)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_from_torch_refuses_torchscript():
    made = torch.jit.script(torch.nn.Linear(3, 3))
    text = "is TorchScript, whose functions cannot be followed; give the module that it was made from"
    for module, where in ((made, "the module"), (torch.nn.Sequential(made, lif(3)), "'0'")):
        with pytest.raises(ModelError) as caught:
            nw.from_torch(module, spike_tensor(2, 4, 3, seed=5))
        assert str(caught.value) == f"{where} {text}"


def test_from_torch_takes_sparse_examples():
    torch.manual_seed(1)
    module, x = Net(), spike_tensor(3, 12, 4, seed=5)
    assert nw.from_torch(module, x.to_sparse()).hash == nw.from_torch(module, x).hash


def test_from_torch_takes_weights_and_examples_of_bfloat16():
    torch.manual_seed(2)
    module = Net()
    x = spike_tensor(3, 12, 4, seed=5)
    for parameter in module.parameters():
        parameter.data = (parameter.data * 32).round() / 32
    expected = nw.simulate(nw.from_torch(module, x), x).output
    with pytest.warns(NwWarning, match="computes in bfloat16 and the network in float32, so their spikes may differ"):
        network = nw.from_torch(module.bfloat16(), x.bfloat16())
    got = nw.simulate(network, x).output
    assert expected.any() and np.array_equal(got, expected)


def test_rounding_to_bfloat16_is_not_taken_for_an_influence_of_other_samples():
    neuron = framework("spikingjelly.activation_based.neuron")

    class Spiking(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.a = torch.nn.Linear(16, 64), neuron.LIFNode(step_mode="m")
            self.two, self.b = torch.nn.Linear(64, 64), neuron.LIFNode(step_mode="m")

        def forward(self, x):
            return self.b(self.two(self.a(self.one(3 * x.transpose(0, 1))))).transpose(0, 1)

    torch.manual_seed(0)
    net = Spiking().bfloat16()
    with pytest.warns(NwWarning) as caught:  # of a few spikes that differ too
        network = nw.from_torch(net, spike_tensor(2, 8, 16, seed=5).bfloat16())
    assert network.layers == ("a", "b") and "computes in bfloat16 and the network in float32" in str(caught[0].message)


def test_from_torch_hands_back_the_states_of_a_list():
    class Listed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.a = torch.nn.Linear(4, N), lif()

        def forward(self, x, before=None):
            before = x.new_zeros(len(x), N) if before is None else before
            after = self.a(self.one(x) + before)[0]
            return [after, after]

    (late,) = [c for c in nw.from_torch(Listed(), spike_tensor(2, 5, 4, seed=5)).connections if c.source == "a"]
    assert late.aligned_delay == 1


def constants(*shape, seed=3):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.5


PER_CHANNEL, PER_ENTRY = constants(2, 1, 1), constants(2, 3, 1, seed=4)
SHIFTS = torch.linspace(-0.5, 0.75, N)
CONSTANT = [
    lambda x: x * constants(N), lambda x: constants(1, N) * x, lambda x: x / constants(N),
    lambda x: x + SHIFTS, lambda x: x - SHIFTS, lambda x: SHIFTS - x,
    lambda x: torch.add(x, SHIFTS, alpha=2), lambda x: x * (torch.arange(N) > 1),
]  # fmt: skip


@pytest.mark.parametrize("between", CONSTANT)
def test_from_torch_follows_sums_and_products_with_constants(between):
    torch.manual_seed(5)
    assert_equal(Net(between=between), spike_tensor(3, 12, 4, seed=5))


@pytest.mark.parametrize("constant", [PER_CHANNEL, PER_ENTRY])
def test_from_torch_follows_products_with_constants_per_channel(constant):
    torch.manual_seed(1)
    assert_equal(Net(between=lambda x: x.reshape(-1, 2, 3, 1) * constant), spike_tensor(3, 12, 4, seed=5))


def test_from_torch_refuses_constants_that_change():
    with pytest.raises(ModelError, match=r"^test_torch_wrapped\.py:\d+: torch's rand draws random numbers; "):
        nw.from_torch(Net(between=lambda x: x * torch.rand(N)), spike_tensor(3, 5, 4, seed=5))


@pytest.mark.parametrize("relu", [torch.nn.ReLU(), torch.relu, torch.nn.functional.relu, torch.Tensor.relu])
def test_from_torch_sees_that_spikes_have_no_negative_part(relu):
    torch.manual_seed(1)
    network = assert_equal(Net(between=relu), spike_tensor(3, 12, 4, seed=5))
    assert network.layers == ("a", "b")


POOLS = [
    (torch.nn.AvgPool1d(2), 3), (torch.nn.AvgPool1d(3, 2, 1), 3), (torch.nn.AvgPool1d(2, padding=1), 4),
    (torch.nn.MaxPool1d(2), 3), (torch.nn.MaxPool1d(3, 2, 1), 3),
    (lambda x: torch.nn.functional.avg_pool1d(x, 2), 3), (lambda x: torch.nn.functional.max_pool1d(x, 2), 3),
]  # fmt: skip


@pytest.mark.parametrize("pool, n", POOLS)
def test_from_torch_pools_over_one_axis(pool, n):
    torch.manual_seed(5)
    assert_equal(Net(torch.nn.Linear(4, N), pool, n, shape=(1,)), spike_tensor(3, 12, 4, seed=5))


WINDOWS = [
    {"kernel_size": 3, "ceil_mode": True}, {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": (3, 2), "stride": 2, "padding": (1, 0), "ceil_mode": True}, {"kernel_size": 2, "dilation": (2, 3)},
    {"kernel_size": (2, 3), "stride": (3, 2), "padding": 1, "dilation": (3, 1), "ceil_mode": True},
]  # fmt: skip


@pytest.mark.parametrize("windows", WINDOWS)
def test_from_torch_takes_every_maximum_of_spikes(windows):
    """On chips it is an OR: windows that are cut off at the edge, or have holes, have fewer entries."""
    torch.manual_seed(1)
    pool = torch.nn.MaxPool2d(**windows)
    maps = torch.nn.Sequential(torch.nn.Unflatten(1, (2, 8, 7)), pool, torch.nn.Flatten())
    net = Net(torch.nn.Linear(4, 112), maps, maps(torch.zeros(1, 112)).shape[1])
    net.a = lif(112)
    assert_equal(net, spike_tensor(3, 12, 4, seed=5))


def test_from_torch_refuses_a_dilated_maximum_of_currents():
    pooled = [torch.nn.Unflatten(1, (1, N)), torch.nn.MaxPool1d(2, 1, dilation=2), torch.nn.Flatten()]
    net = torch.nn.Sequential(torch.nn.Linear(4, N), *pooled, lif(N - 2))
    with pytest.raises(ModelError, match="max_pool2d, whose dilation or ceil_mode is supported for spikes only"):
        nw.from_torch(net, spike_tensor(3, 5, 4, seed=5))
