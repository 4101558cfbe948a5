"""Neurons with shift registers: late inputs whose biases the first steps lack, and steps that are parts of a map."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import FitError, ModelError
from tests.made.spikes import spike_tensor

N_IN, N, STEPS, N_TAPS = 6, 5, 8, 3


def spike(v):
    return (v > 1.0).float()


class Taps(torch.nn.Module):
    """A layer, and one that takes the last three spikes of it, each with weights of its own, from a list.

    `add(taps, current, buffer)` returns the current with the taps.
    """

    def __init__(self, add, start=0.0):
        super().__init__()
        torch.manual_seed(1)
        self.first = torch.nn.Linear(N_IN, N)
        self.taps = torch.nn.ModuleList(torch.nn.Linear(N, N) for _ in range(N_TAPS))
        for layer in (self.first, *self.taps):
            layer.weight.data *= 3
        self.add, self.start = add, start

    def forward(self, x):
        v = w = torch.zeros(len(x), N)
        current, buffer, sent = torch.full((len(x), N), self.start), [], []
        for t in range(x.shape[1]):
            v = 0.5 * v + self.first(x[:, t])
            buffer.append(spike(v))
            v = v * (1 - buffer[-1])
            if len(buffer) > N_TAPS:
                buffer.pop(0)
            current = self.add(self.taps, 0.5 * current, buffer)
            w = 0.9 * w + current
            sent.append(spike(w))
            w = w - sent[-1]
        return torch.stack(sent, 1)


def add_oldest_first(taps, current, buffer):
    for layer, x in zip(taps[-len(buffer) :], buffer, strict=True):
        current = current + layer(x)
    return current


def add_newest_first(taps, current, buffer):
    for layer, x in zip(taps, buffer[::-1], strict=False):
        current = current + layer(x)
    return current


def add_sum(taps, current, buffer):
    return current + sum(layer(x) for layer, x in zip(taps, buffer[::-1], strict=False))


def add_oldest_only(taps, current, buffer):
    x = taps[0](buffer[-1])
    return current + (x + taps[1](buffer[-3]) if len(buffer) == N_TAPS else x)


def subtract_oldest(taps, current, buffer):
    x = taps[0](buffer[-1])
    return current + (x - taps[1](buffer[-3]) if len(buffer) == N_TAPS else x)


@pytest.mark.parametrize("start", [0.0, 1.0])
@pytest.mark.parametrize("add", [add_oldest_first, add_newest_first, add_sum, add_oldest_only, subtract_oldest])
def test_late_taps_with_a_bias_are_missing_in_the_first_steps(add, start):
    module, x = Taps(add, start).eval(), spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(module, x)
    with torch.no_grad():
        expected = module(x).numpy()
    assert 0 < expected[:, :N_TAPS].sum() < expected[:, :N_TAPS].size
    for backend in ("reference", "sequence"):
        run = nw.simulate(network, x.numpy(), backend=backend)
        np.testing.assert_array_equal(run.spikes[network.outputs[0]], expected)


def test_late_taps_with_a_bias_land_on_a_chip():
    x = spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(Taps(add_oldest_first), x)
    assert len(network.node(network.outputs[0]).neuron.inputs) == N_TAPS  # corrected alone, in the module's order
    program = nw.compile(network, "loihi2", calibration=x.numpy())
    assert program.network.node(network.outputs[0]).n_inputs == 1
    spikes = [nw.simulate(program, x.numpy(), backend=name).spikes for name in ("reference", "sequence", "cycle")]
    for layer in network.layers:
        assert all((other[layer] == spikes[0][layer]).all() for other in spikes[1:])


def test_a_recurrent_layer_that_is_skipped_in_the_first_step_is_imported():
    class Skipping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.fc, self.back = torch.nn.Linear(N_IN, N), torch.nn.Linear(N, N)
            self.fc.weight.data *= 3

        def forward(self, x):
            v, sent = torch.zeros(len(x), N), []
            for t in range(x.shape[1]):
                v = 0.5 * v + self.fc(x[:, t])
                if sent:
                    v = v + self.back(sent[-1])
                sent.append(spike(v))
                v = v - sent[-1]
            return torch.stack(sent, 1)

    module, x = Skipping().eval(), spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(module, x)
    with torch.no_grad():
        np.testing.assert_array_equal(nw.simulate(network, x.numpy()).spikes[network.outputs[0]], module(x).numpy())


N_PARTS = 5


class Parts(torch.nn.Module):
    """Neurons whose steps are parts of a map of one image, those that `split` makes of it, and a layer behind them."""

    def __init__(self, split):
        super().__init__()
        torch.manual_seed(1)
        self.encode, self.fc = torch.nn.Linear(N_IN, N_PARTS * N), torch.nn.Linear(N, 3)
        self.encode.weight.data *= 4
        self.fc.weight.data *= 3
        self.split = split

    def forward(self, x):
        v, w, sent = torch.zeros(len(x), N), torch.zeros(len(x), 3), []
        for part in self.split(self.encode(x)):
            v = 0.5 * v + part
            w = 0.9 * w + self.fc(spike(v))
            v = v * (1 - spike(v))
            sent.append(spike(w))
            w = w - sent[-1]
        return torch.stack(sent, 1)


SPLITS = {
    "chunk": lambda x: x.chunk(N_PARTS, 1),
    "slices": lambda x: [x[:, t * N : (t + 1) * N] for t in range(N_PARTS)],
    "index": lambda x: (whole[:, t] for whole in [x.view(len(x), N_PARTS, N)] for t in range(N_PARTS)),
    "an axis": lambda x: x.view(len(x), N_PARTS, N).transpose(0, 1),
    "the last first": lambda x: x.chunk(N_PARTS, 1)[::-1],
    "a function": lambda x: torch.relu(x).chunk(N_PARTS, 1),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_steps_that_are_parts_of_a_map_are_taken_one_after_the_other(kind):
    module, x = Parts(SPLITS[kind]).eval(), torch.randn(4, N_IN, generator=torch.Generator().manual_seed(0))
    network = nw.from_torch(module, x, layout="B")
    with torch.no_grad():
        expected = module(x).numpy()
    assert 0 < expected.sum() < expected.size
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).spikes[network.outputs[0]], expected)


def test_neurons_whose_steps_are_parts_of_a_map_have_an_input_for_each_and_need_as_many_synapse_types():
    x = torch.rand(4, N_IN, generator=torch.Generator().manual_seed(0))
    network = nw.from_torch(Parts(SPLITS["chunk"]), x, layout="B")
    assert len(network.node("encode").neuron.inputs) == N_PARTS
    with pytest.raises(FitError, match=f"inputs of a neuron  encode  {N_PARTS} of 1  a neuron has one synaptic sum"):
        nw.compile(network, "loihi2", calibration=x.numpy())


def test_steps_that_take_two_parts_of_a_map_are_refused_with_the_way_out():
    def split(x):
        parts = x.chunk(N_PARTS, 1)
        return [a + b for a, b in zip(parts, parts[1:], strict=False)]

    text = (
        "takes its steps from torch's addmm, .* compute this before the network, and import the rest with layout='TB'"
    )
    with pytest.raises(ModelError, match=text):
        nw.from_torch(Parts(split), torch.rand(4, N_IN), layout="B")
