"""Trace: the flags `--profile`, `--trace` and `--model-dt` of `simulate` and `report`."""

from argparse import Namespace
from pathlib import Path

from nwcompile.cli.inputs.load import check_file
from nwcompile.errors import OptionError
from nwcompile.ir import artifact
from nwcompile.ir.program import Program
from nwcompile.report.export.perfetto import STEPS, format_trace
from nwcompile.sim import simulate


def check_flags(args: Namespace, backend: str) -> Path | None:
    """The file for the trace, None without `--trace`. Raises OptionError for wrong or conflicting flags."""
    if args.model_dt is not None and not 0 < args.model_dt < float("inf"):
        raise OptionError(f"--model-dt {args.model_dt:g} must be a time in seconds above 0")
    if args.trace_steps is not None and args.trace is None:
        raise OptionError("--trace-steps says how many steps --trace OUT.json shows; give both")
    if args.trace_steps is not None and args.trace_steps < 1:
        raise OptionError(f"--trace-steps {args.trace_steps} must be 1 or more")
    if getattr(args, "profile", False) and backend != "cycle":
        raise OptionError(f"--profile needs times, and only backend 'cycle' measures them, not {backend!r}")
    if args.trace is None:
        return None
    if backend != "cycle":
        raise OptionError(f"--trace needs times, and only backend 'cycle' measures them, not {backend!r}")
    return check_file(args.trace)


def check_times(args: Namespace, program: Program) -> None:
    """Raise OptionError if `--profile` or `--trace` is given for a chip without costs."""
    for flag, given in (("--trace", args.trace is not None), ("--profile", getattr(args, "profile", False))):
        if given and not program.chip.has_times:
            raise OptionError(
                f"{flag} needs times, and {program.chip.name} gives no {', '.join(program.chip.unknown_costs)}"
            )


def write_trace(args: Namespace, file: Path, program: Program, samples, window: str) -> None:
    """Simulate and write the trace of the first sample's first steps."""
    n, steps = args.trace_steps or STEPS, args.steps
    if isinstance(samples, dict):
        samples = {name: a[:1, :n] for name, a in samples.items()}
    elif samples is not None:
        samples = samples[:1, :n]
    if steps is not None:
        steps = min(steps, n)
    run = simulate(program, samples, "cycle", args.device, window, steps=steps, profile=True, flight_steps=n)
    artifact.write_bytes(file, format_trace(program, run, n).encode())
