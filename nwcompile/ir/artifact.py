"""Read and write .nwc files: a zip of `manifest.json` and `.npy` arrays that ends with its own SHA-256.

The last 64 bytes (the comment of the zip) are the SHA-256 of all bytes before them. Truncated and altered files are
detected before anything is parsed. Arrays are read without pickle. Files are replaced atomically. Temporary files of
killed processes are removed the next time the file is written. Arrays are written and read one at a time, in pieces,
so that no second copy of the content is in memory.
"""

import errno
import fcntl
import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nwcompile.errors import ArtifactError

DIGEST_BYTES = 64  # A SHA-256 has 64 hexadecimal digits.
# A damaged header may claim any size; no array of a program that fits a chip comes near 64 GiB.
LARGEST_ARRAY_BYTES = 1 << 36
PIECE_BYTES = 1 << 20  # Bytes per read when hashing.
PARTIAL = ".part"  # Suffix of files that are being written.
HEADER_BYTES = 128  # Header of a .npy entry.
LARGE_BYTES = (1 << 31) / 1.05  # Entries above this need 64-bit sizes; compression may enlarge an entry.


def write_archive(stream: BinaryIO, manifest: dict, arrays: dict[str, np.ndarray], level: int | None = None) -> str:
    """Write the file to an empty stream and return its SHA-256; equal content gives equal bytes.

    The stream must support reading and seeking. `level` is the compression level, 1 (fast) to 9; None: zlib's default.
    """
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        with archive.open("manifest.json", "w") as part:
            part.write(json.dumps(manifest, sort_keys=True, indent=1).encode())
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            is_large = HEADER_BYTES + array.nbytes > LARGE_BYTES
            with archive.open(f"{name}.npy", "w", force_zip64=is_large) as part:
                np.lib.format.write_array(part, array, allow_pickle=False)
        archive.comment = b"0" * DIGEST_BYTES
    digest = _hash_stream(stream, stream.seek(0, os.SEEK_END) - DIGEST_BYTES)
    stream.write(digest.encode())
    return digest


def _hash_stream(stream: BinaryIO, n_bytes: int) -> str:
    """Return the SHA-256 of the first `n_bytes` of a stream; its position is after them then."""
    digest, left = hashlib.sha256(), n_bytes
    stream.seek(0)
    while left > 0 and (piece := stream.read(min(left, PIECE_BYTES))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest()


def encode(manifest: dict, arrays: dict[str, np.ndarray]) -> bytes:
    """Return the bytes that `write_archive` writes."""
    buffer = io.BytesIO()
    write_archive(buffer, manifest, arrays)
    return buffer.getvalue()


def decode(data: bytes, where: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Return manifest and arrays of a file's bytes; raise ArtifactError if they are damaged."""
    return read_archive(io.BytesIO(data), where)


def read_archive(stream: BinaryIO, where: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Return manifest and arrays of a seekable stream; raise ArtifactError if it is damaged."""
    n_bytes = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if n_bytes <= DIGEST_BYTES or stream.read(2) != b"PK":
        raise ArtifactError(
            f"{where}: not a .nwc file; make one with `nwcompile compile MODEL --chip NAME -o DIR`", code="NW7001"
        )
    if _hash_stream(stream, n_bytes - DIGEST_BYTES).encode() != stream.read(DIGEST_BYTES):
        raise ArtifactError(
            f"{where}: damaged or cut short (its SHA-256 does not match); compile the network again", code="NW7001"
        )
    arrays = {}
    try:
        with zipfile.ZipFile(stream) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    if info.file_size > LARGEST_ARRAY_BYTES:
                        raise ArtifactError(
                            f"{where}: array {info.filename} declares {info.file_size} bytes", code="NW7001"
                        )
                    with archive.open(info) as part:
                        arrays[info.filename[:-4]] = np.lib.format.read_array(part, allow_pickle=False)
    except (KeyError, ValueError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, OSError) as e:
        raise ArtifactError(
            f"{where}: cannot be read ({type(e).__name__}: {e}); compile the network again", code="NW7001"
        ) from None
    if not isinstance(manifest, dict):
        raise ArtifactError(f"{where}: its manifest is not a table; compile the network again", code="NW7001")
    return manifest, arrays


def read_file(path) -> tuple[dict, dict[str, np.ndarray]]:
    """Return manifest and arrays of a file; raise ArtifactError if it cannot be read or is damaged."""
    try:
        with open(path, "rb") as stream:
            return read_archive(stream, str(path))
    except OSError as e:
        raise ArtifactError(f"{path} cannot be read: {e.strerror}") from None


def write_bytes(path, data: bytes) -> None:
    """Replace a file atomically, or raise ArtifactError and leave the old one."""
    write_files({path: data})


def write_files(files: dict) -> None:
    """Write several files, given as bytes or as a function of the open file; none is replaced before all are written.

    Raises ArtifactError, naming the path, and leaves the old files.
    """
    whole: dict[str, Path] = {}
    path = Path()
    try:
        with ExitStack() as open_files:  # open and locked until all are renamed
            for given, data in files.items():
                path = Path(given)
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, "there is a folder of that name")
                path.parent.mkdir(parents=True, exist_ok=True)
                _remove_abandoned(path)
                stream = open_files.enter_context(_locked_file_beside(path))
                whole[stream.name] = path
                if callable(data):
                    data(stream)
                else:
                    stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())  # on disk before it is renamed, even if the machine crashes
                os.chmod(stream.name, 0o644)
            for name, path in whole.items():
                os.replace(name, path)
    except OSError as e:
        reason = f"{path.parent} is not a folder" if isinstance(e, FileExistsError | NotADirectoryError) else e.strerror
        is_full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "free space there, or choose another folder" if is_full else "choose a folder you may write to"
        raise ArtifactError(f"{path} cannot be written: {reason}; {advice}") from None
    finally:
        for name in whole:
            if os.path.exists(name):
                os.unlink(name)


@contextmanager
def _locked_file_beside(path: Path) -> Iterator:
    """Yield an empty file next to `path`, to be renamed to it. Its lock shows that a process is still writing it."""
    is_there = False
    while not is_there:
        name = f".{path.name}."
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=name, suffix=PARTIAL, delete=False) as stream:
            with suppress(OSError):  # no locks on this file system: files of killed processes stay
                fcntl.flock(stream, fcntl.LOCK_EX)
            is_there = os.fstat(stream.fileno()).st_nlink > 0  # else another process removed it before it was locked
            if is_there:
                yield stream


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of processes that were killed while writing `path`."""
    for left in path.parent.glob(f".{escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError), open(left, "rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an OSError while another process writes it
            left.unlink()
