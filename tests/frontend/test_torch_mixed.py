"""Layers of nwcompile.nn between what no layer is: neurons written by hand, functions, maps and states of one's own."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.torch import importing
from nwcompile.frontend.torch.operators import import_operators, own_operators
from tests.frontend.frameworks import framework
from tests.made.spikes import spike_tensor

N_IN, N, STEPS = 6, 5, 8


def lif(n=N):
    return nn.LIFLayer(n, 4e-3, 0.75, "subtraction", 1e-3)


class TakeSpikes(torch.nn.Module):
    def forward(self, given):
        return given[0] if isinstance(given, tuple) else given


class Own(torch.nn.Module):
    """Neurons written by hand."""

    def forward(self, x):
        v, sent = torch.zeros_like(x[:, 0]), []
        for x_t in x.unbind(1):
            v = 0.5 * v + x_t
            spikes = (v > 1.0).float()
            v = v * (1 - spikes)
            sent.append(spikes)
        return torch.stack(sent, 1)


class Built(torch.nn.Module):
    """`run(self, x)` with these parts, whose weights are large enough for spikes."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        torch.manual_seed(0)
        for name, make in parts.items():
            setattr(self, name, make())
        for part in self.modules():
            if isinstance(part, torch.nn.Linear | torch.nn.Conv2d):
                torch.nn.init.uniform_(part.weight, -1, 1)

    def forward(self, x):
        return self.run(self, x)


def verify_import(module, *shape, n_steps=20):
    """Import on a few steps; compare the first result on samples of more steps."""
    network = nw.from_torch(module, spike_tensor(2, STEPS, *shape))
    x = spike_tensor(3, n_steps, *shape, seed=1)
    nn.prepare_net(module.eval())
    with torch.no_grad():
        expected = module(x)
    expected = (expected[0] if isinstance(expected, tuple) else expected).numpy()
    assert 0.01 < expected[:, n_steps // 2 :].mean() < 0.99
    output = nw.simulate(network, x.numpy()).spikes[network.outputs[-1]]
    np.testing.assert_array_equal(output.reshape(expected.shape), expected)
    return network


LAYERS = {
    "lif": lambda: [nn.LIFLayer(N)],
    "reset to zero": lambda: [nn.LIFLayer(N, reset_mechanism="zero")],
    "recurrent": lambda: [nn.LIFLayer(N, layer_topology="RC")],
    "synapses": lambda: [nn.LIFSynapse(N, N), nn.LIFLayer(N)],
    "delays of axons": lambda: [nn.Delay(N, max_delay=3), nn.LIFLayer(N)],
    "delays of synapses": lambda: [nn.DelayedLinear(N, N, max_delay=10), nn.LIFLayer(N)],
    "long delays": lambda: [nn.Delay(N, max_delay=40, init_delay=40.0), nn.LIFLayer(N)],
}


@pytest.mark.parametrize("name", LAYERS)
def test_own_neurons_behind_layers_of_nwcompile_are_a_layer(name):
    torch.manual_seed(0)
    parts = [torch.nn.Linear(N_IN, N, bias=False), *LAYERS[name]()]
    module = torch.nn.Sequential(*parts, TakeSpikes(), torch.nn.Linear(N, N), Own())
    for linear in (module[0], module[-2]):
        torch.nn.init.uniform_(linear.weight, -1, 2)
    network = verify_import(module, N_IN, n_steps=80)
    assert network.outputs == (str(len(module) - 1),)


def test_neurons_behind_a_very_long_delay_are_imported_without_a_spike_of_the_example():
    module = torch.nn.Sequential(
        nn.Delay(N_IN, max_delay=200, init_delay=200.0), nn.LIFLayer(N_IN), TakeSpikes(), Own()
    )
    network, x = nw.from_torch(module, spike_tensor(3, STEPS, N_IN)), spike_tensor(3, 240, N_IN)
    nn.prepare_net(module)
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    assert network.layers == ("1", "3") and expected.any()
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, expected)


def fill_items(self, x):
    y = torch.zeros(len(x), x.shape[1], N)
    for t in range(x.shape[1]):
        y[:, t] = self.fc(x[:, t])
    return self.lif(y)


def feed_back_with_a_bias(self, x):
    s, sent = None, []
    for x_t in x.unbind(1):
        s = self.lif(self.fc(x_t) if s is None else self.fc(x_t) + self.back(s))[0]
        sent.append(s)
    return torch.stack(sent, 1)


def start_from_ones(self, x):
    s, sent = torch.ones(len(x), N), []
    for x_t in x.unbind(1):
        s = self.lif(self.fc(torch.cat([x_t, s], -1)))[0]
        sent.append(s)
    return torch.stack(sent, 1)


