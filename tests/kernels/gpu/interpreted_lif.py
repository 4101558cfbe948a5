"""The Triton scan on CPU tensors, in the interpreter; run by test_interpreted.py.

Where there is a GPU, tests/gpu runs them there.
"""

import pytest
import torch

from nwcompile.nn.layers.lif import LIFLayer
from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops import gpu as launches
from nwcompile.nn.ops.gpu import Backward, Launch
from nwcompile.nn.ops.surrogate import SURROGATES, atan
from tests.kernels.gpu.harness import INTERPRETED, OnGpu
from tests.made.tensors import equal, random
from tests.nn.naive import lif

gpu = OnGpu(launches)
RESETS = ("subtraction", "zero", "none")
FORMS = ("float", "uint8", "bits")
SHAPE = 3, 11, 13  # pairs that are no multiple of a program's, steps that are none of those read ahead


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Launches as of the tables, but with less code for the interpreter to walk through."""
    monkeypatch.setattr(launches, "FORWARD", ((1e9, Launch(32, 4, 1)),))
    monkeypatch.setattr(launches, "BACKWARD", ((1e9, Backward(32, 4, 1, True)),))


def given(shape, dtype=torch.float32):
    """Current, state, beta and threshold, which differ from neuron to neuron."""
    n_samples, _, n = shape
    current, state = random(*shape, dtype=dtype), random(1, n_samples, n, seed=1, dtype=dtype)
    return current, state, random(n, seed=2, dtype=dtype).sigmoid(), 0.3 + random(n, seed=3, dtype=dtype).sigmoid()


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("floor", [False, True])
def test_scan_is_the_cpu_kernel_and_the_plain_loop(reset, floor):
    current, state, beta, threshold = neurons = given(SHAPE)
    found = gpu.forward(*neurons, None, reset, floor)
    assert equal(found, cpu.forward(*neurons, None, reset, floor))
    assert equal(found[:2], lif(current, state[0], beta, threshold, reset, atan, floor=floor))
    assert 0.05 < found[0].mean() < 0.95


def test_scan_fires_at_the_threshold_itself():
    current = torch.tensor([[[1.0], [0.5], [0.5]]])
    spikes, mem, _ = gpu.forward(current, torch.zeros(1, 1, 1), torch.ones(1), torch.ones(1), None, "zero", False)
    assert spikes.flatten().tolist() == [1, 0, 1] and mem.flatten().tolist() == [0, 0.5, 0]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 64, 16), (2, 33, 3), (5, 32, 8)])
@pytest.mark.parametrize("form", FORMS)
def test_spikes_alone_are_those_of_the_cpu(shape, form):
    neurons = given(shape)
    assert equal(gpu.fire(*neurons, "zero", True, form), cpu.fire(*neurons, "zero", True, form))


@pytest.mark.parametrize("table", ["FORWARD", "BACKWARD"])
def test_launches_of_the_tables_give_the_same(table, monkeypatch):
    shape, rule = (2, 37, 48), ("subtraction", False, False, "atan", 2.0)
    neurons = given(shape)
    expected = cpu.forward(*neurons, None, *rule[:2])
    grads = random(*shape, seed=5), None, None
    monkeypatch.undo()
    for _, launch in getattr(launches, table):
        monkeypatch.setattr(launches, table, ((1e9, launch),))
        if table == "FORWARD":
            assert equal(gpu.forward(*neurons, None, *rule[:2]), expected)
        else:
            back = grads, neurons[0], *expected[:2], *neurons[1:], None, rule, False
            assert equal(gpu.backward(*back), cpu.backward(*back))


def test_scan_of_float64_and_of_no_neurons():
    neurons = given(SHAPE, torch.float64)
    assert equal(gpu.forward(*neurons, None, "zero", False), cpu.forward(*neurons, None, "zero", False))
    empty = given((0, 5, 3))
    assert equal(gpu.forward(*empty, None, "zero", False), cpu.forward(*empty, None, "zero", False))
    current, *rest = given((2, 0, 3))
    assert equal(gpu.forward(current, *rest, None, "zero", False)[2:], rest[:1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_with_as_float32(dtype):
    current, *rest = given(SHAPE)
    half = current.to(dtype)
    expected = cpu.forward(half.float(), *rest, None, "subtraction", False)
    assert equal(gpu.forward(half, *rest, None, "subtraction", False), expected)
    rule, grads = ("subtraction", False, False, "atan", 2.0), (random(*SHAPE, seed=5), None, None)
    found = gpu.backward(grads, half, *expected[:2], *rest, None, rule, False)
    exact = cpu.backward(grads, half.float(), *expected[:2], *rest, None, rule, False)
    in_half = exact[0]
    if dtype == torch.bfloat16 and INTERPRETED:  # the interpreter cuts off what does not fit; GPUs round
        in_half = (in_half.view(torch.int32) & ~0xFFFF).view(torch.float32)
    assert equal(found[:2], (in_half.to(dtype), exact[1]))


@pytest.mark.parametrize(
    "lay", [lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), lambda x: x.mT.contiguous().mT,
            lambda x: torch.cat([x, x], 2)[:, :, :13], lambda x: torch.cat([x, x, x], 1)[:, 7:18],
            lambda x: x[:, :, :1].expand(SHAPE)]
)  # fmt: skip
def test_scan_takes_currents_however_they_lie(lay):
    neurons = given(SHAPE)
    current = lay(torch.cat([neurons[0]] * 2, 1)[:, :11])
    assert not current.is_contiguous()
    expected = cpu.forward(current.contiguous(), *neurons[1:], None, "zero", False)
    assert equal(gpu.forward(current, *neurons[1:], None, "zero", False), expected)


def test_steps_and_chunks_are_the_whole():
    current, state, *neurons = given(SHAPE)
    whole = gpu.forward(current, state, *neurons, None, "subtraction", True)
    parts = []
    for piece in current.split([1, 6, 4], 1):
        now = piece[:, 0] if piece.shape[1] == 1 else piece
        *out, state = gpu.forward(now, state, *neurons, None, "subtraction", True)
        parts.append([x.reshape(piece.shape) for x in out])
    assert equal([torch.cat(x, 1) for x in zip(*parts, strict=True)], whole[:2]) and torch.equal(state, whole[2])


def gradients(of, shape, rule, dtype=torch.float32, learns=True, grads=None):
    neurons = given(shape, dtype)
    spikes, mem, _ = cpu.forward(*neurons, None, *rule[:2])
    if grads is None:
        grads = *random(2, *shape, seed=5, dtype=dtype), random(1, shape[0], shape[2], seed=6, dtype=dtype)
    return of.backward(grads, neurons[0], spikes, mem, *neurons[1:], None, rule, learns)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("detach", [False, True])
def test_gradients_are_those_of_the_cpu(reset, floor, detach):
    rule = reset, floor, detach, "atan", 2.0
    found, expected = (gradients(of, SHAPE, rule) for of in (gpu, cpu))
    assert equal(found[:2], expected[:2])
    torch.testing.assert_close(found[2:], expected[2:], rtol=1e-5, atol=1e-5)
    assert expected[2].abs().min() > 1e-3


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_every_surrogate_are_those_of_the_cpu(surrogate, dtype):
    rule = "subtraction", False, False, surrogate, 1.3
    found, expected = (gradients(of, (2, 5, 7), rule, dtype, False) for of in (gpu, cpu))
    if surrogate == "sigmoid":
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert equal(found, expected)
    assert expected[0].abs().sum() > 0


def test_gradients_of_beta_and_threshold_are_the_same_however_steps_are_read():
    rule, found = ("zero", True, False, "atan", 2.0), []
    for ahead in (2, 4, 16):
        launches.BACKWARD = ((1e9, Backward(32, ahead, 1, ahead == 4)),)
        found.append(gradients(gpu, SHAPE, rule))
    assert equal(found[0], found[1]) and equal(found[0], found[2])


@pytest.mark.parametrize("given_grads", ["spikes", "mem", "last"])
@pytest.mark.parametrize("shape", [SHAPE, (2, 8, 16)])
def test_gradients_may_be_absent_or_expanded_from_one_number(given_grads, shape):
    n_samples, _, n = shape
    one = torch.tensor(0.7).expand(shape)
    row = random(n_samples, 1, n).expand(shape)
    grads = {"spikes": (one, None, None), "mem": (None, row, None), "last": (None, None, random(1, n_samples, n))}
    rule = "subtraction", False, False, "triangular", 1.0
    found, expected = (gradients(of, shape, rule, grads=grads[given_grads]) for of in (gpu, cpu))
    assert equal(found[:2], expected[:2])
    torch.testing.assert_close(found[2:], expected[2:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("through_torch", [False, True])
def test_a_layer_trains_as_on_the_cpu(through_torch, monkeypatch):
    results = []
    for kernels in (cpu, gpu):
        monkeypatch.setattr(torch_ops, "select_kernels", lambda tensor, kernels=kernels: kernels)
        monkeypatch.setattr(torch_ops, "is_plain", lambda tensor: not through_torch)
        layer = LIFLayer(13, reset_mechanism="zero", learn_taus=True, learn_thresholds=True, surrogate="atan")
        current = random(*SHAPE).requires_grad_()
        spikes, mem = layer(current)
        (spikes.sum() + mem.square().sum()).backward()
        results.append((spikes, mem, current.grad, layer.taus.grad, layer.thresholds.grad))
    assert equal(results[0][:3], results[1][:3])
    torch.testing.assert_close(results[0][3:], results[1][3:], rtol=1e-5, atol=1e-5)
