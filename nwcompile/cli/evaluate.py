"""`nwcompile evaluate`: measure the accuracy of the float model and of the program on labeled samples."""

from argparse import Namespace
from dataclasses import replace

from nwcompile.cli.arguments import read_options
from nwcompile.cli.compile import program_for
from nwcompile.cli.inputs.data import Data, read_input
from nwcompile.cli.inputs.load import check_usage, is_program, model_network, read_network
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, format_table
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.text import interval_text
from nwcompile.sim.accuracy import accuracy, find_accuracy
from nwcompile.sim.answers import answer_rule, warn_of_answers
from nwcompile.sim.inputs import prepare_inputs

ERROR_CODE = "NW1006"


def run(args: Namespace) -> int:
    check_usage(args, needs_chip=False, readout=args.readout)
    data = read_input(args)
    if data.y is None:
        raise ModelError(f"{args.input or 'no input'}: no labels; evaluate needs them under the key y of a .npz file")
    options = read_options(args)
    compiling = args.calibration is not None or args.set or replace(options, readout=None) != Options()
    only_float = args.chip is None and not is_program(args.model)
    if only_float and (compiling or args.backend or args.device != "cpu"):
        raise OptionError("without --chip only the float model runs, on the CPU; leave out the flags of a program")
    network = model_network(args, data.example)
    if network is not None:
        data = data.laid_out(network.layout)
        prepare_inputs(network, data.x, None)
        network = network if options.readout is None else network.change_readout(options.readout)
    program = None if only_float else program_for(args, network, data.x)
    if program is not None and options.readout is not None:
        program = replace(program, network=program.network.change_readout(options.readout))
    of_answers = network
    if of_answers is None:
        assert program is not None, "the model is a program"
        of_answers = program.network
        data = data.laid_out(of_answers.layout)
    backend, evaluated = args.backend or "sequence", {}
    if network is not None:
        evaluated["float"] = find_accuracy(network, data.x, data.labels)
    if program is not None:
        evaluated["chip"] = find_accuracy(program, data.x, data.labels, backend, args.device)
    n_samples = len(data.labels)
    result, interval = ({name: getattr(e, key) for name, e in evaluated.items()} for key in ("accuracy", "interval"))
    if args.json:
        chip = program.chip.name if program is not None else None
        doc = {"n_samples": n_samples, "accuracy": result, "interval": interval}
        told = {"answer_rule": answer_rule(of_answers), "left_out": of_answers.left_out}
        print(as_json({**doc, **told, "chip": chip, "backend": backend}))
    else:
        notes = {"float": "reference", "chip": f"{program.chip.name}, {backend}" if program is not None else ""}
        rows = [
            (name, f"{100 * part:.2f} %", f"{interval_text(interval[name])} %", n_samples, notes[name])
            for name, part in result.items()
        ]
        table = format_table(("network", "accuracy", "95 % interval", "samples", "simulated by"), rows)
        print_text(f"{table}\n\n{answer_rule(of_answers)}")
    warn_of_answers(of_answers, "the accuracy")
    return 0


def measure_accuracy(args: Namespace, program: Program, result: Run, data: Data) -> dict | None:
    """The `accuracy` argument of `nw.report`: of the run, and of the float model if given; None without labels."""
    if data.y is None:
        return None
    accuracies = {"chip": accuracy(result, data.y)}
    warn_of_answers(program.network, "the accuracy")
    if args.model_of is not None:
        network = read_network(args.model_of, args, data.example)
        accuracies["float"] = find_accuracy(network, data.x, data.labels).accuracy
    return {**accuracies, "n_samples": len(data.y)}
