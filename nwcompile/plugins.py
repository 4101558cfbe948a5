"""Plugins: entry points of other packages that add choices by name.

group                     name                     what the entry point gives
nwcompile.chips           the chip's               a Chip, or the text or the path of its TOML file
nwcompile.partitioners    for --partitioner        a callable as in PARTITIONERS (passes/partition/partition.py)
nwcompile.placers         for --placer             a callable as in PLACERS (passes/place/place.py)
nwcompile.frontends       a suffix without dot     a function of the path of a file, which gives a Network
nwcompile.exporters       for export --to          a pair of functions as in EXPORTS (report/export/formats.py)

There is no registry: a name is looked up when a user gives it, and only the chosen plugin is imported. A plugin with
the name of a built-in choice makes that name an error.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from nwcompile.errors import NwError, OptionError, nearest_first, one_line, require_torch, unknown_choice

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ERROR_CODE = "NW1103"
CHIPS = "nwcompile.chips"
PARTITIONERS = "nwcompile.partitioners"
PLACERS = "nwcompile.placers"
FRONTENDS = "nwcompile.frontends"
EXPORTERS = "nwcompile.exporters"


def look_up(group: str, kind: str, name: Any, built_in: Mapping[str, Any]) -> Any:
    """Look up `name`, built-in or from a plugin. Raises OptionError if it is neither, both, or fails to load."""
    if isinstance(name, str) and has_plugin(group, kind, name, built_in):
        return load_plugin(group, kind, name)
    if not isinstance(name, str) or name not in built_in:
        raise OptionError(unknown_choice(kind, name, list_names(group, built_in)), code="NW1101")
    return built_in[name]


def has_plugin(group: str, kind: str, name: str, built_in: Iterable[str]) -> bool:
    """Whether a plugin provides that name. Raises OptionError if a built-in choice has the same name."""
    points = find_entry_points(group).get(name)
    if points and name in built_in:
        raise OptionError(f"{_from(points[0])}: {kind} {name!r} is the name of a built-in one; give it another name")
    return bool(points)


def load_plugin(group: str, kind: str, name: str) -> Any:
    """Load the plugin of that name. Raises OptionError if two plugins provide it, or if its import fails."""
    first, *others = find_entry_points(group)[name]
    if others:
        raise OptionError(f"{_from(first)} and {_from(others[0])} both give {kind} {name!r}; uninstall one of them")
    try:
        return first.load()
    except (Exception, SystemExit) as e:
        reason = f"importing {first.value} failed: {one_line(e)}"
        raise OptionError(f"{_from(first)} cannot give {kind} {name!r}: {reason}") from None


def import_function(spec: str, error: type[NwError], code: str) -> Callable:
    """Import the function that `package.module:function` names; modules of the current folder are found.

    Raises `error` with this code if there is no such module or function, or if the import or a call fails.
    """
    name, _, attribute = spec.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(name)
    except NwError:
        raise
    except (Exception, SystemExit) as e:
        if isinstance(e, ModuleNotFoundError) and e.name and f"{name}.".startswith(f"{e.name}."):
            text = f"{spec}: no module {e.name} is in this folder, in PYTHONPATH or installed"
            raise error(text, code=code) from None
        if isinstance(e, ModuleNotFoundError) and e.name == "torch":
            require_torch(spec)
        raise error(f"{spec}: importing {name} failed: {one_line(e)}", code=code) from None
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        listed = ", ".join(nearest_first(attribute, names)) or "none"
        raise error(f"{spec}: there is no function {attribute!r} in {name}; functions: {listed}", code=code)
    return name_failures(spec, function, error, code)


def name_failures(spec: str, function: Callable, error: type[NwError], code: str) -> Callable:
    """Wrap a user's function: an exception in it becomes an `error` that names `spec`, the file and the line."""

    @wraps(function)
    def call(*given, **named):
        try:
            return function(*given, **named)
        except NwError:
            raise
        except (Exception, SystemExit) as e:
            inside = extract_tb(e.__traceback__)[1:]
            place = f" ({Path(inside[-1].filename).name}, line {inside[-1].lineno})" if inside else ""
            raise error(f"{spec}: raised {one_line(e)}{place}", code=code) from e

    call.__qualname__ = spec  # what the manifest of a program names
    return call


def list_names(group: str, built_in: Iterable[str] = ()) -> list[str]:
    """All available names: the built-in ones in their order, then those of plugins."""
    return [*dict.fromkeys([*built_in, *sorted(find_entry_points(group))])]


@cache
def find_entry_points(group: str) -> dict[str, list["EntryPoint"]]:
    """The entry points of a group, by name, from the installed packages. None is imported."""
    from importlib.metadata import entry_points  # imported here because it takes longer than --help

    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        points.setdefault(point.name, []).append(point)
    return points


def _from(point: "EntryPoint") -> str:
    return f"plugin {point.dist.name if point.dist else point.value}"
