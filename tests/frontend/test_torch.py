"""from_torch against the module itself: weights are multiples of 1/64, so that sums are exact in any order."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import NwWarning
from tests.made.spikes import spike_tensor
from tests.made.tensors import on_grid

DT = 1e-3


def lif(n, reset="subtraction", tau=4e-3, threshold=0.75, topology="FF"):
    return nn.LIFLayer(n, tau, threshold, reset, DT, topology)


def assert_equal(module, x, run):
    """The imported network's output spikes are those that `run(module, x)` gives, [B, T, *]."""
    network = nw.from_torch(module, x[:2, :3])
    nn.prepare_net(module)
    with torch.no_grad():
        expected = run(module.eval(), x).numpy()
    got = nw.simulate(network, x).output
    assert 0.02 < np.abs(expected).mean() and (expected != expected.flat[0]).any()
    np.testing.assert_array_equal(got, expected)
    return network


def step_by_step(module, x):
    return torch.stack([first(module(x_t)) for x_t in x.unbind(1)], 1)


def all_steps(module, x):
    return first(module(x))


def first(result):
    return result[0] if isinstance(result, tuple) else result


def edges(network):
    return [(type(c).__name__, c.source, c.target, c.aligned_delay) for c in network.connections]


class Steps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.lif1, self.drop = torch.nn.Linear(8, 7), lif(7, "zero"), torch.nn.Dropout()
        self.fc2, self.lif2 = nn.LIFSynapse(7, 5), lif(5, "none")

    def forward(self, x):
        s, _ = self.lif1(self.fc1(x))
        return self.lif2(self.fc2(self.drop(s)))


class Loop(Steps):
    """The shape of a tutorial's network: its own loop over time, spikes and membranes collected."""

    def __init__(self):
        super().__init__()
        self.forward = self.forward_cpu

    def forward_cpu(self, x):
        nn.prepare_net(self)
        all_spikes, all_mem = [], []
        for t in range(x.shape[1]):
            s, m = super().forward(x[:, t, :])
            all_spikes.append(s)
            all_mem.append(m)
        return torch.stack(all_spikes, dim=1), torch.stack(all_mem, dim=1).mean(1)


@pytest.mark.parametrize(("make", "run"), [(Steps, step_by_step), (Steps, all_steps), (Loop, all_steps)])
def test_from_torch_takes_single_steps_whole_sequences_and_loops(make, run):
    torch.manual_seed(1)
    gives_membrane = pytest.warns(NwWarning, match="the membrane of layer 'lif2'") if make is Loop else nullcontext()
    with gives_membrane:
        network = assert_equal(on_grid(make()), spike_tensor(3, 12, 8), run)
    assert edges(network) == [("Dense", "input", "lif1", 0), ("Dense", "lif1", "lif2", 0)]
    assert network.layers == ("lif1", "lif2")
    assert network.inputs["input"].shape == (8,)
    assert [network.node(n).neuron.reset for n in network.layers] == ["zero", "none"]


def test_from_torch_takes_both_kinds_of_sequential():
    torch.manual_seed(1)
    parts = torch.nn.Linear(8, 7), lif(7), torch.nn.Identity(), torch.nn.Linear(7, 5, bias=False), lif(5)
    own = on_grid(nn.Sequential(*parts))
    x = spike_tensor(3, 12, 8)
    network = assert_equal(own, x, all_steps)
    assert network.layers == ("1", "4")
    assert nw.from_torch(torch.nn.Sequential(*parts), x).hash == network.hash
    nested = torch.nn.Sequential(torch.nn.Sequential(*parts[:2]), torch.nn.Sequential(*parts[2:]))
    assert nw.from_torch(nested, x).layers == ("0.1", "1.2")


def test_from_torch_reads_taus_thresholds_and_reset():
    layer = nn.LIFLayer(3, [1e-3, 2e-3, float("inf")], [0.5, 1.0, 2.0], "subtraction", 1e-3)
    network = nw.from_torch(nn.Sequential(torch.nn.Linear(4, 3), layer), spike_tensor(2, 3, 4))
    neuron = network.node("1").neuron
    np.testing.assert_array_equal(neuron.beta, layer.beta.numpy())
    assert neuron.threshold.tolist() == [0.5, 1, 2]
    assert (neuron.reset, neuron.strict, neuron.reset_timing) == ("subtract", False, "now")


