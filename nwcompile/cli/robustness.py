"""`nwcompile robustness`: measure the accuracy of a program on many devices with mismatch, and on the ideal one."""

import sys
from argparse import Namespace
from dataclasses import asdict, fields, replace
from itertools import product

import numpy as np

from nwcompile.cli import INTERRUPTED
from nwcompile.cli.inputs.data import read_data
from nwcompile.cli.inputs.load import load_program
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, format_table
from nwcompile.errors import ModelError
from nwcompile.ir.chip_sections import Variation
from nwcompile.ir.program import Program
from nwcompile.ir.shown import count_text
from nwcompile.sim.variation import Robustness, iter_accuracies, merge_variation

ERROR_CODE = "NW1006"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
UNITS = {"levels": "", "jitter": " steps", "drift": " s"}  # of kinds of variation; the others are shares
N_BINS = 10  # Ten bins show the distribution of a hundred devices without gaps.


def run(args: Namespace) -> int:
    program = load_program(args.program, args.set)
    given = {f.name: getattr(args, f.name) or [None] for f in fields(Variation)}
    points = [Variation(**dict(zip(given, values, strict=True))) for values in product(*given.values())]
    variations = [merge_variation(program.chip, point) for point in points]  # Raises before the samples are read.
    data = read_data(args.input)
    if data.y is None:
        raise ModelError(f"{args.input}: no labels; robustness needs them under the key y of a .npz file")
    parts: list[float] = []
    code, n = 0, args.samples
    try:
        for part in iter_accuracies(program, data.x, data.y, points, n, args.seed, args.backend, args.device):
            parts.append(part)
            _print_progress(parts, n, len(points))
    except KeyboardInterrupt:
        if len(parts) < 2:
            raise
        print(f"nwcompile: interrupted after {count_text(len(parts) - 1, 'device')}", file=sys.stderr)
        code = INTERRUPTED
    ideal, *parts = parts
    results = [
        Robustness(ideal, tuple(parts[i * n : (i + 1) * n]), variation, args.seed, len(data.y))
        for i, variation in enumerate(variations)
        if i * n < len(parts)
    ]
    swept = [name for name, choices in given.items() if len(choices) > 1]
    if args.json:
        values = [_as_values(result, args, program) for result in results]
        print(as_json({"points": values} if swept else values[0]))
    else:
        text = _format_points(results, swept, args, program) if swept else _format_result(results[0], args, program)
        print_text(text)
    return code


def _print_progress(parts: list[float], n: int, n_points: int) -> None:
    """Print progress for the ideal device and for each tenth of the others, with the mean of the point's devices."""
    done, n_devices = len(parts) - 1, n * n_points
    if done == 0:
        print(f"ideal device: {_format_percent(parts[0])}", file=sys.stderr, flush=True)
    elif done * 10 // n_devices > (done - 1) * 10 // n_devices:
        row = (done - 1) // n
        where = f"row {row + 1} of {n_points}, " if n_points > 1 else ""
        mean = _format_percent(float(np.mean(parts[1 + row * n :])))
        print(f"{done} of {count_text(n_devices, 'device')}: {where}mean {mean}", file=sys.stderr, flush=True)


def _format_points(results: list[Robustness], swept: list[str], args: Namespace, program: Program) -> str:
    """Accuracy of the devices at each point, one row each; `swept` are the kinds of variation that differ."""
    rows = []
    for r in results:
        figures = (f"{100 * part:.2f}" for part in (r.mean, r.std, r.min))
        rows.append((*(_format_kind(r, name) for name in swept), *figures, str(len(r.accuracies))))
    columns = (*swept, "mean %", "standard deviation", "worst %", "devices")
    alike = replace(results[0].variation, **dict.fromkeys(swept))
    head = _format_head(replace(results[0], variation=alike), args, program, "no further variation")
    return f"{head}\nideal device: {_format_percent(results[0].ideal)}\n\n{format_table(columns, rows)}"


def _format_kind(result: Robustness, name: str) -> str:
    value = getattr(result.variation, name)
    return f"{value:g}{UNITS[name]}" if name in UNITS else f"{100 * value:g} %"


def _format_head(result: Robustness, args: Namespace, program: Program, nothing: str = "no variation") -> str:
    given = [name for name, value in asdict(result.variation).items() if value]
    texts = ", ".join(f"{name} {_format_kind(result, name)}" for name in given)
    return (
        f"{program.chip.name}: {texts or nothing}; {count_text(len(result.accuracies), 'device')} "
        f"(seed {result.seed}), {count_text(result.n_samples, 'sample')}, backend {args.backend}"
    )


def _format_result(result: Robustness, args: Namespace, program: Program) -> str:
    head = _format_head(result, args, program)
    rows = [("ideal device", result.ideal), ("mean of devices", result.mean), ("standard deviation", result.std),
            ("worst device", result.min)]  # fmt: skip
    rows += [(f"{100 * share:g} % of devices below", result.quantile(share)) for share in QUANTILES]
    rows.append(("best device", max(result.accuracies)))
    counts, edges = _count_bins(result)
    bins = f"devices from {_format_percent(edges[0])} to {_format_percent(edges[-1])}, in {N_BINS} equal bins"
    cells = [(name, f"{100 * part:.2f}") for name, part in rows]
    return f"{head}\n\n{format_table(('accuracy', '%'), cells)}\n\n{bins}: {' '.join(map(str, counts))}"


def _as_values(result: Robustness, args: Namespace, program: Program) -> dict:
    counts, edges = _count_bins(result)
    return {
        "chip": program.chip.name,
        "backend": args.backend,
        "variation": asdict(result.variation),
        "seed": result.seed,
        "n_devices": len(result.accuracies),
        "n_devices_wanted": args.samples,
        "n_samples": result.n_samples,
        "ideal": result.ideal,
        "mean": result.mean,
        "std": result.std,
        "min": result.min,
        "max": max(result.accuracies),
        "quantiles": {f"{share:g}": result.quantile(share) for share in QUANTILES},
        "histogram": {"counts": counts, "edges": edges},
        "accuracies": result.accuracies,
    }


def _count_bins(result: Robustness) -> tuple[np.ndarray, np.ndarray]:
    """The number of devices in each of N_BINS equal bins from the worst to the best, and the N_BINS + 1 edges."""
    width = max(max(result.accuracies) - result.min, 1 / result.n_samples)  # at least one sample, for equal devices
    high = min(result.min + width, 1.0)
    return np.histogram(result.accuracies, N_BINS, (high - width, high))


def _format_percent(part: float) -> str:
    return f"{100 * part:.2f} %"
