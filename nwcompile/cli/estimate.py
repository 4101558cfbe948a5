"""`nwcompile estimate`: compare one model on many chips. Exit code 1 if it fits none of them."""

from argparse import Namespace
from dataclasses import asdict, replace

from nwcompile.cli.arguments import read_options
from nwcompile.cli.inputs.data import read_first
from nwcompile.cli.inputs.load import read_network
from nwcompile.cli.outputs.progress import Countdown
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json
from nwcompile.errors import OptionError
from nwcompile.ir.chip import Chip
from nwcompile.workbench.estimate import ALL, DEFAULTS, estimate


def run(args: Namespace) -> int:
    names = [name.strip() for name in args.chips.split(",")]
    if args.set and ALL in names:
        raise OptionError("--set changes chips that are named; name them with --chips")
    chips = ALL if names == [ALL] else [name if name == ALL else Chip.load(name).replace(args.set) for name in names]
    data = read_first(args.input, args.samples)
    network = read_network(args.model, args, data.example)
    options = read_options(args)
    options = options if args.partitioner else replace(options, partitioner=DEFAULTS.partitioner)
    progress = Countdown("chip")
    try:
        made = estimate(network, chips, data.laid_out(network.layout).x, options, on_chip=progress)
    finally:
        progress.end()
    counts = [{**asdict(count), "energy_nj": count.energy_nj} for count in made.counts]
    if args.json:
        print(as_json({**asdict(made), "counts": counts}))
    else:
        print_text(made.text)
    return 0 if any(row.fits for row in made.chips) else 1
