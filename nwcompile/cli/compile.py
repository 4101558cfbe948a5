"""`nwcompile compile`: compile a model to DIR/net.nwc, with a report predicted from its calibration."""

from argparse import Namespace

import numpy as np

from nwcompile.cli.arguments import read_options
from nwcompile.cli.inputs.data import Data, read_data
from nwcompile.cli.inputs.load import check_folder, is_program, load_chip, load_program, read_network
from nwcompile.cli.outputs.progress import Progress
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, core_rows, cores_text
from nwcompile.cost.energy import predict
from nwcompile.errors import OptionError
from nwcompile.flow import compile
from nwcompile.ir.artifact import write_files
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.report import render_files
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.report.text import mapping_lines


def run(args: Namespace) -> int:
    if is_program(args.model):
        raise OptionError(f"{args.model} is compiled already; compile its model again to change how")
    if args.plan_only:
        return print_plan(args)
    folder = check_folder(args.output)
    program = compile_model(args)
    path = folder / "net.nwc"
    doc = collect_report(program, predict(program), title=args.model)
    write_files({path: program.data, **render_files(doc, folder)})
    if args.json:
        made = {"program": str(path), "program_hash": program.hash, "report": str(folder / "report.json")}
        print(as_json({**made, **doc}))
    else:
        print_text(f"{_text(doc, args)}\n")
        print(f"program: {path}\nreport:  {folder / 'report.html'} (predicted, not simulated)")
    return 0


def print_plan(args: Namespace) -> int:
    """Print the mapping and its cost; write nothing."""
    program = compile_model(args)
    doc = collect_report(program, predict(program))
    if args.json:
        print(as_json({**doc, "mapping": core_rows(program)}))
    else:
        print_text(f"{_text(doc, args)}\n\n{cores_text(program)}")
    return 0


def _text(doc: dict, args: Namespace) -> str:
    return "\n\n".join([render_text(doc), *(["\n".join(mapping_lines(doc))] if args.explain else [])])


def program_for(args: Namespace, network: Network | None = None, samples=None) -> Program:
    """Load a .nwc file, or compile MODEL (its `network`, if already read) with the given flags.

    `samples`: the input of the later run. Raises OptionError if it has real values and MODEL would be compiled for
    integers.
    """
    if is_program(args.model):
        return load_program(args.model, args.set)
    if samples is not None and args.calibration is None and args.input_layer is None:
        arrays = samples.values() if isinstance(samples, dict) else [samples]
        if any((np.asarray(array) % 1).any() for array in arrays):
            raise OptionError(
                f"{args.input} has real values, and without calibration samples {args.model} is compiled for whole "
                "numbers; give such samples with --calibration, or --input-layer host"
            )
    return compile_model(args, network)


def compile_model(args: Namespace, network: Network | None = None) -> Program:
    """Compile MODEL for the chip with the given options; stages are shown on stderr."""
    chip, options = load_chip(args), read_options(args)
    data = Data(None) if args.calibration is None else read_data(args.calibration)
    if network is None:
        network = read_network(args.model, args, data.example)
    data = data.laid_out(network.layout)
    progress, folder = Progress(network, chip, options), getattr(args, "checkpoint", None)
    return compile(network, chip, data.x, options, on_stage=progress, labels=data.y, checkpoint=folder)
