"""Flags that several verbs have: model, chip, input, backend, and the compiler's options; and types of flags.

A type reads words from a list, numbers, or settings KEY=VALUE; its errors list the choices.
"""

import argparse
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nwcompile import plugins
from nwcompile.errors import unknown_choice
from nwcompile.frontend.nir.dialects import DIALECTS
from nwcompile.ir import options as choices
from nwcompile.ir.options import Options
from nwcompile.ir.readout import RULES
from nwcompile.sim import BACKENDS, DEVICES

MODEL = (
    "a .nir file, a lava-dl .net file, demo (a trained network of handwritten digits), or package.module:factory (it "
    "returns a torch module, (module, example input), (module, example input, layout), or a Network)"
)
DEFAULTS = Options()
METHODS = ("partitioner", "placer")  # options that a function can be, as module:function
ERROR_CODE = "NW1001"


@dataclass(frozen=True, eq=False)  # argparse hashes types, and `words` may be a list
class OneOf:
    """The type of a flag that accepts one of some words, which `completion` reads. `hint` ends the error."""

    kind: str
    words: Sequence[str]
    hint: str = ""

    def __call__(self, word: str) -> str:
        if word not in self.words:
            raise argparse.ArgumentTypeError(unknown_choice(self.kind, word, self.words) + self.hint)
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


def to_int(text: str) -> int:
    try:
        return int(float(text)) if text.lower().count("e") == 1 and float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def to_stagger(text: str) -> int | str:
    try:
        return "auto" if text == "auto" else to_int(text)
    except argparse.ArgumentTypeError as e:
        raise argparse.ArgumentTypeError(f"{e}; or give auto") from None


def to_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def to_numbers(number: Callable[[str], float], text: str) -> list[float]:
    return [number(word) for word in text.split(",")]


def read_fixed_sites(text: str) -> tuple[str, list]:
    """Parse `LAYER=X,Y,PORT`; sites of several cores are separated by +."""
    layer, _, sites = text.rpartition("=")
    try:
        return layer, [tuple(int(n) for n in site.split(",")) for site in sites.split("+")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected LAYER=X,Y,PORT, got {text!r}") from None


def read_setting(text: str) -> tuple[str, object]:
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


def add_model(parser: argparse.ArgumentParser, text: str = MODEL) -> None:
    parser.add_argument("model", metavar="MODEL", help=text)
    add_model_flags(parser)


def add_float_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", dest="model_of", metavar="MODEL", help="float model of the program, as a reference")


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dt", type=to_float, metavar="SECONDS", help="time step of a .nir file")
    text = f"framework that wrote the .nir file: {', '.join(DIALECTS)}"
    parser.add_argument("--dialect", type=InAnyCase("dialect", tuple(DIALECTS)), metavar="NAME", help=text)
    text = "set a NeuronSpec field that the file lacks: reset=zero, or n.reset=zero for node n only"
    parser.add_argument("--neuron", action="append", default=[], metavar="KEY=VALUE", type=read_setting, help=text)


def add_chip(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--chip", required=required, metavar="NAME", help="a shipped chip, or a .toml file")


def add_calibration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calibration", metavar="X.npz", help="sample inputs to calibrate scales and mapping")


def add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", metavar="X.npz", help="demo, .npz (x, and labels y) or .npy: [B, T, *shape]")
    parser.add_argument("--steps", type=to_int, metavar="N", help="run N steps without input")
    parser.add_argument("--samples", type=to_int, metavar="N", help="use the first N samples only")


def add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", metavar="OUT.json", help="write the first sample as a timeline for ui.perfetto.dev")
    parser.add_argument("--trace-steps", type=to_int, metavar="N", help="hardware steps in the trace (default: 200)")
    parser.add_argument(
        "--model-dt", type=to_float, metavar="SECONDS", help="duration of a model step, for real-time factors"
    )


def add_backend(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--backend", type=OneOf("backend", BACKENDS), metavar="NAME", help=f"{', '.join(BACKENDS)} (default: {default})"
    )
    text = " or ".join(DEVICES) + ", for backend sequence (default: cpu)"
    parser.add_argument("--device", type=OneOf("device", DEVICES), default="cpu", metavar="NAME", help=text)


def add_options(parser: argparse.ArgumentParser, default: Options = DEFAULTS) -> None:
    from nwcompile.passes.partition.partition import PARTITIONERS
    from nwcompile.passes.place.place import PLACERS

    partitioners = plugins.list_names(plugins.PARTITIONERS, PARTITIONERS)
    placers = plugins.list_names(plugins.PLACERS, PLACERS)
    add = parser.add_argument
    add("--seed", type=to_int, metavar="N", help=f"seed of all random searches (default: {default.seed})")
    add_widths(parser)
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
    add_multi_spike(parser)
    add_legalization(parser)
    text = "place the cores of a layer at these sites, in order: out=7,0,0+7,0,1"
    add("--fixed-sites", action="append", type=read_fixed_sites, metavar="LAYER=X,Y,PORT", help=text)
    text = "number of cores to use (default: the partitioner chooses)"
    add("--cores", type=to_int, dest="n_cores", metavar="N", help=text)
    text = f"spread each layer's neurons over N steps; auto: 1, 2 or 4, whichever pays (default: {default.stagger})"
    add("--stagger", type=to_stagger, metavar="N", help=text)
    text = "with --optimize traffic or cores: longest allowed step in microseconds, as predicted (default: no limit)"
    add("--step-limit", type=to_float, dest="step_limit_us", metavar="US", help=text)
    text = "time limit of the partitioner, and again of the placer (default: none)"
    add("--time-budget", type=to_float, dest="time_budget_s", metavar="SECONDS", help=text)


def add_widths(parser: argparse.ArgumentParser) -> None:
    text = (
        "weight width, at most the chip's, or a file with one width per layer; "
        "`nwcompile bits` starts at these widths and writes such a file"
    )
    parser.add_argument("--bits", metavar="N|FILE.toml", help=text)


def add_multi_spike(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-multi-spike",
        type=OneOf("on-multi-spike", choices.ON_MULTI_SPIKE),
        metavar="NAME",
        help="how to send several spikes of a step if a message carries one: refuse (default), "
        "graded (a message carries the count or sign) or repeat (n messages)",
    )


def add_legalization(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--approximate",
        action="append",
        type=SomeOf("approximate", (*choices.APPROXIMATIONS, choices.EVERYTHING)),
        metavar="WORD,...",
        help="features to approximate if the chip lacks them; the report shows the loss: "
        f"{', '.join(choices.APPROXIMATIONS)}; or {choices.EVERYTHING}: all except delay (default: nothing)",
    )
    text = "largest loss by --approximate: points of accuracy (0.5pt) or share of the spikes (2%%)"
    parser.add_argument("--max-loss", metavar="LOSS", help=text)
    text = (
        "how the output becomes an answer, instead of the module's own way: "
        f"{', '.join(RULES)}; or with a number of classes, like sum:10"
    )
    parser.add_argument("--readout", metavar="RULE", help=text)
    text = (
        f"how real-valued or static input reaches the chip: {', '.join(choices.INPUT_LAYERS)} "
        "(default: the first that the chip supports)"
    )
    parser.add_argument("--input-layer", type=OneOf("input-layer", choices.INPUT_LAYERS), metavar="NAME", help=text)
