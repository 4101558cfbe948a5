"""Files of event cameras as arrays of events, by the readers of others: N-MNIST's by Tonic, the others by faery."""

from importlib import import_module
from pathlib import Path

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError

ERROR_CODE = "NW8101"
EVENT = np.dtype([("t", np.int64), ("x", np.int64), ("y", np.int64), ("p", np.int64)])
# Suffixes, and the name that faery has for the format; None: Tonic reads it.
FORMATS = {".bin": None, ".aedat4": "aedat", ".aedat": "aedat", ".raw": "evt", ".dat": "dat", ".es": "es"}
AEDAT_HEAD = b"#!AER-DAT"
UNSAID_SENSOR = (1280, 720)  # Faery asks for one where an EVT or DAT file has none; events do not depend on it.


@checked()
def read_events(path: str | Path) -> np.ndarray:
    """The events of a file, a structured array `[n]` of int64 t (microseconds), x, y and p (0 or 1), for `Binning`.

    By its suffix: `.bin` (N-MNIST, N-Caltech101), `.aedat4` and `.aedat` (AEDAT 4), `.raw` (Prophesee's EVT 2, 2.1 and
    3), `.dat` (Prophesee's DAT), `.es` (Event Stream). Events come in the order of the file and as its reader gives
    them: of a file that is cut off some give what is whole, and times of `.es` begin with 0. Needs the extra `events`
    (faery, Tonic). Raises OptionError where that is not installed, ModelError for a file of another format or one that
    its reader refuses.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ModelError(f"{path}: is no event file by its suffix; known are {', '.join(FORMATS)}")
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
    except BaseException as e:  # faery is written in Rust, whose panics are no Exception
        text = " ".join(str(e).split())
        raise ModelError(f"{path}: {reader.__name__} cannot read it: {text or type(e).__name__}") from None
    whole = np.empty(len(events), EVENT)
    for name in EVENT.names or ():
        whole[name] = events["on" if name == "p" and kind else name]
    return whole


def import_reader(name: str):
    """The module `tonic` or `faery`; raises OptionError that tells how to install it."""
    try:
        return import_module(name)
    except ImportError:
        text = f"event files of this kind need {name}, which is not installed: pip install 'nwcompile[events]'"
        raise OptionError(text, code="NW1102") from None


def _read_with_faery(faery, path: Path, kind: str) -> np.ndarray:
    version = None
    if kind in ("evt", "dat"):  # a file that names no version would be read as the one that faery finds likely
        version = getattr(faery, kind).Decoder(str(path), UNSAID_SENSOR, None).version
    return faery.events_stream_from_file(str(path), file_type=kind, version_fallback=version).to_array()


def _verify_version(path: Path) -> None:
    """Raise ModelError for a file that cannot be opened, or of AEDAT before 4."""
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
