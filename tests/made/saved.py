"""Programs compared part by part with their files."""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np

from nwcompile.ir import artifact
from nwcompile.ir.program import Program


def verify_saved(program: Program, path: Path) -> None:
    """Save a program to `path`, and assert that `Program.load` returns an equal one."""
    with path.open("w+b") as stream:
        artifact.write_archive(stream, *program._pack_content())
    difference = first_difference(program, Program.load(path), "program")
    assert difference is None, f"a saved program comes back with another {difference}"


def first_difference(a, b, where: str) -> str | None:
    """Name of the first part in which two values differ, or None; NumPy's numbers equal Python's."""
    if isinstance(a, np.ndarray) and a.ndim:
        same = isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        return None if same else where
    if is_dataclass(a):
        if type(a) is not type(b):
            return where
        a, b = ({f.name: getattr(value, f.name) for f in fields(a) if f.compare} for value in (a, b))
    if where == "program.manifest":
        return None if json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True) else where
    if isinstance(a, dict):
        ordered = list if where.endswith((".inputs", ".nodes", ".gives")) else set  # JSON sorts the rest
        if not isinstance(b, dict) or ordered(a) != ordered(b):
            return where
        return next(filter(None, (first_difference(a[key], b[key], f"{where}.{key}") for key in a)), None)
    if isinstance(a, tuple):
        if not isinstance(b, tuple) or len(a) != len(b):
            return where
        parts = enumerate(zip(a, b, strict=True))
        return next(filter(None, (first_difference(x, y, f"{where}[{i}]") for i, (x, y) in parts)), None)
    return None if a == b else where
