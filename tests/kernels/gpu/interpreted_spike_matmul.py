"""Synapse and neurons in one Triton kernel, in the interpreter; run by test_spike_matmul.py in a process of its own.

Where there is a GPU, tests/gpu runs them there.
"""

import pytest
import torch

from nwcompile.nn.ops import cpu
from nwcompile.nn.ops import gpu as launches
from nwcompile.nn.ops.gpu import Launch
from tests.kernels.gpu.harness import OnGpu
from tests.kernels.gpu.interpreted_lif import equal, given, random

gpu = OnGpu(launches)
FORMS = ("float", "uint8", "bits")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(launches, "FIRE_WEIGHED", Launch(32, 8, 1))


def case(n_samples, n_steps, n_in, n, dtype=torch.float32):
    """Spikes, weights whose sums are exact in any order, state, beta and threshold, and the currents."""
    _, *neurons = given((n_samples, 1, n), dtype)
    x = (random(n_samples, n_steps, n_in, seed=7, dtype=dtype) > 0.3).to(dtype)
    weight = (random(n_in, n, seed=8, dtype=dtype) * 64).round() / 128
    return x, weight, *neurons, cpu.weigh(x, weight)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 35, 3, 13), (1, 32, 5, 32)])
def test_spikes_are_those_of_a_product_and_a_scan(sizes, form):
    x, weight, *neurons, current = case(*sizes)
    expected = cpu.fire(current, *neurons, "subtraction", True, form)
    assert equal(gpu.fire_weighed(x, weight, *neurons, "subtraction", True, form, sizes[1]), expected)


@pytest.mark.parametrize("n_steps", [1, 31, 40, 64])
def test_spikes_may_come_packed(n_steps):
    x, weight, *neurons, current = case(2, n_steps, 4, 13)
    first = torch.zeros(1, 2, 4), torch.zeros(4), torch.ones(4)
    bits, _ = cpu.fire(x, *first, "none", False, "bits")
    for form in FORMS:
        expected = cpu.fire(current, *neurons, "zero", False, form)
        assert equal(gpu.fire_weighed(bits, weight, *neurons, "zero", False, form, n_steps), expected)


def test_inputs_may_be_half_precision_time_first_and_no_spikes():
    x, weight, *neurons, _ = case(3, 11, 5, 7)
    x = (x * 1.5).transpose(0, 1).contiguous().transpose(0, 1)
    expected = cpu.fire(cpu.weigh(x.contiguous(), weight), *neurons, "none", False, "float")
    for given_x in (x, x.to(torch.bfloat16), x.mT.contiguous().mT):
        assert equal(gpu.fire_weighed(given_x, weight, *neurons, "none", False, "float", 11), expected)


def test_sums_are_taken_input_by_input():
    x, _, *neurons, _ = case(2, 9, 40, 40)
    weight = random(40, 40, seed=9) / 5
    expected = cpu.fire(cpu.weigh(x, weight), *neurons, "subtraction", False, "float")
    assert equal(gpu.fire_weighed(x, weight, *neurons, "subtraction", False, "float", 9), expected)
