"""The Triton kernels of layers in the interpreter: one process for all, as its start takes longer than most tests."""

import pytest

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import interpreted_tests, run_on_pretended_gpu

framework("triton")

FILE = "tests/kernels/gpu/interpreted_{}.py"


def test_kernels_in_the_interpreter():
    interpreted_tests(*(FILE.format(of) for of in ("lif", "recurrent", "eventprop")))


@pytest.mark.long
@pytest.mark.parametrize(("of", "marked"), [("delays", "not long"), ("eventprop", "long")])
def test_more_kernels_in_the_interpreter(of, marked):
    interpreted_tests(FILE.format(of), marked=marked)


FEW = "(layers_are and once-FF-70-lif) or (step_is and FF-lif) or without_cudnn or (products and 17-) or scan_fires"


def test_gpu_tests_run_on_a_pretended_gpu():
    """All of them are imported and collected; a few are run."""
    report = run_on_pretended_gpu("tests/gpu", "-k", FEW)
    assert " passed" in report and "error" not in report, report


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "some"),
    [("layers", "once-RC-70-lif or once-RC-200-lif"), ("sequence", "products"), ("tutorial", "parity and lif")],
)
def test_more_gpu_tests_run_on_a_pretended_gpu(file, some):
    run_on_pretended_gpu(f"tests/gpu/test_{file}_cuda.py", "-k", some)
