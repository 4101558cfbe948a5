"""ProgramLayer: a neuron of one's own trains in torch, and is imported as it computes there."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import nwcompile as nw
from nwcompile.nn.ops import cpu
from nwcompile.sim.reference.program_step import ProgramState
from tests.random_neurons import float_neurons


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


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=float_neurons())
def test_the_kernel_gives_the_references_numbers(program):
    """In two calls, the second of which goes on from the states of the first."""
    x = np.random.default_rng(0).normal(size=(2, 21, 37)).astype(np.float32) * 3
    reference = ProgramState.cleared(program, (2, 37))
    wanted = np.stack([reference.step(x[:, t]) for t in range(21)], 1)
    numbers = torch.tensor([program.parameters[name] for name in program.parameters], dtype=torch.float32)
    initial = torch.tensor([state.initial for state in program.states], dtype=torch.float32)
    state = initial[:, None, None].expand(-1, 2, 37).contiguous()
    rows = numbers[:, None].expand(-1, 37).contiguous()
    parts = [torch.from_numpy(np.ascontiguousarray(part)) for part in (x[:, :15], x[:, 15:])]
    sent = torch.cat([cpu.program(program.structure, rows, part, state) for part in parts], 1)
    assert np.array_equal(sent.numpy(), wanted, equal_nan=True), program
    for values, name in zip(state.numpy(), program.state_names, strict=True):
        assert np.array_equal(values, reference.named[name], equal_nan=True), (name, program)


def test_all_steps_without_gradients_are_those_with_them():
    net = model()
    wanted = net(X)
    wanted_states = [{name: value.clone() for name, value in net[i]._kept.items()} for i in (1, 3)]
    nw.nn.prepare_net(net)
    with torch.no_grad():
        first = net(X[:, :7])
        assert net[1]._compiled.has_kernel and net[3]._compiled.has_kernel
        assert torch.equal(torch.cat([first, net(X[:, 7:])], 1), wanted)
    for i, states in zip((1, 3), wanted_states, strict=True):
        for name, value in states.items():
            assert torch.equal(net[i]._kept[name], value)


def test_a_parameter_that_changed_is_followed():
    net = model()
    with torch.no_grad():
        before = net(X)
        net[1].beta *= 0.5
        nw.nn.prepare_net(net)
        after = net(X)
    nw.nn.prepare_net(net)
    assert not torch.equal(after, before) and torch.equal(after, net(X))


def test_a_step_with_exp_goes_step_by_step():
    @nw.neuron
    def exponential(state, x):
        return {"v": 0.5 * state.v + torch.exp(-x)}, None

    layer = nw.nn.ProgramLayer(exponential, 5)
    layer(X)
    assert not layer._compiled.has_kernel
