"""How kernels are compiled: kept between runs where that is possible; those of the simulators without the GIL as well.

A kernel that takes a NamedTuple of arrays would count references to each of them at every call, atomically and on
memory that all threads share; that was half the time of the cycle backend. Such kernels allocate nothing and keep
nothing, so Numba's runtime is left out (`_nrt=False`): a kernel that would need it does not compile.
"""

import ast
import atexit
import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from numba import njit
from numba.core import event

PACKAGE = Path(__file__).resolve().parents[1]
QUIET = "NWCOMPILE_QUIET"  # an environment variable: where it is set, nothing is said of compilations
LONGEST_WAIT_S = 300  # Ten times what all kernels take on a slow machine: a process that needs longer hangs.
OTHERS: list[subprocess.Popen] = []  # processes that compile kernels for this one


@cache
def imports_of(path: Path) -> tuple[Path, ...]:
    """The files of this package that a source file imports from."""
    files = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE.name}."):
            module = PACKAGE.parent.joinpath(*node.module.split("."))
            files += [module.with_suffix(".py"), *(module / f"{name.name}.py" for name in node.names)]
    return tuple(file for file in files if file.exists())


def stamp_of(path: Path) -> str:
    """A digest of a source file and of all that it imports from, directly or not."""
    files, todo = set(), [path]
    while todo:
        file = todo.pop()
        if file not in files:
            files.add(file)
            todo += imports_of(file)
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def compiled(**options) -> Callable:
    """Numba's `njit`, its machine code kept beside the source or in the user's cache.

    Where neither may be written (an installation of root's, run by a user without a home), it is made in every run.
    Numba takes what it kept for good until the kernel's own file changes, although kernels of other files are compiled
    into it; so the stamp that it compares is made from all files that its own imports from. What another version of
    the package left there may name modules that are gone, and what a full disk left there may be cut: either is taken
    for nothing.
    """

    def decorate(function: Callable):
        try:
            dispatcher = njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)
        kept = dispatcher._cache._cache_file
        kept._source_stamp = stamp_of(Path(function.__code__.co_filename))
        load = kept._load_index

        def load_index():
            try:
                return load()
            except (ImportError, AttributeError, EOFError, pickle.UnpicklingError):
                return {}

        kept._load_index = load_index
        return dispatcher

    return decorate


kernel = compiled(nogil=True, _nrt=False, no_cfunc_wrapper=True)
# Only kernels call these, so they have no wrappers for Python, which would unpack every array of every structure. What
# runs for every flit is `inlined`, because a call copies every array of a NamedTuple.
inlined = compiled(nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
spliced = compiled(nogil=True, _nrt=False, inline="always")  # into its caller before that is compiled, at every call
part = compiled(nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # that only kernels call


class Announcement(event.Listener):
    """Says on stderr, before the first kernel of this package is compiled in a process, what takes so long."""

    def __init__(self):
        self.is_due = QUIET not in os.environ

    def on_start(self, event) -> None:
        dispatcher = event.data["dispatcher"]
        if self.is_due and dispatcher.py_func.__module__.startswith(f"{PACKAGE.name}."):
            self.is_due = False
            print(self.text(dispatcher), file=sys.stderr, flush=True)

    def on_end(self, event) -> None:
        pass

    def text(self, dispatcher) -> str:
        """How long it may take: a machine that has kernels of the same folder needs only a few more."""
        kept = Path(dispatcher._cache.cache_path or PACKAGE / "nowhere")
        if any(kept.glob("*.nbi")):
            return "compiling more kernels, once on this machine: some seconds"
        return "compiling kernels, once on this machine: about 15 s"


event.register("numba:compile", Announcement())


def is_cold(dispatcher) -> bool:
    """Whether a kernel is neither compiled in this process nor kept on disk, where it could be."""
    return (
        not dispatcher.signatures
        and hasattr(dispatcher._cache, "_cache_file")
        and not (dispatcher._cache._cache_file._load_index())
    )


def compile_elsewhere(command: list[str], given: str) -> None:
    """Start a process that compiles kernels into the cache; `given` is its input, and it ends when this one exits.

    It imports this very package, wherever that was found. Where no process can be started, or it ends at once, nothing
    is compiled elsewhere.
    """
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        other = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, QUIET: "1", "PYTHONPATH": os.pathsep.join(paths)},
        )
    except OSError:
        return
    atexit.register(_end, other)
    OTHERS.append(other)
    with suppress(BrokenPipeError), other.stdin as pipe:
        pipe.write(given)


def _end(other: subprocess.Popen) -> None:
    other.kill()
    other.wait()


def wait_for_others() -> None:
    """Wait until the processes that compile for this one have ended; one that hangs is ended."""
    while OTHERS:
        other = OTHERS.pop()
        try:
            other.wait(LONGEST_WAIT_S)
        except subprocess.TimeoutExpired:
            _end(other)
