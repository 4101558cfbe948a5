"""Step by step, in chunks, at once and on a GPU: bit for bit where sums are exact, else but for ties."""

import copy

import pytest
import torch

from nwcompile import nn

FAMILIES = {"lif": (nn.LIFSynapse, nn.LIFLayer), "h1v1": (nn.H1v1Synapse, nn.H1v1Layer),
            "h1v2": (nn.H1v2Synapse, nn.H1v2Layer)}  # fmt: skip
GPU = pytest.param("gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))
TIE = 1e-5


def net_of(family, topology, n_in=320, n=300, dyadic=False):
    """Currents that are too many for the kernel of small synapses, so torch's matrix product sums them."""
    synapse, layer = FAMILIES[family]
    torch.manual_seed(0)
    weight = torch.randn(n_in, n).abs() / 60
    net = torch.nn.Sequential(synapse(n_in, n, init=weight), layer(n, layer_topology=topology))
    if dyadic:
        with torch.no_grad():
            for name, p in net.named_parameters():
                if name.endswith(("weight", "w_rec")):
                    p.copy_((p * 256).round() / 256)
    return net


def run(net, x, way):
    """Spikes and membranes [B, T, N], and the loss: the mean membrane."""
    nn.prepare_net(net)
    if way == "gpu":
        spikes, mem = copy.deepcopy(net).to("cuda")(x.cuda())
        return spikes.detach().cpu(), mem.detach().cpu()
    lengths = {"once": [x.shape[1]], "steps": [1] * x.shape[1], "chunks": [3, x.shape[1] - 3]}[way]
    with torch.no_grad():
        parts = [net(piece[:, 0] if piece.shape[1] == 1 else piece) for piece in x.split(lengths, 1)]
    return tuple(torch.cat([p[k].reshape(len(x), -1, p[k].shape[-1]) for p in parts], 1) for k in range(2))


def inputs():
    return (torch.rand(3, 25, 320, generator=torch.Generator().manual_seed(1)) < 0.05).float()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("topology", ["FF", "RC"])
@pytest.mark.parametrize("way", ["steps", "chunks", GPU])
def test_parity_is_bit_for_bit_with_weights_on_a_grid(family, topology, way):
    net, x = net_of(family, topology, dyadic=True), inputs()
    spikes, mem = run(net, x, "once")
    found = run(net, x, way)
    assert torch.equal(found[0], spikes) and torch.equal(found[1], mem)
    assert 0.01 < spikes.mean() < 0.9


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("way", ["steps", "chunks", GPU])
def test_parity_of_any_weights_is_but_for_ties(family, way):
    net, x = net_of(family, "FF"), inputs()
    spikes, mem = run(net, x, "once")
    other_spikes, other_mem = run(net, x, way)
    assert other_mem.mean().item() == pytest.approx(mem.mean().item(), abs=1e-3)
    differ = spikes != other_spikes
    if differ.any():
        sample, neuron = differ.any(1).nonzero()[0].tolist()
        step = int(differ[sample, :, neuron].nonzero()[0])
        reached = mem[sample, step, neuron] + spikes[sample, step, neuron]  # thresholds are 1, resets subtract
        print(f"first difference: sample {sample}, step {step}, neuron {neuron}, v {reached:.9g}")
        assert abs(reached - 1) < TIE
