"""`nwcompile report`: run a program on an input and write report.{json,html}, or compare two programs (--diff)."""

import time
from argparse import Namespace
from math import inf

from nwcompile.cli.evaluate import measure_accuracy
from nwcompile.cli.inputs.data import Data, read_input
from nwcompile.cli.inputs.load import check_folder, load_program, refuse_nir_flags
from nwcompile.cli.inputs.stream import read_stream
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json
from nwcompile.cli.outputs.trace import check_flags, check_times, write_trace
from nwcompile.cost.compare import measured_figures, moved_neurons, predicted_figures
from nwcompile.cost.energy import predict
from nwcompile.errors import OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.artifact import write_files
from nwcompile.ir.program import Program
from nwcompile.report import render_diff_files, report
from nwcompile.report.diff import GATE, collect_diff, diff_text
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.sim import simulate
from nwcompile.sim.answers import record_for

# Neurons times steps for which u and v take 512 MiB, and temporarily twice as much while they are reordered.
LARGEST_STATES = 1 << 25


def run(args: Namespace) -> int:
    if args.diff is not None:
        return run_diff(args)
    missing = [name for name, value in (("PROGRAM.nwc", args.program), ("-o/--output", args.output)) if value is None]
    if missing:
        raise OptionError(f"report: the following arguments are required: {', '.join(missing)}")
    if args.tolerance is not None or args.gate is not None:
        raise OptionError("--tolerance and --gate say what --diff judges; name two programs with --diff")
    backend = args.backend or "cycle"
    trace_file = check_flags(args, backend)
    folder = check_folder(args.output)
    program = load_program(args.program, args.set)
    data = _read_samples(args, program)
    if args.model_of is None:
        refuse_nir_flags(args, "name it with --model")
    elif data.y is None:
        raise OptionError("--model: its accuracy needs labels; give them under the key y of the file of --input")
    check_times(args, program)
    start = time.perf_counter()
    needs_steps = data.y is not None and program.network.readout is not None
    record = record_for(program.network) if needs_steps else choose_record(program, data.x, args.steps)
    profiles = backend == "cycle" and program.chip.has_profile
    result = simulate(program, data.x, backend, args.device, "aligned", record, args.steps, profiles)
    seconds = time.perf_counter() - start
    accuracy = measure_accuracy(args, program, result, data)
    if trace_file is not None:
        write_trace(args, trace_file, program, data.x, "aligned")
    doc = report(program, result, folder, accuracy, None, args.model_dt, seconds, f"{args.program}{_input_text(args)}")
    if args.json:
        print(as_json({"report": str(folder / "report.json"), "trace": args.trace, **doc}))
    else:
        traced = "" if trace_file is None else f"\ntrace: {args.trace}"
        print_text(f"{render_text(doc)}\n")
        print(f"report: {folder / 'report.html'}{traced}")
    return 0


def _read_samples(args: Namespace, program: Program) -> Data:
    """The samples of --input in the program's layout, or the steps of --stream as one sample."""
    if args.stream is None:
        return read_input(args).laid_out(program.network.layout)
    given = {"--input": args.input, "--steps": args.steps, "--samples": args.samples}
    if wrong := [flag for flag, value in given.items() if value is not None]:
        raise OptionError(f"--stream is one sample, and does not go with {', '.join(wrong)}")
    return read_stream(args.stream, program, args.model_dt)


def _input_text(args: Namespace) -> str:
    """Name the input in the title of a page: `, input x.npz`, or "" without one."""
    name = args.input if args.stream is None else args.stream
    return "" if name is None else f", input {name}"


def choose_record(program: Program, samples, steps: int | None) -> str:
    """Choose what the run records: states too, for membrane updates, unless they would take too much memory.

    Without states the report has no membrane updates, and says so.
    """
    given = next(iter(samples.values())) if isinstance(samples, dict) else samples
    n_steps = (steps or 0) if given is None else given.shape[0] * given.shape[1]
    return "all" if n_steps * int((program.core_of >= 0).sum()) <= LARGEST_STATES else "spikes"


def run_diff(args: Namespace) -> int:
    """Run `report --diff A B`: 0 if no figure of --gate is worse in B by more than --tolerance percent, else 1.

    With -o, also write both reports side by side.
    """
    if args.program is not None:
        raise OptionError("--diff names both programs; leave PROGRAM.nwc out")
    tolerance = 0.0 if args.tolerance is None else args.tolerance
    if not 0 <= tolerance < inf:
        raise OptionError(f"--tolerance {tolerance:g} must be a number of percent, 0 or more")
    folder = None if args.output is None else check_folder(args.output)
    programs = [load_program(path, args.set) for path in args.diff]
    layers = moved_neurons(*programs)
    if args.input is None and args.steps is None and args.stream is None:
        source, activity = "predicted", programs[0].activity or Activity.uniform(programs[0].network)
        figures = [predicted_figures(program, activity) for program in programs]
        runs = [predict(program, activity) for program in programs] if folder else []
    else:
        source, x = "measured", _read_samples(args, programs[0]).x
        runs = [simulate(program, x, "cycle", args.device, steps=args.steps) for program in programs]
        figures = [measured_figures(program, run) for program, run in zip(programs, runs, strict=True)]
    before, after = figures
    doc = collect_diff(before, after, layers, source, args.gate or GATE, tolerance)
    if folder is not None:
        title = f"{args.diff[0]} before, {args.diff[1]} after{_input_text(args)}"
        reports = [collect_report(p, run, title=title) for p, run in zip(programs, runs, strict=True)]
        write_files(render_diff_files(doc, dict(zip(args.diff, reports, strict=True)), folder))
    if args.json:
        print(as_json(doc if folder is None else {"page": str(folder / "diff.html"), **doc}))
    else:
        print_text(diff_text(doc))
        print(*([] if folder is None else ["", f"page: {folder / 'diff.html'}"]), sep="\n", end="\n" * bool(folder))
    return 0 if doc["ok"] else 1
