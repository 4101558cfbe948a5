"""Options: all choices that a user has when compiling. They are saved in the artifact."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from math import inf, nan
from numbers import Real
from operator import index

from nwcompile.errors import NwWarning, OptionError, check_int, shown, unknown_choice
from nwcompile.ir.readout import parse_rule

EXECUTIONS = ("pipelined", "phased")
OBJECTIVES = ("time", "energy", "traffic", "cores", "edp")
# Objective `time` minimizes time * n_cores**CORES_WORTH: twice the cores must save 29 % of the time.
CORES_WORTH = 0.5
CORES_RULE = "the number of cores that minimizes step time x sqrt(cores); n_cores sets another"
WITH_STEP_LIMIT = ("traffic", "cores")
WITH_AUTO_STAGGER = ("time", "edp")
ON_MULTI_SPIKE = ("refuse", "graded", "repeat")
APPROXIMATIONS = (
    "reset", "timing", "v_min", "multi-spike", "decay", "bias", "refractory", "strict", "pool", "program", "delay",
)  # fmt: skip
EVERYTHING = "all"  # Selects every approximation but "delay": relay neurons hold long delays exactly.
INPUT_LAYERS = ("exact", "bias", "graded", "host")
MAX_LOSS = re.compile(r"(\d+(?:\.\d+)?) ?(pt|%)")  # Points of accuracy, or percent of the spikes.
LARGEST = (1 << 63) - 1  # Seeds and core counts are signed 64-bit numbers.
MOST_PARTS = 64  # Delays of no modeled chip spread a layer over more steps.
MOST_BITS = 16  # No modeled chip has wider weights.
OLD_NAME = "Options.optimise is called optimize now; the old name goes with the next release"


@dataclass(frozen=True)
class Options:
    """Options of `compile`. `partitioner` and `placer` are names from the stage's dict, or callables of its signature.

    `optimize` is the objective of mapping. Partitioner `floorline`: the predicted step `time`, `energy`, `traffic`
    (routed hops, then messages between cores), `cores`, or `edp` (energy times time). Placement: hop cycles (`time`,
    `cores`, `edp`), hop pJ (`energy`) or hops (`traffic`), weighted by messages. `n_cores` sets the number
    of cores. The default is the fewest that hold the network; for `floorline` it is the number that is best for
    `optimize` (for `time`, the one that minimizes step time times its square root; on a chip without times the fewest).
    `bits` is the width of every weight, from 1 to 16 and at most the chip's width, which is the default. `layer_bits`
    is the width of the weights into some layers, by name. Weights of 1 bit are -s or s, or 0 or s if all weights of the
    connection have one sign.
    `fixed_sites` fixes the first cores of a layer at sites (x, y, port).
    `time_budget_s` is the time that partitioner `floorline` and then the placer search, each, or until an interrupt.
    The result then depends on the speed of the machine.
    `stagger` spreads the neurons of each layer over that many hardware steps, so that bursts take less time. Spikes
    stay the same; the answer comes later, and the report says by how much. The chip's synapses need delays. "auto" maps
    the network with 1, 2 and 4 steps, and keeps the number with the least predicted time or product of `optimize`
    ("time" or "edp") for a sample, added steps included.
    `step_limit_us` restricts `traffic` or `cores` to mappings whose predicted step takes at most that many microseconds
    (partitioner `floorline`; a slower mapping of another partitioner is refused).
    `on_multi_spike` sets the handling of neurons and inputs that send several spikes in a step, on a chip with binary
    spikes: `refuse`, `graded` (a message carries the count or the sign) or `repeat` (n spikes are n messages to every
    destination, on any chip).
    `approximate` lists features that may be replaced by the nearest one of the chip, with a measured price: words of
    APPROXIMATIONS, as one comma-separated text or several, or "all" (but "delay"). `max_loss` is the highest accepted
    price: "0.5pt" (points of accuracy, which needs labels) or "2%" (of the spikes).
    `input_layer` is the input mode of real-valued or static input: `exact` (integers or signed lines), `bias` (the
    host's linear map as injected current), `graded` (integers of the chip's width), `host` (the first spiking layer on
    the CPU). The default is the first of these that the chip supports.
    `readout` is the rule that turns the output into an answer, instead of the module's own: see
    `Network.change_readout`.
    """

    seed: int = 0
    bits: int | None = None
    layer_bits: dict[str, int] | None = None
    partitioner: str | Callable = "floorline"
    placer: str | Callable = "anneal"
    n_cores: int | None = None
    optimize: str = "time"
    execution: str = "pipelined"
    stagger: int | str = 1
    on_multi_spike: str = "refuse"
    time_budget_s: float | None = None
    fixed_sites: dict[str, tuple[tuple[int, int, int], ...]] | None = None
    step_limit_us: float | None = None
    approximate: tuple[str, ...] | str = ()
    max_loss: str | None = None
    input_layer: str | None = None
    readout: str | None = None

    def __post_init__(self):
        for name, choices in (("optimize", OBJECTIVES), ("execution", EXECUTIONS), ("on_multi_spike", ON_MULTI_SPIKE)):
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in choices:
                raise OptionError(unknown_choice(name, getattr(self, name), choices))
        object.__setattr__(self, "approximate", _parse_approximations(self.approximate))
        if self.max_loss is not None and not (isinstance(self.max_loss, str) and MAX_LOSS.fullmatch(self.max_loss)):
            raise OptionError(
                f"max_loss={shown(self.max_loss)} must be points of accuracy like '0.5pt', or a share of the spikes "
                "like '2%'"
            )
        if self.input_layer is not None and (
            not isinstance(self.input_layer, str) or self.input_layer not in INPUT_LAYERS
        ):
            raise OptionError(unknown_choice("input_layer", self.input_layer, INPUT_LAYERS))
        if self.readout is not None:
            parse_rule(self.readout)
        for name, low, high in (("seed", 0, LARGEST), ("bits", 1, MOST_BITS), ("n_cores", 1, LARGEST)):
            value = getattr(self, name)
            if value is not None or name == "seed":
                object.__setattr__(self, name, check_int(name, value, low, high))
        if not isinstance(self.stagger, str):
            object.__setattr__(self, "stagger", check_int("stagger", self.stagger, 1, MOST_PARTS))
        elif self.stagger != "auto":
            raise OptionError(f"stagger={shown(self.stagger)} must be a whole number from 1 to {MOST_PARTS}, or 'auto'")
        elif self.optimize not in WITH_AUTO_STAGGER:
            raise OptionError(
                f"stagger='auto' goes with optimize='time' or 'edp', not {self.optimize!r}; give a number"
            )
        if self.stagger != 1 and self.execution != "pipelined":
            raise OptionError("stagger goes with execution='pipelined': in phases, layers already work in turn")
        if self.layer_bits is not None:
            if not isinstance(self.layer_bits, dict):
                raise OptionError(f"layer_bits={shown(self.layer_bits)} must be {{layer: bits}}")
            widths = {
                name: check_int(f"layer_bits[{shown(name)}]", n, 1, MOST_BITS) for name, n in self.layer_bits.items()
            }
            object.__setattr__(self, "layer_bits", widths)
        if self.time_budget_s is not None:
            budget = _to_real(self.time_budget_s)
            if not 0 <= budget < inf:
                raise OptionError(f"time_budget_s={shown(self.time_budget_s)} must be a number of seconds, 0 or more")
            object.__setattr__(self, "time_budget_s", budget)
        if self.step_limit_us is not None:
            limit = _to_real(self.step_limit_us)
            if not 0 < limit < inf:
                raise OptionError(f"step_limit_us={shown(self.step_limit_us)} must be a number of microseconds above 0")
            object.__setattr__(self, "step_limit_us", limit)
            if self.optimize not in WITH_STEP_LIMIT:
                raise OptionError(f"step_limit_us goes with optimize='traffic' or 'cores', not {self.optimize!r}")
        if self.fixed_sites is not None:
            object.__setattr__(self, "fixed_sites", _to_sites(self.fixed_sites))

    @property
    def optimise(self) -> str:
        """`optimize` under its old name, for one release."""
        warnings.warn(OLD_NAME, NwWarning, stacklevel=2)
        return self.optimize

    def to_dict(self) -> dict:
        """Return plain values for the manifest; a callable becomes its name. `stagger` is left out if it is 1."""
        plain_values = {k: getattr(v, "__qualname__", v) if callable(v) else v for k, v in vars(self).items()}
        if self.stagger == 1:  # files of such programs stay as they were
            del plain_values["stagger"]
        return plain_values | {"approximate": list(self.approximate)}


def weighs_cores(options: dict) -> bool:
    """Whether `CORES_RULE` chose a program's number of cores, from the `options` of its manifest."""
    by_default = options.get("partitioner") in ("floorline", "coarse") and options.get("n_cores") is None
    return by_default and options.get("optimize") == "time"


