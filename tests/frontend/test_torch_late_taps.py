"""Late inputs that a module computes from a later step on: their biases are missing in its first steps."""

import numpy as np
import pytest
import torch

import nwcompile as nw
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
