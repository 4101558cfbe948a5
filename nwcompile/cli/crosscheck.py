"""`nwcompile crosscheck`: check that the backends agree bit for bit, and compare with the float network.

Exit code 1 if integer backends disagree. The difference of the float network is reported, but is not a failure.
"""

from argparse import Namespace
from dataclasses import asdict

import numpy as np

from nwcompile.cli.compile import program_for
from nwcompile.cli.inputs.data import read_input
from nwcompile.cli.inputs.load import check_usage, model_network
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, format_table
from nwcompile.errors import OptionError
from nwcompile.ir.program import Program
from nwcompile.report.text import interval_text
from nwcompile.sim.accuracy import check_labels, share_interval, share_right
from nwcompile.sim.answers import count_classes
from nwcompile.sim.crosscheck import Crosscheck, crosscheck
from nwcompile.sim.float_difference import FloatDifference
from nwcompile.sim.inputs import prepare_inputs


def run(args: Namespace) -> int:
    against = tuple(name for names in args.against for name in names)
    if args.model_of is not None and "float" not in against:
        raise OptionError("--model: the float model of a .nwc program; compare it with --against float,cycle")
    check_usage(args)
    data = read_input(args)
    network = model_network(args, data.example)
    if network is not None:
        data = data.laid_out(network.layout)
        prepare_inputs(network, data.x, args.steps)  # Reject wrong input before compiling.
    program = program_for(args, network, data.x)
    if network is None:
        data = data.laid_out(program.network.layout)
    labels, n_classes = data.y if "float" in against else None, count_classes(program.network)
    if labels is not None and n_classes is not None:
        check_labels(labels, n_classes)
    result = crosscheck(program, data.x, against, args.window, args.steps, network if "float" in against else None)
    accuracy, gap = None, result.float_difference
    if labels is not None and gap is not None and gap.answers_float is not None and gap.answers_fixed is not None:
        given = {"float": gap.answers_float, "chip": gap.answers_fixed}
        accuracy = {name: share_right(np.array(answer), labels) for name, answer in given.items()}
    if args.json:
        told = None if gap is None else {**asdict(gap), "n_alike": gap.n_alike, "accuracy": accuracy}
        more = {"float_difference": told, "chip": program.chip.name, "warnings": program.warnings}
        print(as_json({**asdict(result), **more}))
    else:
        print_text("\n\n".join(_format_result(result, program, accuracy)))
    return 0 if result.agree else 1


def _format_result(result: Crosscheck, program: Program, accuracy: dict[str, float] | None) -> list[str]:
    rows = []
    for layer in result.layers:
        first = "equal" if layer.first_difference is None else str(layer.first_difference)
        rows.append((layer.layer, layer.n_neurons, layer.n_spikes, *layer.fired.values(), first))
    header = ("layer", "neurons", "compared", *(f"fired ({name})" for name in result.backends), "spikes and states")
    parts = [str(result), format_table(header, rows)]
    if result.float_difference is not None:
        parts += _format_float(result.float_difference, result.n_samples, accuracy)
    return parts + [f"warning: {text}" for text in program.warnings]


def _format_float(gap: FloatDifference, n_samples: int, accuracy: dict[str, float] | None) -> list[str]:
    rows: list[tuple] = []
    for row in gap.layers:
        if row.n_differing is None or row.share_differing is None:
            error = "" if row.membrane_error is None else f"{100 * row.membrane_error:.2f} % of its membrane"
            rows.append((row.layer, row.n_neurons, "readout", "", error, "", ""))
            continue
        share = f"{100 * row.share_differing:.2f} %"
        step = "none" if row.first_step is None else row.first_step
        rates = (f"{row.rate_float:.5f}", f"{row.rate_fixed:.5f}")
        rows.append((row.layer, row.n_neurons, *rates, row.n_differing, share, step))
    header = ("layer", "neurons", "rate in float", f"in {gap.backend}", "spikes differing", "of those in either",
              "first step")  # fmt: skip
    if gap.n_alike is None:
        answer = "answer: not compared, because there are several output layers"
    else:
        answer = f"answer: float and chip agree on {gap.n_alike} of {n_samples} samples"
    if accuracy is not None:
        parts = [
            f"{name} {100 * part:.2f} % ({interval_text(share_interval(part, n_samples))})"
            for name, part in accuracy.items()
        ]
        answer += f"; accuracy {', '.join(parts)}, 95 % intervals"
    return ["float against the chip's integers (what quantizing changed):", format_table(header, rows), answer]
