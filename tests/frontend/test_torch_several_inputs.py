"""Modules whose forward takes several inputs: a network with an input for each."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.frontend.frameworks import framework
from tests.made.spikes import spike_tensor

STEPS = 7


def leaky(v, x):
    v = 0.9 * v + x
    s = (v > 1.0).float()
    return v * (1 - s), s


class Senses(torch.nn.Module):
    """Images and sounds, each with neurons of its own, meet in a third layer."""

    def __init__(self, time_axis=1):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc, self.out = torch.nn.Conv2d(1, 2, 3), torch.nn.Linear(10, 6), torch.nn.Linear(38, 5)
        for layer in (self.conv, self.fc, self.out):
            layer.weight.data *= 4
        self.time_axis = time_axis

    def forward(self, image, sound):
        u = w = v = 0.0
        sent = []
        for x, y in zip(image.unbind(self.time_axis), sound.unbind(self.time_axis), strict=True):
            u, a = leaky(u, self.conv(x))
            w, b = leaky(w, self.fc(y))
            v, s = leaky(v, self.out(torch.cat([a.flatten(1), b], 1)))
            sent.append(s)
        return torch.stack(sent, self.time_axis)


class Joined(torch.nn.Module):
    """One layer sees both inputs side by side."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.fc = torch.nn.Linear(7, 6)
        self.fc.weight.data *= 4

    def forward(self, x, y):
        v, sent = 0.0, []
        for t in range(x.shape[1]):
            v, s = leaky(v, self.fc(torch.cat([y[:, t], x[:, t]], 1)))
            sent.append(s)
        return torch.stack(sent, 1)


def draw_senses(layout, seed=0):
    lead = (3, STEPS) if layout == "BT" else (STEPS, 3)
    return spike_tensor(*lead, 1, 6, 6, seed=seed), spike_tensor(*lead, 10, seed=seed + 1)


def verify_spikes(network, module, given, layout="BT"):
    with torch.no_grad():
        expected = module(*given).numpy()
    run = nw.simulate(network, dict(zip(network.inputs, (x.numpy() for x in given), strict=True)))
    np.testing.assert_array_equal(run.output, expected if layout == "BT" else expected.swapaxes(0, 1))
    assert run.output.any()


@pytest.mark.parametrize("layout", ["BT", "TB"])
def test_each_argument_of_forward_is_an_input_of_the_network(layout):
    module, given = Senses(layout.index("T")).eval(), draw_senses(layout)
    network = nw.from_torch(module, given, layout=layout)
    assert {name: node.shape for name, node in network.inputs.items()} == {"image": (1, 6, 6), "sound": (10,)}
    assert set(network.layers) == {"conv", "fc", "out"}
    assert [c.source for c in network.connections if isinstance(c, nw.Conv2d)] == ["image"]
    verify_spikes(network, module, given, layout)
    verify_spikes(network, module, draw_senses(layout, seed=5), layout)


def test_an_input_may_be_a_nested_list_next_to_a_tensor():
    module, (image, sound) = Senses().eval(), draw_senses("BT")
    verify_spikes(nw.from_torch(module, (image, sound.tolist())), module, (image, sound))


def test_several_inputs_reach_a_chip():
    given = draw_senses("BT")
    named = {"image": given[0].numpy(), "sound": given[1].numpy()}
    program = nw.compile(nw.from_torch(Senses().eval(), given), "loihi2", named)
    result = nw.crosscheck(program, named, ("reference", "cycle", "sequence"))
    assert result.agree and all(row.fired["cycle"] for row in result.layers)


def test_inputs_that_one_layer_sees_side_by_side_are_told_apart():
    module, given = Joined().eval(), (spike_tensor(3, STEPS, 3), spike_tensor(3, STEPS, 4, seed=1))
    network = nw.from_torch(module, {"y": given[1], "x": given[0]})
    assert {name: node.shape for name, node in network.inputs.items()} == {"y": (4,), "x": (3,)}
    with torch.no_grad():
        expected = module(*given).numpy()
    run = nw.simulate(network, {"x": given[0].numpy(), "y": given[1].numpy()})
    np.testing.assert_array_equal(run.output, expected)


def test_an_input_of_a_layers_name_gets_another():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 4)

        def forward(self, a, b):
            v, sent = 0.0, []
            for t in range(a.shape[1]):
                v, s = leaky(v, self.a(a[:, t]) + b[:, t])
                sent.append(s)
            return torch.stack(sent, 1)

    network = nw.from_torch(Named().eval(), (spike_tensor(2, STEPS, 3), spike_tensor(2, STEPS, 4)))
    assert set(network.inputs) == {"a_input", "b"} and network.layers == ("a",)


def test_layers_of_a_framework_take_several_inputs():
    snn = framework("snntorch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.first, self.second = torch.nn.Linear(3, 6), torch.nn.Linear(4, 6)
            self.lif = snn.Leaky(0.9, init_hidden=True)
            self.first.weight.data *= 4

        def forward(self, x, y):
            return self.lif(self.first(x) + self.second(y))

    module, given = Net().eval(), (spike_tensor(3, STEPS, 3), spike_tensor(3, STEPS, 4, seed=1))
    network = nw.from_torch(module, given)
    assert network.layers == ("lif",)
    module.lif.reset_mem()
    with torch.no_grad():
        expected = torch.stack([module(given[0][:, t], given[1][:, t]) for t in range(STEPS)], 1).numpy()
    run = nw.simulate(network, {"x": given[0].numpy(), "y": given[1].numpy()})
    np.testing.assert_array_equal(run.output, expected)
    assert expected.any()


X, Y = spike_tensor(2, STEPS, 3), spike_tensor(2, STEPS, 4)
REFUSED = {
    "example_input has 3 inputs, and Joined.forward takes x, y": (X, Y, Y),
    "example_input names 'z', and Joined.forward takes x, y": {"x": X, "z": Y},
    "example_input needs a value for 'y' of Joined.forward": {"x": X},
    "example_input: inputs differ in ['B', 'T']: x [2, 7], y [2, 6]; give them all alike": (X, Y[:, 1:]),
    "example_input 'y' must be [B, T, *shape], got shape [2, 7]": (X, Y[..., 0]),
    "example_input 'y' must be [B, T, *shape], got shape []": (X, 1.0),
    "example_input is empty; give a value for each of x, y": {},
}


@pytest.mark.parametrize("text", REFUSED)
def test_examples_that_do_not_fit_the_arguments_are_refused(text):
    with pytest.raises(ModelError) as error:
        nw.from_torch(Joined(), REFUSED[text])
    assert str(error.value) == text
