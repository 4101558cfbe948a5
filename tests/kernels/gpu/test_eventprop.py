import pytest

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import compiled, crossed

framework("triton")
from nwcompile.kernels.gpu import eventprop  # noqa: E402

SIZES = ("n_samples", "n_steps", "n", "n_spikes")
KEPT = {"words": "*i32", "clipped": "*i32", "first": "*i64", "values": "*fp32"}
RULE = {"RESET": "zero", "FLOOR": True, "BLOCK": 64}


@pytest.mark.parametrize(("processor", "current"), crossed("*fp32", "*bf16"))
def test_keeping_compiles_without_fused_operations(processor, current):
    arrays = dict.fromkeys(("spikes", "mem", "state", "beta", "threshold"), "*fp32")
    types = {"current": current, **arrays, **KEPT, **dict.fromkeys((*SIZES, "x_sample", "x_step"), "i32")}
    built = compiled(eventprop.keep_spikes, types, RULE, processor, 2)
    assert built.fused == [] and {"mul.rn.f32", "add.rn.f32"} <= built.instructions
    assert not built.spills


@pytest.mark.parametrize(("processor", "learns"), crossed(False, True))
def test_adjoint_compiles_without_fused_operations(processor, learns):
    names = "state", "grad_spikes", "grad_mem", "beta", "threshold", "grad_current", "carried"
    distances = "h_sample", "h_step", "g_sample", "g_step"
    types = {**KEPT, **dict.fromkeys(names, "*fp32"), **dict.fromkeys((*SIZES, *distances), "i32")}
    constants = {**RULE, "DETACH": False, "H_EACH": 1, "G_EACH": 1}
    if learns:
        types |= {"mem": "*fp32", "sums": "*fp64"}
    else:
        constants |= {"mem": None, "sums": None}
    built = compiled(eventprop.spike_adjoint, types, constants, processor, 2)
    assert built.fused == [] and "div.rn.f32" in built.instructions
    assert not built.spills
