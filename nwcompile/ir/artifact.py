"""Reading and writing one self-proving file: a zip of `manifest.json` and `.npy` arrays, closed by its own SHA-256.

The last 64 bytes (the zip's comment) are the SHA-256 of all bytes before them, so any cut or flipped bit is found
before anything is parsed. Arrays are read without pickle. Files are replaced in one move: never half-written.
"""

import errno
import hashlib
import io
import json
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from nwcompile.errors import ArtifactError

DIGEST_BYTES = 64  # A SHA-256 has 64 hexadecimal digits.
# A damaged header may claim any size; no array of a program that fits a chip comes near 64 GiB.
LARGEST_ARRAY_BYTES = 1 << 36


def encode(manifest: dict, arrays: dict[str, np.ndarray]) -> bytes:
    """The file's bytes; equal content gives equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        entries = [("manifest.json", json.dumps(manifest, sort_keys=True, indent=1).encode())]
        for name in sorted(arrays):
            array = io.BytesIO()
            np.lib.format.write_array(array, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            entries.append((f"{name}.npy", array.getvalue()))
        for name, body in entries:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), body, zipfile.ZIP_DEFLATED)
        archive.comment = b"0" * DIGEST_BYTES
    body = buffer.getvalue()[:-DIGEST_BYTES]
    return body + hashlib.sha256(body).hexdigest().encode()


def decode(data: bytes, where: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Manifest and arrays of a file's bytes; raises ArtifactError unless the file is whole."""
    if len(data) <= DIGEST_BYTES or data[:2] != b"PK":
        raise ArtifactError(f"{where}: not a .nwc file; make one with `nwcompile compile MODEL --chip NAME -o DIR`")
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ArtifactError(f"{where}: damaged or cut short (its SHA-256 does not match); compile the network again")
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    if info.file_size > LARGEST_ARRAY_BYTES:
                        raise ArtifactError(f"{where}: array {info.filename} declares {info.file_size} bytes")
                    with archive.open(info) as stream:
                        arrays[info.filename[:-4]] = np.lib.format.read_array(stream, allow_pickle=False)
    except (KeyError, ValueError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, OSError) as e:
        raise ArtifactError(f"{where}: cannot be read ({type(e).__name__}: {e}); compile the network again") from None
    if not isinstance(manifest, dict):
        raise ArtifactError(f"{where}: its manifest is not a table; compile the network again")
    return manifest, arrays


def read_bytes(path) -> bytes:
    """A file's bytes, or ArtifactError."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise ArtifactError(f"{path} cannot be read: {e.strerror}") from None


def write_bytes(path, data: bytes) -> None:
    """Write a file in one move, or raise ArtifactError and leave what was there."""
    write_files({path: data})


def write_files(files: dict) -> None:
    """Write every path's bytes: all are complete beside their places before the first is moved to its own.

    Raises ArtifactError, naming the path, and leaves what was there.
    """
    whole: dict[str, Path] = {}
    path = Path()
    try:
        for given, data in files.items():
            path = Path(given)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "there is a folder of that name")
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
                whole[stream.name] = path
                stream.write(data)
            os.chmod(stream.name, 0o644)
        for name, path in whole.items():
            os.replace(name, path)
    except OSError as e:
        reason = f"{path.parent} is not a folder" if isinstance(e, FileExistsError | NotADirectoryError) else e.strerror
        raise ArtifactError(f"{path} cannot be written: {reason}; choose a folder you may write to") from None
    finally:
        for name in whole:
            if os.path.exists(name):
                os.unlink(name)