def _accept_old_name(init: Callable) -> Callable:
    """Wrap the constructor to accept `optimise` for `optimize`, for one release."""

    @wraps(init)
    def with_old_name(self, *values, **fields):
        if "optimise" in fields:
            warnings.warn(OLD_NAME, NwWarning, stacklevel=2)
            fields["optimize"] = fields.pop("optimise")
        init(self, *values, **fields)

    return with_old_name


Options.__init__ = _accept_old_name(Options.__init__)  # type: ignore[method-assign]


def _to_real(value) -> float:
    """Convert a number to float; NaN if it is not a number, infinity if it is too large."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def _parse_approximations(given) -> tuple[str, ...]:
    """Parse `approximate` into words in the order of APPROXIMATIONS, or raise OptionError."""
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, tuple | list | set | frozenset) or not all(isinstance(word, str) for word in words):
        raise OptionError(f"approximate={shown(given)} must be words like 'reset,timing', or 'all'")
    asked = {word.strip() for word in words if word.strip()}
    for word in sorted(asked):
        if word != EVERYTHING and word not in APPROXIMATIONS:
            raise OptionError(unknown_choice("approximate", word, (*APPROXIMATIONS, EVERYTHING)))
    return tuple(word for word in APPROXIMATIONS if word in asked or (EVERYTHING in asked and word != "delay"))


def _to_sites(given) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """Convert `fixed_sites` to plain numbers, or raise OptionError."""
    try:
        plain_sites = {
            layer: tuple((index(x), index(y), index(port)) for x, y, port in sites) for layer, sites in given.items()
        }
        good = all(isinstance(layer, str) for layer in plain_sites)
        good = good and all(min(site) >= 0 for sites in plain_sites.values() for site in sites)
    except (AttributeError, TypeError, ValueError):
        good = False
    if not good:
        raise OptionError(f"fixed_sites={shown(given)} must be {{layer: [(x, y, port), ...]}}, whole numbers from 0 on")
    return plain_sites