def between(function):
    return lambda self, x: self.out(function(self.lif(self.fc(x))[0]))


def joined(join):
    return lambda self, x: self.out(join(self.lif(self.fc(x))[0], self.lif2(self.fc2(x))[0]))


FC, BACK, TWO = (lambda: torch.nn.Linear(N_IN, N)), (lambda: torch.nn.Linear(N, N)), (lambda: torch.nn.Linear(2, N))
FED = {"fc": FC, "lif": lif}
MIXED = {
    "a relu before neurons": (lambda self, x: self.lif(torch.relu(self.fc(x))), FED),
    "tanh before neurons": (lambda self, x: self.lif(torch.tanh(self.fc(x))), FED),
    "a sigmoid between maps": (lambda self, x: self.lif(self.back(torch.sigmoid(self.fc(x)))), FED | {"back": BACK}),
    "membranes that are sent": (lambda self, x: self.lif2(self.lif(self.fc(x))[1]), FED | {"lif2": lif}),
    "item assignment": (fill_items, FED),
    "feedback with a bias": (feed_back_with_a_bias, FED | {"back": BACK}),
    "a first state of ones": (start_from_ones, {"fc": lambda: torch.nn.Linear(N_IN + N, N), "lif": lif}),
    "a relu that cuts spikes": (between(lambda s: torch.relu(s - 0.5)), FED | {"out": lif}),
    **{
        f"a product, {k}": (joined(join), FED | {"fc2": FC, "lif2": lif, "out": lif})
        for k, join in enumerate(
            [
                lambda a, b: a * (2 * b),
                lambda a, b: a * (3 - 2 * b),
                lambda a, b: a * (a + b),
                lambda a, b: (a + b) * (2 - a),
            ]
        )
    },
    "a pool of rounded size": (
        between(lambda s: self_fed(torch.nn.functional.avg_pool1d(s, 4, 4, ceil_mode=True))),
        FED | {"out": lif},
    ),
}


def self_fed(two):
    """Return two entries a step as N."""
    return 2 * two[..., [0, 1, 0, 1, 0]]


@pytest.mark.parametrize("name", MIXED)
def test_what_no_layer_is_may_stand_between_layers_of_nwcompile(name):
    run, parts = MIXED[name]
    verify_import(Built(run, **parts), N_IN)


IMAGES = {
    "a pool of rounded size": lambda: [torch.nn.AvgPool2d(4, ceil_mode=True), lif(4)],
    "circular padding": lambda: [torch.nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), lif(72)],
    "a map of the last axis": lambda: [torch.nn.Unflatten(-1, (1, 1, 6)), torch.nn.Linear(6, 4), lif(24)],
}


@pytest.mark.parametrize("name", IMAGES)
def test_maps_of_images_before_layers_of_nwcompile(name):
    verify_import(Built(lambda self, x: self.parts(x), parts=lambda: nn.Sequential(*IMAGES[name]())), 1, 6, 6)


@pytest.mark.parametrize("divisor", [torch.zeros(N), torch.arange(N)])
def test_division_by_zero_is_refused(divisor):
    module = Built(lambda self, x: self.out(self.own(self.fc(x)) / divisor), fc=FC, own=Own, out=Own)
    with pytest.raises(ModelError, match=r"test_torch_mixed.py:\d+: a division by 0; divide by other numbers"):
        nw.from_torch(module, spike_tensor(3, STEPS, N_IN))


def test_delays_of_axons_take_a_weight_for_each_axon_and_other_delays_are_limited(monkeypatch):
    monkeypatch.setattr(own_operators, "MOST_WEIGHTS", N * N)
    layers = [torch.nn.Linear(N_IN, N), nn.Delay(N, 3, torch.arange(N) % 3.0), nn.LIFLayer(N), TakeSpikes(), Own()]
    network = nw.from_torch(torch.nn.Sequential(*layers), spike_tensor(3, STEPS, N_IN))
    assert not any(isinstance(c, nw.Dense) for c in network.into("2"))
    layers[1] = nn.DelayedLinear(N, N, 3, init_delay=torch.arange(N * N).reshape(N, N) % 3.0)
    with pytest.raises(ModelError, match="3 delays of 5 x 5 synapses are too many next to neurons written by hand"):
        import_operators(torch.nn.Sequential(*layers).eval(), spike_tensor(1, STEPS, N_IN), "BT", "x")


def reverse(self, x):
    return self.lif(self.fc(x.flip(1)))[0]


