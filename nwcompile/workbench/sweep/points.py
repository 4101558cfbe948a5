"""Points: the keys and values of a sweep, and the chip, options and input of each of its points."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from nwcompile import plugins
from nwcompile.code_version import code_version, method_version
from nwcompile.errors import NwError, OptionError, nearest_first, shown, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import KEYS, SECTIONS
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import grouped
from nwcompile.passes.partition.partition import PARTITIONERS
from nwcompile.passes.place.place import PLACERS
from nwcompile.workbench.figures import describe_failure

CHIP = "chip"  # The key of chips, by name.
INPUT = "input"  # The key of inputs, by name.
PARTITIONER = "partitioner"
PLACER = "placer"
LAYER_BITS = "layer_bits"  # The widths of all layers; `layer_bits.NAME` is the width of one layer.
RANGE = {"from", "to", "step"}  # The keys of a range of whole numbers, whose end is included.
OPTIONS = tuple(field.name for field in fields(Options))
MOST_POINTS = 100_000  # The whole grid is in memory, and takes three hours at a tenth of a second per point.
MOST_VALUES = 10_000  # Values of one key: every value is checked before anything is computed.
ID_DIGITS = 16  # 64 bits of a SHA-256: a collision among a million points is practically impossible.


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples `x` in the network's layout (None: no samples), and `labels` int[B] or None."""

    x: object = None
    labels: np.ndarray | None = None

    @cached_property
    def hash(self) -> str:
        """SHA-256 of samples and labels."""
        arrays = dict(self.x) if isinstance(self.x, Mapping) else {"x": self.x}
        return hash_arrays(*(part for name in sorted(arrays) for part in (name, arrays[name])), "y", self.labels)


@dataclass(frozen=True, eq=False)
class Question:
    """The part that all points share: the network, the samples of each input by name, and how they are run.

    `backend` is one of nwcompile.sim's, or "prediction"; `calibration` None: the samples of the point's input.
    """

    network: Network
    inputs: dict[str, Samples]
    calibration: Samples | None
    backend: str

    @cached_property
    def model(self) -> str:
        """The identity of the network."""
        return self.network.hash[:ID_DIGITS]

    def data(self, name: str) -> str:
        """The identity of the samples of an input and of the calibration."""
        return hash_arrays(self.inputs[name].hash, self.calibration and self.calibration.hash)[:ID_DIGITS]


