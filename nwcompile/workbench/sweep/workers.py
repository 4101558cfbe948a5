"""Workers: compute points in processes of this machine (joblib) or of a dask cluster, and survive killed processes.

A killed process, most often for lack of memory, breaks its whole pool. So every point that was running then is tried
once more, alone. A point whose process is killed again gets a row with that error.
"""

import ctypes
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from queue import SimpleQueue
from typing import Any

from nwcompile.code_version import code_version
from nwcompile.errors import BackendError, NwError, OptionError, check_int, shown
from nwcompile.workbench.sweep.measure import Measured, measure_point
from nwcompile.workbench.sweep.points import Point, Question

ERROR_CODE = "NW7007"
DASK = "dask"  # The word for a dask cluster of processes on this machine.
KILLED = "killed"
KILLED_TWICE = f"{KILLED}: its process was killed twice, the second time alone: most often for want of memory"
ONE_THREAD = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # per worker, as there is a worker for every core
SECONDS_TO_CONNECT = 20  # The timeout for the scheduler and for its first worker.
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux' prctl.
NO_JOBLIB = "a sweep needs joblib, which is not installed: pip install 'nwcompile[sweep]'"
NO_DASK = "a cluster needs dask.distributed, which is not installed: pip install 'nwcompile[cluster]'"


class Workers:
    """A pool of `processes` (None: one for every available core) on this machine or on a dask cluster.

    `cluster`: "dask" for a dask cluster of that many processes here, or the address of a scheduler ("tcp://host:8786").
    Raises OptionError if a library is missing, BackendError for an unreachable cluster.
    """

    def __init__(self, question: Question, processes: int | None = None, cluster: str | None = None):
        at_hand = len(os.sched_getaffinity(0))
        self.n = at_hand if processes is None else check_int("processes", processes, 1, 1024)
        if cluster is not None and not (isinstance(cluster, str) and (cluster == DASK or ":" in cluster)):
            raise OptionError(f"unknown cluster {shown(cluster)}; give {DASK!r}, or a scheduler as tcp://host:8786")
        self.question, self.cluster = question, cluster
        self._dead: tuple[type[BaseException], ...] = (BrokenProcessPool,)
        self._pool: Any = None
        self._close = ExitStack()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_) -> None:
        with defer_interrupts():
            if self.cluster is None and self._pool is not None:
                _shut_down(self._pool)
            self._close.close()

    def compute_points(self, points: list[Point], keep: bool = False) -> Iterator[tuple[Point, Measured]]:
        """Yield each point with its result once it is done. The first starts the pool. `keep`: see `measure_point`."""
        if points and self._pool is None:
            resource_tracker.ensure_running()  # Start it here: a start by loky's first process would unblock Ctrl-C.
            with defer_interrupts():
                if self.cluster is None:
                    self._pool = _create_pool(self.n)
                else:
                    self._connect(self.cluster)
        again: list[Point] = []
        yield from self._in_pool(points, keep, self.n, again.append)
        if again:
            self._renew(1)
        for point in again:
            dead: list[Point] = []
            yield from self._in_pool([point], keep, 1, dead.append)
            for killer in dead:
                yield killer, Measured({}, KILLED_TWICE, 0.0, {})
        if again:
            self._renew(self.n)

    def _in_pool(
        self, points: Iterable[Point], keep: bool, n_at_once: int, on_dead: Callable[[Point], None]
    ) -> Iterator[tuple[Point, Measured]]:
        """Submit only `n_at_once` points at a time, so that few are running when a worker is killed."""
        waiting = iter(points)
        in_work: dict[Future, Point] = {}
        # Ctrl-C inside `concurrent.futures.wait` may leave a future locked, and closing the pool would wait for it.
        done: SimpleQueue[Future] = SimpleQueue()
        is_broken = False
        while True:
            while not is_broken and len(in_work) < n_at_once and (point := next(waiting, None)) is not None:
                in_work[self._submit(point, keep, done)] = point
            if not in_work:
                return
            future = done.get()
            try:
                result = future.result()
            except self._dead:
                is_broken = self.cluster is None
                on_dead(in_work.pop(future))
            except NwError:
                raise
            except Exception as e:
                raise BackendError(
                    f"the workers of {self.cluster or 'this machine'} are gone, or cannot compute points "
                    f"({type(e).__name__}: {e}); points that are done are kept"
                ) from None
            else:
                yield in_work.pop(future), result
            if is_broken and not in_work:
                self._renew(n_at_once)
                is_broken = False

    # Send the question with every point: data that dask scatters is lost with the worker that has it.
    def _submit(self, point: Point, keep: bool, done: "SimpleQueue[Future]") -> Future:
        """Submit a point, whose future is put into `done` when it ends."""
        with defer_interrupts():
            try:
                future = self._pool.submit(measure_point, self.question, point, code_version(), keep)
            except self._dead as e:  # a worker was killed since the last result
                future = Future()
                future.set_exception(e)
            future.add_done_callback(done.put)
            while self.cluster is None and not (future.running() or future.done()):
                time.sleep(0.001)  # Closed before it has queued a point, loky's pool fails with a KeyError.
            return future

    def _renew(self, n: int) -> None:
        """Replace the pool of this machine; dask restarts its workers itself."""
        if self.cluster is None:
            with defer_interrupts():
                _shut_down(self._pool)
                self._pool = _create_pool(n)

    def _connect(self, cluster: str) -> None:
        """Connect to the cluster, or create a local one; both client and local cluster are closed with this pool."""
        try:
            import dask
            import distributed
            import distributed.scheduler
        except ImportError:
            raise OptionError(NO_DASK, code="NW1102") from None
        self._dead = (distributed.scheduler.KilledWorker,)
        if cluster == DASK:
            self._close.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
            made = distributed.LocalCluster(  # at any free port: another cluster may use the default one
                n_workers=self.n, threads_per_worker=1, dashboard_address=":0", silence_logs=50, env=ONE_THREAD
            )
            self._close.enter_context(made)
            client = distributed.Client(made)
        else:
            try:
                client = distributed.Client(cluster, timeout=SECONDS_TO_CONNECT)
            except (OSError, ValueError, TimeoutError) as e:
                self._close.close()
                raise BackendError(f"no dask scheduler answers at {cluster}: {type(e).__name__}: {e}") from None
        self._close.enter_context(client)
        try:
            client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
        except TimeoutError:
            self._close.close()
            raise BackendError(
                f"the cluster {cluster} has no worker after {SECONDS_TO_CONNECT} s; start some with `dask worker`"
            ) from None
        if cluster == DASK:
            client.run(_ignore_interrupts)
        self.n = sum(client.nthreads().values())
        self._pool = client.get_executor(pure=False)


