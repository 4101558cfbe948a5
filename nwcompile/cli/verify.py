"""`nwcompile verify DIR --log FILE`: compare a log of a chip, or of its hardware description, with the program.

Exit code 1 if they differ, with the first difference and the state of its neuron.
"""

from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from nwcompile.cli.inputs.data import Data, read_data
from nwcompile.cli.inputs.load import is_program, load_program
from nwcompile.cli.inputs.spike_log import pool_slots, read_log, read_places
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json
from nwcompile.errors import OptionError
from nwcompile.sim import simulate
from nwcompile.sim.inputs import append_step, prepare_inputs
from nwcompile.sim.spike_log import compare_log

PROGRAM = "net.nwc"  # in a folder from `compile` or `export`
SAMPLE = "sample.npz"  # the input, in a folder from `export`


def run(args: Namespace) -> int:
    folder = Path(args.folder).parent if is_program(args.folder) else Path(args.folder)
    path = Path(args.folder) if is_program(args.folder) else folder / PROGRAM
    if not path.is_file():
        how = "name a folder of `nwcompile compile` or `export`, or a .nwc"
        raise OptionError(f"{path}: there is no such program; {how}")
    program = load_program(str(path), {})
    given = args.input or (str(folder / SAMPLE) if (folder / SAMPLE).is_file() else None)
    if given is None and args.steps is None:
        raise OptionError("no input: give --input X.npz, the sample that the log is of, or --steps N without input")
    if args.steps is not None and args.steps < 1:
        raise OptionError(f"--steps {args.steps} must be 1 or more")
    data = Data(None) if given is None else read_data(given).laid_out(program.network.layout)
    x, n_samples, n_steps = prepare_inputs(
        program.network, data.x, args.steps if given is None else None, program.chip, program.on_multi_spike
    )
    if not 0 <= args.sample < n_samples:
        raise OptionError(f"--sample {args.sample}: there are samples 0..{n_samples - 1}")
    places = read_places(folder, program)
    log = read_log(args.log, program, places, min(n_steps, args.steps or n_steps))
    samples = x
    if log.window == "hardware":  # The log starts with an empty step, as events take effect one step later.
        samples = append_step(x)
        places = replace(places, first_tick=np.zeros_like(places.first_tick), slot=pool_slots(program, places))
    result = simulate(program, samples, "reference", window=log.window, record="all")
    check = compare_log(program, log, result, places, args.sample)
    if args.json:
        print(as_json({"agree": check.agree, **asdict(check)}))
    else:
        print_text(str(check))
    return 0 if check.agree else 1
