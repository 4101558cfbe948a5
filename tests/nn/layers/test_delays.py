"""Layers with delays: what they compute, in one call and step by step, their gradients, their limits."""

import copy

import numpy as np
import pytest
import torch

from nwcompile import nn
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.chip import Chip
from nwcompile.nn.ops.delays import SURROGATES
from tests.made.spikes import spike_tensor


def late(x, steps):
    """x, `steps` steps late."""
    return torch.nn.functional.pad(x, (steps, 0))[..., : x.shape[-1]]


LAYERS = {
    "axons": (lambda **given: nn.Delay(6, 5, **given), (6,)),
    "synapses": (lambda **given: nn.DelayedLinear(6, 4, 5, **given), (6,)),
    "map": (lambda **given: nn.DelayedConv2d(2, 3, 2, 5, padding=1, **given), (2, 3, 4)),
}


@pytest.fixture(params=LAYERS)
def made(request):
    """A function that makes a layer, and a batch of spikes for it, with samples that fill no vector."""
    make, shape = LAYERS[request.param]
    torch.manual_seed(0)
    return make, spike_tensor(3, 12, *shape, seed=1, rate=0.3)


def test_rounded_delays_are_whole_steps():
    x = spike_tensor(2, 9, 3, seed=1, rate=0.3)
    axons = nn.Delay(3, 4, init_delay=torch.tensor([0.0, 1.4, 3.6]))
    axons.eval()
    expected = torch.stack([late(x[:, :, i], d) for i, d in enumerate((0, 1, 4))], 2)
    assert torch.equal(axons(x), expected)
    synapses = nn.DelayedLinear(3, 2, 4, init=torch.ones(3, 2), init_delay=torch.tensor([[0, 4], [1, 0], [2, 2.0]]))
    synapses.eval()
    of_output = [sum(late(x[:, :, i], int(d)) for i, d in enumerate(column)) for column in synapses.delays.steps.T]
    assert torch.equal(synapses(x), torch.stack(of_output, 2))
    assert synapses.delays.rounded_steps.tolist() == [[0, 4], [1, 0], [2, 2]]


def test_a_convolution_is_the_sum_of_those_of_every_delay():
    torch.manual_seed(0)
    layer = nn.DelayedConv2d(4, 6, (3, 2), 3, stride=(2, 1), padding=1, dilation=(1, 2), groups=2)
    layer.eval()
    x, expected = spike_tensor(2, 7, 4, 6, 5, seed=1, rate=0.3), 0
    for d in range(4):
        weight = layer.weight * (layer.delays.rounded_steps == d)
        sent = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 0, d, 0))[:, :7].flatten(0, 1)
        given = torch.nn.functional.conv2d(sent, weight, None, (2, 1), 1, (1, 2), 2)
        expected = expected + given.unflatten(0, (2, 7))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("training", [False, True])
def test_steps_one_by_one_are_the_whole_sequence(made, training):
    layer = made[0]().train(training)
    x, weights = made[1].requires_grad_(), [p for p in layer.parameters() if p.requires_grad]
    results = []
    for lengths in ([12], [1] * 12, [2, 7, 3]):
        nn.prepare_net(layer)
        parts = [layer(part[:, 0] if len(lengths) == 12 else part) for part in x.split(lengths, 1)]
        out = torch.stack(parts, 1) if len(lengths) == 12 else torch.cat(parts, 1)
        grads = torch.autograd.grad(out.square().sum(), [x, *weights], allow_unused=not training)
        results.append((out, [grad for grad in grads if grad is not None]))
    for out, grads in results[1:]:
        assert torch.equal(out, results[0][0])
        torch.testing.assert_close(grads, results[0][1])
    assert results[0][0].abs().max() > 0


@pytest.mark.parametrize(("form", "width"), [("linear", 1.0), ("gaussian", 1.2)])
def test_gradients_are_finite_differences(made, form, width):
    layer = made[0](surrogate=form, width=width).double()
    x = made[1][:1, :6].double().requires_grad_()
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def run(x, *values):
        nn.prepare_net(layer)
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *parameters))


