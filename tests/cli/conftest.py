"""A working directory with a small program, data and a model, and a way to run a command line in it."""

import re
import sys

import numpy as np
import pytest

from nwcompile import cli
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.passes.emit import emit
from tests.made.nets import dense_net, feed_forward

MANIFEST = {"tool_version": "0.1.0", "options": {}, "quantization": [], "warnings": []}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory with net.nwc (6-8-4 on two cores of tiny), data.npz (3 samples, 5 steps, labels)."""
    monkeypatch.chdir(tmp_path)
    network = dense_net(6, 8, 4)
    mapping = Mapping.from_arrays({"fc1": [0] * 4 + [1] * 4, "fc2": [1] * 4}, [[0, 0, 0], [1, 1, 0]])
    program = emit(network, feed_forward(network), mapping, Chip.load("tiny"), Activity.uniform(network), MANIFEST)
    program.save("net.nwc")
    x = (np.random.default_rng(0).random((3, 5, 6)) < 0.5).astype(np.int8)
    np.savez("data.npz", x=x, y=np.array([0, 1, 2]))
    return tmp_path


@pytest.fixture
def command(capsys):
    """Run one command line: (exit code, stdout, stderr without the codes of errors; tests/test_error_codes.py)."""

    def run(line: str):
        code = cli.main(line.split())
        captured = capsys.readouterr()
        return code, captured.out, re.sub(r"(?<=error)\[NW\d{4}\]", "", captured.err)

    return run


@pytest.fixture
def terminal(command, monkeypatch):
    """`command` on a terminal."""

    def run(line: str):
        with monkeypatch.context() as patch:
            patch.setattr(sys.stderr, "isatty", lambda: True)
            return command(line)

    return run


FACTORY = """
import numpy as np
import nwcompile as nw

def make():
    spec = nw.NeuronSpec(threshold=1.0, beta=0.9)
    weight = np.random.default_rng(0).normal(0.3, 0.5, (4, 6)).astype("float32")
    return nw.Network.from_arrays({"out": spec}, [nw.Dense("in", "out", weight)], {"in": 6})

def broken():
    return 1 / 0

def leaves():
    raise SystemExit(3)

def nothing():
    pass

number = 3
"""


@pytest.fixture
def model(folder, monkeypatch):
    """Module `toy` in the working directory, and what importing it leaves taken back."""
    (folder / "toy.py").write_text(FACTORY)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield "toy"
    sys.modules.pop("toy", None)
