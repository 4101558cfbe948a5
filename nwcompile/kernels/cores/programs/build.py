"""Programs compiled: the text of each in the user's cache, under its hash, with what Numba keeps beside it."""

import hashlib
import importlib.util
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

    Where that cannot be written, the module lies in a folder of this process only, and is compiled in every run.
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
    path = _kept(folder(), f"{digest}.py", text) or _kept(_scratch(), f"{digest}.py", text)
    assert path is not None, "a temporary folder can be written"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where Numba looks up what it kept
    exec(compile(text, path, "exec"), module.__dict__)  # the text itself: the file is only where it is kept
    return module


def folder() -> Path:
    """Where programs are kept."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    return user_cache() / "programs"


def _kept(where: Path, name: str, text: str) -> Path | None:
    """The file of that text, written in one move if it is not there; None where it cannot be."""
    path = where / name
    with suppress(OSError):
        if path.exists() and path.read_bytes() == text.encode():
            return path
        where.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=where, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
        return path
    return None


@cache
def _scratch() -> Path:
    import atexit
    import shutil

    where = Path(tempfile.mkdtemp(prefix="nwcompile_"))
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    return where
