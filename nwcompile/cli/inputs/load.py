"""Load: read the models, programs and chips that the command line names."""

import os
import zipfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np

from nwcompile import plugins
from nwcompile.cli.arguments import read_options
from nwcompile.cli.inputs.data import DEMO
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program

ERROR_CODE = "NW1004"
AFTER_COMPILING = ("noc.", "cost.", "energy.", "core.cycle_ns", "crossbar.drift_", "variation.")
GRID = ("noc.columns", "noc.rows", "noc.cores_per_router")
SUFFIXES = ("nir", "net", "nwc")
PICKLE_PROTOCOLS = (b"\2", b"\3", b"\4", b"\5")
PICKLES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def load_chip(args: Namespace) -> Chip:
    """Load the chip of `--chip`, with the keys of `--set`."""
    return Chip.load(args.chip).replace(args.set)


def is_program(spec: str) -> bool:
    """Whether MODEL is a compiled program."""
    return Path(spec).suffix == ".nwc"


def load_program(path: str, changes: dict) -> Program:
    """Load a .nwc file, and change keys of its chip on which compiling does not depend."""
    if not is_program(path):
        raise OptionError(f"{path}: expected a .nwc program, as `nwcompile compile` makes it", code="NW1003")
    program = Program.load(path)
    for key in changes:
        if not key.startswith(AFTER_COMPILING) or key in GRID:
            raise OptionError(
                f"--set {key}: this key is fixed when compiling; give it to `nwcompile compile`", code="NW1003"
            )
    return replace(program, chip=program.chip.replace(changes)) if changes else program


def collect_neuron(settings: list[tuple[str, object]]) -> dict | None:
    """Collect `--neuron` flags: `FIELD=VALUE` for all neurons, `NODE.FIELD=VALUE` for one node or layer."""
    from nwcompile.frontend.nir import CHOICES

    common: dict[str, object] = {}
    nodes: dict[str, dict] = {}
    for key, value in settings:
        node, dot, field = key.rpartition(".")
        fields = nodes.setdefault(node, {}) if dot else common
        fields[field] = "none" if value is None and field in CHOICES else value
    return {**common, **nodes} or None


def read_network(spec: str, args: Namespace, example: np.ndarray | None = None) -> Network:
    """Read the network of MODEL: a file, `demo`, or `package.module:factory`, which may need the `example`."""
    check_kind(spec)
    if spec == DEMO:
        from nwcompile.workbench.demo import demo_network

        refuse_nir_flags(args, "demo is no file")
        return demo_network()
    if Path(spec).suffix == ".nir":
        from nwcompile.frontend.nir import from_nir

        given = {"dt": args.dt, "dialect": args.dialect, "neuron": collect_neuron(args.neuron)}
        return from_nir(spec, **{name: value for name, value in given.items() if value is not None})
    if Path(spec).suffix == ".net":
        from nwcompile.frontend.lava import from_lava

        if args.dt is not None or args.dialect is not None:
            raise OptionError("--dt and --dialect say how to read a .nir file; a .net file says it itself")
        return from_lava(spec, collect_neuron(args.neuron))
    suffix = Path(spec).suffix.removeprefix(".")
    if plugins.has_plugin(plugins.FRONTENDS, "suffix", suffix, SUFFIXES):
        refuse_nir_flags(args, f"what a .{suffix} file leaves unsaid its plugin decides")
        read = plugins.load_plugin(plugins.FRONTENDS, "suffix", suffix)
        made = plugins.name_failures(spec, read, ModelError, ERROR_CODE)(spec)
        if not isinstance(made, Network):
            raise ModelError(f"{spec}: its plugin gave {type(made).__name__}, not a Network", code="NW1103")
        return made
    refuse_nir_flags(args, "a factory's module says it itself")
    made = plugins.import_function(spec, ModelError, ERROR_CODE)()
    if isinstance(made, Network):
        return made
    layout = made[2] if isinstance(made, tuple) and len(made) == 3 else "BT"
    module, example = made[:2] if isinstance(made, tuple) and len(made) in (2, 3) else (made, example)
    if not callable(module):
        kind = type(module).__name__
        raise ModelError(f"{spec}: gave {kind}, not a torch module, (module, example input), or a Network")
    if example is None:
        raise ModelError(f"{spec}: gives a module without an example input; return (module, example input)")
    from nwcompile.frontend.torch import from_torch

    return from_torch(module, example, layout)


