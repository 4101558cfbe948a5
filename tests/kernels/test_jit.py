"""Kernels are compiled wherever the package lies."""

import pytest
from numba import njit

from nwcompile.kernels.jit import compiled


def test_kernel_is_compiled_where_nothing_can_be_kept():
    names = {}
    exec("def twice(x):\n    return 2 * x", names)  # has no file, so there is no place for its machine code
    with pytest.raises(RuntimeError, match="no locator available"):
        njit(cache=True)(names["twice"])
    assert compiled(nogil=True)(names["twice"])(3) == 6
