"""Stream: read the steps of one sample from a file or standard input: text, frames (.npy, .npz), event files."""

import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from nwcompile.cli.inputs.data import EVENT_FILES, Data
from nwcompile.errors import ModelError, OptionError, one_line, require_torch
from nwcompile.ir.program import Program
from nwcompile.sim.inputs import frames_of
from nwcompile.sim.values import verify_values

ERROR_CODE = "NW6004"
STANDARD_INPUT = "-"
US_PER_S = 1e6  # Event files have microseconds.
CHUNK_STEPS = 64  # Steps per chunk, at most.
BLOCK_BYTES = 1 << 16  # Bytes of text per read, at most; a pipe returns the available ones.
LONGEST_LINE_BYTES = 1 << 24  # A longer line means that the file is not a text of steps.
EVENT = re.compile(r"([0-9]{1,9})(?::(-?[0-9]{1,9}))?")

NO_STEPS = "--stream {}: it holds no step"

Frames = dict[str, np.ndarray]


def read_steps(path: str, program: Program, model_dt: float | None = None) -> Iterator[Frames]:
    """Yield the steps by input, int[n, *shape], in chunks as they arrive. Raises ModelError for unreadable data.

    A step of an event file has the events of `model_dt` seconds; raises OptionError without it.
    """
    if path == STANDARD_INPUT and sys.stdin is None:
        raise OptionError("--stream -: there is no standard input to read from; give a file, or let a pipe feed it")
    if path == STANDARD_INPUT:
        return _read_text(sys.stdin.buffer, "standard input", program)
    suffix = Path(path).suffix
    if suffix in (".npy", ".npz"):
        return _read_arrays(path, program)
    if suffix in EVENT_FILES:
        return _read_events(path, program, model_dt)
    return _read_file(path, program)


def read_stream(path: str, program: Program, model_dt: float | None = None) -> Data:
    """Read all steps of a stream as one sample in the program's layout; raises as `read_steps` does."""
    chunks = list(read_steps(path, program, model_dt))
    if not chunks:
        raise OptionError(NO_STEPS.format(path))
    axis = 1 if program.network.layout == "TB" else 0
    x = {name: np.expand_dims(np.concatenate([chunk[name] for chunk in chunks]), axis) for name in chunks[0]}
    return Data(x, path=path, layout=program.network.layout)


