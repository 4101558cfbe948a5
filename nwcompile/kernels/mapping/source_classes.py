"""Hot loops that tell which sources no unit can tell apart: each unit has the same synapses of them all (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled


@compiled()
def mixed(value):
    """A well-mixed uint64 of a uint64: the output function of SplitMix64 (Steele et al., OOPSLA'14)."""
    z = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled()
def readers_of_rows(offset, row, count, row_format, digest):
    """Add to digest: uint64[row, 2] who reads each row: the format, and every unit with its number of synapses.

    offset: int64[unit + 1] into row: int32[entry] and count: int32[entry]; row_format: int64[row]. Sums of mixed words
    do not depend on the order; with 128 bits, rows of equal digests are read alike.
    """
    for i in range(len(row_format)):
        for half in range(2):
            digest[i, half] = mixed(np.uint64(2 * row_format[i] + half + 1))
    for unit in range(len(offset) - 1):
        for e in range(offset[unit], offset[unit + 1]):
            word = (np.uint64(unit) << np.uint64(32)) ^ np.uint64(count[e])
            for half in range(2):
                word = mixed(word)
                digest[row[e], half] += mixed(word ^ (np.uint64(row_format[row[e]]) << np.uint64(1)))


@compiled()
def kept_rows(offset, row, count, new_row):
    """The entries of rows that are kept, in place, under their new numbers; new_row: int64[row], -1 for the others.

    Returns the new offset: int64[unit + 1]; entries after its end are void.
    """
    kept = np.zeros(len(offset), np.int64)
    n = 0
    for unit in range(len(offset) - 1):
        for e in range(offset[unit], offset[unit + 1]):
            new = new_row[row[e]]
            if new >= 0:
                row[n] = new
                count[n] = count[e]
                n += 1
        kept[unit + 1] = n
    return kept