@dataclass(frozen=True, eq=False)
class Point:
    """One point: its `settings` as plain values with their chip, options and input, or the `error` if they conflict.

    Points with the same network, version, chip, options and samples have the same `id`.
    """

    id: str
    settings: dict[str, object]
    input: str
    chip: Chip | None
    options: Options | None
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Space:
    """All points of a sweep: the `values` of each key, applied to a base chip and options (see `read_grid`)."""

    question: Question
    chip: Chip
    options: Options
    values: dict[str, tuple]

    @property
    def n_points(self) -> int:
        """The number of points of the whole grid, duplicates included."""
        return prod(len(values) for values in self.values.values())

    def points(self) -> Iterator[Point]:
        """Iterate over all points without duplicates; the last key changes fastest."""
        seen = set()
        for choice in product(*self.values.values()):
            point = self.point(dict(zip(self.values, choice, strict=True)))
            if point.id not in seen:
                seen.add(point.id)
                yield point

    def point(self, given: dict[str, Any]) -> Point:
        """Build the point of these settings."""
        settings = {key: to_json_value(value) for key, value in given.items()}
        name = given.get(INPUT, next(iter(self.question.inputs)))
        known = (code_version(), self.question.model, self.question.data(name), self.question.backend)
        try:
            chip, options = self._chip(given), self._options(given)
        except NwError as e:
            error = f"{type(e).__name__}: {describe_failure(e)}"
            return Point(hash_identity(*known, settings), settings, name, chip=None, options=None, error=error)
        point_id = hash_identity(*known, chip.hash, options.to_dict(), *self._versions_of(options))
        return Point(point_id, settings, name, chip=chip, options=options)

    def _chip(self, given: dict[str, Any]) -> Chip:
        """The chip of a point, shared by points that differ only in options."""
        changes = {key: value for key, value in given.items() if key in KEYS}
        chip = given.get(CHIP, self.chip)
        name = (chip.hash, json.dumps(to_json_value(changes), sort_keys=True, default=repr))
        if name not in self._chips:
            self._chips[name] = chip.replace(changes)
        return self._chips[name]

    @cached_property
    def _chips(self) -> dict[tuple[str, str], Chip]:
        return {}

    def _versions_of(self, options: Options) -> list[str]:
        """Hashes of the user's own methods, which change when they are edited."""
        methods = [value for value in (options.partitioner, options.placer) if callable(value)]
        for method in methods:
            if id(method) not in self._versions:
                self._versions[id(method)] = method_version(method)
        return [self._versions[id(method)] for method in methods]

    @cached_property
    def _versions(self) -> dict[int, str]:
        return {}

    def _options(self, given: dict[str, Any]) -> Options:
        values = {key: value for key, value in given.items() if key in OPTIONS}
        layers = {key.partition(".")[2]: value for key, value in given.items() if key.startswith(f"{LAYER_BITS}.")}
        if layers:
            values[LAYER_BITS] = {**(values.get(LAYER_BITS, self.options.layer_bits) or {}), **layers}
        return replace(self.options, **values) if values else self.options

    def verify(self) -> None:
        """Raise OptionError for a value that is wrong in every point."""
        first = {key: values[0] for key, values in self.values.items()}
        known = {
            PARTITIONER: plugins.list_names(plugins.PARTITIONERS, PARTITIONERS),
            PLACER: plugins.list_names(plugins.PLACERS, PLACERS),
        }
        for key, methods in known.items():
            for name in self.values.get(key, ()):
                if not callable(name) and name not in methods:
                    raise OptionError(f"grid: {unknown_choice(key, name, methods)}")
        for key, values in self.values.items():
            for value in values:
                wrong = self.point({key: value}).error
                others = ({**first, other: v, key: value} for other in self.values for v in self.values[other])
                if wrong is not None and all(self.point(choice).error is not None for choice in others):
                    raise OptionError(f"grid: {key} = {shown(to_json_value(value))}: {wrong.partition(': ')[2]}")


def read_grid(grid: dict, question: Question, chip: Chip, options: Options) -> Space:
    """Read a grid {key: values}. Keys: those of chip files ("noc.buffer_flits"), fields of Options, "chip", "input",
    and "layer_bits.NAME" for one layer.

    Values: a list, one value, or {"from": a, "to": b, "step": c} of whole numbers. Raises OptionError for unknown keys,
    keys without values, and values that are wrong in every point.
    """
    if not isinstance(grid, Mapping):
        raise OptionError(f"grid: expected a table {{key: values}}, got {shown(grid)}")
    values: dict[str, tuple] = {}
    for key, given in _flatten_grid(grid):
        _check_key(key, question.network)
        values[key] = _drop_duplicates(key, _expand_values(key, given, question))
    if not values:
        raise OptionError("the grid names no key; give at least one, like n_cores = [1, 2, 4]")
    space = Space(question, chip, options, values)
    space.verify()
    return space


def check_size(space: Space) -> None:
    """Raise OptionError for a grid with more than MOST_POINTS points."""
    if space.n_points > MOST_POINTS:
        raise OptionError(
            f"the grid has {grouped(space.n_points)} points and a sweep goes through at most {grouped(MOST_POINTS)}; "
            "give fewer values, or search it ([search] trials = 100)"
        )


def to_json_value(value) -> object:
    """Convert a value to one that JSON supports: a chip or method becomes its name."""
    if isinstance(value, Chip):
        return value.name
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): to_json_value(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(v) for v in value]
    return getattr(value, "__qualname__", repr(value)) if callable(value) else value


