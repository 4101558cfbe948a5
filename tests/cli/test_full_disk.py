"""A disk that is full: whatever a command writes, it says one sentence, and leaves what was there."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nwcompile
import nwcompile as nw
from nwcompile.ir import artifact

FULL = "No space left on device; free space there, or choose another folder"
PACKAGE = Path(nwcompile.__file__).parent
# What else opens a file to write: the table of a sweep, a line a point; the output of a stream, a line a step; the lock
# of a checkpoint; code that Numba reads, which is moved into place as well.
WRITERS = {"ir/artifact.py", "workbench/sweep/store.py", "cli/outputs/stream.py", "checkpoint.py",
           "kernels/cores/programs/build.py"}  # fmt: skip
WRITES = re.compile(
    r"""\bopen\([^)\n]*"[wax]|(?<!artifact)\.write_(?:text|bytes)\(|os\.open\((?!os\.devnull)|TemporaryFile|"""
    r"""np\.save\w*\((?!buffer|stored|stream)"""
)


@pytest.fixture
def full(monkeypatch):
    """Files that cannot be finished any more."""

    def fsync(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifact.os, "fsync", fsync)


def test_full_disk_is_met_where_all_files_are_written():
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if WRITES.search(path.read_text())}
    assert found == WRITERS, "write files with `ir/artifact.py:write_files`: beside their places, then moved"


@pytest.mark.parametrize(
    "line",
    [
        "simulate net.nwc --input data.npz -o made/run.npz",
        "simulate net.nwc --input data.npz --trace made/trace.json",
        "simulate net.nwc --input data.npz -o made/run.npz --checkpoint kept",
        "report net.nwc --input data.npz -o made",
        "export net.nwc --to sanafe --set cost.word_cycles=0 --input data.npz -o made",
        "compile nets:net --chip tiny -o made",
        "compile nets:net --chip loihi1 -o made --checkpoint kept",
        pytest.param("sweep plan.toml -o made", marks=pytest.mark.long),  # it starts processes
    ],
)
def test_full_disk_is_one_sentence_and_leaves_nothing(command, folder, full, monkeypatch, line):
    (folder / "nets.py").write_text(
        "from tests.made.nets import dense_net\n\n\ndef net():\n    return dense_net(6, 8, 4)\n"
    )
    (folder / "plan.toml").write_text('model = "nets:net"\nchip = "tiny"\ninput = "data.npz"\n[grid]\nbits = [4]\n')
    monkeypatch.syspath_prepend(str(folder))
    code, out, err = command(line)
    said = [text for text in err.splitlines() if text.startswith("nwcompile: error: ")]
    assert code == 2 and out == "" and len(said) == 1 and "No space left on device; " in said[0]
    left = [path.name for path in (*folder.rglob("made/*"), *folder.rglob("kept/*"))]
    assert [name for name in left if name not in ("lock", "sweep.jsonl")] == []
    assert all(path.stat().st_size == 0 for path in folder.rglob("sweep.jsonl"))


def test_full_disk_of_functions_is_one_sentence(tmp_path, full):
    network = nw.demo().network
    program = nw.compile(network, "loihi1")
    for path, write in (
        (tmp_path / "net.nir", lambda path: nw.to_nir(network, path)),
        (tmp_path / "net.nwc", program.save),
    ):
        with pytest.raises(nw.ArtifactError) as e:
            write(path)
        assert str(e.value) == f"{path} cannot be written: {FULL}"
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
from nwcompile.ir.artifact import write_files

def write(stream):
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)

write_files({sys.argv[1]: b"whole", sys.argv[2]: write})
"""


def test_what_a_killed_process_left_beside_its_files_goes_when_they_are_written_again(tmp_path):
    first, second = tmp_path / "net[1].nwc", tmp_path / "report.json"
    killed = subprocess.run([sys.executable, "-c", KILLED, first, second], check=False)
    assert killed.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 2
    others = [tmp_path / ".report.json.original", tmp_path / ".report.html.12345678.part"]
    for path in others:
        path.write_text("of someone else")

    def write(stream) -> None:
        stream.write(b"outer")
        artifact.write_bytes(first, b"inner")  # as another process that is at work at the same time

    artifact.write_files({first: write, second: b"second"})
    assert sorted(tmp_path.iterdir()) == sorted([first, second, *others])
    assert first.read_bytes() == b"outer" and second.read_bytes() == b"second"


def test_file_that_another_process_took_for_abandoned_before_its_lock_is_made_again(tmp_path, monkeypatch):
    lock, taken = artifact.fcntl.flock, []

    def late(stream, how) -> None:
        if not taken:
            taken.append(stream.name)
            os.unlink(stream.name)
        lock(stream, how)

    monkeypatch.setattr(artifact.fcntl, "flock", late)
    artifact.write_bytes(tmp_path / "net.nwc", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["net.nwc"] and len(taken) == 1
