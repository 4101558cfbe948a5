"""The Triton sums over synapses with delays, in the interpreter; run by test_interpreted.py.

Where there is a GPU, tests/gpu runs them there.
"""

import pytest
import torch

from nwcompile import nn
from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops import gpu as launches
from nwcompile.nn.ops.delays import build_synapse_lists
from tests.kernels.gpu.harness import OnGpu

gpu = OnGpu(launches)
REACH = 7


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Programs of few samples and steps, so that there are several of them."""
    monkeypatch.setattr(launches, "DELAYED", {"SAMPLES": 2, "STEPS": 8, "num_warps": 1})


def given(n_samples, n_steps, n_in, n_out, n_taps, dtype=torch.float32):
    """Drawn numbers, and the lists of drawn synapses: some neurons have none."""
    generator = torch.Generator().manual_seed(n_steps)
    source, target = torch.rand(n_in, n_out, generator=generator).lt(0.6).nonzero().T
    start = torch.randint(0, REACH + 2 - n_taps, (len(source),), generator=generator, dtype=torch.int32)
    taps = torch.randn(len(source), n_taps, generator=generator, dtype=dtype)
    x = torch.randn(n_samples, n_steps, n_in, generator=generator, dtype=dtype)
    return x, taps, start, build_synapse_lists(source, target, n_in, n_out)


@pytest.mark.parametrize("shape", [(3, 11, 3, 2, 2), (1, 1, 1, 1, 1), (2, 9, 18, 1, 3), (0, 3, 2, 2, 1)])
@pytest.mark.parametrize("is_early", [False, True])
def test_sums_are_those_of_the_cpu(shape, is_early):
    x, taps, start, lists = given(*shape)
    order = lists.order_by_target
    arguments = x, taps[order], start[order], lists.row_by_target, lists.source, shape[3], REACH, is_early
    found, expected = gpu.delayed_sums(*arguments), cpu.delayed_sums(*arguments)
    assert torch.equal(found, expected)
    assert shape[1] < REACH or expected.abs().max() > 0


@pytest.mark.parametrize("shape", [(3, 11, 3, 2, 2), (1, 1, 1, 1, 1), (2, 9, 18, 1, 3)])
def test_products_are_those_of_the_cpu(shape):
    x, _, start, lists = given(*shape)
    grad = torch.randn(*shape[:2], shape[3], generator=torch.Generator().manual_seed(0))
    order = lists.order_by_target
    arguments = x, grad, start[order], lists.row_by_target, lists.source, shape[4], REACH
    found, expected = gpu.delayed_products(*arguments), cpu.delayed_products(*arguments)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert shape[1] < REACH or expected.abs().max() > 0


def test_a_layer_has_the_gradients_of_the_cpu(monkeypatch):
    results = []
    for kernels in (cpu, gpu):
        monkeypatch.setattr(torch_ops, "select_kernels", lambda tensor, kernels=kernels: kernels)
        torch.manual_seed(0)
        layer = nn.DelayedLinear(3, 2, 5)
        x = torch.randn(2, 9, 3, requires_grad=True)
        layer(x).square().sum().backward()
        results.append((x.grad, layer.weight.grad, layer.delays.steps.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)
