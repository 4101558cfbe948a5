"""`nwcompile bits`: find the narrowest weights of each layer that keep the accuracy, and write a file for `--bits`."""

import sys
from argparse import Namespace
from dataclasses import replace

import numpy as np

from nwcompile.cli.arguments import read_options
from nwcompile.cli.bits_file import bits_text
from nwcompile.cli.inputs.data import Data, read_data, read_input, read_labels
from nwcompile.cli.inputs.load import check_file, check_usage, is_program, load_chip, read_network
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, format_table
from nwcompile.errors import ModelError, OptionError, escape_controls
from nwcompile.ir.artifact import write_files
from nwcompile.report.text import interval_text
from nwcompile.sim.accuracy import check_labels, share_interval
from nwcompile.sim.answers import count_classes, warn_of_answers
from nwcompile.workbench.bit_width_search import Narrowed, find_narrowest

ERROR_CODE = "NW1006"
CALIBRATION_SHARE = 0.2  # Share of the samples for calibration without --calibration; the others are evaluated.
MOST_CALIBRATION = 200  # More calibration samples would slow down every try of widths.


def run(args: Namespace) -> int:
    if is_program(args.model):
        raise OptionError(f"{args.model} is compiled already; widths are searched for its model", code="NW1007")
    check_usage(args)
    drop, path = _read_percent(args.drop), check_file(args.output)
    if path.suffix != ".toml":
        raise OptionError(f"-o {args.output}: give the name of a .toml file, so that --bits can read it", code="NW1007")
    data = read_input(args)
    if args.labels is None and data.y is None:
        raise ModelError(f"{args.input}: no labels; give them with --labels Y.npy, or under the key y of a .npz file")
    labels = None if args.labels is None else read_labels(args.labels)
    network = read_network(args.model, args, data.example)
    data = _add_labels(args, data, labels, network.layout)
    n_classes = count_classes(network)
    if n_classes is not None:
        check_labels(data.labels, n_classes)
    calibration, data, split = _split_samples(args, data)
    narrowed = find_narrowest(
        network, load_chip(args), calibration, data.x, data.labels, read_options(args), drop / 100, _print_try
    )
    warn_of_answers(network, "the accuracy")
    widths, accuracy = narrowed.narrowest, narrowed.accuracy
    if widths is None or accuracy is None:
        raise ModelError(
            f"at its widest weights ({_widths_text(narrowed.start)} bits) the network is at "
            f"{_share_text(narrowed.accuracy_start)} of {len(data.labels)} samples, "
            f"{100 * (narrowed.accuracy_float - narrowed.accuracy_start):.2f} points below float "
            f"({_share_text(narrowed.accuracy_float)}), and --drop allows {drop:g}; allow more, or give more "
            "calibration samples",
            code="NW1007",
        )
    n_samples = len(data.labels)
    rates = f"{_share_text(accuracy)} of {n_samples} samples right, float {_share_text(narrowed.accuracy_float)}"
    about = escape_controls(f"widths of {args.model} on {args.chip}: {rates}")
    write_files({path: bits_text(widths, about).encode()})
    if args.json:
        told = {"drop_percent": drop, "n_samples": n_samples, "split": split, "file": str(path)}
        print(as_json({**_as_values(narrowed), **told}))
    else:
        rates = _format_accuracies(narrowed, accuracy, n_samples)
        print_text(f"{_format_widths(narrowed, widths)}\n\n{rates}\n{split}\n")
        print(f"widths: {path} (give it to --bits)")
    return 0


def _read_percent(text: str) -> float:
    """Parse `1%` or `0.5`, points of accuracy that may be lost."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 100:
        raise OptionError(
            f"--drop {text}: expected the percentage of accuracy that may be lost, 0 to 100, like 1%", code="NW1007"
        )
    return value


def _add_labels(args: Namespace, data: Data, labels: np.ndarray | None, layout: str) -> Data:
    """The samples of `--input` in the network's layout, with their labels."""
    if labels is None:
        return data.laid_out(layout)
    data = replace(data, y=None).laid_out(layout)
    data = replace(data, y=labels if args.samples is None else labels[: args.samples])
    n_samples = next(iter(data.arrays.values())).shape[1 if layout == "TB" else 0]
    if len(data.labels) != n_samples:
        raise ModelError(f"{args.labels}: {len(data.labels)} labels for the {n_samples} samples of {args.input}")
    return data


def _split_samples(args: Namespace, data: Data) -> tuple[object, Data, str]:
    """Split the data into calibration samples and disjoint evaluation samples, with a sentence about them."""
    n = len(data.labels)
    if args.calibration is not None:
        return read_data(args.calibration).x, data, f"accuracy on all {n} samples; calibrated on {args.calibration}"
    if n < 2:
        raise ModelError(f"{args.input}: 1 sample cannot both calibrate and be evaluated; give --calibration")
    n_first = min(max(1, int(n * CALIBRATION_SHARE)), MOST_CALIBRATION)
    seed = read_options(args).seed
    order = np.random.default_rng(seed).permutation(n)
    first, rest = data.only(np.sort(order[:n_first])), data.only(np.sort(order[n_first:]))
    return first.x, rest, f"calibrated on {n_first} of the {n} samples, drawn with seed {seed}; accuracy on the others"


def _print_try(widths: dict[str, int], accuracy: float) -> None:
    print(f"{_widths_text(widths)} bits: {_share_text(accuracy)}", file=sys.stderr, flush=True)


def _widths_text(widths: dict[str, int]) -> str:
    return ", ".join(f"{name} {bits}" for name, bits in widths.items())


def _share_text(accuracy: float) -> str:
    return f"{100 * accuracy:.2f} %"


def _format_widths(narrowed: Narrowed, widths: dict[str, int]) -> str:
    rows = []
    for name, n in narrowed.n_weights.items():
        before, after = narrowed.start[name], widths[name]
        rows.append((name, n, before, after, n * before, n * after))
    n_weights, bits_before, bits_after = (sum(int(row[i]) for row in rows) for i in (1, 4, 5))
    total = ("all", n_weights, "", "", bits_before, bits_after)
    return format_table(("layer", "weights", "bits", "now", "memory bits", "now"), [*rows, total])


def _format_accuracies(narrowed: Narrowed, accuracy: float, n_samples: int) -> str:
    interval = interval_text(share_interval(accuracy, n_samples))
    return (
        f"accuracy: float {_share_text(narrowed.accuracy_float)}, at the start {_share_text(narrowed.accuracy_start)}, "
        f"now {_share_text(accuracy)} (95 % interval {interval}) of {n_samples} samples, after "
        f"{len(narrowed.tried)} tries; these samples chose the widths: on others it may be lower"
    )


def _as_values(narrowed: Narrowed) -> dict:
    accuracy = {"float": narrowed.accuracy_float, "start": narrowed.accuracy_start, "found": narrowed.accuracy}
    tries = [{"layers": widths, "accuracy": part} for widths, part in narrowed.tried]
    return {"layers": narrowed.narrowest, "start": narrowed.start, "n_weights": narrowed.n_weights,
            "accuracy": accuracy, "tries": tries}  # fmt: skip
