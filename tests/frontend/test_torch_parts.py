"""Known layers are operators of a recorded module: whatever the code does with their calls, states and results."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.torch import readouts
from nwcompile.frontend.torch.operators import readout
from tests.frontend.frameworks import framework

pytestmark = pytest.mark.filterwarnings("error::nwcompile.errors.NwWarning")
N = 6


def lif():
    return nn.LIFLayer(N, 4e-3, 0.3, "subtraction", 1e-3)


def spikes(n_samples, n_steps, seed=0, rate=0.5):
    return (torch.rand(n_samples, n_steps, N, generator=torch.Generator().manual_seed(seed)) < rate).float()


class AddUp(torch.nn.Module):
    """A sum of the tensors of a tuple."""

    def forward(self, parts):
        return sum(parts)


class TakeFirst(torch.nn.Module):
    """The spikes of a layer's `(spikes, membrane)`."""

    def forward(self, pair):
        first, _ = pair
        return first


class Net(torch.nn.Module):
    """Parts that `run(net, x)` calls."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.fc, self.lif, self.fc2, self.lif2 = torch.nn.Linear(N, N), lif(), torch.nn.Linear(N, N), lif()
        self.delay = nn.Delay(N, 4, init_delay=torch.tensor([0, 1, 2, 3, 1, 2]))
        self.add, self.first = AddUp(), TakeFirst()
        self.pair = torch.nn.Sequential(FireTwice(), AddUp())

    def forward(self, x):
        return self.run(self, x)

    def fire(self, x):
        """Spikes of the first layer."""
        return self.lif(self.fc(x))[0]


class FireTwice(torch.nn.Module):
    """Spikes of two layers, as a pair."""

    def __init__(self):
        super().__init__()
        self.fc, self.lif, self.fc2, self.lif2 = torch.nn.Linear(N, N), lif(), torch.nn.Linear(N, N), lif()

    def forward(self, x):
        return self.lif(self.fc(x))[0], self.lif2(self.fc2(x))[0]


def nest_the_membrane(net, x):
    fired, membrane = net.lif(net.fc(x))
    return {"out": (membrane, fired)}


def feed_back_late(net, x):
    late, fired = torch.zeros_like(x[:, 0]), []
    for x_t in x.unbind(1):
        fired.append(net.lif(x_t + 0.3 * late)[0])
        late = net.delay(fired[-1])
    return torch.stack(fired, 1)


SAME = {
    "a membrane inside of a dict": nest_the_membrane,
    "a part that takes two tensors, at the end": lambda net, x: net.add((net.fire(x), net.lif2(net.fc2(x))[0])),
    "a part that takes two tensors": lambda net, x: net.lif2(net.fc2(net.add((net.fire(x), x))))[0],
    "a membrane behind what is no tensor": lambda net, x: (None, (net.lif(net.fc(x))[1],)),
    "a pair in a Sequential": lambda net, x: net.pair(x),
    "a part that takes a layer's pair": lambda net, x: net.first(net.lif(net.fc(x))),
    "a delay in a loop": feed_back_late,
    "the last step of a delay": lambda net, x: net.delay(net.fire(x))[:, -1],
    "two steps of a delay": lambda net, x: net.delay(net.fire(x))[:, :2],
}


def result_of(network, x):
    run = nw.simulate(network, x.numpy(), record="all")
    return run.output if network.readout is None else nw.read_out(run)


def first_of(result):
    while not isinstance(result, torch.Tensor):
        result = next(part for part in (result.values() if isinstance(result, dict) else result) if part is not None)
    return result.detach().numpy()


def verify_result(net, network, x):
    nn.prepare_net(net)
    expected = first_of(net(x))
    assert expected.any() and np.allclose(result_of(network, x).reshape(expected.shape), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("name", SAME)
def test_the_result_is_the_module_s(name):
    net = Net(SAME[name])
    verify_result(net, nw.from_torch(net, spikes(2, 7)), spikes(3, 7, seed=1))


@pytest.mark.parametrize("n_steps", [1, 2])
def test_a_result_of_a_short_example_is_read_out_for_every_length(n_steps):
    net = Net(lambda net, x: 1 - net.fire(x).mean(1))
    network = nw.from_torch(net, spikes(2, n_steps))
    for length in (n_steps, 9):
        verify_result(net, network, spikes(2, length, seed=1))


def test_code_that_asks_for_the_number_of_steps_is_imported_for_that_of_the_example():
    net = Net(lambda net, x: net.fire(x * (1.0 if x.shape[1] < 3 else -3.0)))
    x = spikes(3, 2, seed=1)
    assert (net.fire(x) != Net(Net.fire)(-3 * x)).any()
    verify_result(net, nw.from_torch(net, spikes(2, 2)), x)


def test_a_product_of_input_and_spikes_holds_for_spikes_of_every_length():
    net = Net(lambda net, x: net.lif2(net.fc2(net.fire(x) * x))[0])
    with pytest.warns(NwWarning, match="is a logical AND in the network"):
        network = nw.from_torch(net, spikes(2, 7))
    verify_result(net, network, spikes(2, 12, seed=1))


@pytest.mark.parametrize("flips_example", [False, True])
def test_a_spike_that_rounding_changes_on_a_drawn_sample_keeps_the_readout(monkeypatch, flips_example):
    """Sums in another order may put a neuron on the other side of its threshold."""
    net, x = Net(lambda net, x: 1 - net.fire(x).mean(1)), spikes(2, 7)
    record_layers = readout.record_layers

    def round_otherwise(network, inputs):
        run = record_layers(network, inputs)
        fired = run.spikes["lif"].copy()
        for s, sample in enumerate(inputs):
            if torch.equal(sample, x[0]) == flips_example:
                fired[s, 0, 0] = 1 - fired[s, 0, 0]
        return replace(run, spikes={**run.spikes, "lif": fired})

    for module in (readout, readouts):
        monkeypatch.setattr(module, "record_layers", round_otherwise)
    if flips_example:
        with pytest.warns(NwWarning, match="the import left out torch's mean"):
            nw.from_torch(net, x)
    else:
        assert nw.from_torch(net, x).readout is not None


def test_a_delay_that_is_a_further_result_is_an_output():
    net = Net(lambda net, x: (net.fire(x), net.delay(x)))
    x = spikes(2, 7)
    outputs = nw.simulate(nw.from_torch(net, x), x.numpy()).output
    nn.prepare_net(net)
    for name, expected in zip(("lif", "delay"), net(x), strict=True):
        assert np.array_equal(outputs[name], expected.detach())


@pytest.mark.parametrize("gives", [dict, lambda **results: tuple(results.values())])
def test_a_membrane_next_to_the_spikes_of_a_step_is_reported(gives):
    """Collections that hold only states are for the next call."""

    def run(net, x):
        pairs = [net.lif(net.fc(x_t)) for x_t in x.unbind(1)]
        return [{"again": s, "layer": gives(spikes=s, membrane=v)} for s, v in pairs]

    with pytest.warns(NwWarning, match="the import left out the membrane of layer 'lif'"):
        nw.from_torch(Net(run), spikes(2, 7))


MIXES = {
    "the mean": lambda s: s.mean(0, keepdim=True),
    "the first": lambda s: s[:1],
    "the last": lambda s: s[-1:],
    "the samples before": lambda s: s.cumsum(0),
    "another one": lambda s: s.roll(1, 0),
    "the largest": lambda s: s.amax(0),
    "the first on the third": lambda s: torch.cat([0 * s[:2], s[2:] * 0 + s[:1]]) if len(s) > 2 else 0 * s,
}


@pytest.mark.parametrize("name", MIXES)
def test_a_small_influence_of_other_samples_is_refused(name):
    net = Net(lambda net, x: net.lif2(net.fc2(s := net.fire(x)) + 0.05 * MIXES[name](s))[0])
    with pytest.raises(
        ModelError, match="(gives a sample other values in a batch than alone|runs for a single sample only)"
    ):
        nw.from_torch(net, spikes(2, 6))


@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_over_the_samples_may_have_own_neurons(inside):
    def fire(net, current, v):
        v = 0.8 * v + current
        s = (v > 0.3).float()
        return s, v - 0.3 * s

    def run(net, x):
        x = net.fire(x)
        v, steps = [x.new_zeros(N)] * len(x), [[] for _ in x]
        order = [(b, t) for b in range(len(x)) for t in range(x.shape[1])]
        for b, t in sorted(order, key=lambda pair: pair[::-1]) if inside else order:
            s, v[b] = fire(net, net.fc2(x[b, t]), v[b])
            steps[b].append(s)
        return torch.stack([torch.stack(row) for row in steps])

    net = Net(run)
    verify_result(net, nw.from_torch(net, spikes(2, 7)), spikes(3, 7, seed=1))


def test_a_result_may_have_the_samples_of_each_step_side_by_side():
    net = Net(lambda net, x: net.fire(x).transpose(0, 1).flatten(0, 1))
    assert nw.from_torch(net, spikes(2, 7)).outputs == ("lif",)


@pytest.mark.parametrize("layout", ["BT", "B"])
def test_samples_that_change_places_in_front_of_a_layer_are_refused(layout):
    def run(net, x):
        if layout == "BT":
            return net.lif2(net.fire(x).flip(0))[0]
        return torch.stack([net.lif2(net.fire(x).flip(0))[0] for _ in range(5)], 1)

    x = spikes(2, 6) if layout == "BT" else spikes(2, 1)[:, 0]
    with pytest.raises(ModelError, match="torch's flip gives a sample other values in a batch than alone"):
        nw.from_torch(Net(run), x, layout=layout)


def test_a_read_value_may_depend_on_the_whole_batch():
    net = Net(lambda net, x: s if (s := net.fire(x).sum(1)).sum() < 20 else 2 * s)
    net.fc.weight.data.mul_(1.5).add_(0.12)
    with pytest.warns(NwWarning, match="depends on the other samples of its batch"):
        nw.from_torch(net, spikes(2, 3))


def test_a_layer_that_some_inputs_skip_does_not_stop_the_import():
    net = Net(lambda net, x: net.fire(x) if x.any() else torch.zeros_like(x))
    with pytest.warns(NwWarning, match="depends on the other samples of its batch"):
        network = nw.from_torch(net, spikes(2, 7))
    verify_result(net, network, spikes(2, 7, seed=1))


def stop_early(net, x):
    fired = []
    for _ in range(6):
        fired.append(net.fire(x))
        if fired[-1].sum() > 3 * len(x):
            break
    return torch.stack(fired, 1)


def test_a_loop_that_the_spikes_end_is_refused():
    with pytest.raises(ModelError, match="the code reads a value of a tensor"):
        nw.from_torch(Net(stop_early), spikes(2, 1)[:, 0], layout="B")


class TwoStates(torch.nn.Module):
    """snnTorch's neuron with a current and a membrane; `call(lif, x, current, membrane)` runs a step."""

    def __init__(self, call):
        super().__init__()
        self.call = call
        self.lif = framework("snntorch").Synaptic(alpha=0.5, beta=0.8, threshold=0.6)

    def forward(self, x):
        current, membrane = self.lif.init_synaptic()
        fired = []
        for x_t in x.unbind(1):
            s, current, membrane = self.call(self.lif, x_t, current, membrane)
            fired.append(s)
        return torch.stack(fired, 1)


