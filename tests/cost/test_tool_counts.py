"""Operations as syops and SpikingJelly's op_counter count them: equal to what these packages say of the same module."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

import nwcompile as nw
from nwcompile.cost.tool_counts import op_counts, spike_shares, syops
from nwcompile.errors import ModelError
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.sequence.float_run import run_values
from tests.frontend.frameworks import framework

N_SAMPLES, N_STEPS = 3, 5


def mlp(neuron) -> nn.Module:
    return nn.Sequential(nn.Linear(20, 12), neuron.IFNode(), nn.Linear(12, 5, bias=False), neuron.LIFNode(tau=2.0))


def pooled(neuron) -> nn.Module:
    """Batch norm, groups, strides, biases, and both kinds of pooling: what comes from a mean is no spike."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), neuron.IFNode(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), neuron.LIFNode(tau=2.0), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(6, 5), neuron.IFNode(),
    )  # fmt: skip


def vgg(neuron) -> nn.Module:
    """Blocks of two convolutions and a pool, as SpikingJelly's VGG has them."""
    layers: list[nn.Module] = []
    for n_in, n_out in ((2, 4), (4, 6)):
        for n in (n_in, n_out):
            layers += [nn.Conv2d(n, n_out, 3, padding=1), nn.BatchNorm2d(n_out), neuron.IFNode()]
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))


def binary_weights(neuron) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, bias=False), neuron.IFNode(), nn.Flatten(), nn.Linear(192, 4))


CASES = {
    "mlp": (mlp, (20,)),
    "pooled": (pooled, (2, 8, 8)),
    "vgg": (vgg, (2, 8, 8)),
    "ones": (binary_weights, (2, 8, 8)),
}


def filled(net: nn.Module) -> nn.Module:
    """The net with weights of sixteenths, and norms that halve."""
    rng = np.random.default_rng(3)
    for p in net.parameters():
        p.data = torch.from_numpy((np.round(rng.normal(0.1, 0.5, p.shape) * 16) / 16).astype(np.float32))
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean[:], m.running_var[:], m.eps = 0.25, 0.25, 0.0
    return net.eval()


def case(name: str, is_real: bool) -> tuple[nn.Module, np.ndarray]:
    """A module whose sums are exact in float32, and x float32[B, T, *shape]: spikes, or sixteenths."""
    make, shape = CASES[name]
    net, rng = filled(make(framework("spikingjelly.activation_based.neuron"))), np.random.default_rng(4)
    if name == "ones":
        net[0].weight.data = (net[0].weight.data > 0).float()
    x = rng.random((N_SAMPLES, N_STEPS, *shape))
    return net, (np.round(x * 16) / 16 if is_real else x < 0.3).astype(np.float32)


class Stepwise(nn.Module):
    """A module of single steps, called step after step."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net, self.clear = net, framework("spikingjelly.activation_based.functional").reset_net

    def forward(self, x):
        self.clear(self.net)
        return torch.stack([self.net(x[:, t]) for t in range(x.shape[1])], 1)


def counted(net: nn.Module, x: np.ndarray):
    network = nw.from_torch(net, x)
    run, values = run_values(network, prepare_inputs(network, x)[0], N_STEPS, False)
    with torch.no_grad():
        there = Stepwise(net)(torch.from_numpy(x)).numpy()
    assert np.array_equal(run.output, there) and there.any()  # the very same spikes are counted
    return syops(network, values), op_counts(network, values)


@pytest.fixture
def package(monkeypatch):
    """The package syops; what it asks for and does not need, or SpikingJelly has no more, is made up."""
    neuron = framework("spikingjelly.activation_based.neuron")
    for name in ("MultiStepIFNode", "MultiStepLIFNode", "MultiStepParametricLIFNode"):
        monkeypatch.setattr(neuron, name, type(name, (), {}), raising=False)
    bar = ModuleType("progress.bar")
    bar.Bar = type("Bar", (), {"__init__": lambda *_, **__: None, "next": lambda _: None, "finish": lambda _: None})
    monkeypatch.setitem(sys.modules, "progress", ModuleType("progress"))
    monkeypatch.setitem(sys.modules, "progress.bar", bar)
    return framework("syops")


@pytest.mark.parametrize("is_real", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_syops_equals_the_package(name, is_real, package):
    net, x = case(name, is_real)
    found, _ = counted(net, x)
    expected, _ = package.get_model_complexity_info(
        Stepwise(net), x.shape[1:], [(torch.from_numpy(x), None)], as_strings=False, print_per_layer_stat=False
    )
    assert (found.ops, found.macs) == (expected[0], expected[2])
    assert found.acs == pytest.approx(expected[1], rel=1e-14)  # shares are added up in another order


@pytest.mark.parametrize("is_real", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_spikingjelly_counts_equal_the_package(name, is_real):
    counters = framework("spikingjelly.activation_based.op_counter")
    net, x = case(name, is_real)
    _, found = counted(net, x)
    synops, macs = counters.SynOpCounter(), counters.MACCounter()
    with torch.no_grad(), counters.DispatchCounterMode([synops, macs]):
        Stepwise(net)(torch.from_numpy(x))
    assert (found.synops, found.macs) == (synops.get_total() / N_SAMPLES, macs.get_total() / N_SAMPLES)


def test_spikingjelly_counts_of_its_csnn_equal_the_package():
    """A static image, all steps at once, and SpikingJelly's own layers: Fashion-MNIST's example, narrower."""
    counters = framework("spikingjelly.activation_based.op_counter")
    from tests.zoo.spikingjelly_nets import CSNN

    net = filled(CSNN(4, 3))
    x = (np.round(np.random.default_rng(4).random((2, 1, 28, 28)) * 16) / 16).astype(np.float32)
    network = nw.from_torch(net, x, layout="B")
    run, values = run_values(network, prepare_inputs(network, x)[0], 4, False)
    synops, macs = counters.SynOpCounter(), counters.MACCounter()
    with torch.no_grad(), counters.DispatchCounterMode([synops, macs]):
        rates = net(torch.from_numpy(x)).numpy()
    assert np.array_equal(run.output.mean(1, dtype=np.float32), rates) and rates.any()
    found = op_counts(network, values)
    assert (found.synops, found.macs) == (synops.get_total() / 2, macs.get_total() / 2)


def test_a_step_of_two_numbers_up_to_one_is_spikes_by_their_mean():
    x = np.array([[0, 0.5, 0.5, 0], [1, 0.25, 1, 1], [0, 0.5, 1, 0], [0, 2, 0, 2], [-1, 0, 0, 0], [0, 0, 0, 0]])
    assert np.array_equal(spike_shares(x.astype(np.float32)), [0.25, 0.8125, np.nan, np.nan, np.nan, 0], equal_nan=True)


def test_tools_refuse_connections_that_no_layer_of_torch_is():
    spec = nw.NeuronSpec(threshold=1.0)
    network = nw.Network.from_arrays({"a": (spec, (1,))}, [nw.Sparse("in", "a", [0], [0], [1.0])], {"in": 1})
    values = {"in": np.zeros((1, 2, 1), np.float32), "a": np.zeros((1, 2, 1), np.float32)}
    for count in (syops, op_counts):
        with pytest.raises(ModelError, match="'in' -> 'a': what torch computes for a Sparse is not known"):
            count(network, values)