def test_training_finds_the_delay():
    torch.manual_seed(0)
    x = spike_tensor(16, 60, 4, rate=0.15, seed=1)
    wanted = torch.tensor([[2.0, 11.0], [5.0, 0.0], [9.0, 7.0], [0.0, 3.0]])
    teacher = nn.DelayedLinear(4, 2, 12, init=torch.ones(4, 2), init_delay=wanted).eval()
    layer = nn.DelayedLinear(4, 2, 12, init=torch.ones(4, 2), surrogate="gaussian", width=4.0)
    expected = teacher(x).detach()
    optimizer = torch.optim.Adam([layer.delays.steps], 0.2)
    annealing = nn.DelayAnnealing(layer, 150)
    for _ in range(150):
        nn.prepare_net(layer)
        loss = (layer(x) - expected).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealing.step()
    nn.prepare_net(layer)
    assert torch.equal(layer(x), expected) and layer.delays.rounded_steps.tolist() == wanted.tolist()


def test_annealing_ends_in_whole_steps_that_are_not_trained(made):
    layer = made[0]()
    annealing = nn.DelayAnnealing(layer, 4)
    widths = []
    for _ in range(5):
        widths.append(layer.delays.width)
        annealing.step()
    assert widths == [1.0, 0.75, 0.5, 0.25, 0.0]
    nn.prepare_net(layer)
    trained = layer(made[1])
    nn.prepare_net(layer)
    assert torch.equal(trained, layer.eval()(made[1]))
    nn.freeze_delays(layer)
    assert torch.equal(layer.delays.steps, layer.delays.rounded_steps.float()) and not layer.delays.steps.requires_grad


def test_delays_stay_within_the_chip_while_they_are_trained():
    layer = nn.DelayedLinear(3, 2, "loihi1")
    assert layer.delays.max_delay == 62 == nn.Delay(2, Chip.load("loihi2")).delays.max_delay
    with torch.no_grad():
        layer.delays.steps[0, 0], layer.delays.steps[2, 1] = -3.5, 70.0
    x = spike_tensor(2, 80, 3, seed=1, rate=0.3)
    before = layer(x)
    nn.prepare_net(layer)
    assert (layer.delays.steps[0, 0], layer.delays.steps[2, 1]) == (0, 62)
    assert torch.equal(layer(x), before)


def test_a_layer_of_a_graph_that_is_used_up_goes_on_from_constants(made):
    layer = made[0]()
    for part in made[1].requires_grad_().split(4, 1):
        layer(part).sum().backward()
    copy.deepcopy(layer)
    with pytest.raises(
        ModelError, match=r"the batch has 2 samples, the kept steps have 3; call nwcompile.nn.prepare_net"
    ):
        layer(made[1][:2])


