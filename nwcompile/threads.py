"""Threads: parallel work that ends soon after Ctrl-C or an error. No result depends on the number of threads.

Python delivers Ctrl-C only to the main thread. An exception injected into another thread could hit it while it acquires
a lock of Numba or Python, which would then stay locked. So long work polls (`raise_if_canceled`), and kernels check a
flag, `interrupted` bool[1].
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from threading import Event
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Value = TypeVar("Value")

LONGEST_WAIT_S = 0.2  # Ctrl-C just before the main thread waits takes effect only when the wait ends.
MAX_CHUNK_STEPS = 64  # Steps of a sample that are computed before other threads can continue with them.

_IS_OVER: ContextVar[Event | None] = ContextVar("is_over", default=None)


def n_threads() -> int:
    """The number of available cores, at most NUMBA_NUM_THREADS."""
    at_hand = len(os.sched_getaffinity(0))
    told = os.environ.get("NUMBA_NUM_THREADS", "")
    return min(at_hand, max(int(told), 1)) if told.isdecimal() else at_hand


def raise_if_canceled() -> None:
    """Raise KeyboardInterrupt if the enclosing `at_once` was canceled."""
    is_over = _IS_OVER.get()
    if is_over is not None and is_over.is_set():
        raise KeyboardInterrupt


def at_once(
    work: Callable[[Item], Value], items: Sequence[Item], n_workers: int, interrupted: np.ndarray | None = None
) -> list[Value]:
    """Return `work(item)` of each item, in order, computed by `n_workers` threads in copies of this context.

    Ctrl-C or the error of the first item that fails cancels the rest: running work ends at its next call of
    `raise_if_canceled`. Ctrl-C also sets `interrupted`, which kernels check. With that flag even a single item runs in
    a thread, so that the main thread can receive Ctrl-C.
    """
    if interrupted is None and min(n_workers, len(items)) < 2:
        return [work(item) for item in items]
    values: list[Value] = []
    is_over = Event()

    def one(item: Item) -> Value:
        _IS_OVER.set(is_over)
        raise_if_canceled()
        return work(item)

    with ThreadPoolExecutor(n_workers) as pool:
        try:
            begun = [pool.submit(copy_context().run, one, item) for item in items]
            for future in begun:
                while not future.done():
                    wait([future], LONGEST_WAIT_S)
                values.append(future.result())
            return values
        except BaseException as error:
            is_over.set()
            if interrupted is not None and isinstance(error, KeyboardInterrupt):
                interrupted[0] = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_alone(work: Callable[[], None], interrupted: np.ndarray) -> None:
    """Do `work` in another thread, so that the main thread can receive Ctrl-C."""
    at_once(lambda _: work(), (0,), 1, interrupted)


def over_samples(
    n_samples: int, work: Callable[[slice], Value], interrupted: np.ndarray | None = None, is_short: bool = False
) -> list[Value]:
    """Return `work(part)` of consecutive slices of the samples, in order; one slice for each available core.

    `is_short`: the work takes less time than starting threads, so it is done here as one slice.
    """
    raise_if_canceled()
    if is_short:
        return [work(slice(0, n_samples))]
    n_slices = max(1, min(n_samples, n_threads()))
    bounds = np.linspace(0, n_samples, n_slices + 1).astype(int)
    return at_once(work, [slice(bounds[k], bounds[k + 1]) for k in range(n_slices)], n_slices, interrupted)


def chunk_steps(n_steps: int) -> Iterator[slice]:
    """Divide steps into chunks, short at the start, when other threads wait for input, and short again at the end."""
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
    """Call `compute(sample, steps)` for each sample, chunk by chunk, and `move` for each computed chunk.

    The first error cancels the work that has not started.
    """
    chunks = list(chunk_steps(n_steps))
    with ThreadPoolExecutor(n_threads()) as pool:
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
        except KeyboardInterrupt:
            interrupted[0] = True
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
