"""Functions that the source of a neuron program calls, besides Python's operators; rules as in `ir/arithmetic.py`."""

import numpy as np
from numba import carray, types

from nwcompile.kernels.cores.neuron import modulo, saturate
from nwcompile.kernels.jit import AsCFunction, kernel

__all__ = ["C_STEP", "AsCFunction", "carray", "modulo", "number", "saturate", "shr0", "sign", "steepness", "table"]

_NUMBERS = types.CPointer(types.int64)
C_STEP = types.int64(_NUMBERS, _NUMBERS, types.int64, types.int64, types.int64)  # parameters, states, n, i, x


@kernel
def shr0(x, bits):
    return x >> bits if x >= 0 else -(-x >> bits)


@kernel
def table(entries, first, x, bits):
    i = x >> bits
    low, high = entries[first + i], entries[first + i + 1]
    return low + (((high - low) * (x - (i << bits)) + ((1 << bits) >> 1)) >> bits)


@kernel
def steepness(entries, first, x, bits):
    i = first + (x >> bits)
    return (entries[i + 1] - entries[i]) / (1 << bits)


@kernel
def sign(x):
    return np.int64(x > 0) - np.int64(x < 0)


@kernel
def number(truth):
    return np.int64(1) if truth else np.int64(0)
