"""Large tensors in parts, over as many threads as torch uses.

Parts depend on the shape alone, so no result depends on how many threads there are. The kernels release the GIL, so
plain threads do. They are made anew after a fork: the workers of a DataLoader inherit none.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

MOST_PARTS = 8
SMALLEST_PART = 1 << 17  # numbers: some 20 us of work
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)


def parts(
    n_samples: int, n_steps: int, n_neurons: int, whole_rows: bool, lanes: int
) -> list[tuple[int, int, int, int]]:
    """(first sample, last sample, first neuron, last neuron) of every part of `[B, T, N]`.

    Samples are shared out first; where they are too few and not `whole_rows`, neurons as well, in multiples of `lanes`.
    """
    n_parts = max(1, min(MOST_PARTS, n_samples * n_steps * n_neurons // SMALLEST_PART))
    n_rows = min(n_parts, n_samples)
    n_columns = 1 if whole_rows or not n_rows else min(n_parts // n_rows, -(-n_neurons // lanes))
    rows = [n_samples * k // n_rows for k in range(n_rows + 1)]
    columns = [min(n_neurons, -(-n_neurons * k // (n_columns * lanes)) * lanes) for k in range(n_columns + 1)]
    return [
        (rows[i], rows[i + 1], columns[j], columns[j + 1])
        for i in range(n_rows)
        for j in range(n_columns)
        if columns[j] < columns[j + 1]
    ]


def over_parts(work: Callable[[int], object], n_parts: int) -> None:
    """Call `work(k)` for every part k, on torch's number of threads. An exception in one is raised here."""
    n_threads = min(torch.get_num_threads(), n_parts)
    if n_threads < 2:
        for k in range(n_parts):
            work(k)
        return
    if n_threads not in _pools:
        _pools[n_threads] = ThreadPoolExecutor(n_threads, "nwcompile")
    for _ in _pools[n_threads].map(work, range(n_parts)):
        pass
