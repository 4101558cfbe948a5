"""A disk that is full: whatever a command writes, it says one sentence, and leaves what was there."""

import errno
import os
import re
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
    (folder / "nets.py").write_text("from tests.nets import dense_net\n\n\ndef net():\n    return dense_net(6, 8, 4)\n")
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
