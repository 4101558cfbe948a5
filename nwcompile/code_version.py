"""Code version: what tells the code that computes a result from code that may compute another."""

import hashlib
from functools import cache
from pathlib import Path

from nwcompile import __version__

N_DIGITS = 12  # of the hash: as many as a person may compare, and two versions of the code never share by chance.


@cache
def code_version() -> str:
    """The version of nwcompile and the hash of its Python files, read once in a process: "0.1.0+1f2e3d4c5b6a".

    So points that were computed before a file of a checkout was edited are stale; two installations of one release
    have one version. Code that other packages give, plugins among them, is not in it.
    """
    return f"{__version__}+{code_hash(Path(__file__).parent)}"


def code_hash(folder: Path) -> str:
    """The first digits of SHA-256 over the paths, in the folder, and the bytes of its Python files."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()} {len(source)}\n".encode() + source)
    return total.hexdigest()[:N_DIGITS]
