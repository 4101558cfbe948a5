"""Arguments: the flags of every verb. Errors about unknown flags list the choices, nearest spelling first."""

import argparse
import re
import warnings
from dataclasses import fields, replace
from functools import partial

from nwcompile import plugins
from nwcompile.cli.bits_file import read_bits
from nwcompile.cli.flags import (
    DEFAULTS,
    METHODS,
    MODEL,
    InAnyCase,
    OneOf,
    SomeOf,
    add_backend,
    add_calibration,
    add_chip,
    add_float_model,
    add_input,
    add_model,
    add_model_flags,
    add_multi_spike,
    add_options,
    add_trace,
    add_widths,
    read_setting,
    to_float,
    to_int,
    to_numbers,
)
from nwcompile.errors import NwWarning, OptionError, error_titles, unknown_choice
from nwcompile.ir.options import Options
from nwcompile.sim import BACKENDS, RECORDS, WINDOWS
from nwcompile.sim.crosscheck import AGAINST

ERROR_CODE = "NW1001"
PROGRAM = "a program from nwcompile compile"
PROGRAM_OR_MODEL = "a .nwc program, or " + MODEL
SHELLS = ("bash", "zsh", "tcsh")  # shells with completion
OLD_FLAGS = {"--optimise": "--optimize", "--fix": "--fixed-sites"}  # accepted for one release, with a warning


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises OptionError."""

    def error(self, message):
        message = re.sub(r"^one of the arguments (\S+) (\S+) is required$", r"give \1 or \2", message)
        raise OptionError(f"{self.prog.partition(' ')[2]}: {message}")


def parse_arguments(verb: str, description: str, argv: list[str]) -> argparse.Namespace:
    """Parse the arguments of one verb; raises OptionError."""
    parser = Parser(prog=f"nwcompile {verb}", description=description, allow_abbrev=False)
    add_arguments(parser, verb)
    flags = [flag for action in parser._actions for flag in action.option_strings]
    argv = [_update_flag(word, flags) for word in argv]
    for word in argv:
        flag = word.partition("=")[0]
        if word.startswith("--") and flag not in flags:
            raise OptionError(f"{verb}: {unknown_choice('flag', flag, flags)}")
    args, extra = parser.parse_known_args(argv)
    for word in extra:
        if word.startswith("-"):
            raise OptionError(f"{verb}: {unknown_choice('flag', word, flags)}")
        raise OptionError(f"{verb}: unexpected argument {word!r}")
    args.set = dict(args.set)
    return args


def add_arguments(parser: Parser, verb: str) -> None:
    """Add the arguments of a verb: the common ones and its own."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    text = "override a key of the chip file, like noc.buffer_flits=4"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", type=read_setting, help=text)
    PARSERS[verb](parser)


def _update_flag(word: str, flags: list[str]) -> str:
    """Replace an old flag of this verb by its new name, with a warning; return any other word unchanged."""
    flag, equals, value = word.partition("=")
    new = OLD_FLAGS.get(flag)
    if new not in flags:
        return word
    warnings.warn(f"{flag} is called {new} now; the next release removes the old flag", NwWarning, stacklevel=2)
    return new + equals + value


def read_options(args: argparse.Namespace) -> Options:
    """Build the compiler's options from the given flags."""
    given = {f.name: getattr(args, f.name, None) for f in fields(Options)}
    given["fixed_sites"] = dict(given["fixed_sites"]) if given["fixed_sites"] else None
    given["approximate"] = tuple(word for words in given["approximate"] or () for word in words)
    given |= read_bits(args.bits) if given["bits"] is not None else {}
    for name in METHODS:
        if ":" in (spec := given[name] or ""):
            given[name] = plugins.import_function(spec, OptionError, "NW1101")
    return Options(**{name: value for name, value in given.items() if value is not None})


