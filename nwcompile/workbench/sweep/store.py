"""Store: the table of a sweep, one line of JSON per finished point, which a later sweep reuses.

An incomplete last line after a crash is removed; its point was never reported as done. The file is locked while it is
open; the system releases the lock when the process ends, even if it is killed.
"""

import json
import os
from pathlib import Path

from nwcompile.checkpoint import try_lock
from nwcompile.errors import ArtifactError

ERROR_CODE = "NW7006"
FILE = "sweep.jsonl"


class Store:
    """The rows of a folder's table by point id, the last one of each; without a folder, in memory only.

    `n_unreadable` counts lines that are not rows.
    """

    def __init__(self, folder: Path | None):
        self.rows: dict[str, dict] = {}
        self.n_unreadable = 0
        self.path = None if folder is None else Path(folder) / FILE
        self._file: int | None = None

    def __enter__(self) -> "Store":
        if self.path is not None:
            try:
                self._open(self.path)
            except OSError as e:
                self.close()
                not_folder = isinstance(e, FileExistsError | NotADirectoryError)
                why = f"{self.path.parent} is not a folder" if not_folder else e.strerror
                raise ArtifactError(f"{self.path} cannot be opened: {why}; choose another folder") from None
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def add(self, row: dict) -> None:
        """Add a row; with a folder, it is on disk when this returns. Raises ArtifactError."""
        self.rows[row["id"]] = row
        if self._file is None:
            return
        line, whole = f"{json.dumps(row, allow_nan=False)}\n".encode(), os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as e:
            os.ftruncate(self._file, whole)
            raise ArtifactError(
                f"{self.path} cannot be written: {e.strerror}; the points before this one are kept, and the same "
                "command continues from there"
            ) from None

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if not try_lock(self._file):
            raise ArtifactError(
                f"{path} is being written to by another sweep; wait until that is done, or choose another folder"
            )
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if _parse_row(text[whole:]) is None:
            os.ftruncate(self._file, whole)
            text = text[:whole]
        else:
            os.write(self._file, b"\n")
        for line in text.splitlines():
            row = _parse_row(line)
            if row is None:
                self.n_unreadable += 1
            else:
                self.rows[row["id"]] = row


def _parse_row(line: bytes) -> dict | None:
    """Parse a line; return None if it is not a row."""
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(row, dict) and isinstance(row.get("id"), str) and "seconds" in row
    return row if whole and isinstance(row.get("error", 0), str | None) else None


def _refuse_constant(constant: str) -> None:
    """Raise ValueError for NaN and infinity, which no row contains."""
    raise ValueError(constant)