def model_network(args: Namespace, example: np.ndarray | None = None) -> Network | None:
    """Read the network of MODEL; if that is a program, the network of --model, or None without it."""
    if is_program(args.model):
        return None if args.model_of is None else read_network(args.model_of, args, example)
    if args.model_of is not None:
        raise OptionError(f"--model: the float model of a .nwc program; {args.model} is a model itself", code="NW1002")
    return read_network(args.model, args, example)


def check_kind(spec: str) -> None:
    """Raise ModelError for a pickled file, and OptionError for a name that is not a model."""
    if Path(spec).suffix.lower() in PICKLES or _is_pickled(Path(spec)):
        raise ModelError(
            f"{spec}: a pickled file; nothing is unpickled, because that runs code which the file holds; export the "
            "model to NIR, or in Python load its weights with torch.load(path, weights_only=True) into the module and "
            "give that to nw.from_torch",
            code="NW1003",
        )
    if Path(spec).suffix == ".onnx":
        raise ModelError(
            f"{spec}: an ONNX network has no spiking neurons; convert it in a factory that returns "
            f"nw.convert(nw.load_onnx({spec!r}), images, steps=32), and give package.module:factory",
            code="NW1003",
        )
    name, _, attribute = spec.partition(":")
    if name.endswith(".py"):
        dotted = ".".join(Path(name).with_suffix("").parts)
        raise OptionError(
            f"{spec}: give the module's name, not its file: {dotted}:{attribute or 'factory'}", code="NW1003"
        )
    suffixes = plugins.list_names(plugins.FRONTENDS, SUFFIXES)
    known = Path(spec).suffix.removeprefix(".") in suffixes
    if spec != DEMO and not known and not all(word.isidentifier() for word in (*name.split("."), attribute)):
        *others, last = [f".{suffix}" for suffix in suffixes]
        files = f"{', '.join(others)} or {last}"
        raise OptionError(
            f"{spec or repr(spec)}: expected a {files} file, package.module:factory, or {DEMO}", code="NW1003"
        )


def check_usage(args: Namespace, needs_chip: bool = True, readout: str | None = None) -> None:
    """Raise an NwError, before any work, for a missing or unknown chip and for flags without effect."""
    if not is_program(args.model):
        check_kind(args.model)
        if args.chip is not None:
            load_chip(args)
        elif needs_chip:
            raise OptionError(
                f"--chip is missing: name the chip to compile {args.model} for (only a .nwc file has its own)",
                code="NW1002",
            )
        return
    if args.chip is not None:
        raise OptionError(
            "--chip: a .nwc program has its chip; change keys with --set, or compile the model again", code="NW1002"
        )
    if "model_of" not in args:
        refuse_nir_flags(args, f"{args.model} is a program")
    elif args.model_of is None:
        refuse_nir_flags(args, "name it with --model")
    if args.calibration is not None or read_options(args) != Options(readout=readout):
        raise OptionError(
            f"{args.model} is compiled already; give --calibration and the compiler's options to compile", code="NW1002"
        )


def refuse_nir_flags(args: Namespace, reason: str) -> None:
    """Raise OptionError if a flag for .nir files was given."""
    if args.dt is not None or args.dialect is not None or args.neuron:
        raise OptionError(f"--dt, --dialect and --neuron say how to read a .nir file; {reason}", code="NW1002")


def check_folder(folder: str) -> Path:
    """Check, before any work, that a folder exists or can be created, and return it; raises OptionError."""
    if not folder:
        raise OptionError("-o: the name of the folder is empty", code="NW1005")
    path = Path(folder)
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        reason = "may not be written to" if existing.is_dir() else "is not a folder"
        raise OptionError(f"-o {folder}: {existing} {reason}; choose a folder you may write to", code="NW1005")
    return path


def check_file(file: str) -> Path:
    """Check, before any work, that a file can be written, and return it; raises OptionError."""
    path = Path(file)
    if path.is_dir():
        raise OptionError(f"-o {file}: is a folder; give the name of a file in it", code="NW1005")
    return check_folder(str(path.parent)) / path.name


def _is_pickled(path: Path) -> bool:
    """Whether a file starts like a pickle, or is a zip with a pickle, as written by torch.save."""
    try:
        with path.open("rb") as file:
            start = file.read(2)
        if start == b"PK":
            with zipfile.ZipFile(path) as archive:
                return any(name.endswith("data.pkl") for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return start[:1] == b"\x80" and start[1:] in PICKLE_PROTOCOLS
