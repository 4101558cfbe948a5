"""Points in processes and on a dask cluster: the same rows, and a killed process takes no other point with it."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from queue import SimpleQueue

import pytest

import nwcompile as nw
from nwcompile.errors import BackendError, OptionError
from nwcompile.workbench.sweep import workers
from nwcompile.workbench.sweep.workers import KILLED_TWICE, Workers, defer_interrupts
from tests.made.sweeps import GRID, figures, network, samples

pytestmark = pytest.mark.long
CLUSTERS = pytest.mark.parametrize("cluster", [None, "dask"])
QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def killed(*given):
    """A partitioner that needs all the memory there is."""
    os.kill(os.getpid(), signal.SIGKILL)


def slow_then_killed(*given):
    """As above, when the others are in work too."""
    import time

    time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def swept(grid=GRID, **given):
    return nw.sweep(network(), samples(), grid, "tiny", **given)


@QUIET
def test_sweep_is_the_same_on_any_workers():
    one = figures(swept(processes=1).rows)
    assert figures(swept(processes=2).rows) == one == figures(swept(processes=2, cluster="dask").rows)


@QUIET
@CLUSTERS
def test_sweep_goes_on_when_a_worker_is_killed(tmp_path, cluster):
    grid = {"partitioner": ["floorline", killed, "striped", slow_then_killed, "sequential"], "bits": [4]}
    made = swept(grid, processes=2, cluster=cluster, folder=tmp_path)
    assert [row["error"] for row in made.rows] == [None, KILLED_TWICE, None, KILLED_TWICE, None]
    good = [row for row in made.rows if row["error"] is None]
    single = swept({**grid, "partitioner": ["floorline", "striped", "sequential"]}, processes=1)
    assert figures(good) == [row for row in figures(single.rows) if row["error"] is None]
    again = swept(grid, processes=2, cluster=cluster, folder=tmp_path)
    assert again.n_computed == 2  # what was killed is tried once more, on a machine that may be calmer


def test_pool_closes_right_after_a_point_was_queued():
    """As at Ctrl-C: loky then fails in a thread of its own, which pytest reports, and may lose a semaphore."""
    others = set(threading.enumerate())
    with Workers(None, 2) as pool:
        pool._pool = workers._create_pool(2)
        pool._submit(None, False, SimpleQueue())  # starts the processes, and the thread that serves them
        time.sleep(0.3)  # until that thread waits
        seconds = sys.getswitchinterval()
        sys.setswitchinterval(10)  # No other thread runs unless this one waits.
        pool._submit(None, False, SimpleQueue())
    sys.setswitchinterval(seconds)
    left = {thread.name for thread in threading.enumerate() if thread not in others}
    assert not {"ExecutorManagerThread", "QueueFeederThread"} & left


def test_pool_does_not_wait_for_the_queues_of_others(monkeypatch):
    queue = multiprocessing.Queue()
    queue.put("an item starts the thread of the queue, which has the name of a pool's")
    with monkeypatch.context() as patch, Workers(None, 1) as pool:
        patch.setattr(queue._thread, "join", lambda timeout=None: pytest.fail("the pool waits for this thread"))
        pool._pool = workers._create_pool(1)
        pool._submit(None, False, SimpleQueue())
        pool.__exit__()
        pool._pool = None
    assert queue.get()
    queue.close()
    queue.join_thread()


@QUIET
def test_sweep_on_a_scheduler_that_is_there(tmp_path):
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster:
        made = swept(cluster=cluster.scheduler_address)
    assert figures(made.rows) == figures(swept(processes=1).rows)


@QUIET
def test_cluster_that_cannot_be_reached_is_a_sentence(monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_TO_CONNECT", 1)
    with pytest.raises(BackendError, match="no dask scheduler answers at tcp://127.0.0.1:1: "):
        swept(cluster="tcp://127.0.0.1:1")
    with pytest.raises(OptionError) as e:
        swept(cluster="dusk")
    assert str(e.value) == "unknown cluster 'dusk'; give 'dask', or a scheduler as tcp://host:8786"


@QUIET
def test_cluster_without_workers_is_a_sentence(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(workers, "SECONDS_TO_CONNECT", 1)
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster:
        address = cluster.scheduler_address
        with pytest.raises(BackendError) as e:
            swept(cluster=address)
    assert str(e.value) == f"the cluster {address} has no worker after 1 s; start some with `dask worker`"


@QUIET
def test_cluster_that_goes_away_is_a_sentence(tmp_path):
    from distributed import LocalCluster

    grid = {"n_cores": [1, 2], "seed": {"from": 0, "to": 20}}
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:

        def goes(row, n_done, n_points):
            if n_done == 3:
                cluster.close()

        with pytest.raises(BackendError, match="are gone, or cannot compute points"):
            swept(grid, cluster=cluster.scheduler_address, folder=tmp_path, on_point=goes)
    assert swept(grid, processes=1, folder=tmp_path).n_computed == 42 - 3


def test_ctrl_c_waits_although_another_thread_takes_the_signal():
    over, done = threading.Event(), []
    threading.Thread(target=over.wait).start()
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        done += [sum(range(1000)) for _ in range(100)]
    over.set()
    assert len(done) == 100 and signal.getsignal(signal.SIGINT) is signal.default_int_handler