def test_sequential_gives_delays_all_steps():
    torch.manual_seed(0)
    net = nn.Sequential(nn.DelayedConv2d(1, 2, 3, 4), nn.LIFLayer(2 * 4 * 3), torch.nn.Flatten(), nn.Delay(24, 3))
    assert net(spike_tensor(2, 7, 1, 6, 5, seed=1, rate=0.3)).shape == (2, 7, 24)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.Delay(0, 3), ModelError, r"Delay\(0\): the number of axons must be >= 1"),
        (lambda: nn.Delay(3, -1), OptionError, r"Delay\(3\): max_delay is -1, must be a whole number of steps >= 0"),
        (lambda: nn.Delay(3, (1 << 24) + 1), OptionError, "16777217, above the longest supported, 16777216 steps"),
        (lambda: nn.Delay(3, 2.5), OptionError, r"max_delay is 2.5, must be a whole number"),
        (lambda: nn.Delay(3, "speck"), ModelError, r"speck has no delays \(neuron.delay_max_steps is 0\)"),
        (lambda: nn.Delay(3, 4, 5), ModelError, r"init_delay is 5 to 5 steps, must be within 0..max"),
        (lambda: nn.Delay(3, 4, torch.ones(2)), ModelError, r"init_delay has shape \(2,\), not \(3,\)"),
        (lambda: nn.Delay(3, 4, surrogate="gausian"), OptionError, r"unknown surrogate 'gausian'; choose"),
        (lambda: nn.Delay(3, 4, width=1.5), OptionError, r"width is 1.5, must be 0..1 for the linear surrogate"),
        (lambda: nn.Delay(3, 4)(torch.ones(2, 4)), ModelError, r"input of shape \(2, 4\) is neither \[B, 3\] nor"),
        (lambda: nn.DelayedLinear(3, 2, 4)(torch.ones(3)), ModelError, r"\(3,\) is neither \[B, 3\] nor"),
        (lambda: nn.DelayedConv2d(3, 2, 3, 4, groups=2), ModelError, r"multiples of groups, which is 2"),
        (lambda: nn.DelayedConv2d(3, 2, 3, 4, groups=None), OptionError, r"groups=None must be a whole number"),
        (lambda: nn.DelayedConv2d(3, 2, 10**5000, 4), OptionError, r"kernel_size=<int of .* must be a whole number or"),
        (lambda: nn.DelayedConv2d(3, 2, 3, 4, padding="same"), OptionError, r"padding='same' must be a whole"),
        (lambda: nn.DelayedConv2d(3, 2, 3, 4, init=torch.ones(1)), ModelError, r"shape \(1,\), not \(2, 3"),
        (lambda: nn.DelayedConv2d(3, 2, 3, 4)(torch.ones(2, 3)), ModelError, r"neither \[B, 3, H, W\] nor"),
        (lambda: nn.DelayAnnealing(torch.nn.Linear(2, 2), 3), ModelError, r"Linear has no Delay, DelayedLinear or"),
        (lambda: nn.DelayAnnealing(nn.Delay(2, 2), 0), OptionError, r"n_steps is 0, must be >= 1"),
        (lambda: nn.freeze_delays(torch.nn.Linear(2, 2)), ModelError, r"freeze_delays: Linear has no Delay"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_delays_that_are_no_numbers_are_refused():
    layer = nn.DelayedLinear(3, 2, 5)
    with torch.no_grad():
        layer.delays.steps[1, 1] = torch.nan
    for training in (True, False):
        with pytest.raises(ModelError, match=r"^delays are -2147483648 to [0-9]+ steps, must be numbers within 0..5$"):
            layer.train(training)(spike_tensor(2, 4, 3, seed=1, rate=0.3))
    text = r"^DelayedLinear\(3, 2\): 1 of 6 delays are NaN; go back to an earlier state of the network, and train with"
    for use in (nn.prepare_net, nn.freeze_delays):
        with pytest.raises(ModelError, match=text):
            use(layer)


def test_input_of_another_size_and_numbers_without_a_kernel_are_refused():
    layer = nn.DelayedConv2d(1, 1, 3, 4)
    layer(spike_tensor(1, 2, 1, 5, 5, seed=1, rate=0.3))
    text = r"^DelayedConv2d\(1, 1\): a step has 36 numbers, the kept steps have 25; call nwcompile.nn.prepare_net"
    with pytest.raises(ModelError, match=text):
        layer(spike_tensor(1, 2, 1, 6, 6, seed=1, rate=0.3))
    with pytest.raises(ModelError, match="is of torch.float16, and layers with delays compute in float32 or float64"):
        nn.DelayedLinear(3, 2, 5).half()(spike_tensor(1, 2, 3, seed=1, rate=0.3))
    with pytest.raises(ModelError, match=r"^DelayedConv2d\(1, 1\): kernel_size=0 must be whole numbers >= 1$"):
        nn.DelayedConv2d(1, 1, 0, 4)


@pytest.mark.parametrize("form", SURROGATES)
def test_very_narrow_widths_are_the_nearest_step(form):
    layer = nn.DelayedLinear(1, 1, np.int64(5), torch.ones(1, 1), 3.4, surrogate=form, width=2.0**-100)
    x = spike_tensor(1, 9, 1, seed=1, rate=0.3)
    out = layer(x)
    assert torch.equal(out, late(x[..., 0], 3)[..., None])
    out.square().sum().backward()
    assert layer.delays.steps.grad.item() == 0
