"""Arguments: the flags of every verb. Errors about unknown flags list the choices, nearest spelling first."""

import argparse
import tomllib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

from nwcompile import plugins
from nwcompile.cli.bits_file import read_bits
from nwcompile.errors import NwWarning, OptionError, error_titles, unknown_choice
from nwcompile.frontend.nir.dialects import DIALECTS
from nwcompile.ir import options as choices
from nwcompile.ir.options import Options
from nwcompile.ir.readout import RULES
from nwcompile.sim import BACKENDS, DEVICES, RECORDS, WINDOWS
from nwcompile.sim.crosscheck import AGAINST

ERROR_CODE = "NW1001"
MODEL = (
    "a .nir file, a lava-dl .net file, demo (a trained network of handwritten digits), or package.module:factory (it "
    "returns a torch module, (module, example input), (module, example input, layout), or a Network)"
)
PROGRAM = "a program from nwcompile compile"
PROGRAM_OR_MODEL = "a .nwc program, or " + MODEL
DEFAULTS = Options()
METHODS = ("partitioner", "placer")  # options that a function can be, as module:function
SHELLS = ("bash", "zsh", "tcsh")  # shells with completion
OLD_FLAGS = {"--optimise": "--optimize", "--fix": "--fixed-sites"}  # accepted for one release, with a warning


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises OptionError."""

    def error(self, message):
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
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        type=_read_setting,
        help="override a key of the chip file, like noc.buffer_flits=4",
    )
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
    _add_model(parser)
    _add_chip(parser, required=True)
    _add_calibration(parser)
    _add_options(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-o", "--output", metavar="DIR", help="folder for net.nwc and report.{json,html}")
    what.add_argument("--plan-only", action="store_true", help="print the mapping and its cost; write nothing")
    parser.add_argument("--explain", action="store_true", help="say what limits the mapping, and what else was tried")
    _add_checkpoint(parser)


def _add_check(parser: Parser) -> None:
    _add_model(parser, PROGRAM_OR_MODEL)
    _add_chip(parser, required=False)
    _add_calibration(parser)
    _add_options(parser)


def _add_estimate(parser: Parser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--chips",
        default="all",
        metavar="NAME,...",
        help="chip names or .toml files (default: all of `nwcompile chips list`; boards if their chip is too small)",
    )
    parser.add_argument("--input", metavar="X.npz", help="sample inputs (or demo), for times, energies and operations")
    parser.add_argument("--samples", type=_to_int, metavar="N", help="use the first N samples only")
    _add_options(parser, replace(DEFAULTS, partitioner="coarse"))


def _add_sweep(parser: Parser) -> None:
    add = parser.add_argument
    add("plan", metavar="PLAN.toml", help="model, chip, input and the [grid] of settings; see docs/sweep.md")
    add("-o", "--output", required=True, metavar="DIR", help="folder of sweep.jsonl and sweep.html, new or to continue")
    add("--processes", type=_to_int, metavar="N", help="points computed in parallel (default: all CPU cores)")
    add(
        "--cluster",
        metavar="dask|ADDRESS",
        help="compute points on a dask cluster: `dask` starts one here, tcp://host:8786 is a scheduler",
    )
    add(
        "--keep",
        type=OneOf("keep", ("front", "all", "none")),
        default="front",
        metavar="NAME",
        help="points whose programs and reports are stored: front (the best, default), all, none",
    )


def _add_simulate(parser: Parser) -> None:
    _add_model(parser, "a .nwc program; or, for the float network, " + MODEL)
    _add_input(parser)
    _add_backend(parser, "cycle for a program, reference for a float network")
    _add_window(parser)
    parser.add_argument(
        "--record",
        type=OneOf("record", RECORDS),
        default="spikes",
        metavar="NAME",
        help="spikes (default); all: spikes and states; totals: sums only, for any number of steps (backend cycle)",
    )
    parser.add_argument(
        "--profile", action="store_true", help="show where the cycles go: phases, latencies, links, critical paths"
    )
    _add_trace(parser)
    _add_stream(parser, "one sample of unlimited length, in constant memory")
    _add_checkpoint(parser)
    written = "file for spikes, states and counters; with --stream, for spikes as text (-: standard output)"
    parser.add_argument("-o", "--output", metavar="OUT.npz", help=written)


def _add_window(parser: Parser) -> None:
    parser.add_argument(
        "--window",
        type=OneOf("window", WINDOWS),
        default="aligned",
        metavar="NAME",
        help="aligned: the model's T steps of every layer (default); hardware: T steps of the chip",
    )


def _add_stream(parser: Parser, what: str) -> None:
    given = (
        f"{what}: .npy or .npz [T, *shape]; an event file (.bin, .aedat4, .raw, .dat, .es), in steps of --model-dt; or "
        "text (-: standard input), one line per step with the indices of the spiking input lines"
    )
    parser.add_argument("--stream", metavar="FILE", help=given)


def _add_checkpoint(parser: Parser) -> None:
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="folder for finished work; if killed, the same command continues from it and writes the same bytes",
    )


def _add_evaluate(parser: Parser) -> None:
    _add_model(parser, PROGRAM_OR_MODEL)
    _add_input(parser)
    _add_backend(parser, "sequence")
    _add_chip(parser, required=False)
    _add_float_model(parser)
    _add_calibration(parser)
    _add_options(parser)


def _add_bits(parser: Parser) -> None:
    _add_model(parser)
    _add_chip(parser, required=True)
    parser.add_argument(
        "--input", required=True, metavar="X.npz", help=".npz (x, and labels y) or .npy: [B, T, *shape]"
    )
    parser.add_argument("--samples", type=_to_int, metavar="N", help="use the first N samples only")
    parser.add_argument("--labels", metavar="Y.npy", help="labels, if the file of --input has none")
    parser.add_argument("--drop", required=True, metavar="PERCENT", help="largest loss of accuracy in points, like 1%%")
    _add_calibration(parser)
    _add_widths(parser)
    parser.add_argument("--seed", type=_to_int, metavar="N", help="seed for drawing calibration samples (default: 0)")
    _add_multi_spike(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.toml", help="file for the widths, for --bits")


def _add_robustness(parser: Parser) -> None:
    from nwcompile.sim.variation import MAX_DEVICES  # imported here because it loads Numba

    parser.add_argument("program", metavar="PROGRAM.nwc", help=PROGRAM)
    parser.add_argument("--input", required=True, metavar="X.npz", help="samples x [B, T, *shape] and labels y [B]")
    parser.add_argument(
        "--samples",
        type=_to_int,
        default=100,
        metavar="N",
        help=f"devices to draw, at most {MAX_DEVICES} (default: 100)",
    )
    parser.add_argument("--seed", type=_to_int, default=0, metavar="N", help="seed for drawing devices (default: 0)")
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
            type=partial(_to_numbers, _to_int if name == "levels" else _to_float),
            metavar="X[,X...]",
            help=f"{text}; several values make a table (default: the chip file's)",
        )
    _add_backend(parser, "sequence")
    parser.set_defaults(backend="sequence")


def _add_crosscheck(parser: Parser) -> None:
    _add_model(parser, PROGRAM_OR_MODEL)
    _add_input(parser)
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
    _add_chip(parser, required=False)
    _add_float_model(parser)
    _add_calibration(parser)
    _add_options(parser)


def _add_report(parser: Parser) -> None:
    from nwcompile.cost.compare import NAMES  # imported here because it loads Numba
    from nwcompile.report.diff import GATE

    parser.add_argument("program", metavar="PROGRAM.nwc", nargs="?", help=PROGRAM)
    _add_input(parser)
    _add_stream(parser, "one sample instead of --input, read to its end")
    _add_backend(parser, "cycle")
    _add_model_flags(parser)
    _add_float_model(parser)
    _add_trace(parser)
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for report.json and report.html, or diff.*")
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar=("A.nwc", "B.nwc"),
        help="compare two mappings of a network, predicted from A's calibration or measured on --input; "
        "exit code 1 if B is worse; -o writes diff.json and diff.html",
    )
    parser.add_argument(
        "--gate",
        type=SomeOf("figure", NAMES),
        metavar="FIGURE,...",
        help=f"figures that must not be worse, of {', '.join(NAMES)} (default: {','.join(GATE)})",
    )
    parser.add_argument(
        "--tolerance", type=_to_float, metavar="PERCENT", help="how much worse a figure may be (default: 0)"
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
    parser.add_argument("--sample", type=_to_int, default=0, metavar="N", help="index of the sample (default: 0)")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the files")
    _add_model_flags(parser)


def _add_verify(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of `nwcompile export` or `compile`, or a .nwc program")
    log = "CSV with columns tick,core,neuron or tick,output or step,layer,neuron; .npz of arrays [T, n] by layer, or "
    log += "a .txt of RANC's testbench"
    parser.add_argument("--log", required=True, metavar="FILE", help=log)
    parser.add_argument("--input", metavar="X.npz", help="input of the recorded run (default: the exported sample)")
    parser.add_argument("--sample", type=_to_int, default=0, metavar="N", help="index of the sample (default: 0)")
    parser.add_argument("--steps", type=_to_int, metavar="N", help="compare the first N steps only (default: all)")


def _add_noc(parser: Parser) -> None:
    from nwcompile.sim.cycle.noc import PATTERNS  # imported here because it loads Numba

    _add_chip(parser, required=True)
    parser.add_argument("--trace-in", metavar="PACKETS.csv", help="packets to replay: time, src, dst, size (in flits)")
    parser.add_argument("--trace-out", metavar="OUT.csv", help="file for inject,arrive of every packet, in cycles")
    parser.add_argument(
        "--traffic", type=OneOf("traffic", PATTERNS), metavar="NAME", help="generate load: " + ", ".join(PATTERNS)
    )
    parser.add_argument(
        "--load",
        type=partial(_to_numbers, _to_float),
        metavar="X[,X...]",
        help="generated flits per core and cycle, above 0; several like 0.1,0.2,0.3 make a table of latencies",
    )
    for name, default, text in (
        ("flits", 1, "flits per generated packet"),
        ("warmup", 1000, "cycles before measuring"),
        ("cycles", 10000, "measured cycles"),
        ("seed", 0, "seed for generating packets"),
    ):
        parser.add_argument(
            f"--{name}", type=_to_int, default=default, metavar="N", help=f"{text} (default: {default})"
        )


def _add_show(parser: Parser) -> None:
    _add_model(parser, PROGRAM_OR_MODEL)
    _add_chip(parser, required=False)
    _add_calibration(parser)
    _add_options(parser)
    parser.add_argument("--core", type=_to_int, metavar="N", help="logical core to show (default: list all cores)")


def _add_chips(parser: Parser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        type=OneOf("action", ("list", "show", "schema")),
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


def _add_model(parser: Parser, text: str = MODEL) -> None:
    parser.add_argument("model", metavar="MODEL", help=text)
    _add_model_flags(parser)


def _add_float_model(parser: Parser) -> None:
    parser.add_argument("--model", dest="model_of", metavar="MODEL", help="float model of the program, as a reference")


def _add_model_flags(parser: Parser) -> None:
    parser.add_argument("--dt", type=_to_float, metavar="SECONDS", help="time step of a .nir file")
    parser.add_argument(
        "--dialect",
        type=InAnyCase("dialect", tuple(DIALECTS)),
        metavar="NAME",
        help=f"framework that wrote the .nir file: {', '.join(DIALECTS)}",
    )
    parser.add_argument(
        "--neuron",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        type=_read_setting,
        help="set a NeuronSpec field that the file lacks: reset=zero, or n.reset=zero for node n only",
    )


def _add_chip(parser: Parser, required: bool) -> None:
    parser.add_argument("--chip", required=required, metavar="NAME", help="a shipped chip, or a .toml file")


def _add_calibration(parser: Parser) -> None:
    parser.add_argument("--calibration", metavar="X.npz", help="sample inputs to calibrate scales and mapping")


def _add_input(parser: Parser) -> None:
    parser.add_argument("--input", metavar="X.npz", help="demo, .npz (x, and labels y) or .npy: [B, T, *shape]")
    parser.add_argument("--steps", type=_to_int, metavar="N", help="run N steps without input")
    parser.add_argument("--samples", type=_to_int, metavar="N", help="use the first N samples only")


def _add_trace(parser: Parser) -> None:
    parser.add_argument("--trace", metavar="OUT.json", help="write the first sample as a timeline for ui.perfetto.dev")
    parser.add_argument("--trace-steps", type=_to_int, metavar="N", help="hardware steps in the trace (default: 200)")
    parser.add_argument(
        "--model-dt",
        type=_to_float,
        metavar="SECONDS",
        help="duration of a model step, for real-time factors",
    )


def _add_backend(parser: Parser, default: str) -> None:
    parser.add_argument(
        "--backend",
        type=OneOf("backend", BACKENDS),
        metavar="NAME",
        help=f"{', '.join(BACKENDS)} (default: {default})",
    )
    parser.add_argument(
        "--device",
        type=OneOf("device", DEVICES),
        default="cpu",
        metavar="NAME",
        help=" or ".join(DEVICES) + ", for backend sequence (default: cpu)",
    )


def _add_options(parser: Parser, default: Options = DEFAULTS) -> None:
    from nwcompile.passes.partition.partition import PARTITIONERS
    from nwcompile.passes.place.place import PLACERS

    partitioners = plugins.list_names(plugins.PARTITIONERS, PARTITIONERS)
    placers = plugins.list_names(plugins.PLACERS, PLACERS)
    add = parser.add_argument
    add("--seed", type=_to_int, metavar="N", help=f"seed of all random searches (default: {default.seed})")
    _add_widths(parser)
    flags: list[tuple[str, Sequence[str], str]] = [
        ("partitioner", partitioners, "how neurons are assigned to cores; a name or module:function"),
        ("placer", placers, "how cores are assigned to sites; a name or module:function"),
        ("optimize", choices.OBJECTIVES, f"what the mapping minimizes (time: on {choices.CORES_RULE})"),
        ("execution", choices.EXECUTIONS, "layers run in parallel, or one after the other in each step"),
    ]
    for name, words, what in flags:
        one_of = OneOrFunction if name in METHODS else OneOf
        listed = f"{what}: {', '.join(words)} (default: {getattr(default, name)})"
        add(f"--{name}", type=one_of(name, words), metavar="NAME", help=listed)
    _add_multi_spike(parser)
    _add_legalization(parser)
    add(
        "--fixed-sites",
        action="append",
        type=_read_fixed_sites,
        metavar="LAYER=X,Y,PORT",
        help="place the cores of a layer at these sites, in order: out=7,0,0+7,0,1",
    )
    add(
        "--cores",
        type=_to_int,
        dest="n_cores",
        metavar="N",
        help="number of cores to use (default: the partitioner chooses)",
    )
    add(
        "--step-limit",
        type=_to_float,
        dest="step_limit_us",
        metavar="US",
        help="with --optimize traffic or cores: longest allowed step in microseconds, as predicted (default: no limit)",
    )
    add(
        "--time-budget",
        type=_to_float,
        dest="time_budget_s",
        metavar="SECONDS",
        help="time limit of the partitioner, and again of the placer (default: none)",
    )


def _add_widths(parser: Parser) -> None:
    parser.add_argument(
        "--bits",
        metavar="N|FILE.toml",
        help="weight width, at most the chip's, or a file with one width per layer; "
        "`nwcompile bits` starts at these widths and writes such a file",
    )


def _add_multi_spike(parser: Parser) -> None:
    parser.add_argument(
        "--on-multi-spike",
        type=OneOf("on-multi-spike", choices.ON_MULTI_SPIKE),
        metavar="NAME",
        help="how to send several spikes of a step if a message carries one: refuse (default), "
        "graded (a message carries the count or sign) or repeat (n messages)",
    )


def _add_legalization(parser: Parser) -> None:
    parser.add_argument(
        "--approximate",
        action="append",
        type=SomeOf("approximate", (*choices.APPROXIMATIONS, choices.EVERYTHING)),
        metavar="WORD,...",
        help="features to approximate if the chip lacks them; the report shows the loss: "
        f"{', '.join(choices.APPROXIMATIONS)}; or {choices.EVERYTHING}, but delay (default: nothing)",
    )
    parser.add_argument(
        "--max-loss",
        metavar="LOSS",
        help="largest loss by --approximate: points of accuracy (0.5pt) or share of the spikes (2%%)",
    )
    parser.add_argument(
        "--readout",
        metavar="RULE",
        help="how the output becomes an answer, instead of the module's own way: "
        f"{', '.join(RULES)}; or with a number of classes, like sum:10",
    )
    parser.add_argument(
        "--input-layer",
        type=OneOf("input-layer", choices.INPUT_LAYERS),
        metavar="NAME",
        help=f"how real-valued or static input reaches the chip: {', '.join(choices.INPUT_LAYERS)} "
        "(default: the first that the chip supports)",
    )


@dataclass(frozen=True, eq=False)  # argparse hashes types, and `words` may be a list
class OneOf:
    """The type of a flag that accepts one of some words; `completion` reads them."""

    kind: str
    words: Sequence[str]

    def __call__(self, word: str) -> str:
        if word not in self.words:
            raise argparse.ArgumentTypeError(unknown_choice(self.kind, word, self.words))
        return word


class OneOrFunction(OneOf):
    """The type of a flag that accepts one of some words, or `package.module:function`."""

    def __call__(self, word: str) -> str:
        is_function = ":" in word and all(part.isidentifier() for part in word.replace(":", ".", 1).split("."))
        return word if is_function else super().__call__(word)


class InAnyCase(OneOf):
    """The type of a flag that accepts one of some words, in lower or upper case."""

    def __call__(self, word: str) -> str:
        by_lower = {known.lower(): known for known in self.words}
        return super().__call__(by_lower.get(word.strip().lower(), word))


class SomeOf(OneOf):
    """The type of a flag that accepts one or several of some words, separated by commas."""

    def __call__(self, text: str) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(super(SomeOf, self).__call__(word.strip()) for word in text.split(","))


def _to_int(text: str) -> int:
    try:
        return int(float(text)) if text.lower().count("e") == 1 and float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def _to_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def _to_numbers(number: Callable[[str], float], text: str) -> list[float]:
    return [number(word) for word in text.split(",")]


def _read_fixed_sites(text: str) -> tuple[str, list]:
    """Parse `LAYER=X,Y,PORT`; sites of several cores are separated by +."""
    layer, _, sites = text.rpartition("=")
    try:
        return layer, [tuple(int(n) for n in site.split(",")) for site in sites.split("+")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected LAYER=X,Y,PORT, got {text!r}") from None


def _read_setting(text: str) -> tuple[str, object]:
    """Parse `KEY=VALUE`: the value is read as TOML, `none` is None, and anything else is a string."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    if value.lower() == "none":
        return key, None
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