def _create_pool(n: int):
    """Create joblib's process pool (loky), whose processes start with the first point and import nwcompile then."""
    try:
        from joblib.externals.loky import ProcessPoolExecutor
    except ImportError:
        raise OptionError(NO_JOBLIB, code="NW1102") from None
    # loky replaces a worker that has grown too large between two points; the user need not know.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    return ProcessPoolExecutor(max_workers=n, env=ONE_THREAD, initializer=_die_with_parent, initargs=(os.getpid(),))


def _shut_down(pool) -> None:
    """Kill the workers of a pool of this machine, and wait for the threads that serve them.

    loky does not join the thread that feeds its queue. If Python exits while that thread ends, a semaphore is lost. The
    join has a timeout because the thread never ends if killed workers left its pipe full; then it does no harm.
    """
    feeder = getattr(getattr(pool, "_call_queue", None), "_thread", None)
    pool.shutdown(wait=True, kill_workers=True)
    if feeder is not None:
        feeder.join(timeout=1)


def _die_with_parent(parent: int) -> None:
    """Let the system kill this process when its parent dies: a killed parent cannot stop its workers."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which a terminal sends to all processes: each worker of dask would print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer SIGINT until the block ends. Processes that start inside the block never receive it.

    They inherit the blocked signal. A thread that numpy or torch started earlier may still receive it, and Python would
    interrupt the main thread; so the main thread only records it.
    """
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    is_noted = handler is not None and threading.current_thread() is threading.main_thread()
    if is_noted:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_noted:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
