"""The layers on a GPU: the bits of the CPU, whatever the cut into calls, and torch's own ways to run them."""

import copy

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no GPU that torch can use", allow_module_level=True)

from nwcompile import nn
from nwcompile.kernels.gpu import lif
from nwcompile.nn.ops import gpu, torch_ops
from nwcompile.nn.ops.scan import FORMS, LIFNeurons, fire, has_kernel, scan, scan_loop
from nwcompile.nn.ops.surrogate import SURROGATES, atan
from tests.made.spikes import spike_tensor

FAMILIES = {"lif": (nn.LIFSynapse, nn.LIFLayer), "h1v1": (nn.H1v1Synapse, nn.H1v1Layer),
            "h1v2": (nn.H1v2Synapse, nn.H1v2Layer)}  # fmt: skip
X = spike_tensor(5, 41, 40, seed=1, rate=0.2)
LENGTHS = {"once": [41], "chunks": [1, 7, 33], "steps": [1] * 41}


def net_of(family, topology="FF", n_in=40, n=70):
    """A net with weights on a grid of 2^-8, whose sums are exact in any order."""
    synapse, layer = FAMILIES[family]
    torch.manual_seed(0)
    net = torch.nn.Sequential(synapse(n_in, n), layer(n, layer_topology=topology, surrogate="atan"))
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith(("weight", "w_rec")):
                p.copy_((p * 512).round() / 256)
    return net


def run(net, x, lengths):
    nn.prepare_net(net)
    parts = [net(piece[:, 0] if piece.shape[1] == 1 else piece) for piece in x.split(lengths, 1)]
    return [torch.cat([p[k].reshape(len(x), -1, p[k].shape[-1]) for p in parts], 1) for k in range(2)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("topology", "n"), [("FF", 70), ("RC", 70), ("RC", 200)])
