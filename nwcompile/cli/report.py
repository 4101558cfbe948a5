"""`nwcompile report`: run a program on an input and write report.json and report.html."""

import time
from argparse import Namespace

from nwcompile.cli.data import data_of
from nwcompile.cli.evaluate import measured
from nwcompile.cli.load import no_nir_flags, program_of, writable
from nwcompile.cli.text import as_json
from nwcompile.cli.trace import check_flags, check_times, write_trace
from nwcompile.errors import OptionError
from nwcompile.report import report
from nwcompile.report.text import render_text
from nwcompile.sim import simulate


def run(args: Namespace) -> int:
    backend = args.backend or "cycle"
    trace_file = check_flags(args, backend)
    folder = writable(args.output)
    data = data_of(args)
    if args.model_of is None:
        no_nir_flags(args, "name it with --model")
    elif data.y is None:
        raise OptionError("--model: its accuracy needs labels; give them under the key y of the file of --input")
    program = program_of(args.program, args.set)
    check_times(args, program)
    start = time.perf_counter()
    result = simulate(program, data.x, backend, args.device, steps=args.steps, profile=backend == "cycle")
    seconds = time.perf_counter() - start
    accuracy = measured(args, result, data)
    if trace_file is not None:
        write_trace(args, trace_file, program, data.x, "aligned")
    doc = report(program, result, folder, accuracy, None, args.model_dt, seconds)
    if args.json:
        print(as_json({"report": str(folder / "report.json"), "trace": args.trace, **doc}))
    else:
        traced = "" if trace_file is None else f"\ntrace: {args.trace}"
        print(f"{render_text(doc)}\n\nreport: {folder / 'report.html'}{traced}")
    return 0
