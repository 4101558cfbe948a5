"""Code version: identifies the code that computes a result, so that results of other code are not reused."""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType

from nwcompile import __version__

N_DIGITS = 12  # Hexadecimal digits of the hash: short enough to compare by eye, long enough to avoid collisions.


@cache
def code_version() -> str:
    """The version of nwcompile and the hash of its Python files, read once per process: "0.1.0+1f2e3d4c5b6a".

    An edit of a file in a checkout makes earlier results stale. All installations of a release have the same version.
    The code of other packages, plugins included, is not part of it.
    """
    return f"{__version__}+{code_hash(Path(__file__).parent)}"


def method_version(method: Callable) -> str:
    """Hash of a user's method, which changes when the method is edited.

    It covers the file or notebook cell of the method, its loaded instructions, and the values bound to it, but no other
    files that it imports. A value whose `repr` is only an address differs in every process, so results computed with it
    are never reused.
    """
    given: list[object] = []
    while isinstance(method, partial):
        given += [method.args, method.keywords]
        method = method.func
    function = method
    if not inspect.isroutine(method):
        given.append(vars(method))
        function = type(method).__call__
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    given += [getattr(function, "__defaults__", None), [cell.cell_contents for cell in cells]]
    try:
        lines = inspect.findsource(function)[0]
    except (OSError, TypeError):
        lines = []
    text = f"{''.join(lines)}\n{None if code is None else _read_instructions(code)}\n{given!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:N_DIGITS]


def _read_instructions(code: CodeType) -> tuple:
    """The bytecode of a function and of its inner functions, without addresses."""
    constants = [_read_instructions(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return code.co_code, code.co_names, constants


def code_hash(folder: Path) -> str:
    """The first digits of SHA-256 over the relative paths and the bytes of all Python files in a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()} {len(source)}\n".encode() + source)
    return total.hexdigest()[:N_DIGITS]
