"""from_torch on SpikingJelly's spiking transformers: every neuron of every layer, 0 spikes differ."""

import pytest
import torch

import nwcompile as nw
from nwcompile.ir.connection import MatMul
from tests.frontend.frameworks import framework
from tests.frontend.token_nets import on_grid, with_wrong_spikes

functional = framework("spikingjelly.activation_based.functional")
layer = framework("spikingjelly.activation_based.layer")
neuron = framework("spikingjelly.activation_based.neuron")
model = framework("spikingjelly.activation_based.model")


def assert_equal(module, x):
    """Imported and run, the network spikes as the module does, and in every layer; `x` is [T, B, *shape]."""
    network = nw.from_torch(on_grid(module, x), x[:2], layout="TB")
    wrong = with_wrong_spikes(module, network, x, "TB")
    assert [name for name, (n_wrong, _) in wrong.items() if n_wrong] == []
    assert min(rate for _, rate in wrong.values()) > 0.05
    return network


ATTENTION = {
    "spikformer": (layer.SpikingSelfAttention, (16,), 2),
    "tokens": (layer.TokenQKAttention, (16,), 0),
    "channels": (layer.ChannelQKAttention, (16,), 0),
    "spike-driven": (layer.SpikeDrivenSelfAttention, (4, 4), 0),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_spikingjelly_attention_comes_in_exactly(name):
    torch.manual_seed(0)
    kind, tokens, n_products = ATTENTION[name]
    module = torch.nn.Sequential(kind(32, 2), neuron.LIFNode(v_threshold=0.4))
    functional.set_step_mode(module, "m")
    network = assert_equal(module, torch.randint(0, 9, (6, 2, 32, *tokens)) / 4)
    assert sum(isinstance(c, MatMul) for c in network.connections) == n_products


WHOLE = {
    "spikformer": model.spikformer.spikformer_cifar10,
    "qkformer": model.qkformer.qkformer_10_384,
    "sdt": model.spike_driven_transformer.sdt_8_384,
    "maxformer": model.maxformer.maxformer_cifar,
}


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLE)
def test_spikingjelly_transformers_come_in_exactly_at_their_size(name):
    """Images of CIFAR's size: 8 to 61 million neuron-steps each."""
    torch.manual_seed(0)
    assert_equal(WHOLE[name](), torch.randint(-8, 9, (4, 2, 3, 32, 32)) / 8)
