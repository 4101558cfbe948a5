"""The harness itself can fail: it sees a fused multiply-add, a kernel that is wrong, and one that never ends."""

import pytest

from tests.frontend.frameworks import framework

triton = framework("triton")
tl = triton.language

from tests.kernels.gpu.harness import PROCESSORS, compiled, interpreted  # noqa: E402

ARGUMENTS = {"x": "*fp32", "out": "*fp32", "n": "i32"}
RUN = """
import torch, triton
from tests.kernels.gpu.test_harness import scaled
x, out = torch.arange(5.0), torch.zeros(5)
scaled[(2,)](x, out, 5, BLOCK=4)
print(out.tolist())
"""


@triton.jit(do_not_specialize=["n"])
def scaled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, value * 3.0 + value, mask=at < n)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_harness_sees_fused_multiply_adds(processor):
    exact = compiled(scaled, ARGUMENTS, {"BLOCK": 128}, processor)
    assert exact.fused == [] and "mul.rn.f32" in exact.instructions and not exact.spills
    assert compiled(scaled, ARGUMENTS, {"BLOCK": 128}, processor, enable_fp_fusion=True).fused


def test_harness_runs_kernels_in_the_interpreter():
    assert interpreted("-c", RUN).strip() == "[0.0, 4.0, 8.0, 12.0, 16.0]"


def test_harness_says_what_failed():
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        interpreted("-c", "1 / 0")
    with pytest.raises(AssertionError, match="still running after 0.5 s"):
        interpreted("-c", "while True: pass", timeout_s=0.5)