@pytest.mark.parametrize("way", LENGTHS)
def test_layers_are_bit_for_bit_those_of_the_cpu(family, topology, n, way):
    net, x = net_of(family, topology, n=n), X
    with torch.no_grad():
        expected = run(net, x, [41])
        found = run(copy.deepcopy(net).to("cuda"), x.cuda(), LENGTHS[way])
    assert 0.01 < expected[0].mean() < 0.9
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("topology", ["FF", "RC"])
def test_a_training_step_is_that_of_the_cpu(family, topology):
    losses, grads = [], []
    for device in ("cpu", "cuda"):
        net, x = net_of(family, topology).to(device), X.to(device)
        nn.prepare_net(net)
        out, mem = net(x)
        loss = out.mean() + mem.square().mean()
        loss.backward()
        losses.append(loss.item())
        grads.append([p.grad.cpu() for p in net.parameters()])
    assert losses[1] == pytest.approx(losses[0], abs=1e-3)
    for one, other in zip(*grads, strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


def test_a_convolution_has_the_spikes_of_the_cpu_without_cudnn():
    """The weights have more bits than TF32 keeps; plain sums of them are exact in float32."""
    torch.manual_seed(0)
    convolution, layer = torch.nn.Conv2d(2, 4, 3, bias=False), nn.LIFLayer(4 * 36)
    with torch.no_grad():
        convolution.weight.copy_((convolution.weight * (1 << 16)).round() / (1 << 16))
        x, found = spike_tensor(3, 9, 2 * 64, seed=1, rate=0.3), []
        for device in ("cpu", "cuda"):
            net, images = convolution.to(device), x.to(device).reshape(-1, 2, 8, 8)
            with torch.backends.cudnn.flags(enabled=False):
                current = net(images).reshape(3, 9, -1) * 4
            found.append(copy.deepcopy(layer).to(device)(current)[1].cpu())
    assert torch.equal(*found)


def neurons(n, recurrent=False, surrogate=atan):
    torch.manual_seed(0)
    w_rec = (torch.randn(n, n, device="cuda") * 16).round() / 256 if recurrent else None
    beta, threshold = torch.rand(n, device="cuda"), torch.rand(n, device="cuda") + 0.5
    return LIFNeurons(beta, threshold, "subtraction", surrogate, w_rec=w_rec)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("surrogate", SURROGATES.values())
def test_kernels_have_the_numbers_of_the_loop_in_torch(recurrent, surrogate):
    n, results = neurons(100, recurrent, surrogate), []
    for way in (scan, scan_loop):
        torch.manual_seed(1)
        current = torch.randn(7, 130, 100, device="cuda", requires_grad=True)
        assert has_kernel(current, n)
        out = way(current, n.initial_state(current), n)
        (out[0].sum() + out[1].square().sum()).backward()
        results.append((*out, current.grad))
    for one, other in zip(results[0][:3], results[1][:3], strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(results[0][3], results[1][3], rtol=1e-4, atol=1e-5)


@pytest.mark.real_gpu
@pytest.mark.parametrize("shape", [(10, 500, 4096), (3, 333, 1000), (128, 1000, 24)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_scans_are_bit_for_bit_those_of_the_cpu(shape, dtype):
    torch.manual_seed(2)
    current, n = torch.randn(shape).to(dtype), neurons(shape[2])
    on_cpu = LIFNeurons(n.beta.cpu(), n.threshold.cpu(), n.reset, atan)
    for form in FORMS:
        found, last = fire(current.cuda(), n.initial_state(current.cuda()), n, form)
        expected = fire(current.float(), on_cpu.initial_state(current), on_cpu, form)
        assert torch.equal(found.cpu(), expected[0]) and torch.equal(last.cpu(), expected[1])


@pytest.mark.real_gpu
def test_no_length_compiles_anew():
    n = neurons(48)
    for n_steps in (64, 33, 100, 1, 1000, 777):
        current = torch.randn(3, n_steps, 48, device="cuda", requires_grad=True)
        scan(current, n.initial_state(current), n)[0].sum().backward()
        fire(current.detach(), n.initial_state(current), n, "bits")
        built = [sum(len(c[0]) for c in k.device_caches.values()) for k in (lif.lif_forward, lif.lif_backward)]
        if n_steps == 64:
            before = built
    assert built == before


def test_results_are_the_same_in_every_run():
    n, found = neurons(300), []
    for _ in range(3):
        torch.manual_seed(3)
        beta, current = n.beta.clone().requires_grad_(), torch.randn(8, 100, 300, device="cuda", requires_grad=True)
        own = LIFNeurons(beta, n.threshold, "zero", atan)
        scan(current, own.initial_state(current), own)[1].sum().backward()
        found.append((beta.grad, current.grad))
    for other in found[1:]:
        assert torch.equal(other[0], found[0][0]) and torch.equal(other[1], found[0][1])


@pytest.mark.real_gpu
@pytest.mark.parametrize("recurrent", [False, True])
def test_operations_pass_torchs_own_check(recurrent):
    n, current = neurons(7, recurrent), torch.randn(3, 10, 7, device="cuda", requires_grad=True)
    state, rule = n.initial_state(current), ("zero", True, False, "triangular", 1.0)
    given = current, state, n.beta, n.threshold, n.w_rec
    torch.library.opcheck(torch_ops.lif_scan, (*given, *rule))
    current = current.detach()
    out = gpu.forward(current, *given[1:], *rule[:2])
    rest = current, *out[:2], *given[1:], *rule
    torch.library.opcheck(torch_ops.lif_scan_backward, (out[0], None, None, *rest, True))
    if not recurrent:
        torch.library.opcheck(torch_ops.lif_fire, (current, state, n.beta, n.threshold, "zero", True, "bits"))


@pytest.mark.real_gpu
@pytest.mark.filterwarnings("ignore")  # of inductor, about precision and deprecated names
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_nets_are_the_nets_themselves(backend, family):
    torch._dynamo.reset()
    net, x = net_of(family).to("cuda"), X.cuda()
    other = copy.deepcopy(net)
    compiled = torch.compile(other, fullgraph=True, backend=backend)
    nn.prepare_net(net)
    nn.prepare_net(other)
    expected, found = net(x), compiled(x)
    for one, two in zip(expected, found, strict=True):
        assert torch.equal(one, two)
    for out in (expected, found):
        (out[0].sum() + out[1].square().sum()).backward()
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad)


@pytest.mark.real_gpu
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("topology", "n"), [("FF", 70), ("RC", 70), ("RC", 200)])
def test_a_captured_graph_replays_the_net(family, topology, n):
    net, x = net_of(family, topology, n=n).to("cuda"), X.cuda()
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            run(net, x, [41])
        torch.cuda.current_stream().wait_stream(side)
        nn.prepare_net(net)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = net(x)
        x.copy_(1 - x)
        graph.replay()
        expected = run(copy.deepcopy(net), x.clone(), [41])
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.real_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_neurons_in_float32(dtype):
    net, x = net_of("lif").to("cuda"), X.cuda()
    nn.prepare_net(net)
    with torch.autocast("cuda", dtype=dtype):
        current = net[0](x)
        out, mem = net[1](current)
    (out.sum() + mem.sum()).backward()
    assert current.dtype == dtype
    assert out.dtype == mem.dtype == net[0].weight.grad.dtype == torch.float32
    nn.prepare_net(net)
    assert torch.equal(net[1](current.detach().float())[1], mem)


@pytest.mark.real_gpu
def test_a_copy_moves_to_the_gpu_in_the_middle_of_training():
    net, x = net_of("h1v2"), X
    nn.prepare_net(net)
    net(x[:, :20])
    model = nn.Sequential(*copy.deepcopy(net)).to_gpu()
    assert next(net.parameters()).device.type == "cpu" and next(model.parameters()).device.type == "cuda"
    expected, found = net(x[:, 20:]), model(x[:, 20:].cuda())
    assert torch.equal(found[1].cpu(), expected[1])
