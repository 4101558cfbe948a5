"""Samples, or steps, over threads; no result depends on how many threads there are."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from nwcompile.at_once import raise_if_canceled

MAX_CHUNK_STEPS = 64  # So many steps of a sample at most are computed before other threads can go on with them.


def n_threads() -> int:
    """Cores at hand, at most as many as Numba is told to take."""
    at_hand = len(os.sched_getaffinity(0))
    told = os.environ.get("NUMBA_NUM_THREADS", "")
    return min(at_hand, max(int(told), 1)) if told.isdecimal() else at_hand


def over_samples(
    n_samples: int, work: Callable[[slice], object], interrupted: np.ndarray | None = None, is_short: bool = False
) -> list:
    """What `work` gives for each of consecutive slices of the samples, in order; one slice for each core at hand.

    `interrupted` bool[1] tells work in progress that nobody waits for it any more (Ctrl-C). `is_short`: the work takes
    less time than it takes to start threads; it is done here, as one slice.
    """
    raise_if_canceled()
    if is_short:
        return [work(slice(0, n_samples))]
    n_slices = max(1, min(n_samples, n_threads()))
    bounds = np.linspace(0, n_samples, n_slices + 1).astype(int)
    slices = [slice(bounds[k], bounds[k + 1]) for k in range(n_slices)]
    with ThreadPoolExecutor(n_slices) as pool, telling(interrupted):
        return list(pool.map(work, slices))


def chunks_of(n_steps: int) -> Iterator[slice]:
    """Steps in chunks that are short at first, when other threads wait for one, and at last, when all wait for one."""
    first = 0
    while first < n_steps:
        length = max(1, min(first, (n_steps - first) // (4 * n_threads()), MAX_CHUNK_STEPS))
        yield slice(first, first + length)
        first += length


def over_steps(
    n_samples: int,
    n_steps: int,
    compute: Callable[[int, slice], object],
    move: Callable[[int, slice], object],
    interrupted: np.ndarray,
) -> None:
    """Do `compute(sample, steps)` for each sample, chunk of steps after chunk, and `move` for each that is computed.

    The first error ends it; what has not begun by then is left.
    """
    chunks = list(chunks_of(n_steps))
    with ThreadPoolExecutor(n_threads()) as pool, telling(interrupted):
        moves = []

        def sample(b: int) -> None:
            for steps in chunks:
                compute(b, steps)
                moves.append(pool.submit(move, b, steps))

        try:
            for computed in [pool.submit(sample, b) for b in range(n_samples)]:
                computed.result()
            for move_of_chunk in moves:
                move_of_chunk.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def alone(work: Callable[[], None], interrupted: np.ndarray) -> None:
    """Do `work` in a thread of its own, so that Ctrl-C is heard meanwhile."""
    with ThreadPoolExecutor(1) as pool, telling(interrupted):
        pool.submit(work).result()


@contextmanager
def telling(interrupted: np.ndarray | None):
    """Set `interrupted[0]` at Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if interrupted is not None:
            interrupted[0] = True
        raise
