"""How the kernels of the simulators are compiled: cached, without the GIL, and without reference counting.

A kernel that takes a NamedTuple of arrays would count references to each of them at every call, atomically and on
memory that all threads share; that was half the time of the cycle backend. Such kernels allocate nothing and keep
nothing, so Numba's runtime is left out (`_nrt=False`): a kernel that would need it does not compile.
"""

from numba import njit

kernel = njit(cache=True, nogil=True, _nrt=False)
