"""Lazy names: public names of a package that a higher layer defines.

`nwcompile/__init__.py`, which is above all layers and always imported first, registers them here. The package that
offers a name looks it up here on first use, so no layer imports one above it.
"""

from collections.abc import Callable

FROM_ABOVE: dict[str, Callable[[], object]] = {}  # By full public name: the function that imports the object.


def look_up(package: str, name: str):
    """Import the object behind `package.name`. Raises AttributeError if that name is not registered."""
    load = FROM_ABOVE.get(f"{package}.{name}")
    if load is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return load()
