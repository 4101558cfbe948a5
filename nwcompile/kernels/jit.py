"""How kernels are compiled: kept between runs where that is possible; those of the simulators without the GIL as well.

A kernel that takes a NamedTuple of arrays would count references to each of them at every call, atomically and on
memory that all threads share; that was half the time of the cycle backend. Such kernels allocate nothing and keep
nothing, so Numba's runtime is left out (`_nrt=False`): a kernel that would need it does not compile.
"""

from collections.abc import Callable

from numba import njit


def compiled(**options) -> Callable:
    """Numba's `njit`, its machine code kept beside the source or in the user's cache.

    Where neither may be written (an installation of root's, run by a user without a home), it is made in every run.
    """

    def decorate(function: Callable):
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)

    return decorate


kernel = compiled(nogil=True, _nrt=False)
