"""Read an HDF5 file from an untrusted source in a separate process, because libhdf5 hangs on some damaged files.

The process (`hdf5_child.py`) opens the file under limits of time and memory. Nothing is unpickled.
"""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from nwcompile.errors import ModelError

ERROR_CODE = "NW2001"
CHILD = Path(__file__).with_name("hdf5_child.py")
SECONDS = 10.0
BYTES_PER_SECOND = 10_000_000
LFS_POINTER = b"version https://git-lfs."  # how a file begins that Git LFS has not fetched


def read_hdf5(path: Path, kind: str, seconds: float = SECONDS) -> dict:
    """Return groups as dicts and datasets as arrays, by name; texts are `str` or arrays of `str`.

    `kind` ("NIR") begins the error texts. Raises ModelError if the file is missing, not HDF5, damaged, has links to
    other files, declares more data than its size can hold, or takes longer than `seconds` plus 1 s per 10 MB.
    """
    where = f"{kind} file {path}"
    n_bytes, start = 0, b""
    try:
        if path.is_file() or not path.exists():
            with path.open("rb") as file:
                n_bytes = path.stat().st_size
                start = file.read(len(LFS_POINTER))
    except FileNotFoundError:
        raise ModelError(f"{where}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{where}: it cannot be read ({reason})") from None
    if start == LFS_POINTER:
        raise ModelError(f"{where}: this is a pointer of Git LFS, not the file; run 'git lfs pull' in its repository")
    if not start.startswith(b"\x89HDF\r\n\x1a\n"):
        raise ModelError(f"{where}: this is not an HDF5 file; give a file that its framework exported")
    limit = seconds + n_bytes / BYTES_PER_SECOND
    command = [sys.executable, "-P", str(CHILD), str(path.resolve()), str(int(limit) + 1)]
    try:
        child = subprocess.run(
            command, capture_output=True, timeout=limit, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"{where}: damaged (reading it took over {limit:g} s); copy or write it again") from None
    if child.returncode:
        status = child.returncode
        ended = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        raise ModelError(f"{where}: damaged or truncated (reading it ended with {ended}); copy or write it again")
    with np.load(io.BytesIO(child.stdout)) as file:
        answer = json.loads(file["answer"].item())
        if "damaged" in answer:
            raise ModelError(f"{where}: damaged or truncated ({answer['damaged']}); copy or write it again")
        if "refused" in answer:
            raise ModelError(f"{where}: {answer['refused']}")
        return _insert_arrays(answer["tree"], file)


def _insert_arrays(tree: dict, file) -> dict:
    """Replace each array name in the tree by the file's array; single texts become `str`."""
    filled = {name: _insert_arrays(item, file) if isinstance(item, dict) else file[item] for name, item in tree.items()}
    return {
        name: item.item() if isinstance(item, np.ndarray) and item.dtype.kind == "U" and item.ndim == 0 else item
        for name, item in filled.items()
    }
