"""Packed spikes on disk, named by a hash of their origin.

The name of a file is the SHA-256 of recordings, labels, settings and version of the transform, and the format's
version. The file ends with the SHA-256 of its own bytes. It is written under another name and renamed, so no reader
finds a half-written file, and processes that write the same file replace it with equal bytes.
"""

import errno
import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nwcompile.errors import ArtifactError, ModelError, NwWarning, OptionError
from nwcompile.ir.artifact import write_bytes
from nwcompile.nn.data.packed import BITS, Packed, as_array, count_samples, packed, read_pair

ERROR_CODE = "NW8103"
HEAD = b"nwcompile spikes 1\n"  # the format and its version
DIGEST_BYTES = 32


def cached(samples, transform, folder, name: str | None = None) -> Packed:
    """Return the result of `packed` from a file in `folder`, mapped into memory; write the file if it is missing.

    samples: pairs (recording, label). The file is found by reading and hashing every recording, without transforming
    it. A `name` replaces this hash, and recordings are not read; other recordings then need another name.
    transform: a frozen dataclass with `deterministic = True` and a `version`, such as Binning.
    A damaged file is rewritten, with a NwWarning. Raises OptionError for a transform whose result cannot be cached,
    ArtifactError for a folder that cannot be used, and ModelError like `packed`.
    """
    path = Path(folder) / f"{_hash_content(samples, describe_settings(transform), name)}.spikes"
    try:
        return _read_file(path)
    except FileNotFoundError:
        _make_folder(path.parent)
    except ArtifactError as e:
        warnings.warn(NwWarning(f"{e}; it is rewritten"), stacklevel=2)
    except OSError as e:
        raise ArtifactError(f"{path} cannot be read: {e.strerror}; choose another folder for the cache") from None
    write_bytes(path, _encode_file(packed(samples, transform)))
    return _read_file(path)


def _make_folder(folder: Path) -> None:
    """Make the folder. Raises ArtifactError, before any work is done, if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    except OSError as e:
        reason = e.strerror or str(e)
    if reason:
        raise ArtifactError(f"{folder} cannot hold the cache: {reason}; choose a folder you may write to")


def describe_settings(transform) -> str:
    """Return a transform's name, version and settings as text. Raises OptionError if its results depend on more."""
    kind: Any = type(transform)
    if getattr(transform, "deterministic", None) is False:
        raise OptionError(
            f"{transform} draws new spikes at every call, so they cannot be cached; use "
            "nwcompile.nn.data.Transformed, which transforms at each access, or a deterministic transform"
        )
    is_frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[union-attr]
    described = is_frozen and hasattr(kind, "version")
    if not described or getattr(transform, "deterministic", None) is not True:
        raise OptionError(
            f"a transform of type {kind.__name__} cannot be cached: only a frozen dataclass with deterministic = True "
            "and a version says what its results depend on; use nwcompile.nn.data.Binning or Transformed"
        )
    try:
        fields = json.dumps(asdict(transform), sort_keys=True)
    except TypeError as e:
        raise OptionError(f"{kind.__name__} cannot be cached: its fields are not plain values ({e})") from None
    return f"{kind.__module__}.{kind.__qualname__} {kind.version} {fields}"


def _hash_content(samples, described: str, name: str | None) -> str:
    digest = hashlib.sha256(HEAD + described.encode() + b"\n")
    for part in [f"name {name}".encode()] if name is not None else _iterate_content(samples):
        digest.update(part)
    return digest.hexdigest()


def _iterate_content(samples) -> Iterator[bytes]:
    """Yield the recordings and labels as unambiguous bytes."""
    for i in range(count_samples(samples)):
        for part in read_pair(samples, i):
            array = as_array(part)
            if array.dtype.hasobject:
                raise ModelError(f"sample {i} holds Python objects of type {type(part).__name__}, not an array")
            for field in array.dtype.names or [...]:  # by name, so padding and memory layout do not matter
                values = array[field]
                yield f"{field!r} {values.dtype.str} {values.shape}\n".encode()
                yield values.tobytes()


def _encode_file(of: Packed) -> bytes:
    stream = io.BytesIO(HEAD)
    stream.seek(len(HEAD))
    for tensor in (of.lengths, of.labels, of.words):
        np.lib.format.write_array(stream, tensor.numpy(), allow_pickle=False)
    return stream.getvalue() + hashlib.sha256(stream.getbuffer()).digest()


def _read_file(path: Path) -> Packed:
    """Map a file's spikes into memory. Raises ArtifactError for a damaged file."""
    with open(path, "rb") as stream:
        _verify_digest(stream, path)
        lengths, labels = (np.lib.format.read_array(stream, allow_pickle=False) for _ in range(2))
        np.lib.format.read_magic(stream)
        shape, _, _ = np.lib.format.read_array_header_1_0(stream)
        # A private mapping: torch requires writable memory, and the file stays unchanged.
        words = np.memmap(stream, BITS, "c", stream.tell(), shape)
    return Packed(*map(torch.from_numpy, (words, lengths, labels)))


def _verify_digest(stream, path: Path) -> None:
    """Verify the digest and move the stream behind the head. Raises ArtifactError for a damaged file."""
    view: Any = np.memmap(stream, np.uint8, "r") if stream.seek(0, io.SEEK_END) > len(HEAD) + DIGEST_BYTES else b""
    whole = bytes(view[: len(HEAD)]) == HEAD
    if not whole or hashlib.sha256(view[:-DIGEST_BYTES]).digest() != bytes(view[-DIGEST_BYTES:]):
        raise ArtifactError(f"{path} is damaged or cut short (its SHA-256 does not match)")
    stream.seek(len(HEAD))
