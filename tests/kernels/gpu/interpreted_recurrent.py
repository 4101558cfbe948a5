"""The Triton scan with recurrent weights, in the interpreter; run by test_interpreted.py.

Where there is a GPU, tests/gpu runs them there.
"""

import pytest
import torch

from nwcompile.errors import BackendError
from nwcompile.nn.layers.lif import LIFLayer
from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops import gpu as launches
from nwcompile.nn.ops.surrogate import atan
from tests.kernels.gpu.harness import OnGpu
from tests.kernels.gpu.interpreted_lif import RESETS
from tests.kernels.gpu.interpreted_lif import given as without_weights
from tests.made.tensors import equal, random
from tests.nn.naive import lif

gpu = OnGpu(launches)
SHAPE = 3, 10, 13


def given(shape, dtype=torch.float32):
    """As without weights, with the spikes before the first step, and weights whose sums are exact in any order."""
    current, state, *neurons = without_weights(shape, dtype)
    fired = (random(1, shape[0], shape[2], seed=4) > 0).to(dtype)
    weight = (random(shape[2], shape[2], seed=5, dtype=dtype) * 64).round() / 256
    return current, torch.cat([state, fired]), *neurons, weight


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("floor", [False, True])
def test_scan_is_the_cpu_kernel_and_the_plain_loop(reset, floor):
    current, state, beta, threshold, weight = given(SHAPE)
    state[1] = 0
    found = gpu.forward(current, state, beta, threshold, weight, reset, floor)
    assert equal(found, cpu.forward(current, state, beta, threshold, weight, reset, floor))
    assert equal(found[:2], lif(current, state[0], beta, threshold, reset, atan, w_rec=weight, floor=floor))
    assert 0.05 < found[0].mean() < 0.95


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 33), (0, 4, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scan_of_other_sizes_goes_on_from_its_spikes(shape, dtype):
    neurons = given(shape, dtype)
    expected = cpu.forward(*neurons, "zero", False)
    assert equal(gpu.forward(*neurons, "zero", False), expected)
    current, state, *rest = neurons
    parts = []
    for piece in current.split([1] * shape[1], 1):
        spikes, _, state = gpu.forward(piece[:, 0], state, *rest, "zero", False)
        parts.append(spikes)
    assert torch.equal(torch.stack(parts, 1), expected[0]) and torch.equal(state, expected[2])


def test_scan_of_half_precision_and_of_steps_side_by_side():
    current, *rest = given(SHAPE)
    half = current.transpose(0, 1).contiguous().to(torch.bfloat16).transpose(0, 1)
    expected = cpu.forward(half.float().contiguous(), *rest, "zero", False)
    assert equal(gpu.forward(half, *rest, "zero", False), expected)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("absent", [None, 0, 1, 2])
def test_gradients_are_those_of_the_cpu(reset, detach, absent):
    shape = 2, 4, 5
    current, state, beta, threshold, weight = neurons = given(shape, torch.float64)
    spikes, mem, _ = cpu.forward(*neurons, reset, True)
    grads = [*random(2, *shape, seed=6, dtype=torch.float64), random(2, 2, 5, seed=7, dtype=torch.float64)]
    if absent is not None:
        grads[absent] = None if absent != 1 else grads[1][:, :1].expand(shape)
    back = grads, current, spikes, mem, state, beta, threshold, weight, (reset, True, detach, "atan", 2.0), True
    found, expected = gpu.backward(*back), cpu.backward(*back)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert expected[0].abs().min() > 0


def test_a_layer_trains_as_on_the_cpu(monkeypatch):
    results = []
    for kernels in (cpu, gpu):
        monkeypatch.setattr(torch_ops, "select_kernels", lambda tensor, kernels=kernels: kernels)
        torch.manual_seed(0)
        layer = LIFLayer(13, layer_topology="RC", learn_taus=True, surrogate="atan")
        with torch.no_grad():
            layer.w_rec.copy_((layer.w_rec * 256).round() / 256)
        current = random(*SHAPE).requires_grad_()
        spikes, mem = layer(current)
        (spikes.sum() + mem.square().sum()).backward()
        results.append((spikes, mem, current.grad, layer.taus.grad, layer.w_rec.grad))
    assert equal(results[0][:2], results[1][:2])
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)


def test_more_neurons_than_fit_are_refused_by_the_kernel():
    with pytest.raises(BackendError) as error:
        gpu.forward(*given((1, 1, 129)), "zero", False)
    assert str(error.value) == (
        "recurrent weights of 129 neurons: the GPU kernel holds those of 128 at most; use nwcompile.nn.ops.scan.scan, "
        "which then runs step by step"
    )
