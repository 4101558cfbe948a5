"""Large tensors in blocks, over as many threads as torch uses.

Blocks depend on the shape alone, so no result depends on how many threads there are. The kernels release the GIL, so
plain threads do. They are made anew after a fork: the workers of a DataLoader inherit none.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

MAX_BLOCKS = 8  # More blocks than this would leave each too little work on machines with a few cores.
MIN_BLOCK_NUMBERS = 1 << 19  # This is some 0.3 ms of work, and a second thread takes 0.1 ms to begin.
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)


class Block(NamedTuple):
    """The samples and neurons of `[B, T, N]` that one thread computes at a time, with all their steps."""

    first_sample: int
    last_sample: int
    first_neuron: int
    last_neuron: int


def split_ranges(n: int, size: int, unit: int = 1) -> list[tuple[int, int]]:
    """(first, last) of ranges of `n` things that are `size` numbers, in multiples of `unit` things.

    A power of two of them where things allow it: seven ranges would keep one of two threads a third longer.
    """
    wanted = 1 << max(0, (size // MIN_BLOCK_NUMBERS).bit_length() - 1)
    n_ranges = max(1, min(MAX_BLOCKS, wanted, -(-n // unit)))
    bounds = [min(n, -(-n * k // (n_ranges * unit)) * unit) for k in range(n_ranges + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def split_blocks(n_samples: int, n_steps: int, n_neurons: int, whole_rows: bool, lanes: int) -> list[Block]:
    """The blocks of `[B, T, N]`.

    Samples are shared out first; where they are too few, neurons as well, in multiples of `lanes`. With `whole_rows`
    (recurrent layers) it is samples only, by fours, which their kernels take together.
    """
    size = n_samples * n_steps * n_neurons
    if size < 2 * MIN_BLOCK_NUMBERS:
        return [Block(0, n_samples, 0, n_neurons)]
    rows = split_ranges(n_samples, size, 4 if whole_rows else 1)
    columns = [(0, n_neurons)] if whole_rows else split_ranges(n_neurons, size // len(rows), lanes)
    columns = columns if len(rows) < MAX_BLOCKS // 2 else [(0, n_neurons)]
    return [Block(*row, *column) for row in rows for column in columns]


def run_on_threads(work: Callable[[int], object], n_blocks: int) -> None:
    """Call `work(k)` for every block k, on torch's number of threads. An exception in one is raised here.

    The calling thread takes blocks as the others do, so that it waits for none that is late to begin.
    """
    n_threads = 1 if n_blocks == 1 else min(torch.get_num_threads(), n_blocks)
    left = iter(range(n_blocks))

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