@pytest.mark.parametrize("call", [lambda lif, x, i, v: lif(x, v, i), lambda lif, x, i, v: lif(x, mem=i, syn=v)])
def test_states_in_another_order_are_those_that_the_module_computes(call):
    net = TwoStates(call)
    verify_result(net, nw.from_torch(net, spikes(2, 7)), spikes(2, 9, seed=1))


def test_states_may_be_given_by_name():
    net = TwoStates(lambda lif, x, i, v: lif(mem=v, syn=i, input_=x))
    verify_result(net, nw.from_torch(net, spikes(2, 7)), spikes(2, 9, seed=1))


def test_a_layer_that_is_never_called_does_not_choose_the_axes():
    neuron = framework("spikingjelly.activation_based.neuron")

    class Unused(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lif, self.other = neuron.LIFNode(v_threshold=0.3), neuron.LIFNode(step_mode="m")

        def forward(self, x):
            return self.lif(x)

    assert nw.from_torch(Unused(), spikes(2, 7)).layers == ("lif",)


def test_the_first_step_may_be_outside_of_the_loop():
    net = Net(lambda net, x: torch.stack([net.fire(x), *(net.fire(x) for _ in range(4))], 1))
    x = spikes(3, 1)[:, 0]
    network = nw.from_torch(net, x, layout="B")
    assert network.outputs == ("lif",)
    nn.prepare_net(net)
    assert np.array_equal(nw.simulate(network, x.numpy()).output, net(x).detach())