def subtract_mean(self, x):
    return self.lif(self.fc(x - x.mean(1, keepdim=True)))[0]


def subtract_maximum(self, x):
    return self.lif(self.fc(x) - self.fc(x).amax(1, keepdim=True) + 1)[0]


def call_twice(self, x):
    return self.own(self.back(self.lif(self.fc(x))[0]) - self.back(self.lif(self.fc(x))[0]))


def subtract_first(self, x):
    return self.own(self.fc(x) - 0.5 * self.fc(x)[:1])


def add_up_samples(self, x):
    return self.lif(self.fc(x.cumsum(0)))[0]


def scale_by_maximum(self, x):
    return self.lif(self.fc(x) * x.max())[0]


IN_A_BATCH = " gives a sample other values in a batch than alone"


@pytest.mark.parametrize(
    "run, text",
    [
        (
            reverse,
            r"test_torch_mixed\.py:\d+: the order of the steps is reversed; a chip sees the steps in order of time",
        ),
        (subtract_mean, r"test_torch_mixed\.py:\d+: a step depends on later steps; a chip knows earlier steps only"),
        (
            subtract_maximum,
            r"test_torch_mixed\.py:\d+: layer 'lif' is fed by torch's amax of several steps, which is known",
        ),
        (call_twice, "layer 'lif' is called 2 times for the 10 steps"),
        (subtract_first, f"torch's mul{IN_A_BATCH}"),
        (add_up_samples, f"torch's addmm{IN_A_BATCH}"),
        (
            scale_by_maximum,
            r"test_torch_mixed\.py:\d+: layer 'lif' is fed by torch's max of several steps, which is known",
        ),
    ],
)
def test_mixes_of_steps_or_samples_are_refused(run, text):
    with pytest.raises(ModelError, match=text):
        nw.from_torch(Built(run, **FED, back=BACK, own=Own), spike_tensor(3, 10, N_IN))


@pytest.mark.parametrize("mix", [lambda s: s.flip(0), lambda s: s.mean(0, keepdim=True).expand(len(s), -1, -1)])
@pytest.mark.parametrize("last", ["lif", "own"])
def test_a_result_that_depends_on_the_other_samples_is_a_warning(mix, last):
    def run(self, x):
        given = getattr(self, last)(self.fc(x))
        return mix(given if last == "own" else given[0])

    with pytest.warns(NwWarning, match="the module's result for a sample depends on the other samples"):
        nw.from_torch(Built(run, **FED, own=Own), spike_tensor(3, 10, N_IN))


def test_own_states_that_are_kept_from_call_to_call_are_those_of_steps():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.lif, self.back, self.v = FC(), lif(), BACK(), None
            for linear in (self.fc, self.back):
                torch.nn.init.uniform_(linear.weight, -1, 1)

        def forward(self, x_t):
            h = self.back(self.lif(self.fc(x_t))[0])
            self.v = h if self.v is None else 0.8 * self.v + h
            spikes = (self.v > 0.5).float()
            self.v = self.v * (1 - spikes)
            return spikes

    module, x = Step(), spike_tensor(3, 20, N_IN, seed=1)
    network = nw.from_torch(module, spike_tensor(2, STEPS, N_IN))
    nn.prepare_net(module.eval())
    with torch.no_grad():
        expected = torch.stack([module(x_t) for x_t in x.unbind(1)], 1).numpy()
    assert 0.05 < expected.mean() < 0.95
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, expected)


def leak(h):
    v, steps = torch.zeros_like(h[:, 0]), []
    for t in range(h.shape[1]):
        v = 0.5 * v + h[:, t]
        steps.append(v)
    return torch.stack(steps, 1)


STEPS_OR_FEATURES = {
    "relu": lambda h: h.relu(),
    "a neuron without spikes": leak,
    "rolled features": lambda h: h.roll(1, -1),
    "masked features": lambda h: h[..., torch.arange(6) % 3 > 0],
    "gathered": lambda h: h.gather(-1, torch.tensor([0, 2, 1, 3, 5, 4]).expand(h.shape)),
    "a triangle": lambda h: h.unflatten(-1, (2, 3)).tril().flatten(-2),
    "a fixed choice": lambda h: torch.where(torch.arange(6) > 2, h, torch.ones_like(h)),
    "a fixed mask": lambda h: h.masked_fill(torch.arange(6) > 2, 0.0),
}


