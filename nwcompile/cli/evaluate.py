"""`nwcompile evaluate`: accuracy on labelled samples, of the float model and of the program."""

from argparse import Namespace

import numpy as np

from nwcompile.cli.arguments import options_of
from nwcompile.cli.compile import compiled
from nwcompile.cli.data import Data, data_of
from nwcompile.cli.load import network_of, no_nir_flags, program_of
from nwcompile.cli.text import as_json, table
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.options import Options
from nwcompile.ir.run import Run
from nwcompile.sim import simulate


def run(args: Namespace) -> int:
    data = data_of(args)
    if data.y is None:
        raise ModelError(f"{args.input or 'no input'}: no labels; evaluate needs them under the key y of a .npz file")
    is_program = args.model.endswith(".nwc")
    _no_idle_flags(args, is_program)
    model = args.model_of if is_program else args.model
    result: dict[str, float] = {}
    if model is not None:
        result["float"] = accuracy(simulate(network_of(model, args, data.example), data.x), data.y)
    program = program_of(args.model, args.set) if is_program else compiled(args) if args.chip is not None else None
    backend = args.backend or "sequence"
    if program is not None:
        result["chip"] = accuracy(simulate(program, data.x, backend, args.device), data.y)
    if args.json:
        chip = program.chip.name if program is not None else None
        print(as_json({"n_samples": len(data.y), "accuracy": result, "chip": chip, "backend": backend}))
    else:
        notes = {"float": "reference", "chip": f"{program.chip.name}, {backend}" if program is not None else ""}
        rows = [(name, f"{100 * part:.2f} %", len(data.y), notes[name]) for name, part in result.items()]
        print(table(("network", "accuracy", "samples", "on"), rows))
    return 0


def _no_idle_flags(args: Namespace, is_program: bool) -> None:
    """Raise OptionError for flags that would change nothing."""
    if is_program and args.chip is not None:
        raise OptionError("--chip: a .nwc program has its chip; change keys with --set, or compile the model again")
    if is_program and args.model_of is None:
        no_nir_flags(args, "name it with --model")
    if not is_program and args.model_of is not None:
        raise OptionError(f"--model: the float model of a .nwc program; {args.model} is a model itself")
    compiling = args.calibration is not None or options_of(args) != Options()
    if is_program and compiling:
        raise OptionError(f"{args.model} is compiled already; give --calibration and the compiler's options to compile")
    if not is_program and args.chip is None and (compiling or args.set or args.backend or args.device != "cpu"):
        raise OptionError("without --chip only the float model runs, on the CPU; leave out the flags of a program")


def accuracy(result: Run, labels: np.ndarray) -> float:
    """Part of the samples whose label is the output neuron with the largest sum over all steps, 0..1.

    Of a firing layer that is its spike count, of a readout its membrane. Raises ModelError for several outputs.
    """
    if isinstance(result.output, dict):
        raise ModelError(f"accuracy needs one output layer; this network has {', '.join(result.output)}")
    total = result.output.reshape(*result.output.shape[:2], -1).sum(1)
    if labels.min() < 0 or labels.max() >= total.shape[1]:
        raise ModelError(
            f"labels y are {labels.min()}..{labels.max()}, but the output has {total.shape[1]} neurons, "
            f"0..{total.shape[1] - 1}"
        )
    return float(np.mean(total.argmax(1) == labels))


def measured(args: Namespace, result: Run, data: Data) -> dict[str, float] | None:
    """Accuracies for a report: of the run, and of the float model if it was named; None without labels."""
    if data.y is None:
        return None
    found = {"chip": accuracy(result, data.y)}
    if args.model_of is not None:
        found["float"] = accuracy(simulate(network_of(args.model_of, args, data.example), data.x), data.y)
    return found
