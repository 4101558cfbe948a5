"""from_torch on gates: functions of one map's entries, of which each neuron takes some."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from tests.made.spikes import spike_tensor

N_IN, N, STEPS = 6, 12, 8  # torch rounds functions of 12 and of 24 entries otherwise
SPLITS = {
    "chunk": lambda gates: torch.sigmoid(gates).chunk(2, 1),
    "split": lambda gates: torch.sigmoid(gates).split([N, N], 1),
    "slices": lambda gates: [torch.sigmoid(gates)[:, k : k + N] for k in (0, N)],
    "unbind": lambda gates: torch.sigmoid(gates).view(-1, 2, N).unbind(1),
    "select": lambda gates: [torch.sigmoid(gates).unflatten(1, (2, N))[:, k] for k in (1, 0)],
    "interleaved": lambda gates: [torch.sigmoid(gates)[:, k::2] for k in (0, 1)],
    "transposed": lambda gates: torch.sigmoid(gates).view(-1, N, 2).transpose(1, 2).unbind(1),
    "index": lambda gates: [torch.sigmoid(gates)[:, torch.arange(N) + k] for k in (0, N)],
    "two functions": lambda gates: (0.5 * torch.tanh(gates) + 0.5).chunk(2, 1),
    "other function": lambda gates: torch.nn.functional.hardsigmoid(gates).chunk(2, 1),
    "scaled": lambda gates: (torch.sigmoid(gates) * 0.75).chunk(2, 1),
}


class Gated(torch.nn.Module):
    """Neurons with two gates of their input and spikes; `split(gates)` returns both."""

    def __init__(self, split, sends_gates=False):
        super().__init__()
        torch.manual_seed(1)
        self.gates, self.own = torch.nn.Linear(N_IN, 2 * N), torch.nn.Linear(N, 2 * N)
        self.fc, self.more = torch.nn.Linear(N_IN, N), torch.nn.Linear(N, N)
        self.split, self.sends_gates = split, sends_gates

    def forward(self, x):
        v = spikes = torch.zeros(len(x), N)
        sent = []
        for t in range(x.shape[1]):
            stays, counts = self.split(self.gates(x[:, t]) + self.own(spikes))
            v = stays * v + (1 - stays) * counts * 3 * self.fc(x[:, t])
            if self.sends_gates:
                v = v + self.more(counts)
            spikes = (v > 0.2).float()
            sent.append(spikes)
        return torch.stack(sent, 1)


def import_gates(module) -> nw.Network:
    """Import a module, and verify its spikes."""
    x = spike_tensor(3, STEPS, N_IN)
    network = nw.from_torch(module.eval(), x)
    with torch.no_grad():
        expected = module(x).numpy()
    assert 0.05 < expected.mean() < 0.95
    np.testing.assert_array_equal(nw.simulate(network, x.numpy()).spikes[network.outputs[0]], expected)
    return network


@pytest.mark.parametrize("kind", SPLITS)
def test_functions_before_a_split_are_parts_of_the_neurons(kind):
    network = import_gates(Gated(SPLITS[kind]))
    assert len(network.layers) == 1
    assert network.node(network.layers[0]).n_inputs == 3


def test_a_function_that_weights_take_too_stays_a_layer():
    network = import_gates(Gated(SPLITS["chunk"], sends_gates=True))
    assert len(network.layers) == 2


def test_a_function_next_to_constants_stays_a_layer():
    constant = torch.full((1, 1), 0.25)
    network = import_gates(
        Gated(lambda gates: torch.cat([torch.sigmoid(gates), constant.expand(len(gates), 2)], 1)[:, 1:-1].chunk(2, 1))
    )
    assert len(network.layers) == 2


class TwoLayers(Gated):
    """Two layers take the same gate."""

    def forward(self, x):
        v = w = spikes = torch.zeros(len(x), N)
        sent = []
        for t in range(x.shape[1]):
            stays, counts = self.split(self.gates(x[:, t]) + self.own(spikes))
            v = stays * v + counts * 3 * self.fc(x[:, t])
            first = (v > 0.2).float()
            w = stays * w + 3 * self.more(first)
            spikes = (w > 0.2).float()
            sent.append(spikes)
        return torch.stack(sent, 1)


def test_a_gate_that_two_layers_take_stays_a_layer():
    assert len(import_gates(TwoLayers(SPLITS["chunk"])).layers) == 3
