"""Recordings as events: structured arrays with the fields x, y, t and p, or frames. Anything else is refused here.

Files of event cameras are read as such arrays. Tonic reads N-MNIST's format, faery the others.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError

ERROR_CODE = "NW8101"
LARGEST = 1 << 62  # Numbers from here on are refused, so sums and differences of two fit into int64.
NONE = np.zeros(0, bool)
EVENT = np.dtype([("t", np.int64), ("x", np.int64), ("y", np.int64), ("p", np.int64)])
# Faery's name of the format by suffix; None: Tonic reads it.
FORMATS = {".bin": None, ".aedat4": "aedat", ".aedat": "aedat", ".raw": "evt", ".dat": "dat", ".es": "es"}
AEDAT_HEAD = b"#!AER-DAT"
UNSAID_SENSOR = (1280, 720)  # Faery requires a size if an EVT or DAT file has none; events do not depend on it.


@dataclass(frozen=True, eq=False)
class Events:
    """Events in any order: `x`, `y`, `p` int64[event], inside the sensor; `t` int64 or float64[event].

    The recording covers the times from `first` to `last`. Integer times are ticks, and the tick of the last event is
    covered. An empty recording covers nothing.
    """

    x: np.ndarray
    y: np.ndarray
    p: np.ndarray
    t: np.ndarray
    first: int | float
    last: int | float


def convert_events(recording: np.ndarray, sensor: tuple[int, int, int]) -> Events:
    """Convert a structured array with the fields x and t, and y and p if the sensor has them.

    sensor: (width, height, polarities). A sensor of height 1 needs no y; one polarity merges all p. Events may be in
    any order. Raises ModelError for missing fields, for numbers that are not finite, for x, y or p that are not whole
    numbers, and for events outside the sensor.
    """
    fields = dict(zip("xyp", sensor, strict=True))
    given = recording.dtype.names or ()
    needed = [f for f in "xytp" if f in "xt" or fields[f] > 1]
    missing = [f for f in needed if f not in given]
    if missing:
        raise ModelError(
            f"the events lack the field{'s' if len(missing) > 1 else ''} {', '.join(missing)} (they have "
            f"{', '.join(given)}); a sensor of {_describe_sensor(sensor)} needs {', '.join(needed)}"
        )
    if recording.ndim != 1:
        raise ModelError(f"the events have shape {recording.shape}; they must be one array of events, [n]")
    at = {f: np.zeros(len(recording), np.int64) for f in "yp"}
    at |= {f: _convert_pixels(recording[f], f, fields[f], sensor) for f in needed if f != "t"}
    t = _convert_numbers(recording["t"], "t")
    if not len(t):
        return Events(**at, t=t, first=0, last=0)
    last = t.max().item()
    return Events(**at, t=t, first=t.min().item(), last=last + 1 if t.dtype.kind == "i" else last)


def convert_frames(recording: np.ndarray, sensor: tuple[int, int, int], threshold: float) -> Events:
    """Convert frames `[T, polarities, height, width]` (or `[T, N]`, or without axes of length 1); one tick per frame.

    A pixel is an event if its number is at least `threshold`. Raises ModelError for another shape or NaN.
    """
    width, height, polarities = sensor
    n, shape = width * height * polarities, recording.shape
    if recording.ndim < 2 or recording.dtype.kind not in "biuf":
        kind = f"shape {shape} and type {recording.dtype}"
        raise ModelError(f"a recording of {kind} is neither events with fields nor frames [T, ...]")
    axes = (polarities, height, width)
    if not shape[0] or (shape[1:] != (n,) and _longer_than_one(shape[1:]) != _longer_than_one(axes)):
        raise ModelError(
            f"frames of shape {shape} do not fit a sensor of {_describe_sensor(sensor)}; they must be "
            f"[T, {', '.join(map(str, axes))}] or [T, {n}]"
        )
    if recording.dtype.kind == "f" and np.isnan(recording).any():
        raise ModelError(f"frame {np.argwhere(np.isnan(recording))[0][0]} holds NaN; frames must be numbers")
    t, p, y, x = np.nonzero(recording.reshape(shape[0], *axes) >= threshold)
    return Events(x=x, y=y, p=p, t=t, first=0, last=shape[0])


def _convert_pixels(values: np.ndarray, field: str, size: int, sensor: tuple[int, int, int]) -> np.ndarray:
    values = _convert_numbers(values, field)
    if values.dtype.kind == "f":
        broken = values != np.floor(values)
        if broken.any():
            i = int(broken.argmax())
            raise ModelError(f"event {i} has {field} = {values[i]:g}; {field} must be a whole number")
        values = values.astype(np.int64)
    outside = (values < 0) | (values >= size)
    if outside.any():
        i = int(outside.argmax())
        hint = "number polarities from 0" if field == "p" else "give the sensor that recorded it, and crop the rest"
        raise ModelError(
            f"event {i} has {field} = {values[i]}, outside a sensor of {_describe_sensor(sensor)} "
            f"({field} from 0 to {size - 1}); {hint}"
        )
    return values


def _convert_numbers(values: np.ndarray, field: str) -> np.ndarray:
    """Convert a field to int64 or float64. Raises ModelError unless numbers are finite, with magnitudes below 2^62."""
    if values.ndim != 1:
        raise ModelError(f"the events' field {field} has shape {values.shape[1:]} in each event; it must be one number")
    if values.dtype.kind not in "biuf":
        raise ModelError(f"the events' field {field} is of type {values.dtype}; it must hold numbers")
    broken = NONE
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):  # of a long double
            values = values.astype(np.float64)
        broken = ~(np.abs(values) < LARGEST)
    elif values.itemsize > 4:
        broken = (values >= LARGEST) | (values <= -LARGEST)
    if broken.any():
        i = int(broken.argmax())
        raise ModelError(f"event {i} has {field} = {values[i]}; {field} must be finite and below 2^62")
    return values if values.dtype.kind == "f" else values.astype(np.int64)


def _longer_than_one(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in axes if n > 1)


def _describe_sensor(sensor: tuple[int, int, int]) -> str:
    return "x".join(map(str, sensor)) + " (width, height, polarities)"


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
