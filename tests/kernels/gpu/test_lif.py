import pytest
import torch

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import compiled_launches, key

framework("triton")
from nwcompile.nn.ops import gpu  # noqa: E402

N_SAMPLES, N_STEPS = 16, 3  # the number of steps is no part of what is compiled


def given(n, dtype=torch.float32):
    """Current, state, and beta or threshold of `n` neurons."""
    return torch.zeros(N_SAMPLES, N_STEPS, n, dtype=dtype), torch.zeros(1, N_SAMPLES, n), torch.zeros(n)


# A row of each table of launches: rows of neurons that allow wide loads, and rows that do not.
WIDTHS = [
    (80, 2048), (90, 4105),
    *(pytest.param(*case, marks=pytest.mark.long) for case in ((90, 512), (90, 500), (90, 2047), (90, 4112))),
]  # fmt: skip


@pytest.mark.parametrize(("processor", "n"), WIDTHS)
def test_forward_is_launched_without_fused_operations_spills_and_barriers(processor, n):
    current, state, neuron = given(n)
    with compiled_launches(processor) as built:
        gpu.forward(current, state, neuron, neuron, None, "subtraction", True)
    assert_is_straight(built)
    assert {"mul.rn.f32", "add.rn.f32"} <= built[0].instructions


@pytest.mark.parametrize("n", [2048, pytest.param(4105, marks=pytest.mark.long)])
def test_packed_spikes_of_bfloat16_are_launched_without_fused_operations_spills_and_barriers(n):
    current, state, neuron = given(n, torch.bfloat16)
    with compiled_launches(90) as built:
        gpu.fire(current, state, neuron, neuron, "zero", False, "bits")
    assert_is_straight(built)


@pytest.mark.parametrize(("processor", "n"), WIDTHS)
@pytest.mark.parametrize("learns", [True, pytest.param(False, marks=pytest.mark.long)])
def test_backward_is_launched_without_fused_operations_spills_and_barriers(processor, n, learns):
    dtype = torch.float32 if learns else torch.bfloat16
    current, state, neuron = given(n, dtype)
    spikes, rule = current.float(), ("subtraction", False, False, "atan", 2.0)
    with compiled_launches(processor) as built:
        grads = spikes, spikes, None
        gpu.backward(grads, current, spikes, spikes, state, neuron, neuron, None, rule, learns)
    assert_is_straight(built)
    assert "div.rn.f32" in built[0].instructions
    assert learns or any(i.startswith("cvt.rn.bf16") for i in built[0].instructions)


def assert_is_straight(built):
    """One kernel, whose lanes wait for no other lane."""
    (kernel,) = built
    assert kernel.fused == [] and not kernel.spills
    assert kernel.count_in_loop("LDG") > 0 and kernel.count_in_loop("BAR", "LDS", "STS") == 0


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("n", [48, 13])
def test_no_length_compiles_anew(n, recurrent, monkeypatch):
    keys = set()
    monkeypatch.setattr(gpu, "_start_kernel", lambda kernel, x, n_programs, *arguments, **constants: keys.add(
        key(kernel, *arguments, **constants)))  # fmt: skip
    rule = "zero", True, False, "atan", 2.0
    w_rec, state, neuron = torch.zeros(n, n) if recurrent else None, torch.zeros(1 + recurrent, 3, n), torch.zeros(n)
    for n_steps in (1, 16, 17, 1000):
        current = torch.zeros(3, n_steps, n)
        gpu.forward(current, state, neuron, neuron, w_rec, *rule[:2])
        gpu.backward((current, None, None), current, current, current, state, neuron, neuron, w_rec, rule, True)
        gpu.fire(current, state, neuron, neuron, *rule[:2], "bits")
    assert len(keys) == 3
    gpu.fire(current.bfloat16(), state, neuron, neuron, *rule[:2], "bits")
    assert len(keys) == 4