@pytest.mark.parametrize("between", STEPS_OR_FEATURES)
def test_features_are_not_taken_for_steps(between):
    """Run step by step, the layer would take the features of a step for steps."""
    framework("spikingjelly")
    from spikingjelly.activation_based import functional, neuron

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.of_steps = torch.nn.Linear(N_IN, 6), neuron.LIFNode(v_threshold=0.4, step_mode="m")
            self.fc.weight.data.uniform_(-0.2, 0.5)

        def forward(self, x):
            h = STEPS_OR_FEATURES[between](self.fc(x))
            return self.of_steps(h.transpose(0, 1)).transpose(0, 1)

    module, x = Net().eval(), spike_tensor(3, 14, N_IN)
    network = nw.from_torch(module, x[:2, :10])
    with torch.no_grad():
        expected = module(x).numpy()
    functional.reset_net(module)
    assert network.readout is None and expected.any()
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output.reshape(expected.shape), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32])
def test_state_that_is_rounded_between_steps_is_refused(dtype):
    snn = framework("snntorch")

    class Rounded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.lif = torch.nn.Linear(N_IN, 6), snn.Leaky(beta=0.9)

        def forward(self, x):
            membrane, steps = self.lif.init_leaky(), []
            for t in range(x.shape[1]):
                spikes, membrane = self.lif(self.fc(x[:, t]), membrane)
                membrane = membrane.to(dtype).float()
                steps.append(spikes)
            return torch.stack(steps, 1)

    with pytest.raises(ModelError, match="layer 'lif' is given a state in step 1 that is not the one it returned"):
        nw.from_torch(Rounded(), spike_tensor(3, 8, N_IN))


def put_doubled(x):
    mask, result = torch.arange(x.shape[-1]) % 2 > 0, x.clone()
    result[..., mask] = 2 * x[..., mask]
    return result


REFUSED_MIXES = {
    "a softmax over the batch": (lambda x: x.softmax(0), "gives a sample other values in a batch"),
    "slower steps": (
        lambda x: torch.nn.functional.interpolate(x.transpose(1, 2), scale_factor=2).transpose(1, 2)[:, : x.shape[1]],
        "upsample_nearest1d",
    ),
    "a norm over the steps": (
        lambda x: torch.nn.functional.instance_norm(x.transpose(1, 2)).transpose(1, 2),
        "without running statistics",
    ),
    "entries by a mask": (put_doubled, "cannot be written as a program: shape mismatch"),
}


@pytest.mark.parametrize("mix", REFUSED_MIXES)
def test_mixes_before_known_layers_are_refused(mix):
    function, text = REFUSED_MIXES[mix]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.lif = torch.nn.Linear(N_IN, 6), nn.LIFLayer(6, 4e-3, 0.3, "subtraction", 1e-3)

        def forward(self, x):
            return self.lif(self.fc(function(x)))[0]

    with pytest.raises(ModelError, match=text):
        nw.from_torch(Net(), spike_tensor(2, 8, N_IN))


def test_result_that_no_input_changes_is_named():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.lif = torch.nn.Linear(N_IN, 6), nn.LIFLayer(6)

        def forward(self, x):
            return torch.zeros_like(self.lif(self.fc(x))[0])

    with pytest.warns(NwWarning, match="the import left out a result that no input changes"):
        nw.from_torch(Net(), spike_tensor(2, 8, N_IN))


def scaled_product(fed, gate, _):
    return 0.5 * (torch.sigmoid(gate) * 3 * fed)


def membranes(fed, _, is_curved):
    v, sent = torch.zeros_like(fed[:, 0]), []
    for t in range(fed.shape[1]):
        v = 0.5 * v + fed[:, t]
        sent.append(torch.tanh(v) if is_curved else v)
    return torch.stack(sent, 1)


@pytest.mark.parametrize("make", [scaled_product, membranes])
@pytest.mark.parametrize("is_curved", [False, True])
def test_known_layers_take_numbers_of_own_neurons(make, is_curved, monkeypatch):
    """Read as a known layer, whose inside is not looked into."""

    class Fed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.gate = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8)
            self.lif = nn.LIFLayer(8, 4e-3, 0.3, "subtraction", 1e-3)

        def forward(self, x):
            return self.lif(make(self.fc(x), self.gate(x), is_curved))[0]

    tried = importing._import_or_refuse

    def refuse_inside(module, x, lead, relu, looks_inside):
        return ModelError("not looked into") if looks_inside else tried(module, x, lead, relu, looks_inside)

    monkeypatch.setattr(importing, "_import_or_refuse", refuse_inside)
    module, x = Fed().eval(), spike_tensor(3, 10, 6)
    network = nw.from_torch(module, x)
    nn.prepare_net(module)
    with torch.no_grad():
        expected = module(x).numpy()
    assert len(network.layers) == 2 and 0 < expected.mean() < 1
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).spikes["lif"], expected)
