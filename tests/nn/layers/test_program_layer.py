"""ProgramLayer: a neuron of one's own trains in torch, and is imported as it computes there."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.kernels.cores.programs.build import build_module
from nwcompile.sim.reference.program_step import ProgramState
from tests.long import n_drawn
from tests.made.random_neurons import float_neurons


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


@settings(max_examples=n_drawn(6), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=float_neurons(), real=st.sampled_from(["float32", "float64"]))
def test_the_kernel_gives_the_references_numbers(program, real):
    """In two calls, the second of which goes on from the states of the first; all that is kept is the same, too."""
    x = (np.random.default_rng(0).normal(size=(2, 21, 37)) * 3).astype(real)
    reference = ProgramState.from_program(program, (2, 37), np.dtype(real).type)
    wanted, wanted_states = [], []
    for t in range(21):
        wanted.append(reference.step(x[:, t]))
        wanted_states.append([reference.named[name] for name in program.state_names])
    numbers = np.array([program.parameters[name] for name in program.parameters], real)
    state = np.repeat(np.array([state.initial for state in program.states], real), 2 * 37)
    rows, n_states = np.repeat(numbers, 37), len(program.states)
    module, found, found_states = build_module(program.structure, real), [], []
    for part in (x[:, :15], x[:, 15:]):
        sent, kept = np.empty_like(part), np.empty((n_states, *part.shape), real)
        drive, sizes = np.ascontiguousarray(part).reshape(-1), (0, 2, *part.shape)
        before = state.copy()
        module.scan(rows, drive, sent.reshape(-1), state, sizes)
        again = np.empty_like(sent)
        module.record(rows, drive, again.reshape(-1), before, sizes, kept.reshape(-1))
        assert np.array_equal(sent, again, equal_nan=True) and np.array_equal(state, before, equal_nan=True)
        found.append(sent)
        found_states.append(kept)
    assert np.array_equal(np.concatenate(found, 1), np.stack(wanted, 1), equal_nan=True), program
    if n_states:
        expected = np.stack([np.stack(step) for step in wanted_states], 2)
        assert np.array_equal(np.concatenate(found_states, 2), expected, equal_nan=True), program


@pytest.mark.parametrize("place", [1, 3])
def test_all_steps_without_gradients_are_those_with_them(place):
    """Of the same currents: a Linear on other steps may round otherwise."""
    net = model()
    layer, currents = net[place], net[:place](X).detach().requires_grad_()
    wanted = layer(currents)
    assert wanted.requires_grad and layer._compiled is None
    wanted_states = dict(layer._kept)
    nw.nn.prepare_net(net)
    with torch.no_grad():
        parts = [layer(currents[:, :7]), layer(currents[:, 7:])]
    assert layer._compiled.has_kernel
    assert torch.equal(torch.cat(parts, 1), wanted)
    for name, value in wanted_states.items():
        assert torch.equal(layer._kept[name], value)


def test_sequential_gives_program_layers_their_steps():
    net = model()
    wanted = net(X)
    nw.nn.prepare_net(net)
    assert torch.equal(nw.nn.Sequential(*net)(X), wanted)


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


@nw.neuron
def compares(state, x):
    v = 0.5 * state.v + x * (1 - state.fired)
    fired = v > 1.0
    return {"v": torch.where(fired, 0.0, v), "fired": fired}, fired


@pytest.mark.parametrize("given", [X, X[:, 0]])
def test_what_a_comparison_gives_is_numbers(given):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 8), nw.nn.ProgramLayer(compares, 8), torch.nn.Linear(8, 3))
    module[0].weight.data *= 4
    sent = module[:2](given)
    assert sent.dtype == torch.float32 and set(sent.unique().tolist()) == {0.0, 1.0}
    nw.nn.prepare_net(module)
    assert module(given).shape == (*given.shape[:-1], 3)
    nw.nn.prepare_net(module)
    network = nw.from_torch(module, X)
    np.testing.assert_array_equal(nw.simulate(network, X.numpy()).spikes["1"], module[:2](X).detach().numpy())
