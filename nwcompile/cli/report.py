"""`nwcompile report`: run a program on an input and write report.json and report.html."""

from argparse import Namespace

from nwcompile.cli.data import data_of
from nwcompile.cli.evaluate import measured
from nwcompile.cli.load import no_nir_flags, program_of, writable
from nwcompile.cli.text import as_json
from nwcompile.errors import OptionError
from nwcompile.report import report
from nwcompile.report.text import render_text
from nwcompile.sim import simulate


def run(args: Namespace) -> int:
    folder = writable(args.output)
    data = data_of(args)
    if args.model_of is None:
        no_nir_flags(args, "name it with --model")
    elif data.y is None:
        raise OptionError("--model: its accuracy needs labels; give them under the key y of the file of --input")
    program = program_of(args.program, args.set)
    result = simulate(program, data.x, args.backend or "cycle", args.device, steps=args.steps)
    accuracy = measured(args, result, data)
    doc = report(program, result, folder, accuracy=accuracy)
    if args.json:
        print(as_json({"report": str(folder / "report.json"), **doc}))
    else:
        print(f"{render_text(doc)}\n\nreport: {folder / 'report.html'}")
    return 0
