"""Manifest: what the compiler reports about a program, entry by entry."""

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, Final, Literal, Required, TypedDict

from nwcompile.argument_types import checked_fields, has_type
from nwcompile.errors import ArtifactError

EXACT: Final = "exact"  # Spike for spike equal to the same integers on a chip with every neuron feature.
APPROXIMATE: Final = "approximate"  # Spikes may differ from those; the price measures how much.
HOST: Final = "host"  # Computed by the CPU, once per input, like in the framework.
INSERTED = {  # by the suffix of the layer's name: `a/copy2` is one of the copies of `a`
    "copy": "one of its copies", "splitter": "its splitter", "relay": "its relay neurons", "part": "a partial sum",
    "full": "before pooling", "max": "its maximum", "sums": "its sums", "lead": "its comparisons",
    "pairs": "its products", "counts": "its products", "currents": "its currents", "marks": "its spikes as numbers",
    "gates": "its products",
}  # fmt: skip
REPEATS = ("copy", "splitter", "relay", "full")  # Layers with the spikes of the layer that they are added to.
Span = float | tuple[float, float] | None  # A number, or (smallest, largest) if neurons differ.


class QuantizationRow(TypedDict, total=False):
    """Quantization of a layer, its errors, and its behavior on the calibration samples.

    A value is None if it does not exist or is unknown without samples.
    """

    layer: Required[str]
    bits: int | None  # of a weight
    scale: float | None  # integer state units per unit of the float membrane
    channel_scale: Span  # factor of the scale in each channel
    exponents: list[int] | None  # of its connections, in order
    n_weights: int | None
    clipped_weights: int | None  # of n_weights
    clipped_percent: float | None
    weight_error_rms: float | None  # relative to the root mean square of the weights
    tau_u: Span  # steps: time constant of the current, as trained
    tau_u_chip: Span  # the same, on the chip
    tau_v: Span  # steps: time constant of the membrane, as trained
    tau_v_chip: Span
    tau_error_percent: float | None  # the largest
    threshold_float: Span
    threshold_int: Span
    threshold_factor: float | None  # factor beyond the scale; chosen to fit narrow weights best
    strict_change: str | None  # set if the chip compares by another rule than the float network
    rate_float: float | None  # spikes per neuron and step
    rate_fixed: float | None
    spike_agreement_percent: float | None  # (neuron, step) pairs with equal spikes, of those with any spike
    u_bound: Integral | None  # largest magnitude for any input
    v_bound: Integral | None
    u_largest: Integral | None  # in the samples
    v_largest: Integral | None
    state_limit: Integral | None
    state_bits: int | None
    overflow: str | None  # states that could exceed their range, and the consequence


class StateRow(TypedDict):
    """A state of a neuron program."""

    state: str
    unit: str | None
    scale: float | None  # integer units per unit of the float program
    bits: int
    overflow: Literal["saturate", "modulo"]
    bound: Integral | None
    largest: Integral | None


class ParameterRow(TypedDict):
    """A parameter of a neuron program and its unit."""

    parameter: str
    unit: str


class TableRow(TypedDict):
    """A table that approximates a curve of a neuron program, in the units of the curve."""

    of: str
    argument: str
    low: float
    high: float
    bounds: str
    first: float
    last: float
    entries: int
    error: float
    error_units: float


class ProgramRow(QuantizationRow, total=False):
    """The quantization row of a layer whose neuron is a program."""

    program: str
    instructions: int
    state_words: int
    states: list[StateRow]
    parameters: list[ParameterRow]
    tables: list[TableRow]


@dataclass(frozen=True)
class Change:
    """One rewriting of one layer: what it `was`, what the chip `has` instead, `how` it is replaced, and a label.

    `price`: numbers by name, measured on samples that no parameter was fitted to (docs/legalize.md defines them). It is
    None if the rewriting is exact or there are no samples.
    """

    layer: str
    was: str
    has: str
    how: str
    label: Literal["exact", "approximate", "host"]
    price: dict[str, float] | None = None

    def __post_init__(self):
        checked_fields(self)

    def to_dict(self) -> dict:
        """Return plain values for the manifest of a program."""
        return asdict(self)


class Price(TypedDict, total=False):
    """Price of the approximations on held-out samples, with 95 % intervals (`passes/quantize/approximate/price.py`)."""

    n_samples: Required[int]
    spikes_changed_percent: Required[float]
    spikes_changed_interval_percent: tuple[float, float]
    output_changed_percent: Required[float | None]
    accuracy_ideal: Required[float | None]
    accuracy_chip: Required[float | None]
    accuracy_lost_points: float | None
    accuracy_lost_interval_points: tuple[float, float] | None
    layers: dict[str, dict[str, float] | None]


class TriedCores(TypedDict):
    """A number of cores that the partitioner tried, in a short search: predicted step time, value of the objective."""

    n_cores: int
    fits: bool
    step_us: float | None
    objective: float


class FewestCores(TypedDict):
    """In programs of older versions: the fewest cores that hold the network, if the partitioner chose more."""

    n_cores: int
    step_us: float


class Manifest(TypedDict, total=False):
    """The manifest of a program; every entry may be absent."""

    tool: str
    version: str
    seed: int
    options: dict[str, Any]
    quantization: list[ProgramRow]
    legalization: list[dict]
    warnings: list[str]
    price: Price
    tried_cores: list[TriedCores]
    fewest_cores: FewestCores


def name_own_layers(text: str, own_names: Collection[str]) -> str:
    """Replace the names of inserted layers in a sentence: `a/copy2` becomes `a (one of its copies)`."""
    names = "|".join(re.escape(name) for name in sorted(own_names, key=len, reverse=True))
    suffix, end = rf"(?:/\d+)?/({'|'.join(INSERTED)})\d*(?:/(?:{names}|\w+))*", r"(?![\w/])"
    name = re.compile(rf"(?<![\w/.])({names})(?:{end}|{suffix}{end})")
    return name.sub(lambda m: m[0] if m[2] is None else f"{m[1]} ({INSERTED[m[2]]})", text)


def verify_manifest(manifest: dict) -> None:
    """Raise an NwError unless every entry has the right type and every number is finite."""
    for key, kind in Manifest.__annotations__.items():
        if key in manifest and not has_type(manifest[key], kind):
            raise ArtifactError(f"{key} is not what this version writes", code="NW7001")
    for row in manifest.get("legalization", []):
        try:
            Change(**row)
        except TypeError:
            raise ArtifactError("legalization is not what this version writes", code="NW7001") from None
    try:
        json.dumps(manifest, allow_nan=False)
    except ValueError:
        raise ArtifactError("the manifest has a number that is not finite", code="NW7001") from None
