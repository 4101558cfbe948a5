"""`nwcompile simulate`: run a program or a float network, print figures, and write arrays if requested."""

import io
import sys
import time
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from nwcompile.cli import INTERRUPTED
from nwcompile.cli.inputs.data import read_input
from nwcompile.cli.inputs.load import check_file, is_program, load_program, read_network, refuse_nir_flags
from nwcompile.cli.inputs.stream import NO_STEPS, STANDARD_INPUT, read_steps
from nwcompile.cli.outputs.stream import Totals, open_output, step_line
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, format_counters, format_table
from nwcompile.cli.outputs.trace import check_flags, check_times, write_trace
from nwcompile.cost.energy import board_energy
from nwcompile.cost.time.profile import core_phases
from nwcompile.errors import OptionError
from nwcompile.families import load_parts
from nwcompile.ir import artifact
from nwcompile.ir.program import Program
from nwcompile.ir.run import COUNTERS, Run
from nwcompile.ir.shown import count_text, format_figure
from nwcompile.report.json.collect import collect_basis, collect_board, collect_report, real_time_factors
from nwcompile.report.json.profile import collect_messages
from nwcompile.report.text import board_text, profile_lines
from nwcompile.sim import simulate
from nwcompile.sim.session import Session


def run(args: Namespace) -> int:
    if args.stream is not None:
        return run_stream(args)
    is_compiled = is_program(args.model)
    backend = args.backend or ("cycle" if is_compiled else "reference")
    trace_file = check_flags(args, backend)
    if args.model_dt is not None and not is_compiled:
        raise OptionError("--model-dt compares with a chip's time, and a float network has none; compile it first")
    file = None if args.output is None else check_file(args.output)
    data = read_input(args)
    if is_compiled:
        refuse_nir_flags(args, f"{args.model} is a program")
    elif args.set:
        raise OptionError("--set changes a chip, and a float network has none; compile it first")
    program = load_program(args.model, args.set) if is_compiled else None
    model = read_network(args.model, args, data.example) if program is None else program
    data = data.laid_out((model.network if isinstance(model, Program) else model).layout)
    if program is not None:
        check_times(args, program)
    start = time.perf_counter()
    more_flags = {"steps": args.steps, "profile": args.profile, "checkpoint": args.checkpoint}
    result = simulate(model, data.x, backend, args.device, args.window, args.record, **more_flags)
    seconds = time.perf_counter() - start
    if file is not None:
        artifact.write_bytes(file, _pack_arrays(result, model))
    if trace_file is not None and program is not None:
        write_trace(args, trace_file, program, data.x, args.window)
    more = _profile_figures(args, model, result, seconds)
    parts = {part.KEY: None if program is None else part.collect(program, result) for part in load_parts("report")}
    if args.json:
        board = None if program is None else collect_board(board_energy(program, result))
        figures = {**summarize_run(result), "board": board, **parts, **{k: v for k, v in more.items() if k != "energy"}}
        print(as_json({**figures, "output": args.output, "trace": args.trace}))
    else:
        print_text("\n".join([_format_run(result, model), *(text for p in parts.values() if p for text in p["text"])]))
        if more:
            print_text("\n" + "\n".join(profile_lines(more)))
        if file is not None:
            print(f"\nwritten: {args.output}")
        if trace_file is not None:
            print(f"trace: {args.trace}")
    return 0


def run_stream(args: Namespace) -> int:
    """Feed `--stream` to the program, and print figures at its end or at Ctrl-C."""
    _check_stream_flags(args)
    check_flags(args, args.backend or "cycle")
    refuse_nir_flags(args, f"{args.model} is a program")
    program = load_program(args.model, args.set)
    session = Session(program, args.backend or "cycle", model_dt=args.model_dt)
    totals = Totals(program)
    code = 0
    with open_output(args.output) as output:
        try:
            for frames in read_steps(args.stream, program, args.model_dt):
                totals.take(session.feed(frames), output)
            if session.n_steps == 0:
                raise OptionError(NO_STEPS.format(args.stream))
            totals.take(session.close(), output)
        except KeyboardInterrupt:
            print(f"nwcompile: interrupted after {count_text(session.n_steps, 'step')}", file=sys.stderr)
            code = INTERRUPTED
    figures = session.figures()
    text = as_json(totals.as_dict(session, figures)) if args.json else totals.text(session, figures)
    stream = sys.stderr if args.output == STANDARD_INPUT else sys.stdout
    print(text, file=stream) if args.json else print_text(text, stream)
    return code


def _check_stream_flags(args: Namespace) -> None:
    """Raise OptionError for flags that do not go with `--stream`."""
    if not is_program(args.model):
        raise OptionError(f"--stream runs a program; compile {args.model} first")
    given = {
        "--input": args.input is not None,
        "--steps": args.steps is not None,
        "--samples": args.samples is not None,
        "--window": args.window != "aligned",
        "--record": args.record != "spikes",
        "--device": args.device != "cpu",
        "--profile": args.profile,
        "--trace": args.trace is not None,
        "--trace-steps": args.trace_steps is not None,
        "--checkpoint": args.checkpoint is not None,
    }
    if wrong := [flag for flag, is_given in given.items() if is_given]:
        raise OptionError(f"--stream is one sample step by step, and does not go with {', '.join(wrong)}")
    files = [Path(path) for path in (args.output or STANDARD_INPUT, args.stream)]
    if all(path.is_file() for path in files) and files[0].samefile(files[1]):
        raise OptionError(f"-o {args.output}: is the file that --stream reads; write the output to another one")


