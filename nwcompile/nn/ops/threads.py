"""Blocks of large tensors, computed on as many threads as torch uses.

Blocks depend only on the shape, so no result depends on the number of threads. The kernels release the GIL, so plain
threads suffice. A forked process, such as a DataLoader worker, starts its own threads.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

MAX_BLOCKS = 8  # With more blocks each would have too little work on machines with a few cores.
MIN_BLOCK_NUMBERS = 1 << 19  # About 0.3 ms of work; a second thread takes 0.1 ms to start.
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)


class Block(NamedTuple):
    """A block of `[B, T, N]` for one thread: a range of samples and of neurons, with all their steps."""

    first_sample: int
    last_sample: int
    first_neuron: int
    last_neuron: int


def split_ranges(n: int, size: int, unit: int = 1) -> list[tuple[int, int]]:
    """Split `n` items of `size` numbers in all into ranges (first, last), in multiples of `unit` items.

    The number of ranges is a power of two if possible: with seven, one of two threads would take a third longer.
    """
    wanted = 1 << max(0, (size // MIN_BLOCK_NUMBERS).bit_length() - 1)
    n_ranges = max(1, min(MAX_BLOCKS, wanted, -(-n // unit)))
    bounds = [min(n, -(-n * k // (n_ranges * unit)) * unit) for k in range(n_ranges + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def split_blocks(n_samples: int, n_steps: int, n_neurons: int, whole_rows: bool, lanes: int) -> list[Block]:
    """Split `[B, T, N]` into blocks.

    Samples are split first; if they are too few, neurons too, in multiples of `lanes`. With `whole_rows` (recurrent
    layers) only samples are split, in groups of four, which the recurrent kernels process together.
    """
    size = n_samples * n_steps * n_neurons
    if size < 2 * MIN_BLOCK_NUMBERS:
        return [Block(0, n_samples, 0, n_neurons)]
    rows = split_ranges(n_samples, size, 4 if whole_rows else 1)
    columns = [(0, n_neurons)] if whole_rows else split_ranges(n_neurons, size // len(rows), lanes)
    columns = columns if len(rows) < MAX_BLOCKS // 2 else [(0, n_neurons)]
    return [Block(*row, *column) for row in rows for column in columns]


def run_on_threads(work: Callable[[int], object], n_blocks: int) -> None:
    """Call `work(k)` for every block k on torch's number of threads; re-raise an exception of any of them.

    The calling thread takes blocks too, so it never waits for a thread that is slow to start.
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
