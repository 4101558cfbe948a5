"""torch.compile, torch.export, torch.library.opcheck and half precision."""

import copy
import subprocess
import sys
import warnings

import pytest
import torch

from nwcompile import nn
from nwcompile.nn.layers.prepare import standard_normal
from nwcompile.nn.ops import cpu, torch_ops
from tests.made.spikes import spike_tensor

SYNAPSES = {"lif": nn.LIFSynapse, "h1v1": nn.H1v1Synapse, "h1v2": nn.H1v2Synapse}
LAYERS = {"lif": nn.LIFLayer, "h1v1": nn.H1v1Layer, "h1v2": nn.H1v2Layer}


class Net(torch.nn.Module):
    """A synapse and a layer; `prepared`: in every call; `loops`: step by step; `more`: mismatch."""

    def __init__(self, family, topology, prepared=True, loops=False, more=None):
        super().__init__()
        torch.manual_seed(0)
        given = {"stddev": more, "quantization_bits": 5} if more else {}
        learns = {"learn_taus": True, "learn_thresholds": True} if family == "lif" else {"ileak_mismatch": more}
        self.synapse = SYNAPSES[family](5, 12, **given)
        self.layer = LAYERS[family](12, layer_topology=topology, **learns)
        self.prepared, self.loops = prepared, loops

    def forward(self, x):
        if self.prepared:
            nn.prepare_net(self)
        if not self.loops:
            return torch.cat(self.layer(self.synapse(x)), 2)
        return torch.stack([torch.cat(self.layer(self.synapse(x_t)), 1) for x_t in x.unbind(1)], 1)


@pytest.mark.parametrize(
    ("family", "topology", "options"),
    [
        ("lif", "FF", {"prepared": False}),
        ("lif", "RC", {"loops": True}),
        ("h1v1", "RC", {}),
        ("h1v2", "FF", {"more": 0.1}),
    ],
)
def test_compiled_net_is_the_net_itself(family, topology, options):
    torch._dynamo.reset()
    net = Net(family, topology, **options)
    other = copy.deepcopy(net)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for n_steps in (6, 7):
        nn.prepare_net(net)
        nn.prepare_net(other)
        x = spike_tensor(3, n_steps, 5, seed=n_steps)
        expected, found = net(x), compiled(x)
        assert torch.equal(found, expected)
        weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
        for model, out in ((net, expected), (other, found)):
            model.zero_grad()
            (out * weight).sum().backward()
        for (name, p), q in zip(net.named_parameters(), other.named_parameters(), strict=True):
            assert p.grad.abs().sum() > 0
            torch.testing.assert_close(q[1].grad, p.grad, msg=lambda text, name=name: f"{name}: {text}")


def test_compiled_net_goes_on_from_its_last_call():
    torch._dynamo.reset()
    net = Net("lif", "RC", prepared=False)
    compiled = torch.compile(copy.deepcopy(net), fullgraph=True, backend="aot_eager")
    x = spike_tensor(3, 12, 5)
    with torch.no_grad():
        for piece in x.split(4, 1):
            assert torch.equal(compiled(piece), net(piece))


LOADED = """
import sys, torch, nwcompile.nn
x, expected = torch.load(sys.argv[1])
for path in sys.argv[2:]:
    model = torch.export.load(path).module()
    for _ in range(2):
        assert torch.equal(model(x), expected[path]), path
print("equal")
"""


