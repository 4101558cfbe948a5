"""Run as `hdf5_child.py PATH SECONDS` by `hdf5`: read an HDF5 file under limits of time and memory.

The script imports nothing of nwcompile. It writes an npz file to stdout. `answer` is JSON: the tree of groups, with the
name of an array (`arr_0`) for each dataset, or the reason why there is none.
"""

import contextlib
import json
import os
import resource
import sys

import h5py
import numpy as np

MAX_COMPRESSION = 1100  # gzip packs 1032 to 1 at best, so a file that declares more is damaged.
SMALL_BYTES = 1 << 28
CHILD_BYTES = 1 << 33
MAX_DEPTH = 16  # No framework nests groups deeper; a damaged file may nest them endlessly.
MAX_ITEMS = 1_000_000  # No framework writes more items than this; a damaged file may.


class _RefusedError(Exception):
    """Raised for an intact file with contents that are not supported."""


def _write_answer(path: str, seconds: int) -> None:
    """Read `path` and write its tree and arrays, or the reason for the refusal, to stdout."""
    n_bytes = os.stat(path).st_size
    _limit_resources(seconds, CHILD_BYTES + 4 * MAX_COMPRESSION * n_bytes)
    budget = {"bytes": max(SMALL_BYTES, MAX_COMPRESSION * n_bytes), "items": MAX_ITEMS, "file": n_bytes}
    arrays: list[np.ndarray] = []
    answer: dict[str, object]
    try:
        with h5py.File(path, "r", locking=False) as file:
            answer = {"tree": _read_group(file, budget, 0, arrays)}
    except _RefusedError as refusal:
        answer, arrays = {"refused": str(refusal)}, []
    except Exception as error:  # h5py raises a dozen types for damaged files
        answer, arrays = {"damaged": " ".join(str(error).split()) or type(error).__name__}, []
    stream = sys.stdout.buffer
    np.savez(stream, *arrays, answer=np.array(json.dumps(answer)))


def _limit_resources(seconds: int, n_bytes: int) -> None:
    for kind, limit in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, n_bytes)):
        with contextlib.suppress(ValueError, OSError):  # a lower limit is already set
            resource.setrlimit(kind, (limit, limit))


def _read_group(group, budget: dict, depth: int, arrays: list[np.ndarray]) -> dict:
    """Return a group as a dict; append each dataset to `arrays` and put its array name into the dict."""
    tree: dict[str, dict | str] = {}
    for name in group:
        budget["items"] -= 1
        if depth > MAX_DEPTH or budget["items"] < 0:
            raise _RefusedError(f"nested deeper than {MAX_DEPTH} or more than {MAX_ITEMS} items; write it again")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise _RefusedError(f"{group.name.rstrip('/')}/{name} is a link to elsewhere; such links are not read")
        item = group[name]
        if isinstance(item, h5py.Group):
            tree[name] = _read_group(item, budget, depth + 1, arrays)
            continue
        if item.external or item.is_virtual:
            raise _RefusedError(f"{item.name} keeps its data in another file; such data are not read")
        budget["bytes"] -= item.nbytes
        if budget["bytes"] < 0:
            raise _RefusedError(
                f"{item.name} declares {item.nbytes} bytes, more than a file of {budget['file']} bytes can hold; "
                "write it again"
            )
        tree[name] = f"arr_{len(arrays)}"
        arrays.append(_read_array(item.name, item[()]))
    return tree


def _read_array(name: str, value) -> np.ndarray:
    """Return a dataset's value as an array of numbers or text."""
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
    _write_answer(sys.argv[1], int(sys.argv[2]))
