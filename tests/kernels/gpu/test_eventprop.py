import pytest
import torch

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import compiled_launches, crossed

framework("triton")
from nwcompile.nn.ops import gpu  # noqa: E402

SHAPE = 2, 3, 20


@pytest.mark.parametrize(("processor", "dtype"), crossed(torch.float32, torch.bfloat16))
def test_keeping_is_launched_without_fused_operations_spills_and_barriers(processor, dtype):
    numbers, state, neuron = torch.zeros(SHAPE), torch.zeros(1, 2, 20), torch.zeros(20)
    with compiled_launches(processor) as built:
        gpu.keep_spikes(numbers.to(dtype), numbers, numbers, state, neuron, neuron, "zero", True)
    assert_is_straight(built, 3)
    assert {"mul.rn.f32", "add.rn.f32"} <= built[0].instructions


@pytest.mark.parametrize(("processor", "learns"), crossed(False, True))
def test_adjoint_is_launched_without_fused_operations_spills_and_barriers(processor, learns):
    numbers, state, neuron = torch.zeros(SHAPE), torch.zeros(1, 2, 20), torch.zeros(20)
    words = torch.zeros(2, 1, 20, dtype=torch.int32)
    kept = words, words, torch.zeros(41, dtype=torch.int64), torch.zeros(3, 0)
    with compiled_launches(processor) as built:
        gpu.spike_adjoint(
            (numbers, numbers, None), SHAPE, kept, numbers, state, neuron, neuron, "zero", True, False, learns
        )
    assert_is_straight(built, 7 + learns)
    assert "div.rn.f32" in built[0].instructions


def assert_is_straight(built, n_loads):
    """One kernel, whose lanes wait for no other lane, with so many loads in a step."""
    (kernel,) = built
    assert kernel.fused == [] and not kernel.spills
    assert kernel.count_in_loop("LDG") == gpu.AT_SPIKES["AHEAD"] * n_loads
    assert kernel.count_in_loop("BAR", "LDS", "STS") == 0
