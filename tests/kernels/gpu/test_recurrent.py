import pytest

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import compiled

framework("triton")
from nwcompile.kernels.gpu import recurrent  # noqa: E402

SIZES = dict.fromkeys(("n_samples", "n_steps", "n", "x_sample", "x_step"), "i32")
DISTANCES = dict.fromkeys(("h_sample", "h_step", "g_sample", "g_step"), "i32")
NEURONS = "weight", "beta", "threshold", "spikes", "mem", "state"


@pytest.mark.parametrize(("processor", "size", "warps"), [(80, 32, 1), (90, 128, 8)])
def test_forward_compiles_without_fused_operations(processor, size, warps):
    types = {**dict.fromkeys(("current", *NEURONS, "last"), "*fp32"), **SIZES}
    constants = {"RESET": "zero", "FLOOR": False, "SIZE": size, "AHEAD": 4}
    built = compiled(recurrent.recurrent_forward, types, constants, processor, warps)
    assert built.fused == [] and "add.rn.f32" in built.instructions
    assert not built.spills


@pytest.mark.parametrize(("processor", "size", "warps"), [(80, 32, 1), (90, 64, 4)])
def test_backward_compiles_without_fused_operations(processor, size, warps):
    more = "transposed", "grad_spikes", "grad_mem", "grad_current", "carried"
    types = {**dict.fromkeys(("current", *NEURONS, *more), "*fp32"), "sums": "*fp64", **SIZES, **DISTANCES}
    constants = {"RESET": "zero", "FLOOR": False, "DETACH": True, "SURROGATE": "fast_sigmoid", "SLOPE": 25.0,
                 "SCALED": 39.269908905029297, "H_EACH": 1, "G_EACH": 0, "SIZE": size}  # fmt: skip
    built = compiled(recurrent.recurrent_backward, types, constants, processor, warps)
    assert built.fused == [] and "div.rn.f32" in built.instructions
    assert not built.spills
