"""Checkpoint: a folder of arrays that took long to compute, so that work that was killed goes on where it was.

What is kept is the value of a function whose result follows from its arguments alone (`load_or_compute`): an annealing
of the partitioner or the placer; or what some steps of a simulation leave (`in_parts`). A file is named by the SHA-256
of those arguments and of nwcompile's Python files, so what another network, option or version made is never taken.
Files are those of `ir/artifact.py`: moved into place when whole, closed by a checksum, read without pickle. One process
at a time may use a folder.
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
FAST = 1  # Level of compression: most of what is kept are zeros, which the fastest one makes small as well.
PART_SECONDS = 10.0  # A kill loses the steps of about so long: a part is closed after the first ones that end later.
_CURRENT: ContextVar["Checkpoint | None"] = ContextVar("checkpoint", default=None)


class Checkpoint:
    """What is kept in `folder`, made if it is not there. Raises ArtifactError where it cannot be used."""

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
            if not locked(self._lock):
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
        """Let others use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load_or_compute(self, name: str, given, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays that `make()` gives, from the folder if they are there; `name` and `given` are all they depend on.

        A file that is damaged is computed again, with a warning that says so.
        """
        path = self.path(name, given)  # now, as `make` may change what it was given: random numbers go on
        arrays = self.stored(path)
        if arrays is None:
            arrays = make()
            self.store(path, arrays)
        return arrays

    def path(self, name: str, given) -> Path:
        """Where that is kept which depends on `name` and `given` alone."""
        return self.folder / f"{name}-{digest([code_version(), name, given])}.nwk"

    def stored(self, path: Path) -> dict[str, np.ndarray] | None:
        """The arrays of a file; None where it is not there, or damaged, which a warning says."""
        if not path.exists():
            return None
        try:
            manifest, arrays = artifact.read_file(path)
            if manifest == {"part": path.stem}:  # and not one that was copied over it
                return arrays
        except ArtifactError:
            pass
        warnings.warn(f"checkpoint: {path} is damaged; computing that part again", NwWarning, stacklevel=2)
        return None

    def store(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        """Put arrays into a file, in one move."""
        write = partial(artifact.write_archive, manifest={"part": path.stem}, arrays=arrays, level=FAST)
        artifact.write_files({path: write})

    def _begin(self) -> None:
        """Take away what a killed process left half-written, and say so if all that is there is of another version."""
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
def keeping(folder) -> Iterator[None]:
    """What is computed inside is kept in the folder; None: nothing is."""
    if folder is None:
        yield
        return
    with Checkpoint(folder) as checkpoint:
        token = _CURRENT.set(checkpoint)
        try:
            yield
        finally:
            _CURRENT.reset(token)


def is_keeping() -> bool:
    """Whether a checkpoint is being kept."""
    return _CURRENT.get() is not None


def load_or_compute(name: str, given, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """`Checkpoint.load_or_compute` of the checkpoint that is being kept; without one, what `make()` gives."""
    checkpoint = _CURRENT.get()
    return make() if checkpoint is None else checkpoint.load_or_compute(name, given, make)


class Recorded(NamedTuple):
    """An array that the steps of some work fill: row t, on the first axis, in step t + late."""

    array: np.ndarray
    late: int = 0

    def of(self, steps: slice) -> np.ndarray:
        """The rows that these steps fill."""
        first, stop = (min(max(at - self.late, 0), len(self.array)) for at in (steps.start, steps.stop))
        return self.array[first:stop]


class Steps(NamedTuple):
    """Work of many steps, and all that it leaves: what has been recorded, and the state that the next step begins with.

    `go` does consecutive steps and leaves the same however they are cut. `state()` gives the arrays as they are now.
    """

    n_steps: int
    go: Callable[[slice], object]
    record: dict[str, Recorded]
    state: Callable[[], dict[str, np.ndarray]]

    def left_by(self, steps: slice) -> dict[str, np.ndarray]:
        """What these steps, the last ones that were done, have left."""
        recorded = {f"record/{name}": rows.of(steps) for name, rows in self.record.items()}
        return {"end": np.array([steps.stop])} | recorded | {f"state/{name}": a for name, a in self.state().items()}

    def take(self, first: int, left: dict[str, np.ndarray]) -> None:
        """Be as after the steps from `first` on that have left this."""
        here = self.left_by(slice(first, int(left["end"][0])))
        for name in here.keys() - {"end"}:
            np.copyto(here[name], left[name], casting="no")


class Pace:
    """How many steps are done at once: so many that calls are few, and few enough to close a part in time."""

    def __init__(self, n_steps: int = 1):
        self.n_steps = n_steps

    def go(self, work: Steps, first: int) -> dict[str, np.ndarray]:
        """Do steps from `first` on until `PART_SECONDS` are over: what they leave."""
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
    """Do the work; with a checkpoint in parts, of which those that are there are taken and the others kept.

    `name` and `given()` are all that it depends on.
    """
    checkpoint = _CURRENT.get()
    if checkpoint is None:
        work.go(slice(0, work.n_steps))
        return
    whole, first = digest(given()), 0
    while first < work.n_steps:
        path = checkpoint.path(name, [whole, first])
        left = checkpoint.stored(path)
        if left is None:
            left = pace.go(work, first)
            checkpoint.store(path, left)
        else:
            work.take(first, left)
        first = int(left["end"][0])


def locked(file: int) -> bool:
    """Lock a file until its descriptor is closed or the process ends, however it ends; False if another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def digest(given) -> str:
    """SHA-256 of arrays, words and numbers, and of tuples, lists and dicts of them."""
    total = hashlib.sha256()
    _add(total, given)
    return total.hexdigest()


def _add(total, value) -> None:
    """Add a value to a hash: arrays with their types and shapes; tuples, lists and dicts by what they hold."""
    if isinstance(value, np.ndarray):
        total.update(f"array {value.dtype.descr} {value.shape} ".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        _add(total, [part for key in sorted(value) for part in (key, value[key])])
    elif isinstance(value, tuple | list):
        total.update(f"list {len(value)} ".encode())
        for part in value:
            _add(total, part)
    elif value is None or isinstance(value, str | int | float | np.generic):
        total.update(f"{type(value).__name__} {value!r} ".encode())
    else:
        raise TypeError(f"a checkpoint cannot tell two values of {type(value).__name__} apart")
