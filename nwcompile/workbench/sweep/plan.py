"""Plan: read plan.toml: a model, samples, a chip, the grid of points, and the search."""

import tomllib
from dataclasses import dataclass, field
from typing import Any

from nwcompile.errors import OptionError, nearest_first, shown
from nwcompile.ir import chip_sections
from nwcompile.workbench.sweep.points import CHIP, INPUT, OPTIONS
from nwcompile.workbench.sweep.search import Search

TEXTS = ("model", "chip", "input", "calibration", "backend", "dialect")
KEYS = (*TEXTS, "samples", "dt", "neuron", "grid", "search")
SEARCH_KEYS = ("trials", "seed", "minimize", "maximize")
GRID_KEYS = (CHIP, INPUT, *OPTIONS, *chip_sections.SECTIONS, *chip_sections.KEYS)
PLACES = {"at the top, above every [table]": KEYS, "under [grid]": GRID_KEYS, "under [search]": SEARCH_KEYS}


@dataclass(frozen=True)
class Plan:
    """The content of a plan file. Files and `model` are as on the command line; None: not given.

    A plan without trials may have `minimize` and `maximize` too: they define the best points of a grid.
    """

    model: str
    grid: dict
    chip: str = "loihi1"
    input: str | None = None
    samples: int | None = None
    calibration: str | None = None
    backend: str | None = None
    dt: float | None = None
    dialect: str | None = None
    neuron: dict = field(default_factory=dict)
    search: Search | None = None
    minimize: tuple[str, ...] | None = None
    maximize: tuple[str, ...] | None = None


def read_plan(path: str) -> Plan:
    """Read the plan of a TOML file. Raises OptionError, which names the file and the key."""
    try:
        with open(path, encoding="utf-8-sig") as stream:
            table = tomllib.loads(stream.read())
    except OSError as e:
        raise OptionError(f"plan {path} cannot be read: {e.strerror}") from None
    except (ValueError, RecursionError) as e:
        raise OptionError(f"plan {path} is not TOML: {e}") from None
    options = {key: table.pop(key) for key in [*table] if key in OPTIONS}  # they may stand in [grid] or at the top
    if options and isinstance(table.setdefault("grid", {}), dict):
        for key in options.keys() & table["grid"].keys():
            raise OptionError(f"plan {path}: {key} is given at the top and under [grid]; give it once")
        table["grid"] = {**options, **table["grid"]}
    _check_keys(path, "", table, KEYS)
    if isinstance(table.get("grid"), dict):
        for key in table["grid"]:
            _check_place(path, "grid.", key, GRID_KEYS)
    for key in ("model", "grid"):
        if key not in table:
            raise OptionError(f"plan {path}: {key} is missing; every plan names a model and the keys of its [grid]")
    for key in TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise OptionError(f"plan {path}: {key} = {shown(table[key])} must be a text")
    for key in ("neuron", "grid", "search"):
        if not isinstance(table.get(key, {}), dict):
            raise OptionError(f"plan {path}: {key} = {shown(table[key])} must be a table, [{key}]")
    for key, kind, what in (("samples", int, "a whole number"), ("dt", int | float, "a number of seconds")):
        if key in table and (isinstance(table[key], bool) or not isinstance(table[key], kind)):
            raise OptionError(f"plan {path}: {key} = {shown(table[key])} must be {what}")
    asked = dict(table.pop("search", {}))
    _check_keys(path, "search.", asked, SEARCH_KEYS)
    goals: dict[str, Any] = {k: _read_names(path, k, asked.pop(k)) for k in ("minimize", "maximize") if k in asked}
    if asked and "trials" not in asked:
        raise OptionError(f"plan {path}: search.trials is missing; say how many points may be tried, like trials = 100")
    return Plan(**table, **goals, search=Search(**asked) if asked else None)


def _check_keys(path: str, section: str, table: dict, known: tuple[str, ...]) -> None:
    for key in table:
        _check_place(path, section, key, known)
        if key not in known:
            near = nearest_first(key, known)
            raise OptionError(f"plan {path}: unknown key {section + key!r}; choose one of: {', '.join(near)}")


def _check_place(path: str, section: str, key: str, known: tuple[str, ...]) -> None:
    """Raise OptionError for a key that belongs to another section; `known` are the keys of its own section."""
    places = [] if key in known else [place for place, keys in PLACES.items() if key in keys]
    if places:
        raise OptionError(f"plan {path}: {section + key!r} is in the wrong place; put {key} {' or '.join(places)}")


def _read_names(path: str, key: str, given) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f'plan {path}: search.{key} = {shown(given)} must be names of figures, like ["step_us"]')
    return tuple(names)
