"""The process in which HDF5 files are read: started by `hdf5`, it reads each file in a fork of its own.

It is run as a script, and imports nothing of nwcompile. A request is a JSON line `[path, seconds]` on stdin. The answer
on stdout is the length of a JSON text as 16 digits, that text, then the bytes of the arrays it lists. It ends when
stdin does, or when nothing was asked for a while.
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import sys

import h5py
import numpy as np

ERROR_CODE = "NW2001"
IDLE_SECONDS = 10.0  # A child that its parent has left alone for so long ends by itself.
MAX_COMPRESSION = 1100  # gzip packs 1032 to 1 at best, so a file that declares more is damaged.
SMALL_BYTES = 1 << 28
CHILD_BYTES = 1 << 33
MAX_DEPTH = 16  # No framework nests groups deeper than this; a damaged file may, without end.
MAX_ITEMS = 1_000_000  # No framework writes more items than this; a damaged file may.


class _RefusedError(Exception):
    """A file that is whole but holds what is not read."""


def serve() -> None:
    """Answer requests until stdin ends."""
    gc.disable()
    gc.freeze()  # what stands is not touched in the forks
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        path, seconds = json.loads(line)
        pid = os.fork()
        if not pid:
            status = 1
            with contextlib.suppress(BaseException):
                _answer(path, seconds)
                status = 0
            os._exit(status)
        status = os.waitpid(pid, 0)[1]
        if status:
            ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
            _write({"damaged": f"reading it ended with {ended}"}, [])


def _answer(path: str, seconds: int) -> None:
    """Read `path` and write its tree and arrays, or why not."""
    n_bytes = os.stat(path).st_size
    _limit(seconds, CHILD_BYTES + 4 * MAX_COMPRESSION * n_bytes)
    budget = {"bytes": max(SMALL_BYTES, MAX_COMPRESSION * n_bytes), "items": MAX_ITEMS, "file": n_bytes}
    arrays: list[np.ndarray] = []
    try:
        with h5py.File(path, "r") as file:
            tree = _group(file, budget, 0, arrays)
        answer = {"tree": tree, "arrays": [(a.dtype.str, a.shape) for a in arrays]}
    except _RefusedError as refusal:
        answer, arrays = {"refused": str(refusal)}, []
    except Exception as error:  # h5py raises a dozen types for damaged files
        answer, arrays = {"damaged": " ".join(str(error).split()) or type(error).__name__}, []
    _write(answer, arrays)


def _write(answer: dict, arrays: list[np.ndarray]) -> None:
    text = json.dumps(answer).encode()
    out = sys.stdout.buffer
    out.write(b"%016d" % len(text) + text)
    for array in arrays:
        out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    out.flush()


def _limit(seconds: int, n_bytes: int) -> None:
    for kind, limit in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, n_bytes)):
        with contextlib.suppress(ValueError, OSError):  # a lower limit stands already
            resource.setrlimit(kind, (limit, limit))


def _group(group, budget: dict, depth: int, arrays: list[np.ndarray]) -> dict:
    """A group as a dict; each dataset is put into `arrays` and stands as its number."""
    tree: dict[str, dict | int] = {}
    for name in group:
        budget["items"] -= 1
        if depth > MAX_DEPTH or budget["items"] < 0:
            raise _RefusedError(f"nested deeper than {MAX_DEPTH} or more than {MAX_ITEMS} items; write it again")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise _RefusedError(f"{group.name.rstrip('/')}/{name} is a link to elsewhere; such links are not read")
        item = group[name]
        if isinstance(item, h5py.Group):
            tree[name] = _group(item, budget, depth + 1, arrays)
            continue
        if item.external or item.is_virtual:
            raise _RefusedError(f"{item.name} keeps its data in another file; such data are not read")
        budget["bytes"] -= item.nbytes
        if budget["bytes"] < 0:
            raise _RefusedError(
                f"{item.name} declares {item.nbytes} bytes, more than a file of {budget['file']} bytes can hold; "
                "write it again"
            )
        tree[name] = len(arrays)
        arrays.append(_array(item.name, item[()]))
    return tree


def _array(name: str, value) -> np.ndarray:
    """A dataset's value as an array of numbers or text."""
    array = np.asarray(value)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf8", "replace")
    if array.dtype.kind != "O":
        return array
    if not all(isinstance(text, bytes | str) for text in array.flat):
        raise _RefusedError(f"{name} is of a type that is not read; supported: numbers and text")
    texts = [text.decode("utf8", "replace") if isinstance(text, bytes) else text for text in array.flat]
    return np.asarray(texts, np.str_).reshape(array.shape)


if __name__ == "__main__":
    serve()
