"""ProgramLayer: a neuron of one's own trains in torch, and is imported as it computes there."""

import numpy as np
import pytest
import torch

import nwcompile as nw


@nw.neuron
def adaptive(state, x, beta=0.9, jump=0.2):
    v = beta * state.v + x
    spike = nw.nn.spike(v, 1.0 + state.a)
    return {"v": v * (1 - spike), "a": 0.95 * state.a + jump * spike}, spike


@nw.neuron
def leaky(state, x):
    return {"v": 0.9 * state.v + x}, None


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    hidden = nw.nn.ProgramLayer(adaptive, 8, learn=("beta",), beta=np.linspace(0.5, 0.95, 8))
    return torch.nn.Sequential(torch.nn.Linear(5, 8), hidden, torch.nn.Linear(8, 3), nw.nn.ProgramLayer(leaky, 3))


X = (torch.rand(4, 30, 5, generator=torch.Generator().manual_seed(1)) < 0.5).float()


def test_all_steps_at_once_are_the_steps_one_by_one():
    net = model()
    whole = net(X)
    nw.nn.prepare_net(net)
    assert torch.equal(torch.stack([net(x) for x in X.unbind(1)], 1), whole)


def test_gradients_reach_weights_and_learned_parameters():
    net = model()
    net(X)[:, -1].square().sum().backward()
    assert net[0].weight.grad.abs().sum() > 0 and net[1].beta.grad.abs().min() > 0
    assert [name for name, _ in net[1].named_parameters()] == ["beta"]
    assert [name for name, _ in net[1].named_buffers()] == ["jump"]


def test_the_imported_network_gives_the_layers_numbers():
    net = model()
    network = nw.from_torch(net, X[:1])
    assert network.programs == ("1", "3") and network.outputs == ("3",)
    nw.nn.prepare_net(net)
    run = nw.simulate(network, X.numpy(), record="all")
    spikes = torch.nn.Sequential(*net[:2])(X)
    assert spikes.sum() > 20
    same = np.mean(run.spikes["1"] == spikes.detach().numpy())
    assert same == 1.0  # currents are sums of few float32 numbers, which no order of adding changes here
    nw.nn.prepare_net(net)
    assert np.allclose(run.output, net(X).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_changed_batch_needs_prepare_net():
    net = model()
    net(X)
    with pytest.raises(nw.ModelError, match="the batch has 2 samples, the kept states have 4; call nwcompile.nn.prep"):
        net(X[:2])
    nw.nn.prepare_net(net)
    assert net(X[:2]).shape == (2, 30, 3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nw.nn.ProgramLayer(len, 3), "ProgramLayer takes a function decorated with nw.neuron, not builtin_fun"),
        (
            lambda: nw.nn.ProgramLayer(adaptive, 3, learn=("tau",)),
            "no parameter 'tau' to learn; it has ['beta', 'jump']",
        ),
        (
            lambda: nw.nn.ProgramLayer(adaptive, 3, beta=[0.5, 0.6]),
            "beta of shape (2,) does not broadcast to the layer",
        ),
        (
            lambda: nw.nn.ProgramLayer(nw.neuron(bits=8)(leaky.step), 3),
            "computes in whole numbers, which are not trained",
        ),
        (lambda: nw.nn.ProgramLayer(leaky, 3)(torch.zeros(2, 4)), "[2, 4] is neither [B, 3] nor [B, T, 3]"),
    ],
)
def test_what_cannot_be_is_said(make, text):
    with pytest.raises(nw.ModelError) as e:
        make()
    assert text in str(e.value)
