"""Compile neuron programs. The user's cache holds the text of each under its hash, next to Numba's own cache files."""

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

FOLDER = "NWCOMPILE_CACHE"  # an environment variable: folder for programs, instead of the user's cache
HASH_DIGITS = 16  # 64 bits: hashes of one machine's programs do not collide by chance.

_one_at_a_time = Lock()  # Each thread of a run requests the program; Python 3.11 parses in only one thread.


def build_module(structure: tuple, real: str = "float32") -> ModuleType:
    """The CPU module of a program (`source_of`), from this machine's cache if possible.

    If the cache is not writable, the module exists in memory only and is compiled in every run.
    """
    with _one_at_a_time:
        return _load_module(structure, real)


@cache
def _load_module(structure: tuple, real: str) -> ModuleType:
    return _compile_module(source_of(structure, real))


def build_gradient_module(structure: tuple, units: tuple, read: int | None, detach_reset: bool) -> ModuleType:
    """The CPU module of a program with its gradient (`gradient_source_of`), cached likewise."""
    with _one_at_a_time:
        return _load_gradient_module(structure, units, read, detach_reset)


@cache
def _load_gradient_module(structure: tuple, units: tuple, read: int | None, detach_reset: bool) -> ModuleType:
    return _compile_module(gradient_source_of(structure, units, read, detach_reset))


@cache
def build_gpu_module(structure: tuple) -> ModuleType:
    """The GPU module of a program (`triton_source_of`), cached likewise; Triton caches the machine code."""
    return _compile_module(triton_source_of(structure))


def _compile_module(text: str) -> ModuleType:
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]
    name = PROGRAM_MODULE + digest
    path = _write_to_cache(f"{digest}.py", text)
    file = f"<{name}>" if path is None else str(path)
    if path is None:  # Triton looks up the source here
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # Numba looks up cached functions here
    exec(compile(text, file, "exec"), module.__dict__)  # executes the text itself, which equals the cached file
    return module


def folder() -> Path:
    """The folder of cached programs."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    return user_cache() / "programs"


def _write_to_cache(name: str, text: str) -> Path | None:
    """Write `text` atomically to a file of that name if it is not there; returns its path, None on failure."""
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
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
