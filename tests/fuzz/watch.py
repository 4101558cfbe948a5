"""Runs many damaged files in processes of their own, which may crash or hang without ending the rest."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event

from tests.fuzz.readers import outcome

HANG_SECONDS = 120.0  # a reader's own limit is 10 s, and a worker needs some to start
LOOK_SECONDS = 0.2  # between looks whether Ctrl-C was pressed
LATE_SECONDS = 5.0  # until everybody knows of a Ctrl-C
WORKER_BYTES = 6 << 30


@dataclass
class Tally:
    """What became of the inputs of one reader; `failures`: index and text of those that ended otherwise."""

    counts: Counter = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    slowest_index: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Inputs that were read."""
        return sum(self.counts.values())

    def take(self, index: int, result: str, seconds: float) -> None:
        """Count one input."""
        known = result in ("refused", "accepted")
        self.counts[result if known else "failed"] += 1
        if not known:
            self.failures.append((index, result))
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_index = seconds, index

    def add(self, other: "Tally") -> None:
        """Count what another tally has counted."""
        self.counts += other.counts
        self.failures += other.failures
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_index = other.slowest_seconds, other.slowest_index


def work(name: str, seed: int, start: int, stop: int, folder: Path) -> None:
    """In a worker: read inputs `start` to `stop`, one JSON line on stdout for each; failing files stay in `folder`."""
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_BYTES, WORKER_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for index in range(start, stop):
        begin = time.perf_counter()
        try:
            result = outcome(name, seed, index, folder)
        except Exception:  # what must not happen is what is looked for
            result = traceback.format_exc()
        print(json.dumps([index, result, time.perf_counter() - begin]), flush=True)


def watch(command: list[str], start: int, stop: int, interrupted: Event, hang_seconds: float = HANG_SECONDS) -> Tally:
    """Inputs `start` to `stop` in workers (`command`, first, last); after one that crashes or hangs comes another.

    Workers are out of reach of a terminal's Ctrl-C. Once `interrupted` is set, the last is stopped, no other comes,
    and how it ended is not counted.
    """
    tally = Tally()
    while start < stop and not interrupted.is_set():
        with TemporaryFile() as errors:
            line = [*command, str(start), str(stop)]
            worker = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
            reason = ""
            for index, result, seconds in _lines(worker, hang_seconds, interrupted):
                tally.take(index, result, seconds)
                start = index + 1
            if worker.poll() is None:
                worker.kill()
                reason = f"hangs: no answer in {hang_seconds:g} s"
            worker.communicate()
            errors.seek(0)
            text = errors.read().decode("utf8", "replace")
        if worker.returncode == -signal.SIGINT or "KeyboardInterrupt" in text:  # Python may exit with 1 as it starts
            interrupted.wait(LATE_SECONDS)  # a Ctrl-C that came before the worker was out of reach
        if start < stop and not interrupted.is_set():
            tally.take(start, reason or f"crashes: exit code {worker.returncode}\n{text[-2000:]}", 0.0)
            start += 1
    return tally


def _lines(worker: subprocess.Popen, hang_seconds: float, interrupted: Event):
    """The worker's lines, parsed, until it ends, says nothing for too long, or nobody waits for them any more."""
    pipe, rest, quiet_since = worker.stdout.fileno(), b"", time.monotonic()
    while not interrupted.is_set() and time.monotonic() - quiet_since < hang_seconds:
        if not select.select([pipe], [], [], LOOK_SECONDS)[0]:
            continue
        data, quiet_since = os.read(pipe, 1 << 16), time.monotonic()
        if not data:
            worker.wait(hang_seconds)
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from map(json.loads, whole)


def worker_command(name: str, seed: int, folder: Path) -> list[str]:
    """The command line of a worker, but for the first and last index."""
    return [sys.executable, "-m", "tests.fuzz.worker", name, str(seed), str(folder)]
