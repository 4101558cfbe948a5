"""Files of event cameras as arrays of events. Tonic reads N-MNIST's format, faery the others."""

from importlib import import_module
from pathlib import Path

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError

ERROR_CODE = "NW8101"
EVENT = np.dtype([("t", np.int64), ("x", np.int64), ("y", np.int64), ("p", np.int64)])
# Faery's name of the format by suffix; None: Tonic reads it.
FORMATS = {".bin": None, ".aedat4": "aedat", ".aedat": "aedat", ".raw": "evt", ".dat": "dat", ".es": "es"}
AEDAT_HEAD = b"#!AER-DAT"
UNSAID_SENSOR = (1280, 720)  # Faery requires a size if an EVT or DAT file has none; events do not depend on it.


@checked()
def read_events(path: str | Path) -> np.ndarray:
    """Read the events of a file for `Binning`: a structured array `[n]` of int64 t (microseconds), x, y, p (0 or 1).

    The suffix decides the format: `.bin` (N-MNIST, N-Caltech101), `.aedat4` and `.aedat` (AEDAT 4), `.raw` (Prophesee's
    EVT 2, 2.1 and 3), `.dat` (Prophesee's DAT), `.es` (Event Stream). Events keep the order of the file. Readers differ
    in details: some return the complete events of a truncated file, and times of `.es` begin at 0. Needs the extra
    `events` (faery, Tonic). Raises OptionError if it is not installed, ModelError for another format and for a file
    that its reader refuses.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ModelError(f"{path}: does not have the suffix of an event file; known are {', '.join(FORMATS)}")
    _verify_version(path)
    kind = FORMATS[path.suffix]
    reader = import_reader("tonic" if kind is None else "faery")
    try:
        if kind is None:
            events = reader.io.read_mnist_file(str(path), reader.io.events_struct)
        else:
            events = _read_with_faery(reader, path, kind)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # faery is written in Rust; its panics do not derive from Exception
        text = " ".join(str(e).split())
        raise ModelError(f"{path}: {reader.__name__} cannot read it: {text or type(e).__name__}") from None
    whole = np.empty(len(events), EVENT)
    for name in EVENT.names or ():
        whole[name] = events["on" if name == "p" and kind else name]
    return whole


def import_reader(name: str):
    """Import `tonic` or `faery`. Raises OptionError, which says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        text = f"event files of this kind need {name}, which is not installed: pip install 'nwcompile[events]'"
        raise OptionError(text, code="NW1102") from None


def _read_with_faery(faery, path: Path, kind: str) -> np.ndarray:
    version = None
    if kind in ("evt", "dat"):  # for a file without a version, faery's events_stream_from_file guesses one
        version = getattr(faery, kind).Decoder(str(path), UNSAID_SENSOR, None).version
    return faery.events_stream_from_file(str(path), file_type=kind, version_fallback=version).to_array()


def _verify_version(path: Path) -> None:
    """Raise ModelError for a file that cannot be opened, and for AEDAT before version 4."""
    try:
        with path.open("rb") as file:
            head = file.readline(len(AEDAT_HEAD) + 3)
    except OSError as e:
        raise ModelError(f"{path}: cannot be read: {e.strerror or e}") from None
    version = head.removeprefix(AEDAT_HEAD).decode("ascii", "replace")
    if head.startswith(AEDAT_HEAD) and not version.startswith("4"):
        raise ModelError(
            f"{path}: is AEDAT {version.strip()}, and only AEDAT 4 is read; earlier versions do not say how their "
            "camera numbers pixels: read it with the tool that recorded it, and give an array of fields t, x, y, p"
        )
