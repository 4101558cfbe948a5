"""Several items worked on at once, in threads that end soon after Ctrl-C, or an error of another item.

Python tells the main thread alone of Ctrl-C. An exception put into another from outside could reach it as it takes a
lock, of Numba's or of Python's own, which would then stay taken; so long work asks by itself now and then
(`raise_if_canceled`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from threading import Event
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")

LONGEST_WAIT_S = 0.2  # Ctrl-C that comes as the main thread is about to wait is heard when the wait ends.

_IS_OVER: ContextVar[Event | None] = ContextVar("is_over", default=None)


def at_once(work: Callable[[Item], Value], items: Sequence[Item], n_workers: int) -> list[Value]:
    """What `work` gives for each item, in order, `n_workers` threads going on with it, in copies of this context.

    The first error, of the first item that has one, or Ctrl-C ends it: what has begun ends where it next calls
    `raise_if_canceled`.
    """
    if min(n_workers, len(items)) < 2:
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
        except BaseException:
            is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def raise_if_canceled() -> None:
    """Raise KeyboardInterrupt if the enclosing `at_once` was canceled."""
    is_over = _IS_OVER.get()
    if is_over is not None and is_over.is_set():
        raise KeyboardInterrupt
