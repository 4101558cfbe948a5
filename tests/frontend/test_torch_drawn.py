"""Modules that compute on other inputs, or for other numbers of samples, what the example does not show."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import nwcompile as nw
import nwcompile.nn as nwn
from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.torch.operators.ops import Frame, Site
from tests.made.spikes import spike_tensor

N_IN, N, STEPS = 6, 4, 8


class Framework(torch.nn.Module):
    """A layer of nwcompile.nn behind a function of the input."""

    def __init__(self, change):
        super().__init__()
        torch.manual_seed(1)
        self.fc, self.lif, self.change = torch.nn.Linear(N_IN, N), nwn.LIFLayer(N, taus=4e-3), change
        self.fc.weight.data *= 3

    def forward(self, x):
        nwn.prepare_net(self)
        return self.lif(self.fc(self.change(x)))[0]


class Own(torch.nn.Module):
    """Neurons written by hand behind a function of the input; `fire(x, v)` returns what they send."""

    def __init__(self, change=lambda x: x, fire=lambda x, v: (v > 1).float()):
        super().__init__()
        torch.manual_seed(1)
        self.fc, self.change, self.fire = torch.nn.Linear(N_IN, N), change, fire
        self.fc.weight.data *= 3

    def forward(self, x):
        h, v, sent = self.fc(self.change(x)), torch.zeros(len(x), N), []
        for t in range(h.shape[1]):
            v = 0.8 * v + h[:, t]
            s = self.fire(x, v)
            v = v - s
            sent.append(s)
        return torch.stack(sent, 1)


def verify_drawn(module, n_samples=5):
    network = nw.from_torch(module.eval(), spike_tensor(3, STEPS, N_IN))
    x = 2 * torch.randn(n_samples, STEPS, N_IN, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, module(x).numpy())


KEEPS_SPIKES = {
    "relu": torch.relu,
    "a product": lambda x: x * x,
    "a product of three": lambda x: x * x * x,
    "or": lambda x: 1 - (1 - x) * (1 - x),
    "power": lambda x: x**2,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(0, 1),
    "sign": torch.sign,
    "comparison": lambda x: (x > 0).float(),
    "relu of a maximum": lambda x: torch.relu(torch.nn.functional.max_pool1d(x, 3, 1, 1)),
}


@pytest.mark.parametrize("kind", [Framework, Own])
@pytest.mark.parametrize("change", KEEPS_SPIKES.values(), ids=KEEPS_SPIKES)
def test_function_of_the_input_that_leaves_spikes_unchanged_is_imported_for_every_input(kind, change):
    verify_drawn(kind(change))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("kind", [Framework, Own])
def test_cast_of_the_input_to_whole_numbers_is_refused(kind, dtype):
    cast = partial(torch.Tensor.to, dtype=dtype)
    with pytest.raises(ModelError, match=r"test_torch_drawn\.py:\d+: a cast to torch\.u?int\d+ cuts numbers to whole"):
        nw.from_torch(kind(lambda x: cast(x).float()), spike_tensor(3, STEPS, N_IN))


def subtract_long(v, s):
    return v * (1 - s.long())


def subtract_alpha(v, s):
    return v * torch.rsub(s, 1, alpha=0.5)


@pytest.mark.parametrize("reset", [subtract_long, subtract_alpha])
def test_reset_by_whole_numbers_or_with_a_factor_is_imported(reset):
    class Reset(Own):
        def forward(self, x):
            h, v, sent = self.fc(x), torch.zeros(len(x), N), []
            for t in range(h.shape[1]):
                v = 0.8 * v + h[:, t]
                s = (v > 1).float()
                v = reset(v, s)
                sent.append(s)
            return torch.stack(sent, 1)

    verify_drawn(Reset())


def double_one(x):
    return x * 2 if x.shape[0] == 1 else x


def double_several(x):
    return x * 2 if x.shape[0] > 1 else x


ALONE = r"test_torch_drawn\.py:\d+: torch's mul runs for a single sample only, and its neurons then spike differently"
SEVERAL = ALONE.replace("a single sample", "several samples")


@pytest.mark.parametrize("n_samples", [1, 2, 3])
@pytest.mark.parametrize("kind", [Framework, Own])
@pytest.mark.parametrize(("change", "text"), [(double_one, ALONE), (double_several, SEVERAL)])
def test_other_path_of_a_single_sample_is_refused(change, text, kind, n_samples):
    with pytest.raises(ModelError, match=text):
        nw.from_torch(kind(change), spike_tensor(3, STEPS, N_IN)[:n_samples])


def test_other_threshold_of_a_single_sample_is_refused():
    module = Own(fire=lambda x, v: (v > (0.5 if len(x) == 1 else 1.0)).float())
    with pytest.raises(ModelError, match="torch's gt gives a sample other values in a batch than alone"):
        nw.from_torch(module, spike_tensor(3, STEPS, N_IN))


@pytest.mark.parametrize("axes", [0, (0, 2)])
def test_maximum_over_the_samples_is_refused_though_no_neuron_spikes(axes):
    module = Own(lambda x: x / (100 * x.amax(axes, keepdim=True)).clamp(min=1))
    with pytest.raises(ModelError, match="torch's amax gives a sample other values in a batch than alone"):
        nw.from_torch(module, spike_tensor(3, STEPS, N_IN))


def test_other_path_that_computes_the_same_is_imported():
    verify_drawn(Own(lambda x: x + 0 * x if x.shape[0] == 1 else x), n_samples=1)


def test_other_result_of_a_single_sample_is_a_warning():
    class Doubled(Own):
        def forward(self, x):
            y = super().forward(x).sum(1)
            return 2 * y if len(y) == 1 else y

    with pytest.warns(NwWarning, match="depends on the other samples of its batch, or is another one alone"):
        nw.from_torch(Doubled(), spike_tensor(3, STEPS, N_IN))


def test_fixed_number_of_samples_is_refused_with_the_failure():
    module = Own(lambda x: x.reshape(1 if len(x) == 1 else 3, STEPS, N_IN))
    text = r"test_torch_drawn\.py:\d+: the module takes one sample, but fails on 4 \(shape '\[3, 8, 6\]' is invalid"
    with pytest.raises(ModelError, match=text):
        nw.from_torch(module, spike_tensor(3, STEPS, N_IN))


def test_failure_of_a_part_is_told_before_the_shape_of_its_steps():
    net = nwn.Sequential(torch.nn.Linear(N_IN + 1, N), nwn.LIFLayer(N))
    with pytest.raises(
        ModelError, match="with all steps, '0': RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    ):
        nw.from_torch(net, spike_tensor(3, STEPS, N_IN))


def test_quantized_network_is_refused_with_its_network():
    x = spike_tensor(3, STEPS, N_IN)
    net = nwn.quantize_aware(torch.nn.Sequential(torch.nn.Linear(N_IN, N), nwn.LIFLayer(N)), "loihi2", x.numpy())
    with pytest.raises(ModelError, match=r"the module is QuantizedNetwork, .*: compile module\.network\(\)"):
        nw.from_torch(net, x)


class Skipped(Framework):
    """A layer behind a product of the input with spikes."""

    def __init__(self):
        super().__init__(None)
        self.last = nwn.LIFLayer(N, taus=4e-3)

    def forward(self, x):
        nwn.prepare_net(self)
        return self.last(2 * ((1 - self.lif(self.fc(x))[0]) * x[..., :N]))[0]


def test_product_of_the_input_with_spikes_is_a_warning_that_says_for_which_inputs_it_is_right():
    text = (
        r"test_torch_drawn\.py:\d+: the product of the input with spikes is a logical AND in the network: right for inp"
    )
    x, module = spike_tensor(3, STEPS, N_IN), Skipped()
    with pytest.warns(NwWarning, match=text):
        network = nw.from_torch(module, x)
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).output, module(x).detach().numpy())


def test_places_are_in_the_users_files_also_in_a_folder_next_to_the_package():
    package = Path(nw.__file__).parent
    layer, user = Frame(f"{package}/nn/ops/scan.py", 3, 0), Frame(f"{package}_nets/net.py", 7, 0)
    assert str(Site((), (layer, user))) == "net.py:7"
    assert str(Site(("fc",), (layer,))) == "'fc'" and str(Site((), ())) == "the module"
