"""Options: everything a person may choose about compiling; written whole into the artifact."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from math import inf, nan
from numbers import Real
from operator import index

from nwcompile.errors import NwWarning, OptionError, shown, unknown_choice, whole

EXECUTIONS = ("pipelined", "phased")
OBJECTIVES = ("time", "energy", "traffic", "cores", "edp")
# For `time`, cores that are added must save this share of their own share of the time: twice the cores 29 % of it.
CORES_WORTH = 0.5
CORES_RULE = "as many cores as minimize the step time times the square root of their number; n_cores asks for more"
WITH_STEP_LIMIT = ("traffic", "cores")
ON_MULTI_SPIKE = ("refuse", "graded", "repeat")
APPROXIMATIONS = ("reset", "timing", "v_min", "multi-spike", "decay", "bias", "refractory", "strict", "pool", "program")
EVERYTHING = "all"  # The word that stands for every approximation.
INPUT_LAYERS = ("exact", "bias", "graded", "host")
MAX_LOSS = re.compile(r"(\d+(?:\.\d+)?) ?(pt|%)")  # A number of points of accuracy, or of percent of the spikes.
LARGEST = (1 << 63) - 1  # Seeds and numbers of cores are kept in 64 bits with a sign.
MOST_BITS = 16  # Wider weights than 16 bits are on no chip that is modeled.
OLD_NAME = "Options.optimise is called optimize now; the old name goes with the next release"


@dataclass(frozen=True)
class Options:
    """`partitioner` and `placer` are names from the stage's own dict, or a callable of the same signature.

    `optimize` is what mapping minimizes. Partitioner `floorline`: the predicted step `time`, `energy`, `traffic`
    (routed hops, then messages between cores), `cores`, or `edp` (energy times time). Placement: hop cycles (`time`,
    `cores`, `edp`), hop pJ (`energy`) or hops (`traffic`), weighted by messages. `n_cores` spreads the network over
    that many cores instead of the fewest that hold it (`floorline`: of as many as serve `optimize` best; for `time`, as
    many as minimize the step time times the square root of their number, and on a chip without times the fewest).
    `bits` is the width of every weight, 1 to 16 and at most the chip's own, which is the default; `layer_bits` that of
    the weights into some layers, by name. Weights of 1 bit are -s or s, or 0 or s where a connection's have one sign.
    `fixed_sites` gives the first cores of a layer sites (x, y, port) that placement leaves them at.
    `time_budget_s` lets the partitioner `floorline`, then the placer, improve that long each, or until an interrupt
    (then the result depends on the machine's speed).
    `step_limit_us` makes `traffic` or `cores` mean the least among mappings whose predicted step takes at most so many
    microseconds (partitioner `floorline`; a mapping of any other that takes longer is refused).
    `on_multi_spike` says what is done with neurons and inputs that send several spikes a step, on a chip whose spikes
    are binary: `refuse`, `graded` (a message carries the count, or the sign) or `repeat` (n spikes are n messages to
    every destination, on any chip).
    `approximate` names what may be met by the nearest that the chip has, its price measured: words of APPROXIMATIONS,
    one text with commas or several, or "all". `max_loss` is the highest price that is accepted: "0.5pt" (points of
    accuracy, which needs labels) or "2%" (of the spikes).
    `input_layer` says how real-valued or static input comes to the chip: `exact` (whole numbers or signed lines),
    `bias` (the host's linear map as injected current), `graded` (integers of the chip's width), `host` (the first
    spiking layer on the CPU); not given: the first of these that the chip can do.
    """

    seed: int = 0
    bits: int | None = None
    layer_bits: dict[str, int] | None = None
    partitioner: str | Callable = "floorline"
    placer: str | Callable = "anneal"
    n_cores: int | None = None
    optimize: str = "time"
    execution: str = "pipelined"
    on_multi_spike: str = "refuse"
    time_budget_s: float | None = None
    fixed_sites: dict[str, tuple[tuple[int, int, int], ...]] | None = None
    step_limit_us: float | None = None
    approximate: tuple[str, ...] | str = ()
    max_loss: str | None = None
    input_layer: str | None = None

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
        for name, low, high in (("seed", 0, LARGEST), ("bits", 1, MOST_BITS), ("n_cores", 1, LARGEST)):
            value = getattr(self, name)
            if value is not None or name == "seed":
                object.__setattr__(self, name, whole(name, value, low, high))
        if self.layer_bits is not None:
            if not isinstance(self.layer_bits, dict):
                raise OptionError(f"layer_bits={shown(self.layer_bits)} must be {{layer: bits}}")
            widths = {name: whole(f"layer_bits[{shown(name)}]", n, 1, MOST_BITS) for name, n in self.layer_bits.items()}
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
        """Plain values for the manifest; a callable is named."""
        plain_values = {k: getattr(v, "__qualname__", v) if callable(v) else v for k, v in vars(self).items()}
        return plain_values | {"approximate": list(self.approximate)}


def weighs_cores(options: dict) -> bool:
    """Whether `CORES_RULE` chose the number of cores of a program, by the `options` of its manifest."""
    by_default = options.get("partitioner") in ("floorline", "coarse") and options.get("n_cores") is None
    return by_default and options.get("optimize") == "time"


def _accept_old_name(init: Callable) -> Callable:
    """The constructor, which for one release takes `optimise` for `optimize`."""

    @wraps(init)
    def with_old_name(self, *values, **fields):
        if "optimise" in fields:
            warnings.warn(OLD_NAME, NwWarning, stacklevel=2)
            fields["optimize"] = fields.pop("optimise")
        init(self, *values, **fields)

    return with_old_name


Options.__init__ = _accept_old_name(Options.__init__)  # type: ignore[method-assign]


def _to_real(value) -> float:
    """A number as a plain float; NaN where it is none, infinity where it is too large."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf


def _parse_approximations(given) -> tuple[str, ...]:
    """`approximate` as words in the order of APPROXIMATIONS, or OptionError."""
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, tuple | list | set | frozenset) or not all(isinstance(word, str) for word in words):
        raise OptionError(f"approximate={shown(given)} must be words like 'reset,timing', or 'all'")
    asked = {word.strip() for word in words if word.strip()}
    for word in sorted(asked):
        if word != EVERYTHING and word not in APPROXIMATIONS:
            raise OptionError(unknown_choice("approximate", word, (*APPROXIMATIONS, EVERYTHING)))
    return tuple(word for word in APPROXIMATIONS if EVERYTHING in asked or word in asked)


def _to_sites(given) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """`fixed_sites` as plain numbers, or OptionError."""
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
