"""Checkpoint: a folder of arrays that took long to compute, so that killed work continues where it stopped.

A file has the result of a pure function (`load_or_compute`), such as an annealing of the partitioner or the placer, or
the result of some steps of a simulation (`in_parts`). Its name has the SHA-256 of the arguments and of nwcompile's
Python files, so results of another network, option or version are never reused. Files are written by `ir/artifact.py`:
moved into place when complete, with a checksum, read without pickle. One process at a time may use a folder.
"""

import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from nwcompile.code_version import code_version
from nwcompile.errors import ArtifactError, NwWarning
from nwcompile.ir import artifact

ERROR_CODE = "NW7008"
LOCK = "lock"
VERSION = "version.json"
FAST = 1  # Compression level: most values are zeros, which the fastest level compresses just as well.
PART_SECONDS = 10.0  # Duration of a part: a kill loses the steps of about this many seconds.
_CURRENT: ContextVar["Checkpoint | None"] = ContextVar("checkpoint", default=None)


class Checkpoint:
    """The stored results in `folder`, which is created if missing. Raises ArtifactError if it cannot be used."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._lock: int | None = None

    def __enter__(self) -> "Checkpoint":
        path = self.folder / LOCK
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as e:
            raise ArtifactError(
                f"checkpoint {self.folder} cannot be used: {e.strerror}; choose a folder you may write to"
            ) from None
        try:
            if not try_lock(self._lock):
                raise ArtifactError(
                    f"checkpoint {self.folder} is being used by another process; wait until that is done, or choose "
                    "another folder"
                )
            self._begin()
        except OSError as e:
            self.close()
            raise ArtifactError(
                f"checkpoint {self.folder} cannot be used: {e.strerror}; choose another folder"
            ) from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load_or_compute(self, name: str, given, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the stored arrays, or those of `make()`, which may depend only on `name` and `given`.

        A damaged file is computed again, with a warning.
        """
        path = self.path(name, given)  # before `make`, which may change `given`: random generators advance
        arrays = self.stored(path)
        if arrays is None:
            arrays = make()
            self.store(path, arrays)
        return arrays

    def path(self, name: str, given) -> Path:
        """The file of a result that depends only on `name` and `given`."""
        return self.folder / f"{name}-{hash_values([code_version(), name, given])}.nwk"

    def stored(self, path: Path) -> dict[str, np.ndarray] | None:
        """Read the arrays of a file; return None if it is missing, or damaged, with a warning."""
        if not path.exists():
            return None
        try:
            manifest, arrays = artifact.read_file(path)
            if manifest == {"part": path.stem}:  # Otherwise another file was copied over it.
                return arrays
        except ArtifactError:
            pass
        warnings.warn(f"checkpoint: {path} is damaged; computing that part again", NwWarning, stacklevel=2)
        return None

    def store(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        """Write arrays to a file, atomically."""
        write = partial(artifact.write_archive, manifest={"part": path.stem}, arrays=arrays, level=FAST)
        artifact.write_files({path: write})

    def _begin(self) -> None:
        """Delete incomplete files of a killed process, and warn if the folder was made by another version."""
        for path in [*self.folder.glob(".*.nwk.*"), *self.folder.glob(f".{VERSION}.*")]:
            path.unlink(missing_ok=True)
        path = self.folder / VERSION
        known = json.dumps({"version": code_version()}).encode()
        if path.is_file() and path.read_bytes() != known:
            warnings.warn(
                f"checkpoint {self.folder} was made by another version of nwcompile; what it holds is computed again",
                NwWarning,
                stacklevel=3,
            )
        artifact.write_bytes(path, known)


@contextmanager
def use_checkpoint(folder) -> Iterator[None]:
    """Store results that are computed inside this context in `folder`; None: store nothing."""
    if folder is None:
        yield
        return
    with Checkpoint(folder) as checkpoint:
        token = _CURRENT.set(checkpoint)
        try:
            yield
        finally:
            _CURRENT.reset(token)


def has_checkpoint() -> bool:
    """Whether a checkpoint is active in this context."""
    return _CURRENT.get() is not None


def load_or_compute(name: str, given, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Call `Checkpoint.load_or_compute` of the active checkpoint; without one, return `make()`."""
    checkpoint = _CURRENT.get()
    return make() if checkpoint is None else checkpoint.load_or_compute(name, given, make)


class Recorded(NamedTuple):
    """An array that the steps of some work fill. Step t + late writes row t of the first axis."""

    array: np.ndarray
    late: int = 0

    def select_rows(self, steps: slice) -> np.ndarray:
        """View of the rows that these steps fill."""
        first, stop = (min(max(at - self.late, 0), len(self.array)) for at in (steps.start, steps.stop))
        return self.array[first:stop]


class Steps(NamedTuple):
    """Work of many steps with its results: the records, and the state from which the next step continues.

    `go` does consecutive steps; its results do not depend on how they are divided. `state()` returns current arrays.
    """

    n_steps: int
    go: Callable[[slice], object]
    record: dict[str, Recorded]
    state: Callable[[], dict[str, np.ndarray]]

    def left_by(self, steps: slice) -> dict[str, np.ndarray]:
        """The results of these steps, which are the last ones that were done."""
        recorded = {f"record/{name}": rows.select_rows(steps) for name, rows in self.record.items()}
        return {"end": np.array([steps.stop])} | recorded | {f"state/{name}": a for name, a in self.state().items()}

    def take(self, first: int, left: dict[str, np.ndarray]) -> None:
        """Restore the state after the steps from `first` on, from their results `left`."""
        here = self.left_by(slice(first, int(left["end"][0])))
        for name in here.keys() - {"end"}:
            np.copyto(here[name], left[name], casting="no")


class Pace:
    """The number of steps per call: large enough for few calls, small enough to finish a part in time."""

    def __init__(self, n_steps: int = 1):
        self.n_steps = n_steps

    def go(self, work: Steps, first: int) -> dict[str, np.ndarray]:
        """Do steps from `first` on until `PART_SECONDS` have passed, and return their results."""
        begin, at = perf_counter(), first
        while at == first or (at < work.n_steps and perf_counter() - begin < PART_SECONDS):
            steps, start = slice(at, min(at + self.n_steps, work.n_steps)), perf_counter()
            work.go(steps)
            seconds, at = perf_counter() - start, steps.stop
            if seconds > PART_SECONDS:
                self.n_steps = max(self.n_steps // 2, 1)
            elif seconds < PART_SECONDS / 4 and steps.stop - steps.start == self.n_steps:
                self.n_steps *= 2
        return work.left_by(slice(first, at))


def in_parts(name: str, given: Callable[[], object], work: Steps, pace: Pace) -> None:
    """Do the work; with a checkpoint in parts, which are loaded from it or computed and stored in it.

    The work may depend only on `name` and `given()`.
    """
    checkpoint = _CURRENT.get()
    if checkpoint is None:
        work.go(slice(0, work.n_steps))
        return
    whole, first = hash_values(given()), 0
    while first < work.n_steps:
        path = checkpoint.path(name, [whole, first])
        left = checkpoint.stored(path)
        if left is None:
            left = pace.go(work, first)
            checkpoint.store(path, left)
        else:
            work.take(first, left)
        first = int(left["end"][0])


def try_lock(file: int) -> bool:
    """Lock a file until its descriptor is closed or the process ends; return False if another process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def hash_values(given) -> str:
    """SHA-256 of arrays, strings and numbers, and of tuples, lists and dicts of them."""
    total = hashlib.sha256()
    _update_hash(total, given)
    return total.hexdigest()


def _update_hash(total, value) -> None:
    """Add a value to a hash: an array with its dtype and shape; a tuple, list or dict item by item."""
    if isinstance(value, np.ndarray):
        total.update(f"array {value.dtype.descr} {value.shape} ".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        _update_hash(total, [part for key in sorted(value) for part in (key, value[key])])
    elif isinstance(value, tuple | list):
        total.update(f"list {len(value)} ".encode())
        for part in value:
            _update_hash(total, part)
    elif value is None or isinstance(value, str | int | float | np.generic):
        total.update(f"{type(value).__name__} {value!r} ".encode())
    else:
        raise TypeError(f"a checkpoint cannot tell two values of {type(value).__name__} apart")
