"""Checkpoint: a folder of arrays that took long to compute, so that work that was killed goes on where it was.

What is kept is the value of a function whose result follows from its arguments alone: an annealing of the partitioner
or the placer, some samples of a simulation. A file is named by the SHA-256 of those arguments and of nwcompile's
Python files, so what another network, option or version made is never taken. Files are those of `ir/artifact.py`:
moved into place when whole, closed by a checksum, read without pickle. One process at a time may use a folder.
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

import numpy as np

from nwcompile.code_version import code_version
from nwcompile.errors import ArtifactError, NwWarning
from nwcompile.ir import artifact

LOCK = "lock"
VERSION = "version.json"
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

    def kept(self, name: str, given, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays that `make()` gives, from the folder if they are there; `name` and `given` are all they depend on.

        A file that is damaged is computed again, with a warning that says so.
        """
        total = hashlib.sha256(f"{code_version()} {name}".encode())
        _add(total, given)
        part = f"{name}-{total.hexdigest()}"
        path = self.folder / f"{part}.nwk"
        if path.exists():
            try:
                manifest, arrays = artifact.read_file(path)
                if manifest == {"part": part}:  # and not one that was copied over it
                    return arrays
            except ArtifactError:
                pass
            warnings.warn(f"checkpoint: {path} is damaged; computing that part again", NwWarning, stacklevel=2)
        arrays = make()
        artifact.write_files({path: partial(artifact.write, manifest={"part": part}, arrays=arrays)})
        return arrays

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


def kept(name: str, given, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """`Checkpoint.kept` of the checkpoint that is being kept; without one, what `make()` gives."""
    checkpoint = _CURRENT.get()
    return make() if checkpoint is None else checkpoint.kept(name, given, make)


def locked(file: int) -> bool:
    """Lock a file until its descriptor is closed or the process ends, however it ends; False if another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
