"""600 damaged files through the readers, and proof that the fuzzer sees what it looks for. More: `make fuzz`."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace

import pytest

from tests.fuzz import readers
from tests.fuzz.__main__ import report
from tests.fuzz.readers import READERS, Reader, outcome
from tests.fuzz.watch import watch
from tests.interrupts import PATIENCE_S

EACH = {"nir": 25, "lava": 25, "program": 125, "chip": 125}  # HDF5 files take a process each.


@pytest.mark.parametrize(("first", "end"), [(0, 1), pytest.param(1, 8, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", READERS)
def test_fuzz_reader_refuses_with_a_sentence_or_accepts(name, first, end, tmp_path):
    results = Counter(outcome(name, 0, index, tmp_path) for index in range(first * EACH[name], end * EACH[name]))
    assert set(results) == {"refused", "accepted"} and min(results.values()) >= EACH[name] // 50, results
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", READERS)
def test_fuzz_input_depends_on_its_number_alone(name):
    files = [READERS[name].make(random.Random(f"{name} 0 {index}")) for index in (3, 4, 3)]
    assert files[0] == files[2] != files[1]


def test_fuzz_keeps_the_file_of_what_is_raised(monkeypatch, tmp_path):
    def broken(rng, path):
        raise KeyError("x")

    monkeypatch.setitem(readers.READERS, "broken", Reader(".bin", lambda rng: b"made", broken))
    with pytest.raises(KeyError):
        outcome("broken", 5, 7, tmp_path)
    assert (tmp_path / "broken-5-7.bin").read_bytes() == b"made"


WORKER = """
import json, os, sys, time
from pathlib import Path
for index in range(int(sys.argv[2]), int(sys.argv[3])):
    if index == 3:
        os.abort()
    if index == 5:
        Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep(1_000_000)
    result = "Traceback: KeyError" if index == 6 else "accepted" if index % 2 else "refused"
    print(json.dumps([index, result, 0.25 if index == 4 else 0.0]), flush=True)
"""


def test_fuzz_goes_on_after_a_crash_a_hang_and_an_exception(tmp_path, monkeypatch):
    """By a clock that goes on only while the worker hangs, which says so in a file."""
    hung, clock = tmp_path / "hung", count(0, PATIENCE_S / 2)

    def monotonic() -> float:
        hangs = hung.exists() and (pid := hung.read_text()) and Path(f"/proc/{pid}").exists()
        return next(clock) if hangs else 0.0

    monkeypatch.setattr("tests.fuzz.watch.time", SimpleNamespace(monotonic=monotonic))
    tally = watch([sys.executable, "-c", WORKER, str(hung)], 1, 9, Event(), hang_seconds=PATIENCE_S)
    assert dict(tally.counts) == {"accepted": 2, "refused": 3, "failed": 3} and tally.n == 8
    texts = dict(tally.failures)
    assert texts[3].startswith("crashes: exit code -6")
    assert texts[5] == "hangs: no answer in 600 s" and texts[6] == "Traceback: KeyError"
    assert report({"nir": tally}).splitlines()[1].split() == ["nir", "8", "3", "2", "3", "0.25", "s", "4"]


def test_fuzz_that_is_interrupted_ends_and_says_where_to_go_on(tmp_path):
    line = [sys.executable, "-m", "tests.fuzz", "--inputs", "200000", "--start", "3", "--readers", "chip",
            "--jobs", "1", "--batch", "100", "--keep", str(tmp_path)]  # fmt: skip
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run = subprocess.Popen(line, **pipes, text=True, start_new_session=True, cwd=Path(__file__).parents[2])
    run.stderr.readline()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    out = run.communicate(timeout=PATIENCE_S)[0]
    assert run.returncode == 130 and out.splitlines()[-1].startswith("interrupted; go on with --start ")
    assert out.splitlines()[1].split()[0] == "chip" and out.splitlines()[1].split()[4] == "0"


@pytest.mark.parametrize(
    "end", ["import os, signal; os.kill(os.getpid(), signal.SIGINT)", "import sys; sys.exit('KeyboardInterrupt')"]
)
def test_worker_that_ctrl_c_reaches_while_it_starts_is_no_crash(end, monkeypatch):
    monkeypatch.setattr("tests.fuzz.watch.LATE_SECONDS", PATIENCE_S)
    line = [sys.executable, "-c", end]
    interrupted = Event()
    pressed = Timer(2, interrupted.set)
    pressed.start()
    tally = watch(line, 0, 5, interrupted)
    pressed.join()
    assert tally.n == 0
