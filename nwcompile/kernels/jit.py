"""Compilation of kernels: without the GIL, and cached between runs if possible.

A kernel that takes a NamedTuple of arrays would count references to each of them at every call, atomically and in
memory that all threads share; that took half the time of the cycle backend. Such kernels allocate and retain nothing,
so Numba's runtime is left out (`_nrt=False`); a kernel that needs it does not compile.

LLVM optimizes a function when it is compiled, and again, with all its callees, in every kernel that calls it. Functions
that only kernels call are therefore optimized only as part of their kernels, and each kernel once, as a whole.
"""

import atexit
import gc
import hashlib
import os
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property
from pathlib import Path
from threading import Lock

from numba import config, njit
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.targetconfig import TargetConfig
from numba.extending import overload

from nwcompile.errors import NwWarning
from nwcompile.threads import raise_if_canceled

PACKAGE = Path(__file__).resolve().parents[1]
IS_INSTALLED = (PACKAGE / "hwmodels").is_dir()  # chip files are inside the package of a wheel, next to it in a checkout
PROGRAM_MODULE = f"{PACKAGE.name}.program_"  # name prefix of the modules of neuron programs
DIGEST_BYTES = hashlib.sha256().digest_size
QUIET = "NWCOMPILE_QUIET"  # an environment variable: if set, the first compilation is not announced
LONGEST_WAIT_S = 300  # Ten times the compile time of all kernels on a slow machine: a process that needs longer hangs.
WARM_UP = [sys.executable, "-P", "-m", f"{PACKAGE.name}.warm_up"]  # the command of such a process, and what it compiles
CYCLE = "cycle"  # what such a process compiles: the cycle backend,
PLACEMENT = "placement"  # or what `estimate` needs after the partitioner
OTHERS: dict[str, subprocess.Popen] = {}  # processes that compile kernels for this one, by what they compile
ELSEWHERE: ContextVar[str] = ContextVar("elsewhere", default=CYCLE)  # what a second process shall compile
_USING_OTHERS = Lock()  # networks may be compiled for several chips at once, in threads
_USING_CACHE_DIR = Lock()  # likewise


@cache
def imports_of(path: Path) -> tuple[Path, ...]:
    """The files of this package that a source file imports from, found without a parser, which takes 0.2 s at start."""
    files = []
    for name, names in re.findall(rf"^ *from ({PACKAGE.name}\.[\w.]+) import (\([^)]*\)|.*)", path.read_text(), re.M):
        module = PACKAGE.parent.joinpath(*name.split("."))
        files += [module.with_suffix(".py"), *(module / f"{name}.py" for name in re.findall(r"\w+", names))]
    return tuple(file for file in files if file.exists())


@cache
def stamp_of(path: Path) -> str:
    """A digest of a source file and of all files that it imports from, directly or indirectly."""
    files, todo = set(), [path]
    while todo:
        file = todo.pop()
        if file not in files:
            files.add(file)
            todo += imports_of(file)
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def compiled(**options) -> Callable:
    """Numba's `njit` without the GIL, with its cache next to the source in a checkout, else in the user's cache.

    If the cache is not writable (installed by root, run by a user without a home), kernels are compiled in every run.
    Numba's own cache is valid until the kernel's file changes, although kernels of other files are compiled into it.
    This cache is valid for the contents of all files that the kernel's file imports from (`CacheFile`).
    """

    def decorate(function: Callable):
        try:
            with use_user_cache():
                dispatcher = njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
        except RuntimeError:
            return njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
        _cache_by_content(dispatcher._cache, function)
        return dispatcher

    return decorate


def user_cache() -> Path:
    """The folder of this package in the user's cache; raises RuntimeError for a user without a home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PACKAGE.name


@contextmanager
def use_user_cache() -> Iterator[None]:
    """Let Numba use the user's cache inside this block, if this package is installed and not a checkout.

    The folder of an installation then stays clean, and a user's cache outlives an upgrade. A folder that the user set
    (NUMBA_CACHE_DIR) has precedence.
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


class CacheFile(IndexDataCacheFile):
    """Numba's cache files of one function. Entries that are damaged, truncated or of other sources are ignored.

    Each file begins with the SHA-256 of Numba's version, the stamp of the sources, and the rest of the file.
    """

    def _dump(self, obj) -> bytes:
        data = super()._dump(obj)
        return self._digest(data) + data

    def _digest(self, data: bytes) -> bytes:
        return hashlib.sha256(f"{self._version} {self._source_stamp}".encode() + data).digest()

    def _read(self, path: str):
        """The content of a file; None unless it is complete and of these sources."""
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
def _warn_no_cache() -> None:
    """Warn, once per process, that kernels are compiled for this process only."""
    warnings.warn(
        "compiled kernels cannot be kept on this machine, so they are compiled in every run; free space in the cache "
        "folder, or name one that can be written with NUMBA_CACHE_DIR",
        NwWarning,
        stacklevel=2,
    )


@contextmanager
def _tolerate_cache_errors() -> Iterator[None]:
    """Let kernels compiled inside be used even if the cache cannot be read or written."""
    try:
        yield
    except OSError:
        _warn_no_cache()


def _cache_by_content(numba_cache, function: Callable) -> None:
    """Make the cache entries of a function valid as long as its source files have the same content."""
    numbas = numba_cache._cache_file
    base = numba_cache._impl.filename_base
    stamp = stamp_of(Path(function.__code__.co_filename))
    numba_cache._cache_file = CacheFile(numbas._cache_path, base, stamp)
    numba_cache._guard_against_spurious_io_errors = _tolerate_cache_errors