def _profile_figures(args: Namespace, model, result: Run, seconds: float) -> dict:
    """The figures for `--profile` and `--model-dt`: profile, real_time, energy."""
    if not args.profile and args.model_dt is None:
        return {}
    if result.totals is None:
        doc = collect_report(model, result, model_dt=args.model_dt, wall_seconds=seconds)
        return {key: doc[key] for key in ("profile", "real_time", "energy", "time_basis", "energy_basis")}
    messages = collect_messages(model, result) if args.profile else None
    return {"profile": messages, "real_time": real_time_factors(result, args.model_dt, seconds), "energy": None,
            "time_basis": collect_basis(result.time_basis), "energy_basis": None}  # fmt: skip


def summarize_run(result: Run) -> dict:
    """Summarize a run as plain values: totals over the batch, cycles by hardware step."""
    n_steps = next(iter(result.spikes.values())).shape[1] if result.totals is None else result.totals.n_steps
    spiked = np.count_nonzero if result.totals is None else np.sum
    return {
        "backend": result.backend,
        "device": result.device,
        "window": result.window,
        "n_samples": result.n_samples,
        "n_steps": n_steps,
        "spikes": {layer: int(spiked(s)) for layer, s in result.spikes.items()},
        "counters": {name: int(result.counters[name].sum()) for name in COUNTERS if name in result.counters},
        "step_cycles": result.step_cycles,
        "seconds": result.seconds,
        "time_basis": None if result.seconds is None else collect_basis(result.time_basis),
        "energy_pj": result.energy_pj,
        "energy_basis": collect_basis(result.energy_basis),
        "n_dropped": result.n_dropped,
    }


def _format_run(result: Run, model) -> str:
    figures = summarize_run(result)
    samples, steps = figures["n_samples"], figures["n_steps"]
    parts = [
        f"{count_text(samples, 'sample')}, {count_text(steps, 'step')}; backend {result.backend} on {result.device}, "
        f"window {result.window}"
    ]
    rows: list[tuple] = []
    for layer, spikes in result.spikes.items():
        n = int(np.prod(spikes.shape[2:]))
        total = figures["spikes"][layer]
        rows.append((layer, n, total, f"{total / (samples * steps * n):.4f}"))
    parts.append(format_table(("layer", "neurons", "spikes", "per neuron and step"), rows))
    if result.counters:
        parts.append(format_counters(figures["counters"], samples))
    if isinstance(model, Program):
        parts.append(_format_times(result, model))
    return "\n\n".join(parts)


def _format_times(result: Run, program: Program) -> str:
    lines = []
    totals = result.totals
    if result.step_cycles is not None and totals is not None and totals.longest_cycles is not None:
        n, cycle_us = totals.n_hardware_steps, program.chip.core.cycle_ns / 1000
        mean = result.step_cycles[0] * cycle_us / result.n_samples / n
        longest = totals.longest_cycles * cycle_us
        lines.append(step_line(mean, longest, f"{count_text(n, 'step')} and all samples", result.time_basis))
    elif result.step_cycles is not None:
        step_us = result.step_cycles * program.chip.core.cycle_ns / 1000 / result.n_samples
        steps = count_text(len(step_us), "step")
        lines.append(step_line(step_us.mean(), step_us.max(), steps, result.time_basis))
    elif not program.chip.gives_times:
        lines.append(f"no times: {program.chip.name} gives no {', '.join(program.chip.unknown_costs)}")
    else:
        lines.append("no times: only backend cycle measures them")
    if result.energy_pj is not None:
        nj = result.energy_pj["total"] / result.n_samples / 1000
        lines.append(f"{result.energy_label}: {format_figure(nj, 'nJ per sample', result.energy_basis)}")
    else:
        lines.append(f"no energies of events: {program.chip.name} gives no figures")
    if (board := collect_board(board_energy(program, result))) is not None:
        lines.append(f"board: {board_text(board)}")
    if result.n_dropped:
        lines.append(f"dropped: {count_text(result.n_dropped, 'message')}")
    return "\n".join(lines)


def _pack_arrays(result: Run, model) -> bytes:
    """Pack arrays into one .npz: keys `spikes/LAYER`, `states/LAYER/NAME`, `counters/NAME`, `step_cycles`, `output`.

    A run on a bus also has `bus/NAME`, a profiled one `phases/UNIT/PHASE`.
    """
    outputs = result.output if isinstance(result.output, dict) else {"": result.output}
    arrays: dict[str, Any] = {f"output/{name}".rstrip("/"): a for name, a in outputs.items()}
    arrays.update({f"spikes/{layer}": s for layer, s in result.spikes.items()})
    for layer, states in result.states.items():
        arrays.update({f"states/{layer}/{name}": a for name, a in states.items()})
    arrays.update({f"counters/{name}": c for name, c in result.counters.items()})
    if result.step_cycles is not None:
        arrays["step_cycles"] = result.step_cycles
    if result.bus is not None:
        arrays.update({f"bus/{f.name}": getattr(result.bus, f.name) for f in fields(result.bus)})
    phases_of_run = core_phases(model, result) if isinstance(model, Program) else None
    for unit, of in ({} if phases_of_run is None else phases_of_run.units).items():
        arrays.update({f"phases/{unit}/{phase}": cycles for phase, cycles in of.items()})
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
