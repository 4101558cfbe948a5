"""`nwcompile export PROGRAM --to NAME -o DIR`: write a program as the files of a chip's tool or of a simulator.

`--to nir` writes a model too, such as a lava-dl `.net` file.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nwcompile import plugins
from nwcompile.cli.inputs.data import Data, read_data
from nwcompile.cli.inputs.load import check_folder, is_program, load_program, read_network, refuse_nir_flags
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json
from nwcompile.errors import OptionError
from nwcompile.ir.artifact import write_files
from nwcompile.ir.program import Program
from nwcompile.report.export.formats import EXPORTS
from nwcompile.sim.inputs import prepare_inputs

NIR = "nir"
DT = 1e-4  # seconds: the time step of the time constants in the NIR file, as snnTorch and SpikingJelly assume


def run(args: Namespace) -> int:
    folder = check_folder(args.output)
    if args.to != NIR or is_program(args.program):
        refuse_nir_flags(args, "export reads a program")
    files, note = render_network(args, folder) if args.to == NIR else render_program(args, folder)
    write_files(files)
    if args.json:
        print(as_json({"to": args.to, "files": [str(path) for path in files], "note": note}))
    else:
        print(*files, sep="\n")
        print_text(f"\n{note}")
    return 0


def render_network(args: Namespace, folder: Path) -> tuple[dict[Path, bytes], str]:
    """Return the NIR file of a program's network, or of a model, and a note on what other readers do not see."""
    from nwcompile.frontend.nir.write import render_nir

    for flag, value in (("--input", args.input), ("--set", args.set)):
        if value:
            raise OptionError(f"{flag}: a NIR file holds the network alone, no samples and no chip", code="NW1002")
    is_compiled = is_program(args.program)
    network = load_program(args.program, {}).network if is_compiled else read_network(args.program, args)
    data, lost = render_nir(network, DT)
    return {folder / f"{Path(args.program).stem}.nir": data}, lost or "other readers see the whole network"


def render_program(args: Namespace, folder: Path) -> tuple[dict[Path, bytes], str]:
    """Return the files of a program in a format of EXPORTS or a plugin, and its note."""
    program = load_program(args.program, args.set)
    data = Data(None) if args.input is None else read_data(args.input)
    to_files, note = look_up_exporter(args.to)
    return to_files(program, folder, select_sample(program, data, args.sample)), note(program)


def look_up_exporter(name: str) -> tuple[Callable, Callable]:
    """Look up the two functions of a format, built-in or a plugin's: one for its files, one for the note about them."""
    pair = plugins.look_up(plugins.EXPORTERS, "format", name, EXPORTS)
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(map(callable, pair))):
        raise OptionError(
            f"format {name!r} of a plugin is a pair of functions, files and note, not {type(pair).__name__}; see "
            "docs/plugins.md",
            code="NW1103",
        )
    return pair[0], pair[1]


def select_sample(program: Program, data: Data, index: int) -> dict[str, np.ndarray] | None:
    """Spikes [T, n] of one sample by input name, as the chip receives them; None without data."""
    if data.x is None:
        return None
    x = prepare_inputs(program.network, data.x, None, program.chip, program.on_multi_spike)[0]
    n_samples = len(next(iter(x.values())))
    if not 0 <= index < n_samples:
        raise OptionError(f"--sample {index}: the file has samples 0..{n_samples - 1}")
    return {name: a[index].reshape(a.shape[1], -1) for name, a in x.items()}
