"""`nwcompile sweep`: compute and store the points of a plan.toml. Exit code 1 if no point has figures."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from nwcompile.cli import INTERRUPTED
from nwcompile.cli.inputs.data import Data, read_data, read_first
from nwcompile.cli.inputs.load import check_folder, read_network
from nwcompile.cli.outputs.progress import Countdown
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json
from nwcompile.errors import OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.shown import count_text
from nwcompile.workbench.sweep.plan import Plan, read_plan
from nwcompile.workbench.sweep.points import INPUT
from nwcompile.workbench.sweep.store import FILE
from nwcompile.workbench.sweep.sweep import PAGE, Sweep, sweep

ERROR_CODE = "NW7005"


def run(args: Namespace) -> int:
    plan = read_plan(args.plan)
    folder = check_folder(args.output)
    for key in args.set:
        section, _, name = key.partition(".")
        if key in plan.grid or name in plan.grid.get(section, {}):
            raise OptionError(f"--set {key}: the grid of {args.plan} has values for this key; change them there")
    chip = Chip.load(plan.chip).replace(args.set)
    progress = Countdown("point")
    network, given = _read_inputs(plan)
    try:
        made = sweep(
            network,
            chip=chip,
            **given,
            backend=plan.backend,
            folder=folder,
            search=plan.search,
            minimize=plan.minimize,
            maximize=plan.maximize,
            processes=args.processes,
            cluster=args.cluster,
            keep=None if args.keep == "none" else args.keep,
            on_start=progress.begin,
            on_point=lambda row, n_done, n_points: progress(n_done, n_points, row["error"] is not None),
            title=f"{plan.model}{f', input {plan.input}' if isinstance(plan.input, str) else ''}",
        )
    except KeyboardInterrupt:
        progress.end()
        kept = f"finished points are in {folder / FILE}"
        print(f"nwcompile: interrupted; {kept}, and the same command continues from there", file=sys.stderr)
        return INTERRUPTED
    finally:
        progress.end()
    _print_ignored(made, folder / FILE)
    if args.json:
        print(as_json({"rows": made.rows, "front": [row["id"] for row in made.front], "n_computed": made.n_computed}))
    else:
        print_text(f"{made.text}\n")
        print(f"table: {folder / FILE}\npage:  {folder / PAGE}")
    if len(made.failed) < len(made.rows):
        return 0
    print(f"nwcompile: no point has figures: all of {count_text(len(made.rows), 'point')} failed", file=sys.stderr)
    return 1


def _read_inputs(plan: Plan) -> tuple[Network, dict]:
    """Read the network, and the arguments of `sweep` about samples and points."""
    names = plan.grid.get(INPUT)
    if names is not None and plan.input is not None:
        raise OptionError("the grid names the files of input; leave out `input` above it")
    names = [names] if isinstance(names, str) else names
    if names is not None and not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
        raise OptionError(f"grid: input = {names!r} must be names of files, at least one")
    all_data = [read_first(name, plan.samples, "samples =") for name in names or [plan.input]]
    files = {data.path: data for data in all_data if data.x is not None}
    calibration = Data(None) if plan.calibration is None else read_data(plan.calibration)
    example = next((data.example for data in files.values()), calibration.example)
    spoken = Namespace(dt=plan.dt, dialect=plan.dialect, neuron=list(plan.neuron.items()))
    network = read_network(plan.model, spoken, example)
    files = {name: data.laid_out(network.layout) for name, data in files.items()}
    given: dict[str, Any] = {"calibration": calibration.laid_out(network.layout).x, "grid": dict(plan.grid), "x": None}
    if names is not None:
        given["grid"][INPUT] = {name: (data.x, data.y) for name, data in files.items()}
    elif files:
        (data,) = files.values()
        given |= {"x": data.x, "labels": data.y}
    return network, given


def _print_ignored(made: Sweep, path: Path) -> None:
    """Print which entries of the table were ignored."""
    if made.n_stale:
        stale = f"{count_text(made.n_stale, 'point')} in {path} of another version, model or samples are stale"
        print(f"nwcompile: {stale} and ignored", file=sys.stderr)
    if made.n_unreadable:
        unread = count_text(made.n_unreadable, "line")
        print(f"nwcompile: {unread} of {path} cannot be read and are ignored", file=sys.stderr)