@pytest.mark.parametrize("strict", [False, True])
def test_exported_net_gives_the_same_in_another_process(tmp_path, strict):
    torch._dynamo.reset()
    x, expected = spike_tensor(4, 9, 5, seed=1), {}
    for family, topology in (("lif", "RC"), ("h1v2", "FF")):
        net = Net(family, topology).eval()
        sizes = {"x": {0: torch.export.Dim("B"), 1: torch.export.Dim("T")}}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "While compiling, we found certain side effects")
            program = torch.export.export(net, (spike_tensor(3, 6, 5),), dynamic_shapes=sizes, strict=strict)
        path = str(tmp_path / f"{family}.pt2")
        torch.export.save(program, path)
        with torch.no_grad():
            expected[path] = net(x)
        assert torch.equal(program.module()(x), expected[path])
    torch.save((x, expected), tmp_path / "data.pt")
    if strict:
        return
    run = subprocess.run(
        [sys.executable, "-c", LOADED, tmp_path / "data.pt", *expected], capture_output=True, text=True
    )
    assert run.stdout == "equal\n", run.stderr


def test_export_leaves_the_state_alone():
    net = Net("lif", "RC", prepared=False).eval()
    x = spike_tensor(3, 6, 5)
    with torch.no_grad():
        first = net(x)
        second = copy.deepcopy(net)(x)
        program = torch.export.export(net, (x,))
        assert torch.equal(program.module()(x), first)
        assert torch.equal(net(x), second)
        assert not torch.equal(second, first)


def inputs(recurrent, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    w_rec = random(7, 7) if recurrent else None
    return random(3, 10, 7), random(1 + recurrent, 3, 7), random(7), random(7), w_rec


@pytest.mark.parametrize("recurrent", [False, True])
def test_operations_pass_torchs_own_check(recurrent):
    rule = ("zero", True, False, "triangular", 1.0)
    torch.library.opcheck(torch_ops.lif_scan, (*inputs(recurrent), *rule))
    given = [None if x is None else x.detach() for x in inputs(recurrent)]
    current, state, beta, threshold, w_rec = given
    out = cpu.forward(*given, *rule[:2])
    rest = current, *out[:2], state, beta, threshold, w_rec, *rule
    grads = (out[0], None, None) if recurrent else (None, out[1], out[2])
    torch.library.opcheck(torch_ops.lif_scan_backward, (*grads, *rest, recurrent))


def test_operations_without_neurons_pass_torchs_own_check():
    current, state, beta, threshold, _ = (None if x is None else x.detach() for x in inputs(False))
    for form in ("float", "uint8", "bits"):
        torch.library.opcheck(torch_ops.lif_fire, (current, state, beta, threshold, "zero", True, form))
    torch.library.opcheck(standard_normal, (torch.tensor(3), 1, "a", 2, 5))
    torch.library.opcheck(
        torch_ops.straight_through, (torch.rand(3, 4).requires_grad_(), torch.rand(3, 4), torch.rand(3, 4), False)
    )


def test_operations_and_the_way_around_torchs_dispatcher_are_one():
    rule = ("subtraction", False, False, "atan", 2.0)
    results = []
    for scan in (torch_ops.lif_scan, torch_ops.DirectScan.apply):
        given = inputs(True)
        out = scan(*given, *rule)
        sum((x.square()).sum() for x in out).backward()
        results.append((*out, *(x.grad for x in given)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", SYNAPSES)
def test_autocast_computes_neurons_in_float32(dtype, family):
    net = Net(family, "FF")
    with torch.no_grad():
        net.synapse.weight.copy_((net.synapse.weight * 256).round() / 256)
    x = spike_tensor(3, 20, 5)
    with torch.autocast("cpu", dtype=dtype):
        current = net.synapse(x)
        spk, mem = net.layer(current)
        (spk.sum() + mem.sum()).backward()
    assert current.dtype == dtype
    assert spk.dtype == mem.dtype == net.synapse.weight.grad.dtype == torch.float32
    nn.prepare_net(net)
    assert torch.equal(net.layer(current.detach().float())[1], mem)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_layers_compute_in_float32_and_give_their_own_dtype(dtype):
    net = Net("lif", "RC").to(dtype)
    spk, mem = net.layer(net.synapse(spike_tensor(3, 20, 5)))
    assert spk.dtype == mem.dtype == dtype
    mem.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in net.parameters())
