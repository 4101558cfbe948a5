"""Public names that a package offers although a higher layer defines them.

`nwcompile/__init__.py`, which stands above all layers and is always imported first, writes them down here; the package
that offers a name looks it up here when it is first used. So no layer imports one above it.
"""

from collections.abc import Callable

FROM_ABOVE: dict[str, Callable[[], object]] = {}  # By the full public name: what imports the object.


def look_up(package: str, name: str):
    """The object behind `package.name`. Raises AttributeError where nothing of that name was written down."""
    load = FROM_ABOVE.get(f"{package}.{name}")
    if load is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return load()
