import pytest

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import PROCESSORS, compiled, crossed

framework("triton")
from nwcompile.kernels.gpu import delays  # noqa: E402

SIZES = ("n_samples", "n_steps", "n", "n_rows")
LISTS = {"source": "*i32", "start": "*i32"}
BLOCK = {"SAMPLES": 4, "STEPS": 128}


@pytest.mark.parametrize(("processor", "is_early"), crossed(False, True))
def test_sums_compile_without_fused_operations(processor, is_early):
    arrays = {**dict.fromkeys(("x", "taps", "out"), "*fp32"), "row": "*i64", **LISTS}
    types = {**arrays, **dict.fromkeys((*SIZES, "n_parts"), "i32")}
    built = compiled(delays.delayed_sums, types, {"N_TAPS": 2, "IS_EARLY": is_early, **BLOCK}, processor)
    assert built.fused == [] and "mul.rn.f32" in built.instructions
    assert not built.spills


@pytest.mark.parametrize("processor", PROCESSORS)
def test_products_compile_without_fused_operations(processor):
    arrays = {**dict.fromkeys(("x", "grad", "out"), "*fp32"), "target": "*i32", **LISTS}
    types = {**arrays, **dict.fromkeys(SIZES, "i32")}
    built = compiled(delays.delayed_products, types, {"N_TAPS": 2, **BLOCK}, processor)
    assert built.fused == [] and "mul.rn.f32" in built.instructions
    assert not built.spills