def _open_file(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as e:
        raise ModelError(f"{path}: cannot be read: {e.strerror or e}") from None


def _read_file(path: str, program: Program) -> Iterator[Frames]:
    with _open_file(path) as file:
        yield from _read_text(file, path, program)


def _read_text(stream, source: str, program: Program) -> Iterator[Frames]:
    """Read one step per line: the numbers of the input lines that spike, `3 17 17`, or with a value, `3:2`."""
    rest, number = b"", 0
    while block := stream.read1(BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise ModelError(f"{source}: line {number + len(lines) + 1}: no end of line in {LONGEST_LINE_BYTES} bytes")
        for first in range(0, len(lines), CHUNK_STEPS):
            yield from _parse_until_error(lines[first : first + CHUNK_STEPS], number + first + 1, source, program)
        number += len(lines)
    if rest:
        yield _parse_frames([rest], number + 1, source, program)


def _parse_until_error(lines: list[bytes], first: int, source: str, program: Program) -> Iterator[Frames]:
    """Parse lines to frames. If a line is wrong, yield the lines before it one by one, then raise its error."""
    try:
        frames = iter([_parse_frames(lines, first, source, program)])
    except ModelError:
        frames = (_parse_frames([line], first + i, source, program) for i, line in enumerate(lines))
    yield from frames


def _parse_frames(lines: list[bytes], first: int, source: str, program: Program) -> Frames:
    """Parse lines of text to frames; `first` is the number of the first line."""
    network, n_lines = program.network, sum(node.n_neurons for node in program.network.given_inputs.values())
    steps = [_parse_events(line, f"{source}: line {first + i}", n_lines) for i, line in enumerate(lines)]
    frames = frames_of(network, steps)
    for name, array in frames.items():
        flat = array.reshape(len(lines), -1)
        for i, (low, high) in enumerate(zip(flat.min(1).tolist(), flat.max(1).tolist(), strict=True)):
            try:
                verify_values(name, low, high, program.chip, program.on_multi_spike)
            except ModelError as e:
                raise ModelError(f"{source}: line {first + i}: {e}") from None
    return frames


def _parse_events(line: bytes, where: str, n_lines: int) -> tuple[list[int], list[int]]:
    numbers, values = [], []
    for word in line.decode("utf-8", "replace").split():
        event = EVENT.fullmatch(word)
        if event is None:
            raise ModelError(
                f"{where}: {word[:40]!r} is no event; write the numbers of the input lines that spike in the step, "
                "like 3 17, or with a value, like 3:2"
            )
        if int(event[1]) >= n_lines:
            raise ModelError(f"{where}: there is no input line {event[1]}; the lines are 0..{n_lines - 1}")
        numbers.append(int(event[1]))
        values.append(1 if event[2] is None else int(event[2]))
    return numbers, values


def _read_arrays(path: str, program: Program) -> Iterator[Frames]:
    """Read frames of a .npy file, or of a .npz file under the key x or the names of the inputs."""
    given = program.network.given_inputs
    with _open_file(path) as file:
        members = _open_members(file, path, list(given)) if path.endswith(".npz") else dict.fromkeys(given, file)
        if len(given) > 1 and file in members.values():
            raise ModelError(f"{path}: the network has {len(given)} inputs; give a .npz file with each by its name")
        arrays = {name: _Frames(members[name], path, name, node.shape) for name, node in given.items()}
        if len({a.n_steps for a in arrays.values()}) > 1:
            lengths = ", ".join(f"{name} {a.n_steps}" for name, a in arrays.items())
            raise ModelError(f"{path}: inputs differ in how many steps they have: {lengths}")
        n_steps = next(iter(arrays.values())).n_steps
        for first in range(0, n_steps, CHUNK_STEPS):
            n = min(CHUNK_STEPS, n_steps - first)
            yield {name: array.read(n) for name, array in arrays.items()}


def _read_events(path: str, program: Program, model_dt: float | None) -> Iterator[Frames]:
    """Read steps of an event file from its first to its last event; a pixel is 1 in a step with an event."""
    require_torch(f"--stream {path}")
    from nwcompile.nn.data import Binning, read_events

    if model_dt is None:
        raise OptionError(f"--stream {path}: give --model-dt, the seconds of a step, into which its events are binned")
    name, shape = next((name, node.shape) for name, node in program.network.given_inputs.items())
    if len(program.network.given_inputs) > 1 or len(shape) not in (2, 3):
        shapes = ", ".join(f"{name} {list(node.shape)}" for name, node in program.network.given_inputs.items())
        raise ModelError(
            f"{path}: a recording of events is for one input [polarities, height, width] or [height, width], and the "
            f"program has {shapes}"
        )
    n_polarities, height, width = (1, *shape)[-3:]
    binning = Binning((width, height, n_polarities), bin_length=1, start=0)
    events = np.sort(read_events(path), order="t", kind="stable")
    if not len(events):
        raise ModelError(f"{path}: holds no events")
    step_us = float(f"{model_dt * US_PER_S:.12g}")  # 123 microseconds are not 123.00000000000001
    step = ((events["t"] - events["t"][0]) // step_us).astype(np.int64)
    for first in range(0, int(step[-1]) + 1, CHUNK_STEPS):
        frames = np.zeros((min(CHUNK_STEPS, int(step[-1]) + 1 - first), prod(shape)), np.uint8)
        at = slice(*np.searchsorted(step, (first, first + CHUNK_STEPS)))
        if at.stop > at.start:
            part = events[at].copy()
            part["t"] = step[at] - first
            try:
                binned = binning(part)
            except ModelError as e:
                raise ModelError(f"{path}: {e}") from None
            frames[: len(binned)] = binned
        yield {name: frames.reshape(-1, *shape)}


def _open_members(file: IO[bytes], path: str, names: list[str]) -> dict[str, IO[bytes]]:
    """Open the arrays of a .npz file by input; a single input may be called x."""
    try:
        archive = zipfile.ZipFile(file)
        kept = {name.removesuffix(".npy") for name in archive.namelist()}
        keys = {name: "x" if len(names) == 1 and "x" in kept else name for name in names}
        if missing := [name for name, key in keys.items() if key not in kept]:
            raise ModelError(f"{path}: holds no array {missing[0]!r}; store each input of the network by its name")
        return {name: archive.open(f"{key}.npy") for name, key in keys.items()}
    except (OSError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as e:
        raise ModelError(f"{path}: cannot be read: {one_line(e)}") from None


class _Frames:
    """An array [T, *shape], or with a sample axis of 1, in a file that is read in chunks of steps."""

    def __init__(self, file: IO[bytes], path: str, name: str, shape: tuple[int, ...]):
        self.file, self.path, self.shape = file, path, shape
        try:
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            stored, is_fortran, self.dtype = read[np.lib.format.read_magic(file)](file)
        except (ValueError, KeyError, OSError, zipfile.BadZipFile) as e:
            raise ModelError(f"{path}: cannot be read: {one_line(e)}") from None
        outer = stored[: len(stored) - len(shape)]
        self.n_steps = prod(outer)
        if stored[len(outer) :] != shape or not outer or self.n_steps != max(outer) or not self.n_steps:
            expected = ", ".join(map(str, ("T", *shape)))
            raise ModelError(
                f"{path}: input {name!r} of a stream must be [{expected}], steps of one sample, got {list(stored)}"
            )
        if is_fortran or self.dtype.kind not in "biuf":
            kind = "column by column (Fortran order)" if is_fortran else f"dtype {self.dtype}"
            raise ModelError(f"{path}: input {name!r} is {kind}; a stream is read from numbers, step after step")

    def read(self, n: int) -> np.ndarray:
        """The next n steps, [n, *shape]."""
        n_bytes = n * prod(self.shape) * self.dtype.itemsize
        try:
            data = self.file.read(n_bytes)
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError) as e:
            raise ModelError(f"{self.path}: cannot be read: {one_line(e)}") from None
        if len(data) < n_bytes:
            raise ModelError(f"{self.path}: is cut off; it has fewer steps than it says")
        return np.frombuffer(data, self.dtype).reshape(n, *self.shape)