DEFAULT_FLAGS = Flags().values()
# Numba's own method is slow, and is called about 200,000 times in a first run. Flags for GPUs have more entries.
Flags.values = lambda flags: DEFAULT_FLAGS | flags._values if type(flags) is Flags else TargetConfig.values(flags)


class PartLibrary(JITCodeLibrary):
    """The machine code of a function that only kernels call."""

    def _optimize_final_module(self) -> None:
        """Skip this: the kernel's module, which includes this one, is optimized as a whole."""


class KernelLibrary(JITCodeLibrary):
    """The machine code of a kernel with all its callees."""

    def _optimize_final_module(self) -> None:
        """Optimize once: Numba does it twice, and removes reference counts in between, which kernels do not have."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)

    def _optimize_functions(self, ll_module) -> None:
        """Set the data layout, as Numba's method does, and skip the rest: the linked module is optimized as a whole."""
        ll_module.data_layout = self._codegen._data_layout


class PartCompiler(Compiler):
    """Numba's compiler with a `PartLibrary` for the machine code."""

    LIBRARY = PartLibrary

    def compile_extra(self, func):
        self.state.library = self.LIBRARY(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class KernelCompiler(PartCompiler):
    """Numba's compiler with a `KernelLibrary` for the machine code."""

    LIBRARY = KernelLibrary


kernel = compiled(_nrt=False, pipeline_class=KernelCompiler)
# Only kernels call these, so they need no Python wrappers, which would unpack every array of every structure. Functions
# that run for every flit are `inlined`, because a call copies every array of a NamedTuple.
ONLY_FOR_KERNELS = {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}
inlined = compiled(_nrt=False, forceinline=True, **ONLY_FOR_KERNELS)
spliced = compiled(_nrt=False, inline="always")  # Numba inlines it into the caller before compilation, at every call
part = compiled(_nrt=False, **ONLY_FOR_KERNELS)


def typed(choose: Callable) -> Callable:
    """Make a function for kernels whose body depends on the types of its arguments: `choose` returns it, for types."""
    overload(choose, {"_nrt": False, "nogil": True, "forceinline": True, **ONLY_FOR_KERNELS})(choose)
    return choose


class AsCFunction:
    """A function that kernels call by its `address`; it is compiled, or loaded from the cache, at first access."""

    def __init__(self, signature, function: Callable):
        self.signature, self.function = signature, function

    @cached_property
    def address(self) -> int:
        made = CFunc(self.function, (self.signature.args, self.signature.return_type), {}, {"nopython": True})
        with suppress(RuntimeError), use_user_cache():  # raised if nothing can be cached
            made.enable_caching()
            _cache_by_content(made._cache, self.function)
        made.compile()
        self.made = made  # keeps the address valid
        return made.address


class FirstCompilation(event.Listener):
    """Announces the first compilation of a kernel of this package in a process, on stderr.

    If the cache folder is empty, a second process also begins to compile kernels (`warm_up_elsewhere`).
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
    """Disables Python's garbage collector while a kernel is compiled, because Numba has very many objects."""

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
    """Raises in a canceled thread before a kernel is compiled; the last listener, as the others need an end event."""

    def on_start(self, event) -> None:
        raise_if_canceled()

    def on_end(self, event) -> None:
        pass


event.register("numba:compile", FirstCompilation())
event.register("numba:compile", Undisturbed())
event.register("numba:compile", NoneAfterCtrlC())


def is_cold(dispatcher) -> bool:
    """Whether a kernel is neither compiled in this process nor in a readable cache."""
    return (
        not dispatcher.signatures
        and hasattr(dispatcher._cache, "_cache_file")
        and not (dispatcher._cache._cache_file._load_index())
    )


def warm_up_elsewhere() -> None:
    """Start the process that compiles the kernels of the cycle backend or of placement, unless one is running."""
    with _USING_OTHERS:
        if not OTHERS:
            compile_elsewhere(ELSEWHERE.get(), [*WARM_UP, ELSEWHERE.get()])


@contextmanager
def compile_placement_elsewhere() -> Iterator[None]:
    """Compile the kernels of placement elsewhere in this block, which does not simulate, not the cycle backend's."""
    token = ELSEWHERE.set(PLACEMENT)
    try:
        yield
    finally:
        ELSEWHERE.reset(token)


def compile_elsewhere(part: str, command: list[str]) -> None:
    """Start a process that compiles the kernels of `part` into the cache; it ends when this one exits.

    It imports this same package. Nothing is compiled elsewhere if no second core is available, or if the process cannot
    be started or ends at once.
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
        atexit.register(_kill_process, other)
        OTHERS[part] = other


def tell_others(text: str) -> None:
    """Send `text` to the processes that compile for this one, and close their stdin."""
    with _USING_OTHERS:
        for other in OTHERS.values():
            if not other.stdin.closed:
                with suppress(BrokenPipeError), other.stdin as pipe:
                    pipe.write(text)


def _kill_process(other: subprocess.Popen) -> None:
    other.kill()
    other.wait()


def wait_for(part: str) -> None:
    """Wait for the process that compiles `part` for this one, if there is one; a process that hangs is killed."""
    tell_others("")
    other = OTHERS.get(part)
    if other is not None:
        try:
            other.wait(LONGEST_WAIT_S)
        except subprocess.TimeoutExpired:
            _kill_process(other)
        OTHERS.pop(part, None)
