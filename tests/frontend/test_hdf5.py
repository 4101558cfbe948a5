"""The process that reads HDF5: one for many files, ended when it hangs, with the program, and on Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from nwcompile.errors import ModelError
from nwcompile.frontend import hdf5
from nwcompile.frontend.hdf5 import read_hdf5
from tests.interrupts import PATIENCE_S


@pytest.fixture
def whole(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with h5py.File("a.h5", "w") as f:
        f["group/numbers"], f["group/flags"], f["text"] = np.arange(6.0).reshape(2, 3), np.array([True, False]), "yes"
        f["bytes"], f["words"], f["one"] = np.array([b"a", b"bc"]), np.array([["x", "yz"]], object), np.int16(3)
        f["none"] = np.zeros((0, 4))
    return Path("a.h5")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_values_keep_their_types(whole):
    tree = read_hdf5(whole, "NIR")
    assert tree["text"] == "yes" and tree["bytes"].tolist() == ["a", "bc"] and tree["words"].tolist() == [["x", "yz"]]
    assert tree["group"]["numbers"].tolist() == [[0, 1, 2], [3, 4, 5]] and tree["group"]["flags"].dtype == bool
    assert (tree["one"].dtype, tree["one"].shape, tree["none"].shape) == (np.int16, (), (0, 4))
    tree["group"]["numbers"][0, 0] = 7


def test_process_is_kept_for_many_files(whole):
    read_hdf5(whole, "NIR")
    pid = hdf5._child.pid
    (whole.parent / "b.h5").write_bytes(whole.read_bytes()[:900])
    with pytest.raises(ModelError, match="^NIR file b.h5: damaged or truncated"):
        read_hdf5(Path("b.h5"), "NIR")
    read_hdf5(whole, "NIR")
    assert hdf5._child.pid == pid


def test_process_that_was_ended_is_started_again(whole):
    read_hdf5(whole, "NIR")
    hdf5._child.kill()
    assert read_hdf5(whole, "NIR")["text"] == "yes"


def test_reading_that_hangs_is_ended_and_the_next_file_read(whole):
    read_hdf5(whole, "NIR")
    pid = hdf5._child.pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ModelError) as caught:
        read_hdf5(whole, "NIR", seconds=0.1)
    limit = 0.1 + whole.stat().st_size / 1e7
    assert str(caught.value) == (f"NIR file a.h5: damaged (reading it took over {limit:g} s); copy or write it again")
    assert not is_running(pid)
    assert read_hdf5(whole, "NIR")["text"] == "yes"


def test_fork_that_crashes_is_an_error_and_the_process_stays(whole, monkeypatch):
    read_hdf5(whole, "NIR")
    pid = hdf5._child.pid
    os.truncate(whole, 900)
    monkeypatch.setattr(hdf5.json, "dumps", lambda request: '["/dev/null/no", 1]')
    with pytest.raises(ModelError) as caught:
        read_hdf5(whole, "NIR")
    assert str(caught.value) == (
        "NIR file a.h5: damaged or truncated (reading it ended with exit code 1); copy or write it again"
    )
    assert hdf5._child.pid == pid


PROGRAM = """
import os, signal, sys
from pathlib import Path
from nwcompile.frontend import hdf5
hdf5.read_hdf5(Path("a.h5"), "NIR")
print(hdf5._child.pid, flush=True)
if sys.argv[1] == "hang":
    os.kill(hdf5._child.pid, signal.SIGSTOP)
    hdf5.read_hdf5(Path("a.h5"), "NIR")
"""


@pytest.mark.parametrize("how", ["end", "hang"])
def test_process_ends_with_the_program_and_on_ctrl_c(whole, how):
    program = [sys.executable, "-c", PROGRAM, how]
    env = {**os.environ, "PYTHONPATH": str(Path(hdf5.__file__).parents[2])}
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as running:
        pid = int(running.stdout.readline())
        if how == "hang":
            time.sleep(0.2)
            running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE_S)
    assert ("KeyboardInterrupt" in errors) == (how == "hang")
    assert not is_running(pid)


def test_two_threads_read_one_after_the_other(whole):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: read_hdf5(whole, "NIR"), range(12)))
    assert all(tree["text"] == "yes" for tree in trees)


FORKS = """
import os, sys
from pathlib import Path
from nwcompile.frontend import hdf5
hdf5.read_hdf5(Path("a.h5"), "NIR")
pid = hdf5._child.pid
fork = os.fork()
hdf5.read_hdf5(Path("a.h5"), "NIR")
same = hdf5._child.pid == pid
hdf5.stop()
if not fork:
    os._exit(int(same))
sys.exit(0 if os.waitpid(fork, 0)[1] == 0 and same else 1)
"""


def test_fork_of_the_program_starts_its_own_process(whole):
    env = {**os.environ, "PYTHONPATH": str(Path(hdf5.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", FORKS], env=env, check=True, timeout=PATIENCE_S)
