import pytest

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import compiled, interpreted_tests

framework("triton")
from nwcompile.kernels.gpu import spike_matmul  # noqa: E402
from nwcompile.nn.ops import gpu  # noqa: E402

SIZES = dict.fromkeys(("n_samples", "n_steps", "n", "n_in", "x_sample", "x_step"), "i32")


def test_fire_weighed_in_the_interpreter():
    interpreted_tests("tests/kernels/gpu/interpreted_spike_matmul.py", timeout_s=300)


@pytest.mark.parametrize(("processor", "x", "spikes"), [(80, "*fp32", "*i32"), (90, "*i32", "*i32")])
def test_fire_weighed_compiles_without_fused_operations(processor, x, spikes):
    types = {"x": x, "spikes": spikes, **SIZES,
             **dict.fromkeys(("weight", "state", "beta", "threshold", "last"), "*fp32")}  # fmt: skip
    launch = gpu.FIRE_WEIGHED
    constants = {"RESET": "subtraction", "FLOOR": True, "BLOCK": launch.block, "AHEAD": launch.ahead}
    built = compiled(spike_matmul.fire_weighed, types, constants, processor, launch.warps)
    assert built.fused == [] and "add.rn.f32" in built.instructions
    assert not built.spills
