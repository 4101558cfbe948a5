"""SpikingJelly's spiking transformers: every neuron of every layer, 0 spikes differ; on a chip all backends agree."""

import numpy as np
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


def small_qkformer():
    """With attention that so few tokens make fire as well."""
    made = model.qkformer.QKFormer(embed_dims=32, num_heads=(1, 1, 1), depths=(1, 1, 1), **SMALL)
    made.stage3[0].attn.attn_lif.v_threshold = 0.125
    return made


def small_sdt():
    """Without a maximum of currents in its residual stream, which no chip can have."""
    make = model.spike_driven_transformer.SpikeDrivenTransformer
    return make(embed_dims=32, num_heads=1, depths=1, pooling_stat="1110", **SMALL)


def small_maxformer():
    """With means in place of the maxima of currents in its residual stream, which no chip can have."""
    made = model.maxformer.MaxFormer(embed_dims=32, depths=(1, 1, 1), cifar=True, **SMALL)
    for embed in (made.patch_embed2, made.patch_embed3):
        embed.shortcut[2] = layer.AvgPool2d(3, stride=2, padding=1, step_mode="m")
    return made


SMALL = {"T": 4, "in_channels": 2, "num_classes": 5, "mlp_ratio": 2.0}
ON_CHIPS = {"qkformer": (small_qkformer, ("pool",), 2), "sdt": (small_sdt, (), 0),
            "maxformer": (small_maxformer, ("pool",), 2)}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", ON_CHIPS)
def test_spikingjelly_transformers_agree_on_every_backend(name):
    torch.manual_seed(0)
    make, approximate, n_products = ON_CHIPS[name]
    module, x = make(), torch.randint(-8, 9, (4, 3, 2, 16, 16)) / 8
    network = assert_equal(module, x)
    program = nw.compile(network, "loihi2", x.numpy(), nw.Options(approximate=approximate))
    said = [row["was"] for row in program.manifest["legalization"]]
    assert said.count("matrix product of spikes") == n_products
    nw.crosscheck(program, x.numpy())
    run = nw.simulate(program, x.numpy(), backend="sequence")
    assert all(np.any(run.spikes[layer]) for layer in program.network.layers if layer != "head")
