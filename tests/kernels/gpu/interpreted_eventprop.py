"""EventProp's Triton kernels on CPU tensors, in the interpreter; run by test_interpreted.py.

Where there is a GPU, tests/gpu runs them there.
"""

from itertools import product

import pytest
import torch

from nwcompile.nn.layers.lif import LIFLayer
from nwcompile.nn.ops import cpu, torch_ops
from nwcompile.nn.ops import gpu as launches
from tests.kernels.gpu.harness import INTERPRETED, OnGpu
from tests.made.tensors import equal, random

gpu = OnGpu(launches)
SHAPE = 3, 37, 23  # pairs that are no multiple of a program's, steps that fill no word
SMALL = 2, 11, 7
AT_LENGTH = pytest.param(SHAPE, marks=[pytest.mark.long] if INTERPRETED else [])  # a GPU takes no time for it
RULES = list(product(("subtraction", "zero", "none"), (False, True), (False, True)))  # reset, floor, detach_reset


def given(shape, reset, floor, dtype=torch.float32):
    """Arguments of `keep_spikes`: current, spikes, mem, state, beta, threshold, reset, floor."""
    n_samples, _, n = shape
    current, state = random(*shape, dtype=dtype), random(1, n_samples, n, seed=1, dtype=dtype)
    neurons = random(n, seed=2, dtype=dtype).sigmoid(), 0.3 + random(n, seed=3, dtype=dtype).sigmoid()
    spikes, mem, _ = cpu.forward(current, state, *neurons, None, reset, floor)
    return current, spikes, mem, state, *neurons, reset, floor


def gradients(of, shape, rule, grads=None, dtype=torch.float32, with_mem=True, learns=True):
    reset, floor, detach = rule
    arguments = given(shape, reset, floor, dtype)
    _, _, mem, state, beta, threshold, _, _ = arguments
    kept = cpu.keep_spikes(*arguments)
    if grads is None:
        asked = None if reset == "none" else random(*shape, seed=5, dtype=dtype)
        grads = asked, random(*shape, seed=6, dtype=dtype), random(1, shape[0], shape[2], seed=7, dtype=dtype)
    neurons = mem if with_mem else None, state, beta, threshold
    return of.spike_adjoint(grads, shape, kept, *neurons, reset, floor, detach, learns)


def assert_keeps(reset, floor, shape):
    arguments = given(shape, reset, floor)
    expected = cpu.keep_spikes(*arguments)
    assert equal(gpu.keep_spikes(*arguments), expected)
    assert shape != SHAPE or expected[3].shape[1] > 100


@pytest.mark.parametrize(("reset", "floor"), list(product(("subtraction", "zero", "none"), (False, True))))
@pytest.mark.parametrize("shape", [SMALL, AT_LENGTH, (1, 1, 1), (0, 5, 3)])
def test_what_is_kept_is_what_the_cpu_keeps(reset, floor, shape):
    assert_keeps(reset, floor, shape)


@pytest.mark.parametrize(("reset", "floor", "shape"), [("zero", True, SHAPE), ("subtraction", False, (2, 64, 16))])
def test_what_is_kept_over_words_and_programs_is_what_the_cpu_keeps(reset, floor, shape):
    assert_keeps(reset, floor, shape)


@pytest.mark.parametrize("shape", [SMALL, AT_LENGTH])
@pytest.mark.parametrize("rule", RULES)
def test_gradients_are_those_of_the_cpu(rule, shape):
    assert_gradients(rule, shape)


@pytest.mark.parametrize("rule", [("zero", True, False), ("subtraction", False, False)])
def test_gradients_over_words_and_programs_are_those_of_the_cpu(rule):
    assert_gradients(rule, SHAPE)


def assert_gradients(rule, shape):
    found, expected = (gradients(of, shape, rule) for of in (gpu, cpu))
    assert equal(found[:2], expected[:2])
    torch.testing.assert_close(found[2:], expected[2:], rtol=1e-5, atol=1e-5)
    assert expected[2].abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_mem", [False, True])
@pytest.mark.parametrize("learns", [False, True])
def test_gradients_of_the_neurons_are_given_where_they_are_wanted(dtype, with_mem, learns):
    found, expected = (gradients(of, SMALL, RULES[0], None, dtype, with_mem, learns) for of in (gpu, cpu))
    assert equal(found[:2], expected[:2])
    torch.testing.assert_close(found[2:], expected[2:], rtol=1e-5, atol=1e-5)
    assert expected[2].any() == (with_mem and learns)


@pytest.mark.parametrize("asked", ["spikes", "mem", "last"])
def test_gradients_may_be_absent_or_expanded_from_one_number(asked):
    n_samples, _, n = SMALL
    one, row = torch.tensor(0.7).expand(SMALL), random(n_samples, 1, n).expand(SMALL)
    grads = {"spikes": (row, None, None), "mem": (None, one, None), "last": (None, None, random(1, n_samples, n))}
    found, expected = (gradients(of, SMALL, RULES[4], grads[asked]) for of in (gpu, cpu))
    assert equal(found[:2], expected[:2])


@pytest.mark.parametrize("through_torch", [False, True])
@pytest.mark.parametrize("reset", ["subtraction", "zero"])
def test_a_layer_trains_as_on_the_cpu(through_torch, reset, monkeypatch):
    results = []
    for kernels in (cpu, gpu):
        monkeypatch.setattr(torch_ops, "select_kernels", lambda tensor, kernels=kernels: kernels)
        monkeypatch.setattr(torch_ops, "is_plain", lambda tensor: not through_torch)
        layer = LIFLayer(13, reset_mechanism=reset, learn_taus=True, learn_thresholds=True, surrogate="eventprop")
        current = random(3, 11, 13).requires_grad_()
        spikes, mem = layer(current)
        ((spikes * torch.arange(11)[:, None]).sum() + mem.square().sum()).backward()
        results.append((spikes, mem, current.grad, layer.taus.grad, layer.thresholds.grad))
    assert equal(results[0][:3], results[1][:3])
    torch.testing.assert_close(results[0][3:], results[1][3:], rtol=1e-5, atol=1e-5)
