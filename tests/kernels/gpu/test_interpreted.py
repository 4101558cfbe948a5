"""The Triton kernels of layers in the interpreter: one process for all, as its start takes longer than most tests."""

import pytest

from tests.frontend.frameworks import framework
from tests.kernels.gpu.harness import interpreted_tests

framework("triton")

FILE = "tests/kernels/gpu/interpreted_{}.py"


def test_kernels_in_the_interpreter():
    interpreted_tests(*(FILE.format(of) for of in ("lif", "recurrent", "eventprop")))


@pytest.mark.long
@pytest.mark.parametrize(("of", "marked"), [("delays", "not long"), ("eventprop", "long")])
def test_more_kernels_in_the_interpreter(of, marked):
    interpreted_tests(FILE.format(of), marked=marked)
