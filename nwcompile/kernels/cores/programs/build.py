"""Programs compiled: the text of each in the user's cache, under its hash, with what Numba keeps beside it."""

import hashlib
import linecache
import os
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from types import ModuleType

from nwcompile.kernels.cores.programs.gradient import gradient_source_of
from nwcompile.kernels.cores.programs.source import source_of, triton_source_of
from nwcompile.kernels.jit import PROGRAM_MODULE, user_cache

FOLDER = "NWCOMPILE_CACHE"  # an environment variable: where programs are kept, in place of the user's cache
HASH_DIGITS = 16  # 64 bits: no two programs of one machine meet by chance.

_one_at_a_time = Lock()  # Samples run in threads, of which each asks for the program; Python 3.11 parses in one only.


def built(structure: tuple, real: str = "float32") -> ModuleType:
    """The module of a program for CPUs (`source_of`), from the cache of this machine where it is there.

    Where that cannot be written, the module is in memory only, and is compiled in every run.
    """
    with _one_at_a_time:
        return _built(structure, real)


@cache
def _built(structure: tuple, real: str) -> ModuleType:
    return _module(source_of(structure, real))


def built_gradient(structure: tuple, units: tuple, read: int | None, detach_reset: bool) -> ModuleType:
    """The module of a program with its gradient (`gradient_source_of`), likewise."""
    with _one_at_a_time:
        return _built_gradient(structure, units, read, detach_reset)


@cache
def _built_gradient(structure: tuple, units: tuple, read: int | None, detach_reset: bool) -> ModuleType:
    return _module(gradient_source_of(structure, units, read, detach_reset))


@cache
def built_for_gpu(structure: tuple) -> ModuleType:
    """The module of a program for GPUs (`triton_source_of`), likewise; Triton keeps the machine code."""
    return _module(triton_source_of(structure))


def _module(text: str) -> ModuleType:
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]
    name = PROGRAM_MODULE + digest
    path = _kept(f"{digest}.py", text)
    file = f"<{name}>" if path is None else str(path)
    if path is None:  # where Triton looks up the source
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # where Numba looks up what it kept
    exec(compile(text, file, "exec"), module.__dict__)  # the text itself: the file is only where it is kept
    return module


def folder() -> Path:
    """Where programs are kept."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    return user_cache() / "programs"


def _kept(name: str, text: str) -> Path | None:
    """The file of that text, written in one move if it is not there; None where it cannot be."""
    with suppress(OSError, RuntimeError):  # the latter of a user without a home
        path = folder() / name
        if path.exists() and path.read_bytes() == text.encode():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.replace(file.name, path)
            finally:
                Path(file.name).unlink(missing_ok=True)
        return path
    return None
