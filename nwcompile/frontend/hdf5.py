"""Reads an HDF5 file that somebody sent, in a child process: libhdf5 hangs or crashes on some damaged files.

The child (`hdf5_child`) opens the file under limits of time and memory; nothing is unpickled. It is kept for the files
that follow, and each file is read in a fork of it, so that none can harm the next.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from math import prod
from pathlib import Path

import numpy as np

from nwcompile.errors import ModelError

ERROR_CODE = "NW2001"
SECONDS = 10.0
BYTES_PER_SECOND = 10_000_000
HEADER_BYTES = 16

_lock = threading.Lock()
_child: subprocess.Popen | None = None
_owner: int | None = None  # the process that started the child; a fork of it starts its own


def read_hdf5(path: Path, kind: str, seconds: float = SECONDS) -> dict:
    """Groups as dicts and datasets as arrays (text as `str` or arrays of it), by name.

    `kind` ("NIR") begins the error texts. Raises ModelError for a file that is missing, not HDF5, damaged, with links
    to other files, larger than what is stored can give, or that takes longer than `seconds` (10 MB a second on top).
    """
    where = f"{kind} file {path}"
    n_bytes, start = 0, b""
    try:
        if path.is_file() or not path.exists():
            with path.open("rb") as file:
                n_bytes = path.stat().st_size
                start = file.read(8)
    except FileNotFoundError:
        raise ModelError(f"{where}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{where}: it cannot be read ({reason})") from None
    if start != b"\x89HDF\r\n\x1a\n":
        raise ModelError(f"{where}: this is not an HDF5 file; give a file that its framework exported")
    limit = seconds + n_bytes / BYTES_PER_SECOND
    try:
        with _lock:
            answer, arrays = _ask(str(path.resolve()), limit)
    except TimeoutError:
        raise ModelError(f"{where}: damaged (reading it took over {limit:g} s); copy or write it again") from None
    except EOFError:
        raise ModelError(f"{where}: it cannot be read (the process that reads it was ended)") from None
    if "damaged" in answer:
        raise ModelError(f"{where}: damaged or truncated ({answer['damaged']}); copy or write it again")
    if "refused" in answer:
        raise ModelError(f"{where}: {answer['refused']}")
    return _filled(answer["tree"], arrays)


def _filled(tree: dict, arrays: list[np.ndarray]) -> dict:
    """The tree with the arrays at their numbers; single texts as `str`."""
    values = [a.item() if a.dtype.kind == "U" and a.ndim == 0 else a for a in arrays]
    return {name: _filled(item, arrays) if isinstance(item, dict) else values[item] for name, item in tree.items()}


def _ask(path: str, limit: float) -> tuple[dict, list[np.ndarray]]:
    """The child's answer within `limit` seconds. Raises TimeoutError or EOFError; then the child is gone."""
    deadline = time.monotonic() + limit
    for attempt in (1, 2):
        child = _running()
        try:
            child.stdin.write(json.dumps([path, int(limit) + 1]).encode() + b"\n")
            child.stdin.flush()
            pipe = child.stdout.fileno()
            size = int(_receive(pipe, HEADER_BYTES, deadline))
            answer = json.loads(bytes(_receive(pipe, size, deadline)))
            arrays = []
            for text, shape in answer.get("arrays", ()):
                dtype = np.dtype(text)
                data = _receive(pipe, dtype.itemsize * prod(shape), deadline)
                arrays.append(np.frombuffer(data, dtype, prod(shape)).reshape(shape))
            return answer, arrays
        except (EOFError, BrokenPipeError):  # it had waited long enough and was about to end
            stop()
            if attempt == 2:
                raise EOFError from None
        except BaseException:
            stop()
            raise
    raise AssertionError


def _running() -> subprocess.Popen:
    """The child, started where there is none."""
    global _child, _owner
    if _child is None or _owner != os.getpid() or _child.poll() is not None:
        stop()
        _child = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("hdf5_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is this process's to handle
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        _owner = os.getpid()
    return _child


@atexit.register
def stop() -> None:
    """End the child and what it has forked; the next file starts another."""
    global _child
    child, _child = _child, None
    if child is None:
        return
    if _owner == os.getpid() and child.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            pipe.close()


def _receive(pipe: int, n_bytes: int, deadline: float) -> bytearray:
    data = bytearray(n_bytes)
    view = memoryview(data)
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while view:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError
        count = os.readv(pipe, [view])
        if not count:
            raise EOFError
        view = view[count:]
    return data