def test_from_torch_takes_a_layer_by_itself():
    network = assert_equal(lif(4), 2 * spike_tensor(2, 9, 4), all_steps)
    assert edges(network) == [("Scale", "input", "lif", 0)]


def test_from_torch_turns_rc_layers_into_recurrent_connections():
    torch.manual_seed(2)
    module = on_grid(nn.Sequential(torch.nn.Linear(8, 7), lif(7, topology="RC")))
    network = assert_equal(module, spike_tensor(3, 15, 8), all_steps)
    assert edges(network) == [("Dense", "input", "1", 0), ("Dense", "1", "1", 1)]
    np.testing.assert_array_equal(network.connections[1].weight, module[1].w_rec.detach().numpy().T)


class Feedback(torch.nn.Module):
    """Spikes of the step before through Python variables: local ones, or an attribute."""

    def __init__(self, loops, start):
        super().__init__()
        self.fc, self.back, self.lif1 = torch.nn.Linear(8, 6), torch.nn.Linear(5, 6, bias=False), lif(6)
        self.out, self.lif2, self.loops, self.start = torch.nn.Linear(6, 5), lif(5), loops, start
        self.before = None

    def step(self, x, before):
        current = self.fc(x)
        if before is not None:
            current += self.back(before)
        return self.lif2(self.out(self.lif1(current)[0]))[0]

    def forward(self, x):
        if not self.loops:
            self.before = self.step(x, self.before)
            return self.before
        s, result = (
            {"zeros": torch.zeros(len(x), 5), "like": torch.zeros_like(x[:, 0, :5]), "nothing": None}[self.start],
            [],
        )
        for x_t in x.unbind(1):
            s = self.step(x_t, s)
            result.append(s)
        return torch.stack(result, 1)


@pytest.mark.parametrize(("loops", "start"), [(True, "zeros"), (True, "like"), (True, "nothing"), (False, "nothing")])
def test_from_torch_sees_feedback_through_python_variables(loops, start):
    torch.manual_seed(3)
    module = on_grid(Feedback(loops, start))
    network = assert_equal(module, spike_tensor(3, 15, 8), all_steps if loops else step_by_step)
    assert ("Dense", "lif2", "lif1", 1) in edges(network)
    assert not loops or module.before is None


def test_from_torch_sees_earlier_inputs_as_delays():
    class Delayed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.now, self.late, self.lif = torch.nn.Linear(8, 6), torch.nn.Linear(8, 6, bias=False), lif(6)

        def forward(self, x):
            result = []
            for t in range(x.shape[1]):
                current = self.now(x[:, t])
                if t >= 2:
                    current = current + self.late(x[:, t - 2])
                result.append(self.lif(current)[0])
            return torch.stack(result, 1)

    torch.manual_seed(3)
    network = assert_equal(on_grid(Delayed()), spike_tensor(3, 9, 8), all_steps)
    assert edges(network) == [("Dense", "input", "lif", 0), ("Dense", "input", "lif", 2)]


