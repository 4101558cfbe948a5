"""How kernels are compiled: without the GIL, and kept between runs where that is possible.

A kernel that takes a NamedTuple of arrays would count references to each of them at every call, atomically and on
memory that all threads share; that was half the time of the cycle backend. Such kernels allocate nothing and keep
nothing, so Numba's runtime is left out (`_nrt=False`): a kernel that would need it does not compile.

LLVM optimizes a function when it is made, and again, with all that it calls, in every kernel that calls it. Functions
that only kernels call are therefore left to their kernels, and a kernel is optimized once, as a whole.
"""

import ast
import atexit
import gc
import hashlib
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from threading import Lock

from numba import config, njit
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from nwcompile.errors import NwWarning
from nwcompile.threads import raise_if_canceled

PACKAGE = Path(__file__).resolve().parents[1]
IS_INSTALLED = (PACKAGE / "hwmodels").is_dir()  # chip files lie in the package of a wheel, beside it in a checkout
PROGRAM_MODULE = f"{PACKAGE.name}.program_"  # how names of modules begin that are made of neuron programs
DIGEST_BYTES = hashlib.sha256().digest_size
QUIET = "NWCOMPILE_QUIET"  # an environment variable: where it is set, a first compilation is not announced
LONGEST_WAIT_S = 300  # Ten times what all kernels take on a slow machine: a process that needs longer hangs.
WARM_UP = [sys.executable, "-P", "-m", f"{PACKAGE.name}.warm_up"]  # the command of such a process
OTHERS: list[subprocess.Popen] = []  # processes that compile kernels for this one
_USING_OTHERS = Lock()  # networks may be compiled for several chips at once, in threads
_USING_CACHE_DIR = Lock()  # likewise


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
    """Numba's `njit` without the GIL, its machine code kept beside the source of a checkout, else in the user's cache.

    Where it may not be written (an installation of root's, run by a user without a home), it is made in every run.
    Numba takes what it kept for good until the kernel's own file changes, although kernels of other files are compiled
    into it; so what is kept counts for the contents of all files that its own imports from (`KeptFile`).
    """

    def decorate(function: Callable):
        try:
            with kept_for_the_user():
                dispatcher = njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
        except RuntimeError:
            return njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
        _keep_by_content(dispatcher._cache, function)
        return dispatcher

    return decorate


def user_cache() -> Path:
    """The folder of this package in the user's cache; raises RuntimeError for a user without a home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PACKAGE.name


@contextmanager
def kept_for_the_user() -> Iterator[None]:
    """Have Numba keep what is made meanwhile in the user's cache, if this package is installed and no checkout.

    So nothing is left in the folder of an installation, and what a user compiled outlives its next version. A folder
    that the user named (NUMBA_CACHE_DIR) stays.
    """
    with _USING_CACHE_DIR:
        named = config.CACHE_DIR
        if IS_INSTALLED and not named:
            with suppress(RuntimeError):
                config.CACHE_DIR = str(user_cache() / "kernels")
        try:
            yield
        finally:
            config.CACHE_DIR = named


class KeptFile(IndexDataCacheFile):
    """What Numba keeps of one function. Entries that are damaged, cut short or of other sources are ignored.

    Each file begins with the SHA-256 of Numba's version, the stamp of the sources and what comes after it.
    """

    def _dump(self, obj) -> bytes:
        data = super()._dump(obj)
        return self._digest(data) + data

    def _digest(self, data: bytes) -> bytes:
        return hashlib.sha256(f"{self._version} {self._source_stamp}".encode() + data).digest()

    def _read(self, path: str):
        """The content of a file; None unless it is whole and of these sources."""
        try:
            kept = Path(path).read_bytes()
        except OSError:
            return None
        digest, data = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
        return pickle.loads(data) if digest == self._digest(data) else None

    def _load_index(self) -> dict:
        return self._read(self._index_path) or {}

    def _save_index(self, overloads: dict) -> None:
        with self._open_for_write(self._index_path) as file:
            file.write(self._dump(overloads))

    def _load_data(self, name: str):
        return self._read(self._data_path(name))


@cache
def _say_that_nothing_is_kept() -> None:
    """Warn, once in a process, that kernels are compiled for this process only."""
    warnings.warn(
        "compiled kernels cannot be kept on this machine, so they are compiled in every run; free space in the cache "
        "folder, or name one that can be written with NUMBA_CACHE_DIR",
        NwWarning,
        stacklevel=2,
    )


@contextmanager
def _in_memory_at_least() -> Iterator[None]:
    """Let what is compiled inside be used where the cache cannot be read or written."""
    try:
        yield
    except OSError:
        _say_that_nothing_is_kept()


def _keep_by_content(kept_by_numba, function: Callable) -> None:
    """Let what Numba keeps of a function count as long as the files that it is made from are the same."""
    numbas = kept_by_numba._cache_file
    base = kept_by_numba._impl.filename_base
    stamp = stamp_of(Path(function.__code__.co_filename))
    kept_by_numba._cache_file = KeptFile(numbas._cache_path, base, stamp)
    kept_by_numba._guard_against_spurious_io_errors = _in_memory_at_least


class PartLibrary(JITCodeLibrary):
    """The machine code of a function that only kernels call."""

    def _optimize_final_module(self) -> None:
        """Nothing: the kernel's module, which this one is linked into, is optimized as a whole."""


