"""`nwcompile estimate`: one model on many chips, side by side. Exit code 1 if it fits none of them."""

from argparse import Namespace
from dataclasses import asdict, replace

from nwcompile.cli.arguments import options_of
from nwcompile.cli.inputs.data import Data, read_data
from nwcompile.cli.inputs.load import network_of
from nwcompile.cli.text import as_json
from nwcompile.ir.chip import Chip
from nwcompile.workbench.estimate import ALL, estimate


def run(args: Namespace) -> int:
    data = Data(None) if args.input is None else replace(read_data(args.input), n_first=args.samples)
    network = network_of(args.model, args, data.example)
    names = args.chips.split(",")
    chips = ALL if names == [ALL] else [Chip.load(name).replace(args.set) for name in names]
    made = estimate(network, chips, data.laid_out(network.layout).x, options_of(args))
    print(as_json(asdict(made)) if args.json else repr(made))
    return 0 if any(row.fits for row in made.chips) else 1