def hash_identity(*parts) -> str:
    """Hash of plain values, ID_DIGITS long."""
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


def hash_arrays(*parts) -> str:
    """SHA-256 of arrays, strings and None."""
    total = hashlib.sha256()
    for part in parts:
        array = None if part is None or isinstance(part, str) else np.ascontiguousarray(part)
        total.update(repr(part if array is None else (array.dtype.str, array.shape)).encode())
        total.update(b"" if array is None else array.tobytes())
    return total.hexdigest()


def _flatten_grid(grid: Mapping) -> Iterator[tuple[str, object]]:
    """Iterate over keys and values, with nested tables flattened: TOML reads `noc.rows = 3` as a table `noc`."""
    for key, given in grid.items():
        is_table = isinstance(given, Mapping) and not set(given) & RANGE
        if is_table and (key in SECTIONS or key == LAYER_BITS):
            yield from ((f"{key}.{name}", values) for name, values in given.items())
        else:
            yield str(key), given


def _check_key(key: str, network: Network) -> None:
    layers = tuple(f"{LAYER_BITS}.{name}" for name in network.layers)
    known = (CHIP, INPUT, *OPTIONS, *KEYS, *layers)
    if key not in known:
        near = nearest_first(key, known)[0]
        raise OptionError(
            f"grid: unknown key {key!r} (did you mean {near!r}?); keys are those of chip files, fields of Options, "
            f"{LAYER_BITS}.LAYER, chip and input"
        )


def _expand_values(key: str, given, question: Question) -> tuple:
    """Expand the values of a key: ranges to numbers, chip names to chips."""
    if isinstance(given, Mapping) and set(given) & RANGE:
        return _read_range(key, given)
    if key == INPUT:
        return _input_names(given, question)
    given = np.atleast_1d(given) if isinstance(given, np.ndarray) else given
    values = tuple(given) if isinstance(given, list | tuple | range | np.ndarray) else (given,)
    if not values:
        raise OptionError(f"grid: {key} has no value; give at least one, or leave the key out")
    if key == CHIP:
        return tuple(value if isinstance(value, Chip) else Chip.load(value) for value in values)
    return tuple(value.item() if isinstance(value, np.generic) else value for value in values)


def _input_names(given, question: Question) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, list | tuple | Mapping) else (given,)
    for name in names:
        if name not in question.inputs:
            raise OptionError(f"grid: input {shown(name)} is none of {', '.join(map(repr, question.inputs))}")
    if not names:
        raise OptionError(f"grid: {INPUT} has no value; give at least one, or leave the key out")
    return names


def _read_range(key: str, given: Mapping) -> tuple[int, ...]:
    words = {"step": 1, **given}
    good = set(words) == RANGE and all(isinstance(n, int) and not isinstance(n, bool) for n in words.values())
    if good:
        low, high, step = words["from"], words["to"], words["step"]
        good = step >= 1 and low <= high and (high - low) // step < MOST_VALUES
    if not good:
        raise OptionError(
            f"grid: {key} = {shown(dict(given))} is no range; give whole numbers {{from = 1, to = 16, step = 1}}, the "
            f"end not below the beginning, and at most {grouped(MOST_VALUES)} of them"
        )
    return tuple(range(words["from"], words["to"] + 1, words["step"]))


def _drop_duplicates(key: str, values: tuple) -> tuple:
    """Remove repeated values. Raises OptionError for different methods or chips of the same name."""
    by_name: dict[str, object] = {}
    for value in values:
        name = json.dumps(to_json_value(value), sort_keys=True, default=repr)
        before = by_name.setdefault(name, value)
        if (callable(value) or isinstance(value, Chip)) and before != value:
            raise OptionError(f"grid: two values of {key} are called {name}; give each a name of its own")
    return tuple(by_name.values())
