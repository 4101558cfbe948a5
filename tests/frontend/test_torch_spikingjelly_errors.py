"""What from_torch says about SpikingJelly modules that it does not take."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.frontend.frameworks import framework

layer = framework("spikingjelly.activation_based.layer")
neuron = framework("spikingjelly.activation_based.neuron")
functional = framework("spikingjelly.activation_based.functional")
surrogate = framework("spikingjelly.activation_based.surrogate")


class Mine(neuron.LIFNode):
    """A LIF node with an update of its own."""

    def single_step_functional_forward(self, inputs, states, **kwargs):
        return super().single_step_functional_forward((2 * inputs[0],), states)


class Slower(neuron.LIFNode):
    """A LIF node with another default."""

    def __init__(self):
        super().__init__(tau=4.0)


def test_spikingjelly_node_with_a_step_of_its_own_is_followed():
    module, x = torch.nn.Sequential(layer.Linear(8, 5), Mine()), torch.rand(2, 6, 8) * 3
    with torch.no_grad():
        result = torch.stack([module(x_t) for x_t in x.unbind(1)], 1)
    functional.reset_net(module)
    network = nw.from_torch(module, x)
    assert network.programs == ("1",)
    assert (nw.simulate(network, x).output == result.numpy()).all()


class Louder(neuron.LIFNode):
    """A LIF node that does something outside of its steps."""

    def forward(self, x):
        return super().forward(2 * x)


def test_spikingjelly_node_with_a_forward_of_its_own_is_imported_by_its_operators():
    module = torch.nn.Sequential(layer.Linear(8, 5), Louder())
    x = torch.rand(2, 6, 8)
    network = nw.from_torch(module, x)
    with torch.no_grad():
        expected = torch.stack([module(step) for step in x.unbind(1)], 1)
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).spikes["1"], expected.numpy())


class Noisy(neuron.LIFNode):
    """A LIF node with noise before it."""

    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


class LIFNode(neuron.LIFNode):
    """A LIF node that calls what this SpikingJelly does not have."""

    def forward(self, x):
        self.v_float_to_tensor(x)
        return self.v


@pytest.mark.parametrize(
    ("node", "text"),
    [(Noisy, "torch.s randn_like draws random numbers"), (LIFNode, "no attribute 'v_float_to_tensor'")],
)
def test_spikingjelly_node_of_your_own_is_refused_for_what_it_does(node, text):
    with pytest.raises(ModelError, match=text) as error:
        nw.from_torch(torch.nn.Sequential(layer.Linear(8, 5), node()), torch.rand(2, 6, 8))
    assert "supported neurons" not in str(error.value)


def test_spikingjelly_node_with_other_defaults_is_still_that_node():
    assert nw.from_torch(Slower(), torch.zeros(3, 2, 5)).node("lif").neuron.k == 0.25


def _started(v_reset, start):
    node = neuron.IFNode(v_reset=v_reset)
    node.set_reset_value("v", start)
    return node


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: neuron.IFNode(surrogate_function=surrogate.Sigmoid(spiking=False)),
            "surrogate_function gives 0.00033535, 0.499, 0.5, 0.5, 0.5, 0.501, 0.999665 for inputs from -2 to 2; it "
            "must step from 0 to 1 at 0, in eval mode",
        ),
        (
            lambda: _started(0.0, torch.zeros(1, 5)),
            "v starts at a tensor (set_reset_value), which is not supported; give one number",
        ),
    ],
)
def test_spikingjelly_nodes_that_cannot_be_read_are_refused(make, text):
    with pytest.raises(ModelError) as error:
        nw.from_torch(make(), torch.zeros(3, 2, 5))
    assert str(error.value) == f"layer 'lif' (spikingjelly IFNode): {text}"


@pytest.mark.parametrize(
    ("step_modes", "layout", "text"),
    [
        (
            "mm",
            "BT",
            "layer '1' is fed by a tensor [B, T, *], but IFNode takes [T, B, *]; give from_torch layout='TB' and an "
            "example in it",
        ),
        ("ms", "TB", "layer '3' is fed by a tensor [T, B, *], but IFNode takes one step [B, *]"),
        ("sm", "TB", "layer '1' is fed by a tensor [T, B, *], but IFNode takes one step [B, *]"),
    ],
)
def test_spikingjelly_wrong_layout_is_told(step_modes, layout, text):
    module = torch.nn.Sequential(layer.Linear(8, 6), neuron.IFNode(), layer.Linear(6, 5), neuron.IFNode())
    module[1].step_mode, module[3].step_mode = step_modes
    with pytest.raises(ModelError) as error:
        nw.from_torch(module, torch.rand(4, 3, 8), layout=layout)
    assert str(error.value) == text
