"""What a verb works on: models, programs and chips, from what was written on the command line."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from traceback import extract_tb

import numpy as np

from nwcompile.cli.data import sentence
from nwcompile.errors import ModelError, NwError, OptionError, nearest_first
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program

AFTER_COMPILING = ("noc.", "cost.", "energy.", "core.cycle_ns")
GRID = ("noc.columns", "noc.rows", "noc.cores_per_router")


def chip_of(args: Namespace) -> Chip:
    """The chip that was named, with the keys that were set."""
    return Chip.load(args.chip).replace(args.set)


def program_of(path: str, changes: dict) -> Program:
    """A .nwc file, with keys of its chip changed that compiling does not depend on."""
    if Path(path).suffix != ".nwc":
        raise OptionError(f"{path}: expected a .nwc program, as `nwcompile compile` makes it")
    program = Program.load(path)
    for key in changes:
        if not key.startswith(AFTER_COMPILING) or key in GRID:
            raise OptionError(f"--set {key}: this key is fixed when compiling; give it to `nwcompile compile`")
    return replace(program, chip=program.chip.replace(changes)) if changes else program


def network_of(spec: str, args: Namespace, example: np.ndarray | None = None) -> Network:
    """The network of a .nir or .net file or of `package.module:factory`, which may need the `example`."""
    if Path(spec).suffix == ".nir":
        from nwcompile.frontend.nir import from_nir

        given = {"dt": args.dt, "dialect": args.dialect, "neuron": dict(args.neuron) or None}
        return from_nir(spec, **{name: value for name, value in given.items() if value is not None})
    if Path(spec).suffix == ".net":
        from nwcompile.frontend.lava import from_lava

        if args.dt is not None or args.dialect is not None:
            raise OptionError("--dt and --dialect say how to read a .nir file; a .net file says it itself")
        return from_lava(spec, dict(args.neuron) or None)
    no_nir_flags(args, "a factory's module says it itself")
    made = _call(spec, _factory(spec))
    if isinstance(made, Network):
        return made
    module, example = made if isinstance(made, tuple) and len(made) == 2 else (made, example)
    if not callable(module):
        kind = type(module).__name__
        raise ModelError(f"{spec}: gave {kind}, not a torch module, (module, example input), or a Network")
    if example is None:
        raise ModelError(f"{spec}: gives a module without an example input; return (module, example input)")
    from nwcompile.frontend.torch import from_torch

    return from_torch(module, example)


def no_nir_flags(args: Namespace, reason: str) -> None:
    """Raise OptionError if a flag was given that only a .nir file needs."""
    if args.dt is not None or args.dialect is not None or args.neuron:
        raise OptionError(f"--dt, --dialect and --neuron say how to read a .nir file; {reason}")


def writable(folder: str) -> Path:
    """That folder, if it exists or can be made, before any work is done; raises OptionError."""
    if not folder:
        raise OptionError("-o: the name of the folder is empty")
    path = Path(folder)
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        reason = "may not be written to" if existing.is_dir() else "is not a folder"
        raise OptionError(f"-o {folder}: {existing} {reason}; choose a folder you may write to")
    return path


def writable_file(file: str) -> Path:
    """That file, if it exists or can be made, before any work is done; raises OptionError."""
    path = Path(file)
    if path.is_dir():
        raise OptionError(f"-o {file}: is a folder; give the name of a file in it")
    return writable(str(path.parent)) / path.name


def _factory(spec: str) -> Callable:
    name, _, attribute = spec.partition(":")
    if name.endswith(".py"):
        dotted = ".".join(Path(name).with_suffix("").parts)
        raise OptionError(f"{spec}: give the module's name, not its file: {dotted}:{attribute}")
    if not all(word.isidentifier() for word in (*name.split("."), attribute)):
        raise OptionError(f"{spec or repr(spec)}: expected a .nir or .net file, or package.module:factory")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(name)
    except NwError:
        raise
    except (Exception, SystemExit) as e:
        raise ModelError(f"{spec}: importing {name} failed: {sentence(e)}") from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        listed = ", ".join(nearest_first(attribute, names)) or "none"
        raise ModelError(f"{spec}: there is no function {attribute!r} in {name}; functions: {listed}")
    return factory


def _call(spec: str, factory: Callable):
    try:
        return factory()
    except NwError:
        raise
    except (Exception, SystemExit) as e:
        last = extract_tb(e.__traceback__)[-1]
        raise ModelError(f"{spec}: raised {sentence(e)} ({Path(last.filename).name}, line {last.lineno})") from None
