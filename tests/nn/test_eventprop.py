"""EventProp in steps against torch's differentiation of what it is defined by, and against continuous time."""

from itertools import product

import numpy as np
import pytest
import torch

from benchmarks.eventprop import of_a_layer
from nwcompile import nn
from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.ops import torch_ops
from nwcompile.nn.ops.scan import LIFNeurons, scan
from nwcompile.nn.ops.surrogate import eventprop
from tests.nn.naive import relaxed_lif

RULES = list(product(("subtraction", "zero"), (False, True), (False, True)))  # reset, floor, detach_reset
NETS = [24, pytest.param(200, marks=pytest.mark.long)]  # so many of the drawn ones


def layer_of(n, reset, **options):
    return nn.LIFLayer(n, reset_mechanism=reset, surrogate="eventprop", **options).double()


def drawn(seed):
    """A drawn rule, the sizes (B, T, n_in, n_hidden, n_out), input, weights, and beta and threshold of three layers."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    sizes = *(int(n) for n in rng.integers(1, 5, 1)), *(int(n) for n in rng.integers((2, 1, 1, 1), (45, 6, 40, 5)))
    n_samples, n_steps, n_in, n_hidden, n_out = sizes

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x = torch.rand(n_samples, n_steps, n_in, generator=generator).lt(rng.uniform(0.05, 0.6)).double()
    weights = [normal(n_in, n_hidden) + 0.4, normal(n_hidden, n_out) + 0.2]
    betas = [normal(n).sigmoid() for n in (n_hidden, n_hidden, n_out)]
    thresholds = [0.4 + normal(n).sigmoid() for n in (n_hidden, n_out)]
    asked = normal(2, n_samples, n_steps, n_out)
    return RULES[seed % len(RULES)], x, weights, betas, thresholds, asked


def gradients(run, rule, x, weights, betas, thresholds, asked):
    """Of a filter, a layer that it feeds and a second layer: spikes, and the gradients of all that is trained."""
    leaves = [t.clone().requires_grad_() for t in (x, *weights, *betas, *thresholds)]
    x, w_0, w_1, slow, beta_0, beta_1, threshold_0, threshold_1 = leaves
    current = filtered(x @ w_0, slow)
    hidden, hidden_mem = run(current, beta_0, threshold_0, *rule)
    spikes, mem = run(hidden @ w_1, beta_1, threshold_1, *rule)
    ((spikes * asked[0] + mem * asked[1]).sum() + hidden_mem.square().sum()).backward()
    return [hidden.detach(), spikes.detach()], [leaf.grad for leaf in leaves]


def filtered(given, slow):
    current, steps = torch.zeros_like(given[:, 0]), []
    for now in given.unbind(1):
        current = slow * current + now
        steps.append(current)
    return torch.stack(steps, 1)


def by_kernel(current, beta, threshold, reset, floor, detach):
    neurons = LIFNeurons(beta, threshold, reset, eventprop, detach, floor)
    return scan(current, neurons.initial_state(current), neurons)[:2]


def by_definition(current, beta, threshold, reset, floor, detach):
    return relaxed_lif(current, torch.zeros_like(current[:, 0]), beta, threshold, reset, detach, floor)[:2]


@pytest.mark.parametrize("n_nets", NETS)
def test_gradients_of_drawn_nets_are_those_of_the_definition(n_nets):
    n_spikes = n_moved = 0
    for seed in range(n_nets):
        given = drawn(seed)
        spikes, found = gradients(by_kernel, *given)
        exact_spikes, expected = gradients(by_definition, *given)
        for one, other in zip(spikes, exact_spikes, strict=True):
            assert torch.equal(one, other)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * float(1 + other.abs().max()))
        n_spikes += int(spikes[1].sum())
        n_moved += bool(expected[0].abs().max() > 0)
    assert n_spikes > 20 * n_nets and n_moved > 0.9 * n_nets


@pytest.mark.parametrize(("reset", "floor", "detach"), RULES)
def test_states_and_what_is_trained_have_the_gradients_of_the_definition(reset, floor, detach):
    torch.manual_seed(0)
    current, state, asked = (torch.randn(shape).double() for shape in ((3, 70, 37), (3, 37), (3, 3, 70, 37)))
    beta, threshold = torch.rand(2, 37).double()
    results = []
    for of_definition in (False, True):
        leaves = [t.clone().requires_grad_() for t in (current, state, beta, threshold + 0.3)]
        x, v, b, th = leaves
        if of_definition:
            spikes, mem, last = relaxed_lif(*leaves, reset, detach, floor)
        else:
            spikes, mem, last = scan(x, v[None], LIFNeurons(b, th, reset, eventprop, detach, floor))
        ((spikes * asked[0] + mem * asked[1]).sum() + (last * asked[2, :, 0]).sum()).backward()
        results.append([spikes.detach(), mem.detach(), *(leaf.grad for leaf in leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10 * float(other.abs().max()))
    assert 0.1 < results[0][0].mean() < 0.5


@pytest.mark.long
def test_gradient_is_that_of_continuous_time_as_steps_become_short():
    weights = [torch.randn(shape, generator=torch.Generator().manual_seed(3)).double() for shape in ((5, 6), (6, 3))]
    weights = [1.5 + 1.5 * weights[0], 0.6 + 0.6 * weights[1]]
    times = torch.randint(1, 15, (8, 5, 2), generator=torch.Generator().manual_seed(1)).sort(2).values * 1e-3
    t_end, given, errors = 40e-3, times.double(), []
    layers = [nn.event.EventLIF(*w.shape, t_end=t_end, init=w, max_spikes=60) for w in weights]
    last = layers[1](layers[0](given))
    last[last.isfinite()].sum().backward()
    for dt in (1e-4, 1e-5, 1e-6):
        leaves = [w.clone().requires_grad_() for w in weights]
        x = torch.zeros(8, round(t_end / dt), 5, dtype=torch.float64)
        x.scatter_add_(1, (given / dt).round().long().mT, torch.ones_like(given).mT)
        for weight in leaves:
            n = weight.shape[1]
            synapse = layer_of(n, "none", taus=5e-3, thresholds=1e9, dt=dt)
            x, _ = layer_of(n, "zero", taus=20e-3, dt=dt)(synapse(x @ weight)[1] * (dt / 20e-3))
        assert x.sum() == last.isfinite().sum() > 20
        (x * torch.arange(x.shape[1])[:, None] * dt).sum().backward()
        exact = [layer.weight.grad for layer in layers]
        errors.append([float((w.grad - g).norm() / g.norm()) for w, g in zip(leaves, exact, strict=True)])
    assert max(errors[2]) < 0.005 and max(errors[1]) < 0.2 * max(errors[0])


def test_a_spike_whose_membrane_was_above_the_threshold_stays_where_it_is():
    """A step without a rise to the threshold divides by no slope: the membrane even falls there."""
    beta, threshold = torch.full((1,), 0.9, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    current = torch.tensor([[[3.5], [0.0], [0.0], [0.0]]], dtype=torch.float64, requires_grad=True)
    spikes, mem, _ = scan(current, torch.zeros(1, 1, 1).double(), LIFNeurons(beta, threshold, "subtraction", eventprop))
    assert spikes.flatten().tolist() == [1, 1, 1, 0] and mem[0, 1] < mem[0, 0]
    (spikes.flatten() * torch.tensor([0.0, 7.0, 5.0, 1.0])).sum().backward()
    # the first spike alone crosses, at 1 / 3.5 of its step, to which it comes 1 / 3.5**2 sooner: 7 - 0 is what it asks
    assert current.grad.flatten().tolist() == pytest.approx([-7 * (1 / 3.5**2), 0, 0, 0])


@pytest.mark.parametrize("reset", ["subtraction", "zero"])
def test_a_layer_spikes_as_with_a_surrogate_and_a_count_asks_nothing(reset):
    torch.manual_seed(0)
    current = torch.randn(3, 40, 20).requires_grad_()
    spikes, mem = nn.LIFLayer(20, reset_mechanism=reset, surrogate="eventprop", detach_reset=True)(current)
    expected = nn.LIFLayer(20, reset_mechanism=reset, surrogate="atan")(current.detach())
    assert torch.equal(spikes, expected[0]) and torch.equal(mem, expected[1]) and spikes.any()
    spikes.sum().backward()
    assert not current.grad.any()


@pytest.mark.parametrize("activity", [0.01, 0.05, 0.2])
@pytest.mark.parametrize(("reset", "n_values"), [("subtraction", 2), ("zero", 3)])
def test_what_is_kept_grows_with_spikes(activity, reset, n_values):
    n_pairs, n = 8 * 64, 8 * 320 * 64
    found, n_spikes = of_a_layer("eventprop", reset, activity, (8, 320, 64))
    assert abs(n_spikes - activity * n) < 0.1 * activity * n
    bits, first, values, small = n // 8, 8 * (n_pairs + 1), 4 * n_values * n_spikes, 4 * (n_pairs + 2 * 64)
    assert found == bits + first + values + small
    assert of_a_layer("atan", reset, activity, (8, 320, 64))[0] == 12 * n + small


def test_what_is_kept_does_not_hold_currents_and_membranes():
    current = torch.randn(2, 30, 8).requires_grad_()
    layer = nn.LIFLayer(8, surrogate="eventprop")
    spikes, mem = layer(current * 1.0)
    assert spikes.grad_fn is not None
    assert all(tensor is None or tensor.shape != current.shape for tensor in spikes.grad_fn.saved_tensors)
    learning = nn.LIFLayer(8, surrogate="eventprop", learn_taus=True)
    assert any(t is not None and torch.equal(t, mem) for t in learning(current)[0].grad_fn.saved_tensors)


@pytest.mark.parametrize("reset", ["subtraction", "zero", "none"])
def test_compiled_and_exported_layers_have_the_same_gradients(reset):
    torch._dynamo.reset()
    torch.manual_seed(0)
    results = []
    current = torch.randn(3, 20, 12)
    layer = nn.LIFLayer(12, reset_mechanism=reset, surrogate="eventprop", learn_taus=True, learn_thresholds=True)
    exported = torch.export.export(layer, (current,)).module()
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager"), exported):
        nn.prepare_net(layer)
        layer.zero_grad()
        x = current.clone().requires_grad_()
        spikes, mem = run(x)
        read = mem if reset == "none" else spikes * torch.arange(20)[:, None] + mem
        read.square().sum().backward()
        parameters = dict(run.named_parameters())
        named = {name.removeprefix("_orig_mod."): p.grad for name, p in parameters.items()}
        results.append((spikes.detach(), x.grad, named["taus"], named["thresholds"]))
    for other in results[1:]:
        for found, expected in zip(other, results[0], strict=True):
            assert torch.equal(found, expected)


def test_operation_known_to_torch_has_the_same_gradient():
    current, state = torch.randn(2, 9, 5), torch.zeros(1, 2, 5)
    given = torch.full((5,), 0.9), torch.ones(5), None, "zero", False, False, "eventprop", 0.0
    grads = []
    for run in (torch_ops.lif_scan, torch_ops.SpikeScan.apply):
        x = current.clone().requires_grad_()
        run(x, state, *given)[1].square().sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads) and grads[0].any()


def test_what_has_no_gradient_is_refused_in_one_sentence():
    current = torch.rand(2, 6, 5).requires_grad_()
    stepwise, recurrent = (nn.LIFLayer(5, surrogate="eventprop", layer_topology=kind) for kind in ("FF", "RC"))
    for one in (current[:, 0], current[:, :1]):
        with pytest.raises(ModelError) as error:
            stepwise(one)
        assert str(error.value) == (
            "surrogate 'eventprop' has no gradient of one step, [B, N] or [B, 1, N], as a spike's is a difference of "
            "steps; give all steps at once, [B, T, N], or use another surrogate"
        )
    with pytest.raises(ModelError) as error:
        recurrent(current)
    assert str(error.value) == (
        "surrogate 'eventprop' has no gradient of recurrent weights; use layer_topology='FF' or another surrogate"
    )
    with torch.no_grad():
        assert torch.equal(stepwise(current[:, 0])[1], nn.LIFLayer(5)(current[:, 0])[1])
        recurrent(current)
    nn.prepare_net(torch.nn.ModuleList([stepwise, recurrent]))
    stepwise(current[:, 0].detach())
    recurrent.requires_grad_(False)(current.detach())
    spikes, _ = nn.LIFLayer(5, reset_mechanism="none", surrogate="eventprop")(current)
    with pytest.raises(ModelError) as error:
        spikes.sum().backward()
    assert str(error.value) == (
        "surrogate 'eventprop': without a reset spikes have no gradient; use the layer's membranes, another "
        "reset_mechanism or another surrogate"
    )
    nn.prepare_net(stepwise)
    (grad,) = torch.autograd.grad(stepwise(current)[1].sum(), current, retain_graph=True)
    assert grad.any()
    with pytest.raises(ModelError, match="no gradients of gradients"):
        torch.autograd.grad(stepwise(current)[1].sum(), current, create_graph=True)


def test_it_is_no_surrogate_of_anything_else():
    text = (
        "surrogate 'eventprop' is the gradient of a LIF layer's spike times, not a function of the membrane; use one "
        "of: atan, fast_sigmoid, piecewise_linear, sigmoid, triangular"
    )
    net = nn.Sequential(nn.LIFSynapse(4, 3), nn.LIFLayer(3, surrogate="eventprop"))
    for call in (
        lambda: nn.spike(torch.ones(2), surrogate="eventprop"),
        lambda: nn.quantize_aware(net, "loihi2", torch.ones(2, 5, 4)),
        lambda: eventprop(torch.ones(2)),
    ):
        with pytest.raises(OptionError) as error:
            call()
        assert str(error.value) == text
    with pytest.raises(OptionError, match="choose one of: eventprop, atan"):
        nn.LIFLayer(3, surrogate="eventpro")


def test_neurons_learn_when_they_spike():
    """Every neuron's first spike is brought to a step of its own, with the loss a square of steps."""
    torch.manual_seed(0)
    x, target = (torch.rand(1, 60, 30) < 0.1).float(), torch.linspace(10, 40, 16)
    synapse = nn.LIFSynapse(30, 16, init=lambda weight: weight.uniform_(0, 0.1))
    current = nn.LIFLayer(16, taus=5e-3, thresholds=1e9, reset_mechanism="none", surrogate="eventprop")
    layer = nn.LIFLayer(16, reset_mechanism="zero", surrogate="eventprop")
    optimizer, errors = torch.optim.Adam(synapse.parameters(), 1e-3), []
    for _ in range(200):
        nn.prepare_net(torch.nn.ModuleList([synapse, current, layer]))
        spikes, _ = layer(current(synapse(x))[1] * 0.2)
        n_before = spikes.detach().cumsum(1) - spikes.detach()
        is_first = torch.cat([n_before[:, :1], n_before[:, :-1]], 1) == 0  # and the step after it, to which it may move
        step = (spikes * is_first * torch.arange(60)[:, None]).sum(1)
        errors.append((step - target).detach().abs())
        (step - target).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert errors[0].mean() > 5 and not errors[-1].any()
