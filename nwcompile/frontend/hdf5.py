"""Reads an HDF5 file that somebody sent, in a child process: libhdf5 hangs or crashes on some damaged files.

The child opens the file under limits of time and memory and writes what it read as a JSON line and `.npy` arrays;
nothing is unpickled. It runs this very file, and imports nothing of nwcompile.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

SECONDS = 10.0
BYTES_PER_SECOND = 10_000_000
LARGEST_RATIO = 1100  # gzip packs 1032 to 1 at best
SMALL_BYTES = 1 << 28
CHILD_BYTES = 1 << 33
DEEPEST = 16
MOST_ITEMS = 1_000_000


def read_hdf5(path: Path, kind: str, seconds: float = SECONDS) -> dict:
    """Groups as dicts and datasets as arrays (text as `str` or arrays of it), by name.

    `kind` ("NIR") begins the error texts. Raises ModelError for a file that is missing, not HDF5, damaged, with links
    to other files, larger than what is stored can give, or that takes longer than `seconds` (10 MB a second on top).
    """
    from nwcompile.errors import ModelError

    where = f"{kind} file {path}"
    n_bytes, start = 0, b""
    try:
        if path.is_file() or not path.exists():
            with path.open("rb") as file:
                n_bytes, start = path.stat().st_size, file.read(8)
    except FileNotFoundError:
        raise ModelError(f"{where}: there is no such file") from None
    except OSError as error:
        raise ModelError(f"{where}: it cannot be read ({error.strerror})") from None
    if start != b"\x89HDF\r\n\x1a\n":
        raise ModelError(f"{where}: this is not an HDF5 file; give a file that its framework exported")
    limit = seconds + n_bytes / BYTES_PER_SECOND
    command = [sys.executable, "-P", __file__, str(path.resolve()), str(int(limit) + 1)]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, env=one_thread)
    except subprocess.TimeoutExpired:
        raise ModelError(f"{where}: damaged (reading it took over {limit:g} s); copy or write it again") from None
    stream = io.BytesIO(done.stdout)
    header = stream.readline()
    if done.returncode != 0 or not header.endswith(b"\n"):
        reason = done.stderr.decode("utf8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise ModelError(f"{where}: damaged (reading it ended with {reason[-1]}); copy or write it again")
    answer = json.loads(header)
    if "damaged" in answer:
        raise ModelError(f"{where}: damaged or truncated ({answer['damaged']}); copy or write it again")
    if "refused" in answer:
        raise ModelError(f"{where}: {answer['refused']}")
    arrays = [np.lib.format.read_array(stream, allow_pickle=False) for _ in range(answer["n_arrays"])]
    return _filled(answer["tree"], arrays)


def _filled(tree: dict, arrays: list[np.ndarray]) -> dict:
    """The tree with the arrays at their numbers; single texts as `str`."""
    values = [a.item() if a.dtype.kind == "U" and a.ndim == 0 else a for a in arrays]
    return {name: _filled(item, arrays) if isinstance(item, dict) else values[item] for name, item in tree.items()}


class _Refused(Exception):
    """A file that is whole but holds what is not read."""


def _child(path: str, seconds: int) -> None:
    """Read `path` and write a JSON line and the arrays to stdout."""
    _limit(seconds)
    import h5py

    n_bytes = Path(path).stat().st_size
    budget = {"bytes": max(SMALL_BYTES, LARGEST_RATIO * n_bytes), "items": MOST_ITEMS, "file": n_bytes}
    arrays: list[np.ndarray] = []
    try:
        with h5py.File(path, "r") as file:
            tree = _group(file, budget, 0, arrays)
        answer = {"tree": tree, "n_arrays": len(arrays)}
    except _Refused as refusal:
        answer, arrays = {"refused": str(refusal)}, []
    except Exception as error:  # h5py raises a dozen types for damaged files
        answer, arrays = {"damaged": " ".join(str(error).split()) or type(error).__name__}, []
    out = sys.stdout.buffer
    out.write(json.dumps(answer).encode() + b"\n")
    for array in arrays:
        np.lib.format.write_array(out, array, allow_pickle=False)
    out.flush()


def _limit(seconds: int) -> None:
    try:
        import resource
    except ImportError:  # not on Unix: the parent's time limit stands alone
        return
    n_bytes = CHILD_BYTES + 4 * LARGEST_RATIO * Path(sys.argv[1]).stat().st_size
    for kind, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, n_bytes)):
        with contextlib.suppress(ValueError, OSError):  # a lower limit stands already
            resource.setrlimit(kind, (most, most))


def _group(group, budget: dict, depth: int, arrays: list[np.ndarray]) -> dict:
    """A group as a dict; each dataset is put into `arrays` and stands as its number."""
    import h5py

    tree = {}
    for name in group:
        budget["items"] -= 1
        if depth > DEEPEST or budget["items"] < 0:
            raise _Refused(f"nested deeper than {DEEPEST} or more than {MOST_ITEMS} items; write it again")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise _Refused(f"{group.name.rstrip('/')}/{name} is a link to elsewhere; such links are not read")
        item = group[name]
        if isinstance(item, h5py.Group):
            tree[name] = _group(item, budget, depth + 1, arrays)
            continue
        if item.external or item.is_virtual:
            raise _Refused(f"{item.name} keeps its data in another file; such data are not read")
        budget["bytes"] -= item.nbytes
        if budget["bytes"] < 0:
            raise _Refused(
                f"{item.name} declares {item.nbytes} bytes, more than a file of {budget['file']} bytes can hold; "
                "write it again"
            )
        tree[name] = len(arrays)
        arrays.append(_array(item.name, item[()]))
    return tree


def _array(name: str, value) -> np.ndarray:
    """A dataset's value as an array without Python objects."""
    array = np.asarray(value)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf8", "replace")
    if array.dtype.kind != "O":
        return array
    if not all(isinstance(text, bytes | str) for text in array.flat):
        raise _Refused(f"{name} is of a type that is not read; supported: numbers and text")
    texts = [text.decode("utf8", "replace") if isinstance(text, bytes) else text for text in array.flat]
    return np.asarray(texts, np.str_).reshape(array.shape)


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]))
