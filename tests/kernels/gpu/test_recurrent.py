import pytest
import torch

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import compiled_launches

framework("triton")
from nwcompile.nn.ops import gpu  # noqa: E402

N_SAMPLES, N_STEPS = 4, 3


def given(n):
    """Current, state, beta or threshold, and recurrent weights of `n` neurons."""
    return torch.zeros(N_SAMPLES, N_STEPS, n), torch.zeros(2, N_SAMPLES, n), torch.zeros(n), torch.zeros(n, n)


@pytest.mark.parametrize(("processor", "n"), [(80, 24), (90, 128)])
def test_forward_is_launched_with_its_weights_in_registers(processor, n):
    current, state, neuron, w_rec = given(n)
    with compiled_launches(processor) as built:
        gpu.forward(current, state, neuron, neuron, w_rec, "zero", False)
    (kernel,) = built
    assert kernel.fused == [] and "add.rn.f32" in kernel.instructions
    assert not kernel.spills and kernel.count_in_loop("LDG") == gpu.RECURRENT_AHEAD_STEPS  # of the current


@pytest.mark.parametrize(("processor", "n"), [(80, 24), (90, gpu.MAX_HELD_NEURONS)])
def test_backward_is_launched_with_its_weights_in_registers(processor, n):
    """Its loads in a step are those of the current, spikes, membranes and two gradients."""
    current, state, neuron, w_rec = given(n)
    rule = "zero", False, True, "fast_sigmoid", 25.0
    with compiled_launches(processor) as built:
        gpu.backward((current, current, None), current, current, current, state, neuron, neuron, w_rec, rule, True)
    (kernel,) = built
    assert kernel.fused == [] and "div.rn.f32" in kernel.instructions
    assert not kernel.spills and kernel.count_in_loop("LDG") == 5
