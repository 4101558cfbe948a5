"""HDF5 files are read in a process of their own, which may hang or crash, and which Ctrl-C ends."""

import os
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


def test_values_keep_their_types(whole):
    tree = read_hdf5(whole, "NIR")
    assert tree["text"] == "yes" and tree["bytes"].tolist() == ["a", "bc"] and tree["words"].tolist() == [["x", "yz"]]
    assert tree["group"]["numbers"].tolist() == [[0, 1, 2], [3, 4, 5]] and tree["group"]["flags"].dtype == bool
    assert (tree["one"].dtype, tree["one"].shape, tree["none"].shape) == (np.int16, (), (0, 4))
    tree["group"]["numbers"][0, 0] = 7


def test_damaged_file_is_an_error_and_the_next_is_read(whole):
    Path("b.h5").write_bytes(whole.read_bytes()[:900])
    with pytest.raises(ModelError, match="^NIR file b.h5: damaged or truncated"):
        read_hdf5(Path("b.h5"), "NIR")
    assert read_hdf5(whole, "NIR")["text"] == "yes"


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Puts another script in the place of the child."""

    def put(text: str) -> None:
        monkeypatch.setattr(hdf5, "CHILD", tmp_path / "child.py")
        hdf5.CHILD.write_text(text)

    return put


def test_reading_that_hangs_is_ended(whole, child):
    child("import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)")
    with pytest.raises(ModelError) as caught:
        read_hdf5(whole, "NIR", seconds=3)
    limit = 3 + whole.stat().st_size / 1e7
    assert str(caught.value) == f"NIR file a.h5: damaged (reading it took over {limit:g} s); copy or write it again"
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)


@pytest.mark.parametrize(
    "script, how", [("import os; os.abort()", "SIGABRT"), ("raise SystemExit(3)", "exit code 3")], ids=["abort", "exit"]
)
def test_reading_that_crashes_is_an_error(whole, child, script, how):
    child(script)
    with pytest.raises(ModelError) as caught:
        read_hdf5(whole, "NIR")
    assert str(caught.value) == (
        f"NIR file a.h5: damaged or truncated (reading it ended with {how}); copy or write it again"
    )


PROGRAM = """
from pathlib import Path
from nwcompile.frontend import hdf5
hdf5.CHILD = Path("child.py")
hdf5.read_hdf5(Path("a.h5"), "NIR")
"""


def test_process_ends_on_ctrl_c(whole):
    Path("child.py").write_text(
        "import os, time; print(os.getpid(), file=open('pid', 'w'), flush=True); time.sleep(600)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(hdf5.__file__).parents[2])}
    program = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True) as running:
        until = time.monotonic() + PATIENCE_S
        while not (Path("pid").exists() and Path("pid").read_text().endswith("\n")):
            assert time.monotonic() < until
            time.sleep(0.01)
        running.send_signal(2)
        _, errors = running.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)
