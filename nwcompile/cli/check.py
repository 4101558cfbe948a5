"""`nwcompile check`: say whether a model fits a chip. Exit code 1 and the violations if not; writes nothing."""

from argparse import Namespace

from nwcompile.cli.compile import program_for
from nwcompile.cli.inputs.load import check_usage
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json
from nwcompile.cost.energy import predict
from nwcompile.report.json.collect import collect_report
from nwcompile.report.quantization import quantization_lines
from nwcompile.report.text import fit_table, verdict_lines

SHOWN = ("verdict", "verdict_rows", "fits", "chip", "fit", "layers", "warnings")  # of report.json


def run(args: Namespace) -> int:
    check_usage(args)
    program = program_for(args)
    doc = collect_report(program, predict(program))
    if args.json:
        print(as_json({key: doc[key] for key in SHOWN}))
    else:
        warned = [f"warning: {text}" for text in doc["warnings"]]
        blocks = [verdict_lines(doc), fit_table(doc), quantization_lines(doc), warned]
        print_text("\n\n".join("\n".join(block) for block in blocks if block))
    return 0