class ConvNet(torch.nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.whole = whole
        self.conv = torch.nn.Conv2d(2, 4, 3, stride=1, padding=1, groups=2)
        self.norm, self.lif1 = torch.nn.BatchNorm2d(4, eps=0.0), lif(4 * 6 * 6, "zero")
        self.any = torch.nn.MaxPool2d(2)
        self.conv2, self.lif2 = torch.nn.Conv2d(4, 3, (2, 1), padding=(0, 1), dilation=(1, 2)), lif(3 * 2 * 5)
        self.mean, self.flat = torch.nn.AvgPool2d((2, 1)), torch.nn.Flatten()
        self.fc, self.lif3 = torch.nn.Linear(15, 4), lif(4, threshold=0.125)
        self.norm.running_mean[:] = torch.tensor([0.25, -0.5, 0, 0.125])
        self.norm.running_var[:] = torch.tensor([0.25, 1, 4, 0.0625])

    def forward(self, x):
        n, steps = x.shape[:2]

        def fold(y):
            return y.flatten(0, 1) if self.whole else y

        def unfold(y):
            return y.view(n, steps, *y.shape[1:]) if self.whole else y

        s, _ = self.lif1(unfold(self.norm(self.conv(fold(x)))))
        s, _ = self.lif2(unfold(self.conv2(self.any(fold(s)))))
        return self.lif3(unfold(self.fc(self.flat(self.mean(fold(s))))))[0]


@pytest.mark.parametrize("whole", [True, False])
def test_from_torch_takes_convolution_normalization_and_pooling(whole):
    torch.manual_seed(8)
    module = on_grid(ConvNet(whole))
    network = assert_equal(module, spike_tensor(2, 9, 2, 6, 6), all_steps if whole else step_by_step)
    assert edges(network) == [
        ("Conv2d", "input", "conv", 0),
        ("Scale", "conv", "lif1", 0),
        ("Pool2d", "lif1", "any", 0),
        ("Conv2d", "any", "lif2", 0),
        ("Pool2d", "lif2", "mean", 0),
        ("Dense", "mean", "lif3", 0),
    ]
    assert network.layers == ("lif1", "any", "lif2", "lif3")
    assert network.node("lif1").shape == (4, 6, 6)
    assert network.node("conv").neuron is None


def test_from_torch_takes_neurons_flattened_after_a_convolution_and_maxima_of_input_spikes():
    torch.manual_seed(5)
    module = nn.Sequential(
        torch.nn.MaxPool2d(2, stride=1), torch.nn.Conv2d(1, 3, 3), torch.nn.Flatten(), lif(27),
        torch.nn.Unflatten(1, (3, 3, 3)), torch.nn.AvgPool2d(2), torch.nn.Flatten(), lif(3, threshold=0.25),
    )  # fmt: skip
    network = assert_equal(on_grid(module), spike_tensor(2, 9, 1, 6, 6, rate=0.2), all_steps)
    assert network.layers == ("0", "3", "7")
    assert network.node("3").shape == (27,)


def test_from_torch_takes_one_dimensional_convolutions():
    torch.manual_seed(5)
    module = nn.Sequential(
        torch.nn.Conv1d(2, 3, 3, padding="same"), torch.nn.BatchNorm1d(3, eps=0.0), lif(27), torch.nn.Flatten(),
        torch.nn.Linear(27, 6), torch.nn.BatchNorm1d(6, eps=0.0), lif(6),
    )  # fmt: skip
    module[1].running_var[:] = 0.25
    module[5].running_mean[:] = -0.25
    network = assert_equal(on_grid(module), spike_tensor(2, 9, 2, 9), all_steps)
    assert edges(network)[0] == ("Conv1d", "input", "0", 0)
    assert network.node("2").shape == (3, 9)


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.lif1 = torch.nn.Linear(8, 6), lif(6)
        self.fc2, self.lif2 = torch.nn.Linear(6, 6), lif(6)
        self.norm, self.lif3 = torch.nn.BatchNorm1d(6, eps=0.0), lif(6)
        self.skip, self.lif4 = torch.nn.Linear(8, 6, bias=False), lif(6)

    def forward(self, x):
        a, _ = self.lif1(self.fc1(x))
        b, _ = self.lif2(self.fc2(a) + a)
        c, _ = self.lif3(self.norm(a + b) - 0.25 * b)
        return self.lif4(c + self.skip(x) / 2)


def test_from_torch_joins_sums_in_one_node():
    torch.manual_seed(4)
    network = assert_equal(on_grid(Residual()), spike_tensor(3, 12, 8), step_by_step)
    assert edges(network) == [
        ("Dense", "input", "lif1", 0),
        ("Dense", "lif1", "lif2", 0),
        ("Scale", "lif1", "lif2", 0),
        ("Scale", "lif1", "sum", 0),
        ("Scale", "lif2", "sum", 0),
        ("Scale", "sum", "lif3", 0),
        ("Scale", "lif2", "mul", 0),
        ("Scale", "mul", "lif3", 0),
        ("Scale", "lif3", "lif4", 0),
        ("Dense", "input", "skip", 0),
        ("Scale", "skip", "lif4", 0),
    ]


class Moves(torch.nn.Module):
    """Layers joined and taken apart again; time first in the middle."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.lif1, self.lif2 = torch.nn.Linear(8, 6), torch.nn.Linear(4, 6), lif(6), lif(6)
        self.conv, self.lif3 = torch.nn.Conv2d(2, 3, 2), lif(12)

    def forward(self, x):
        left = []
        for x_t in x.transpose(0, 1):
            left.append(self.lif1(self.fc1(x_t))[0])
        right, _ = self.lif2(self.fc2(x[..., 2:6].flip(-1)))
        both = torch.cat([torch.stack(left, 1), right], dim=2)
        image = both.flatten(0, 1).view(-1, 2, 2, 3).transpose(2, 3)
        return self.lif3(self.conv(image).view(*x.shape[:2], 6).repeat(1, 1, 2))


def test_from_torch_follows_whatever_only_moves_entries():
    torch.manual_seed(6)
    network = assert_equal(on_grid(Moves()), spike_tensor(3, 12, 8), all_steps)
    assert edges(network) == [
        ("Dense", "input", "lif1", 0),
        ("Sparse", "input", "view", 0),
        ("Dense", "view", "lif2", 0),
        ("Sparse", "lif1", "cat", 0),
        ("Sparse", "lif2", "cat", 0),
        ("Conv2d", "cat", "conv", 0),
        ("Sparse", "conv", "lif3", 0),
    ]


def test_from_torch_makes_readouts_of_linear_maps_that_end_in_no_layer():
    class Readout(Steps):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(5, 3)

        def forward(self, x):
            return self.head(super().forward(x)[0])

    torch.manual_seed(1)
    network = assert_equal(on_grid(Readout()), spike_tensor(3, 12, 8), step_by_step)
    assert network.layers == ("lif1", "lif2", "head")
    assert not network.node("head").neuron.fires


def test_from_torch_leaves_out_what_comes_after_the_last_layer_and_says_so():
    class Counts(Steps):
        def forward(self, x):
            s, m = super().forward(x)
            return torch.softmax(s.sum(1), -1) + torch.relu(m.mean(1)).log()

    torch.manual_seed(1)
    module = on_grid(Counts())
    with pytest.warns(NwWarning, match=r"left out torch's sum \(test_torch\.py:\d+\) and torch's softmax"):
        assert nw.from_torch(module, spike_tensor(2, 5, 8)).layers == ("lif1", "lif2")


def test_from_torch_leaves_the_module_as_it_was():
    torch.manual_seed(3)
    module = on_grid(Feedback(False, "nothing")).train()
    module.lif2.eval()
    module.trace = [1]
    names = {k: set(vars(m)) for k, m in module.named_modules()}
    state = {k: v.clone() for k, v in module.state_dict().items()}
    nw.from_torch(module, spike_tensor(3, 5, 8))
    assert (module.training, module.lif1.training, module.lif2.training) == (True, True, False)
    assert module.before is None
    assert module.trace == [1]
    assert {k: set(vars(m)) for k, m in module.named_modules()} == names
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in module.modules())
    assert all(torch.equal(state[k], v) for k, v in module.state_dict().items())
    module(spike_tensor(7, 8))  # another batch size: nothing is kept


def test_from_torch_accepts_arrays_short_examples_and_other_dtypes():
    torch.manual_seed(1)
    module = on_grid(Steps())
    expected = nw.from_torch(module, spike_tensor(2, 5, 8)).hash
    for example in (
        spike_tensor(1, 1, 8),
        spike_tensor(2, 5, 8).numpy(),
        spike_tensor(2, 5, 8).bool(),
        spike_tensor(2, 5, 8).numpy().astype(np.uint8),
    ):
        assert nw.from_torch(module, example).hash == expected
    assert nw.from_torch(module.double(), spike_tensor(2, 5, 8)).hash == expected


class Functional(torch.nn.Module):
    """Weights of its own, through functions of torch."""

    def __init__(self):
        super().__init__()
        self.kernel = torch.nn.Parameter((torch.randn(3, 2, 3, 2) * 16).round() / 16)
        self.weight = torch.nn.Parameter((torch.randn(24, 5) * 16).round() / 16)
        self.bias = torch.nn.Parameter((torch.randn(4) * 16).round() / 16)
        self.conv, self.pooled, self.dense, self.out = lif(168), lif(24, "zero"), lif(5), lif(4)

    def forward(self, x):
        f = torch.nn.functional
        s, _ = self.conv(f.conv2d(x, self.kernel, stride=(1, 1), padding=(1, 0)))
        s, _ = self.pooled(4 * f.avg_pool2d(f.max_pool2d(s, (1, 2), (1, 2)), (2, 2), stride=(2, 1)))
        s, _ = self.dense(s.flatten(1) @ self.weight)
        return self.out(f.linear(s, self.weight[:4, :5], self.bias))


def test_from_torch_follows_functions_with_weights():
    torch.manual_seed(2)
    module, x = Functional(), spike_tensor(3, 12, 2, 8, 8)
    network = assert_equal(module, x, step_by_step)
    made = [type(c).__name__ for c in network.connections]
    assert {"Conv2d", "Dense", "Pool2d"} <= set(made)


class Fading(torch.nn.Module):
    """A weight that differs from step to step."""

    def __init__(self):
        super().__init__()
        self.weight, self.lif = torch.nn.Parameter(torch.ones(8, 8)), lif(8)

    def forward(self, x):
        return torch.stack([self.lif(x_t @ (self.weight / (t + 1)))[0] for t, x_t in enumerate(x.unbind(1))], 1)


def test_from_torch_refuses_weights_that_change_from_step_to_step():
    with pytest.raises(nw.ModelError) as error:
        nw.from_torch(Fading(), spike_tensor(2, 3, 8))
    assert "torch's mm: step 4 of the example computes something else than step 3" in str(error.value)
    assert error.value.code == "NW2304"


def test_from_torch_puts_neurons_in_the_place_of_relus():
    torch.manual_seed(0)
    ann = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.AvgPool2d(2), torch.nn.Flatten(),
                              torch.nn.Linear(27, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))  # fmt: skip
    neuron = nw.NeuronSpec(spikes="multi", reset="subtract", strict=False)
    network = nw.from_torch(ann, spike_tensor(2, 3, 1, 8, 8), relu=neuron)
    assert network.layers == ("1", "5", "6")
    assert [network.node(name).neuron for name in ("1", "5")] == [neuron, neuron]
    assert not network.node("6").neuron.fires
    rate = nw.simulate(network, np.repeat(spike_tensor(4, 1, 1, 8, 8, seed=3).numpy(), 2000, 1)).spikes["5"].mean(1)
    with torch.no_grad():
        expected = ann[:6](spike_tensor(4, 1, 1, 8, 8, seed=3)[:, 0]).numpy()
    assert expected.max() > 0.05
    np.testing.assert_allclose(rate, expected, atol=0.01)


def test_from_torch_says_what_relu_must_be():
    with pytest.raises(nw.ModelError) as error:
        nw.from_torch(torch.nn.ReLU(), spike_tensor(2, 3, 4), relu="IAF")
    assert str(error.value) == "relu='IAF' must be an nw.NeuronSpec, the neuron that stands for every ReLU"


def test_from_torch_warns_where_a_layer_spikes_otherwise_than_in_the_module():
    layer, x = lif(4), spike_tensor(2, 6, 4)
    layer.register_forward_hook(lambda module, args, result: (1 - result[0], result[1]))
    with pytest.warns(NwWarning) as told:
        nw.from_torch(torch.nn.Sequential(layer), x)
    assert [str(w.message) for w in told] == [
        "layer '0' spikes differently from the module on the example: 48 of 48 entries, first in step 0, sample "
        "0, neuron 0: 0 in the module, 1 in the network"
    ]


@pytest.mark.parametrize("missing", ["bias", "weight"])
def test_from_torch_takes_batch_norms_with_one_of_weight_and_bias(missing):
    torch.manual_seed(1)
    norm = torch.nn.BatchNorm1d(5)
    norm.running_mean.normal_(0, 0.2)
    norm.running_var.uniform_(0.3, 1.5)
    norm.bias.data.uniform_(-0.2, 0.2)
    setattr(norm, missing, None)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), norm, lif(5, threshold=0.4)).eval()
    module[0].weight.data *= 4
    x = spike_tensor(3, 9, 6)
    network = nw.from_torch(module, x)
    expected = step_by_step(module, x).detach().numpy()
    assert expected.any() and not expected.all()
    np.testing.assert_array_equal(nw.simulate(network, x).output, expected)
