"""Large tensors in parts, over as many threads as torch uses.

Parts depend on the shape alone, so no result depends on how many threads there are. The kernels release the GIL, so
plain threads do. They are made anew after a fork: the workers of a DataLoader inherit none.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

MOST_PARTS = 8
SMALLEST_PART = 1 << 19  # numbers: some 0.3 ms of work, where a second thread takes 0.1 ms to begin
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)


def split(n: int, size: int, unit: int = 1) -> list[tuple[int, int]]:
    """(first, last) of parts of `n` things that are `size` numbers, in multiples of `unit` things.

    A power of two of them where things allow it: seven parts would keep one of two threads a third longer.
    """
    whole = 1 << max(0, (size // SMALLEST_PART).bit_length() - 1)
    n_parts = max(1, min(MOST_PARTS, whole, -(-n // unit)))
    bounds = [min(n, -(-n * k // (n_parts * unit)) * unit) for k in range(n_parts + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def parts(n_samples: int, n_steps: int, n_neurons: int, whole_rows: bool, lanes: int) -> list[tuple[int, ...]]:
    """(first sample, last sample, first neuron, last neuron) of every part of `[B, T, N]`.

    Samples are shared out first; where they are too few, neurons as well, in multiples of `lanes`. With `whole_rows`
    (recurrent layers) it is samples only, by fours, which their kernels take together.
    """
    size = n_samples * n_steps * n_neurons
    if size < 2 * SMALLEST_PART:
        return [(0, n_samples, 0, n_neurons)]
    rows = split(n_samples, size, 4 if whole_rows else 1)
    columns = [(0, n_neurons)] if whole_rows else split(n_neurons, size // len(rows), lanes)
    columns = columns if len(rows) < MOST_PARTS // 2 else [(0, n_neurons)]
    return [(*row, *column) for row in rows for column in columns]


def over_parts(work: Callable[[int], object], n_parts: int) -> None:
    """Call `work(k)` for every part k, on torch's number of threads. An exception in one is raised here.

    The calling thread takes parts as the others do, so that it waits for none that is late to begin.
    """
    n_threads = 1 if n_parts == 1 else min(torch.get_num_threads(), n_parts)
    left = iter(range(n_parts))

    def work_off():
        for k in left:
            work(k)

    if n_threads == 1:
        work_off()
        return
    if n_threads not in _pools:
        _pools[n_threads] = ThreadPoolExecutor(n_threads - 1, "nwcompile")
    others = [_pools[n_threads].submit(work_off) for _ in range(n_threads - 1)]
    try:
        work_off()
    finally:
        for other in others:
            if not other.cancel():
                other.result()
