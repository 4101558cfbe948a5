"""`nwcompile crosscheck`: do the backends agree bit for bit? Exit code 1 if not."""

from argparse import Namespace
from dataclasses import asdict

from nwcompile.cli.data import data_of
from nwcompile.cli.load import program_of
from nwcompile.cli.text import as_json
from nwcompile.sim.crosscheck import crosscheck


def run(args: Namespace) -> int:
    data = data_of(args)
    program = program_of(args.program, args.set)
    result = crosscheck(program, data.x, args.against, args.window, args.steps)
    print(as_json(asdict(result)) if args.json else result)
    return 0 if result.agree else 1