def _add_compile(parser: Parser) -> None:
    add_model(parser)
    add_chip(parser, required=True)
    add_calibration(parser)
    add_options(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-o", "--output", metavar="DIR", help="folder for net.nwc and report.{json,html}")
    what.add_argument("--plan-only", action="store_true", help="print the mapping and its cost; write nothing")
    parser.add_argument("--explain", action="store_true", help="say what limits the mapping, and what else was tried")
    _add_checkpoint(parser)


def _add_check(parser: Parser) -> None:
    add_model(parser, PROGRAM_OR_MODEL)
    add_chip(parser, required=False)
    add_calibration(parser)
    add_options(parser)


def _add_estimate(parser: Parser) -> None:
    add_model(parser)
    text = "chip names or .toml files (default: all of `nwcompile chips list`; boards if their chip is too small)"
    parser.add_argument("--chips", default="all", metavar="NAME,...", help=text)
    parser.add_argument("--input", metavar="X.npz", help="sample inputs (or demo), for times, energies and operations")
    parser.add_argument("--samples", type=to_int, metavar="N", help="use the first N samples only")
    add_options(parser, replace(DEFAULTS, partitioner="coarse"))


def _add_sweep(parser: Parser) -> None:
    add = parser.add_argument
    add("plan", metavar="PLAN.toml", help="model, chip, input and the [grid] of settings; see docs/sweep.md")
    add("-o", "--output", required=True, metavar="DIR", help="folder of sweep.jsonl and sweep.html, new or to continue")
    add("--processes", type=to_int, metavar="N", help="points computed in parallel (default: all CPU cores)")
    text = "compute points on a dask cluster: `dask` starts one here, tcp://host:8786 is a scheduler"
    add("--cluster", metavar="dask|ADDRESS", help=text)
    text = "points whose programs and reports are stored: front (the best, default), all, none"
    add("--keep", type=OneOf("keep", ("front", "all", "none")), default="front", metavar="NAME", help=text)


def _add_simulate(parser: Parser) -> None:
    add_model(parser, "a .nwc program; or, for the float network, " + MODEL)
    add_input(parser)
    add_backend(parser, "cycle for a program, reference for a float network")
    _add_window(parser)
    text = "spikes (default); all: spikes and states; totals: sums only, for any number of steps (backend cycle)"
    parser.add_argument("--record", type=OneOf("record", RECORDS), default="spikes", metavar="NAME", help=text)
    parser.add_argument(
        "--profile", action="store_true", help="show where the cycles go: phases, latencies, links, critical paths"
    )
    add_trace(parser)
    _add_stream(parser, "one sample of unlimited length, in constant memory")
    _add_checkpoint(parser)
    written = "file for spikes, states and counters; with --stream, for spikes as text (-: standard output)"
    parser.add_argument("-o", "--output", metavar="OUT.npz", help=written)


def _add_window(parser: Parser) -> None:
    text = "aligned: the model's T steps of every layer (default); hardware: T steps of the chip"
    parser.add_argument("--window", type=OneOf("window", WINDOWS), default="aligned", metavar="NAME", help=text)


def _add_stream(parser: Parser, what: str) -> None:
    given = (
        f"{what}: .npy or .npz [T, *shape]; an event file (.bin, .aedat4, .raw, .dat, .es), in steps of --model-dt; or "
        "text (-: standard input), one line per step with the indices of the spiking input lines"
    )
    parser.add_argument("--stream", metavar="FILE", help=given)


def _add_checkpoint(parser: Parser) -> None:
    text = "folder for finished work; if killed, the same command continues from it and writes the same bytes"
    parser.add_argument("--checkpoint", metavar="DIR", help=text)


def _add_evaluate(parser: Parser) -> None:
    add_model(parser, PROGRAM_OR_MODEL)
    add_input(parser)
    add_backend(parser, "sequence")
    add_chip(parser, required=False)
    add_float_model(parser)
    add_calibration(parser)
    add_options(parser)


def _add_bits(parser: Parser) -> None:
    add_model(parser)
    add_chip(parser, required=True)
    parser.add_argument(
        "--input", required=True, metavar="X.npz", help=".npz (x, and labels y) or .npy: [B, T, *shape]"
    )
    parser.add_argument("--samples", type=to_int, metavar="N", help="use the first N samples only")
    parser.add_argument("--labels", metavar="Y.npy", help="labels, if the file of --input has none")
    parser.add_argument("--drop", required=True, metavar="PERCENT", help="largest loss of accuracy in points, like 1%%")
    add_calibration(parser)
    add_widths(parser)
    parser.add_argument("--seed", type=to_int, metavar="N", help="seed for drawing calibration samples (default: 0)")
    add_multi_spike(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.toml", help="file for the widths, for --bits")


def _add_robustness(parser: Parser) -> None:
    from nwcompile.sim.variation import MAX_DEVICES  # imported here because it loads Numba

    parser.add_argument("program", metavar="PROGRAM.nwc", help=PROGRAM)
    parser.add_argument("--input", required=True, metavar="X.npz", help="samples x [B, T, *shape] and labels y [B]")
    text = f"devices to draw (each runs all samples of --input), at most {MAX_DEVICES} (default: 100)"
    parser.add_argument("--samples", type=to_int, default=100, metavar="N", help=text)
    parser.add_argument("--seed", type=to_int, default=0, metavar="N", help="seed for drawing devices (default: 0)")
    for name, text in (
        ("weight", "relative standard deviation of every stored weight, 0.1 for 10 %%"),
        ("threshold", "relative standard deviation of every neuron's threshold"),
        ("leak", "relative standard deviation of every neuron's leak rates"),
        ("stuck", "share of stored weights stuck at 0"),
        ("dead", "share of neurons that never fire"),
        ("levels", "conductance levels of a memory cell, two of which are a weight"),
        ("jitter", "standard deviation, in steps, of the time of every spike that enters the chip"),
        ("noise", "relative standard deviation of each read of a memory cell, new in each step"),
        ("drift", "seconds since the memory cells were programmed"),
    ):
        parser.add_argument(
            f"--{name}",
            type=partial(to_numbers, to_int if name == "levels" else to_float),
            metavar="X[,X...]",
            help=f"{text}; several values make a table (default: the chip file's)",
        )
    add_backend(parser, "sequence")
    parser.set_defaults(backend="sequence")


def _add_crosscheck(parser: Parser) -> None:
    add_model(parser, PROGRAM_OR_MODEL)
    add_input(parser)
    parser.add_argument(
        "--against",
        nargs="+",
        type=SomeOf("backend", AGAINST),
        default=[BACKENDS],
        metavar="BACKEND,...",
        help=f"backends to compare: {', '.join(AGAINST)} (float: the model before "
        f"quantization; default: {','.join(BACKENDS)})",
    )
    _add_window(parser)
    add_chip(parser, required=False)
    add_float_model(parser)
    add_calibration(parser)
    add_options(parser)


def _add_report(parser: Parser) -> None:
    from nwcompile.cost.compare import NAMES  # imported here because it loads Numba
    from nwcompile.report.diff import GATE

    parser.add_argument("program", metavar="PROGRAM.nwc", nargs="?", help=PROGRAM)
    add_input(parser)
    _add_stream(parser, "one sample instead of --input, read to its end")
    add_backend(parser, "cycle")
    add_model_flags(parser)
    add_float_model(parser)
    add_trace(parser)
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for report.json and report.html, or diff.*")
    text = (
        "compare two mappings of a network, predicted from A's calibration or measured on --input; "
        "exit code 1 if B is worse; -o writes diff.json and diff.html"
    )
    parser.add_argument("--diff", nargs=2, metavar=("A.nwc", "B.nwc"), help=text)
    text = f"figures that must not get worse, out of {', '.join(NAMES)} (default: {','.join(GATE)})"
    parser.add_argument("--gate", type=SomeOf("figure", NAMES), metavar="FIGURE,...", help=text)
    parser.add_argument(
        "--tolerance", type=to_float, metavar="PERCENT", help="how much worse a figure may be (default: 0)"
    )


def _add_export(parser: Parser) -> None:
    from nwcompile.report.export.formats import EXPORTS

    parser.add_argument("program", metavar="PROGRAM.nwc", help=f"{PROGRAM}; for --to nir also a model: {MODEL}")
    parser.add_argument(
        "--to",
        required=True,
        type=OneOf("format", [*plugins.list_names(plugins.EXPORTERS, EXPORTS), "nir"]),
        metavar="NAME",
        help="nir: the network for other frameworks; "
        "ranc: memory files of the FPGA design RANC; sanafe: SANA-FE 2.2; xylo: the arguments of rockpool's "
        "config_from_specification; or a plugin's name",
    )
    parser.add_argument("--input", metavar="X.npz", help="samples to export as spikes: .npz or .npy, [B, T, *shape]")
    parser.add_argument("--sample", type=to_int, default=0, metavar="N", help="index of the sample (default: 0)")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the files")
    add_model_flags(parser)


def _add_verify(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of `nwcompile export` or `compile`, or a .nwc program")
    log = "CSV with columns tick,core,neuron or tick,output or step,layer,neuron; .npz of arrays [T, n] by layer, or "
    log += "a .txt of RANC's testbench"
    parser.add_argument("--log", required=True, metavar="FILE", help=log)
    parser.add_argument("--input", metavar="X.npz", help="input of the recorded run (default: the exported sample)")
    parser.add_argument("--sample", type=to_int, default=0, metavar="N", help="index of the sample (default: 0)")
    parser.add_argument("--steps", type=to_int, metavar="N", help="compare the first N steps only (default: all)")


def _add_noc(parser: Parser) -> None:
    from nwcompile.sim.cycle.noc import PATTERNS  # imported here because it loads Numba

    add_chip(parser, required=True)
    parser.add_argument("--trace-in", metavar="PACKETS.csv", help="packets to replay: time, src, dst, size (in flits)")
    parser.add_argument("--trace-out", metavar="OUT.csv", help="file for inject,arrive of every packet, in cycles")
    parser.add_argument(
        "--traffic", type=OneOf("traffic", PATTERNS), metavar="NAME", help="generate load: " + ", ".join(PATTERNS)
    )
    text = "generated flits per core and cycle, above 0; several like 0.1,0.2,0.3 make a table of latencies"
    parser.add_argument("--load", type=partial(to_numbers, to_float), metavar="X[,X...]", help=text)
    for name, default, text in (
        ("flits", 1, "flits per generated packet"),
        ("warmup", 1000, "cycles before measuring"),
        ("cycles", 10000, "measured cycles"),
        ("seed", 0, "seed for generating packets"),
    ):
        parser.add_argument(f"--{name}", type=to_int, default=default, metavar="N", help=f"{text} (default: {default})")


def _add_show(parser: Parser) -> None:
    add_model(parser, PROGRAM_OR_MODEL)
    add_chip(parser, required=False)
    add_calibration(parser)
    add_options(parser)
    parser.add_argument("--core", type=to_int, metavar="N", help="logical core to show (default: list all cores)")


def _add_chips(parser: Parser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        type=OneOf("action", ("list", "show", "schema"), "; `nwcompile chips show NAME` shows one chip"),
        metavar="list|show|schema",
        help="list all chips (default), show every figure of NAME with its source, or print the schema of chip files",
    )
    parser.add_argument("chip", nargs="?", metavar="NAME", help="a shipped chip, or a .toml file")


def _add_explain(parser: Parser) -> None:
    listed = "error code, like NW4001 (default: list all codes)"
    parser.add_argument("code", metavar="CODE", nargs="?", type=InAnyCase("code", tuple(error_titles())), help=listed)


def _add_completion(parser: Parser) -> None:
    parser.add_argument("shell", metavar="|".join(SHELLS), type=OneOf("shell", SHELLS), help="your shell")


PARSERS = {
    "compile": _add_compile, "check": _add_check, "estimate": _add_estimate, "sweep": _add_sweep,
    "simulate": _add_simulate, "evaluate": _add_evaluate, "bits": _add_bits, "robustness": _add_robustness,
    "crosscheck": _add_crosscheck, "report": _add_report, "export": _add_export, "verify": _add_verify,
    "show": _add_show, "noc": _add_noc, "chips": _add_chips, "explain": _add_explain, "completion": _add_completion,
}  # fmt: skip
