"""Quantization-aware training takes the steps that `compile` takes before it quantizes: zeros dropped, signs kept."""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import nn
from tests.made.chips import small_chip

LIF = {"taus": 20e-3, "thresholds": 0.5, "reset_mechanism": "zero", "dt": 2e-3}
X = (np.random.default_rng(0).random((6, 8, 12)) < 0.6).astype(np.float32)

pytestmark = pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")


def pruned(sparsity: float) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(torch.nn.Linear(12, 9), nn.LIFLayer(9, **LIF), torch.nn.Linear(9, 4), nn.LIFLayer(4, **LIF))
    nn.prune(net, sparsity)
    return net


def n_zeros(module: nn.QuantizedNetwork) -> int:
    """Weights that are 0 in the matrices of the trained network."""
    sizes = (12 * 9, 9 * 4)
    return sum(sizes) - sum(int(np.count_nonzero(layer.weights[0].detach())) for layer in module.layers)


def test_a_pruned_network_stays_so_in_quantization_aware_training():
    module = nn.quantize_aware(pruned(0.75), "loihi1", X, bits=4)
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    for _ in range(3):
        optimizer.zero_grad()
        module(X).square().sum().backward()
        optimizer.step()
    assert n_zeros(module) == 0.75 * (12 * 9 + 9 * 4)
    program = nw.compile(module.network(), "loihi1", X)
    found, run = module.record(X), nw.simulate(program, X, "sequence", record="all")
    for name in found:
        np.testing.assert_array_equal(found[name]["v"], run.states[name]["v"])


@pytest.mark.parametrize("bits", [1, 2])
def test_a_pruned_network_begins_with_the_integers_of_compile(bits):
    """With 1 bit and a sign there is no 0: a zero that is held would become a weight."""
    net = pruned(0.6)
    own = nw.compile(nn.quantize_aware(net, small_chip(), X, bits=bits).network(), small_chip(), X)
    program = nw.compile(nw.from_torch(net, X[:2]), small_chip(), X, nw.Options(bits=bits))
    assert own.network.hash == program.network.hash


def test_a_pruned_network_that_fits_without_its_zeros_can_be_trained():
    chip = small_chip(core__synapse_bits=1000, noc__columns=1, noc__rows=1, noc__cores_per_router=1)
    net = pruned(0.9)
    nw.compile(nw.from_torch(net, X[:2]), chip, X)
    assert nn.quantize_aware(net, chip, X)(X).shape == (6, 8, 4)
    with pytest.raises(nw.FitError):
        nn.quantize_aware(pruned(0.2), chip, X)


def test_gated_neurons_are_trained_as_the_chip_can_send_for_them():
    weight = np.random.default_rng(0).normal(0.3, 0.5, (5, 12)).astype(np.float32)
    spec = nw.NeuronSpec(threshold=0.5, spikes="gated", reset="subtract")
    net = nw.Network.from_arrays({"a": (spec, 5)}, [nw.Dense("in", "a", weight)], {"in": (12,)})
    chip = small_chip(neuron__reset=["zero", "subtract"])
    with pytest.raises(nw.FitError):
        nn.quantize_aware(net, chip, X)
    module = nn.quantize_aware(net, chip, X, approximate="multi-spike")
    own = nw.compile(module.network(), chip, X)
    assert module.layers[0].node.neuron.spikes == "binary" and own.network.node("a").neuron.spikes == "binary"


def test_a_state_dict_of_other_synapses_is_refused():
    module, again = (nn.quantize_aware(pruned(0.75), "loihi1", X, bits=4) for _ in range(2))
    with torch.no_grad():
        module.layers[0].weights[0].mul_(-0.5)
    again.load_state_dict(module.state_dict())
    assert again.network().hash == module.network().hash
    turned = pruned(0.0)
    nn.finish_pruning(turned)
    with torch.no_grad():
        turned[0].weight.copy_(turned[0].weight.flip(0))
    nn.prune(turned, 0.75)
    other = nn.quantize_aware(turned, "loihi1", X, bits=4)
    with pytest.raises(nw.ModelError) as e:
        other.load_state_dict(module.state_dict())
    assert str(e.value) == (
        "layer '1': the state_dict has other synapses; build the module from a network in which the same weights are "
        "pruned"
    )
