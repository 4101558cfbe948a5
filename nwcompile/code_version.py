"""Code version: what tells the code that computes a result from code that may compute another."""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType

from nwcompile import __version__

N_DIGITS = 12  # of the hash: as many as a person may compare, and two versions of the code never share by chance.


@cache
def code_version() -> str:
    """The version of nwcompile and the hash of its Python files, read once in a process: "0.1.0+1f2e3d4c5b6a".

    So points that were computed before a file of a checkout was edited are stale; two installations of one release
    have one version. Code that other packages give, plugins among them, is not in it.
    """
    return f"{__version__}+{code_hash(Path(__file__).parent)}"


def method_version(method: Callable) -> str:
    """What tells a method of a person's own from what it was before an edit, as digits of a hash.

    It is of the file or notebook cell that holds the method, of the instructions that are loaded, and of the values
    that it was made with; other files that it imports are not in it. Values that show no more than their address are
    others in every process, so that what was computed with them is computed anew.
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
    text = f"{''.join(lines)}\n{None if code is None else _instructions(code)}\n{given!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:N_DIGITS]


def _instructions(code: CodeType) -> tuple:
    """What a function does, with the functions in it, wherever they lie."""
    constants = [_instructions(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return code.co_code, code.co_names, constants


def code_hash(folder: Path) -> str:
    """The first digits of SHA-256 over the paths, in the folder, and the bytes of its Python files."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()} {len(source)}\n".encode() + source)
    return total.hexdigest()[:N_DIGITS]