class KernelLibrary(JITCodeLibrary):
    """The machine code of a kernel with all that it calls."""

    def _optimize_functions(self, ll_module) -> None:
        """Nothing but what Numba's own does first: the whole module is optimized when all is linked into it."""
        ll_module.data_layout = self._codegen._data_layout


class PartCompiler(Compiler):
    """Numba's compiler, its machine code in a `PartLibrary`."""

    LIBRARY = PartLibrary

    def compile_extra(self, func):
        self.state.library = self.LIBRARY(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class KernelCompiler(PartCompiler):
    """Numba's compiler, its machine code in a `KernelLibrary`."""

    LIBRARY = KernelLibrary


kernel = compiled(_nrt=False, pipeline_class=KernelCompiler)
# Only kernels call these, so they have no wrappers for Python, which would unpack every array of every structure. What
# runs for every flit is `inlined`, because a call copies every array of a NamedTuple.
ONLY_FOR_KERNELS = {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}
inlined = compiled(_nrt=False, forceinline=True, **ONLY_FOR_KERNELS)
spliced = compiled(_nrt=False, inline="always")  # into its caller before that is compiled, at every call
part = compiled(_nrt=False, **ONLY_FOR_KERNELS)


class AsCFunction:
    """A function that kernels call by its `address`: compiled, or taken from where it is kept, when that is read."""

    def __init__(self, signature, function: Callable):
        self.signature, self.function = signature, function

    @cached_property
    def address(self) -> int:
        made = CFunc(self.function, (self.signature.args, self.signature.return_type), {}, {"nopython": True})
        with suppress(RuntimeError), kept_for_the_user():  # an error where nothing can be kept
            made.enable_caching()
            _keep_by_content(made._cache, self.function)
        made.compile()
        self.made = made  # the address is good as long as this is there
        return made.address


class FirstCompilation(event.Listener):
    """Before the first kernel of this package is compiled in a process: says on stderr what takes so long.

    Where none of the same folder was ever kept, a second process begins to compile kernels, too (`warm_up_elsewhere`).
    """

    def __init__(self):
        self.is_due = QUIET not in os.environ

    def on_start(self, event) -> None:
        dispatcher = event.data["dispatcher"]
        if not self.is_due or not str(dispatcher.py_func.__module__).startswith(f"{PACKAGE.name}."):
            return
        self.is_due = False
        kept = Path(dispatcher._cache.cache_path or PACKAGE / "nowhere")
        if dispatcher.py_func.__module__.startswith(PROGRAM_MODULE):
            print("compiling a neuron program, once on this machine: some seconds", file=sys.stderr, flush=True)
        elif any(kept.glob("*.nbi")):
            print("compiling more kernels, once on this machine: some seconds", file=sys.stderr, flush=True)
        else:
            print("compiling kernels, once on this machine: about 15 s", file=sys.stderr, flush=True)
            warm_up_elsewhere()

    def on_end(self, event) -> None:
        pass


class Undisturbed(event.Listener):
    """Keeps Python's garbage collector from looking through Numba's many objects while a kernel is compiled."""

    def __init__(self):
        self.depth = 0
        self.was_enabled = False

    def on_start(self, event) -> None:
        if self.depth == 0:
            self.was_enabled = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event) -> None:
        self.depth -= 1
        if self.depth == 0 and self.was_enabled:
            gc.enable()


class NoneAfterCtrlC(event.Listener):
    """Begins no kernel in a thread that nobody waits for any more; the last to hear, as all others hear of its end."""

    def on_start(self, event) -> None:
        raise_if_canceled()

    def on_end(self, event) -> None:
        pass


event.register("numba:compile", FirstCompilation())
event.register("numba:compile", Undisturbed())
event.register("numba:compile", NoneAfterCtrlC())


def is_cold(dispatcher) -> bool:
    """Whether a kernel is neither compiled in this process nor kept on disk, where it could be."""
    return (
        not dispatcher.signatures
        and hasattr(dispatcher._cache, "_cache_file")
        and not (dispatcher._cache._cache_file._load_index())
    )


def warm_up_elsewhere() -> None:
    """Start the process that compiles the kernels of the cycle backend, unless one is at work."""
    with _USING_OTHERS:
        if not OTHERS:
            compile_elsewhere(WARM_UP)


def compile_elsewhere(command: list[str]) -> None:
    """Start a process that compiles kernels into the cache; it ends when this one exits.

    It imports this very package, wherever that was found. Where no second core is free, no process can be started, or
    it ends at once, nothing is compiled elsewhere.
    """
    if len(os.sched_getaffinity(0)) < 2:
        return
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with suppress(OSError):
        other = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, QUIET: "1", "PYTHONPATH": os.pathsep.join(paths)},
        )
        atexit.register(_end, other)
        OTHERS.append(other)


def tell_others(text: str) -> None:
    """What the processes that compile for this one still have to know; nothing comes after it."""
    with _USING_OTHERS:
        for other in OTHERS:
            if not other.stdin.closed:
                with suppress(BrokenPipeError), other.stdin as pipe:
                    pipe.write(text)


def _end(other: subprocess.Popen) -> None:
    other.kill()
    other.wait()


def wait_for_others() -> None:
    """Wait until the processes that compile for this one have ended; one that hangs is ended."""
    tell_others("")
    while OTHERS:
        other = OTHERS.pop()
        try:
            other.wait(LONGEST_WAIT_S)
        except subprocess.TimeoutExpired:
            _end(other)
