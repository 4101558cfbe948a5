"""Chip: the hardware as data. One TOML file says its grid, limits, number formats, neuron capabilities and costs.

Every key carries its unit in its name; the `[sources]` table says where each figure comes from.
"""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from pathlib import Path

import numpy as np

from nwcompile.errors import ChipError, nearest_first, unknown_choice
from nwcompile.ir.neuron import OVERFLOWS, RESET_TIMINGS, RESETS, SPIKES, FixedPoint

PACKAGE = Path(__file__).resolve().parent.parent
HWMODELS = PACKAGE / "hwmodels" if (PACKAGE / "hwmodels").is_dir() else PACKAGE.parent / "hwmodels"
LARGEST_CLOCK_RATIO = 1000


@dataclass(frozen=True)
class Noc:
    """The network on chip: a 2-D mesh of input-buffered routers, `cores_per_router` cores at each."""

    columns: int
    rows: int
    cores_per_router: int = 1
    virtual_channels: int = 1
    buffer_flits: int = 8  # flits a virtual channel's input buffer holds
    flits_per_message: int = 1
    cycle_ns: float = 1.0
    hop_cycles_ew: int = 3  # winning arbitration here -> may arbitrate in the next router, east or west
    hop_cycles_ns: int = 3  # the same, north or south
    link_cycles_per_flit: int = 1
    inject_cycles: int = 2  # leaving the core -> may arbitrate in its router
    eject_cycles: int = 3  # winning arbitration -> in the core's receive queue
    credit_cycles: int = 2  # a buffer slot left -> usable by the sender upstream
    routing: str = "xy"


@dataclass(frozen=True)
class CoreLimits:
    """What a core holds. A list gives each core its own figure, in site order (x fastest, then y, then port)."""

    max_neurons: int | list[int]
    cycle_ns: float = 1.0
    max_in_axons: int | list[int] | None = None
    max_out_axons: int | list[int] | None = None
    synapse_bits: int | list[int] | None = None
    word_bits: int = 64  # a synapse-memory word, the unit of `weight_reads`
    block_synapses: int = 64  # synapses one block of a row may hold
    block_overhead_bits: int = 0


@dataclass(frozen=True)
class Weights:
    """Number format and storage of synapses."""

    bits: int = 8
    step: int = 1  # spacing of mixed-sign mantissas at full width
    exponent_min: int = 0
    exponent_max: int = 0
    effective_limit: int = 32767  # |floor(mantissa * 2**exponent)| is clipped to this
    sharing: bool = False  # one copy of a convolution kernel per core
    index_bits: int = 0  # added per synapse of a sparse row


@dataclass(frozen=True)
class State:
    """Number format of the neuron state."""

    bits: int = 24
    decay_bits: int = 12
    shift_bits: int = 6  # a synaptic sum is shifted left by this
    overflow: str = "wrap"  # what u does
    decay_offset: int = 0  # decay register of u = k - decay_offset


@dataclass(frozen=True)
class NeuronCapability:
    """What the chip's neurons can do."""

    reset: list[str]
    reset_timing: list[str] = field(default_factory=lambda: ["now"])
    strict: list[bool] = field(default_factory=lambda: [True])
    spikes: list[str] = field(default_factory=lambda: ["binary"])
    bias: bool = True
    v_min: str = "none"  # "none": no clamp; "zero": every membrane is clamped at 0; "any"
    delay_max_steps: int = 0  # beyond the one step of the pipeline
    refractory_max_steps: int = 1
    threshold_bits: int = 23
    threshold_shift_bits: int = 0
    bias_bits: int = 23  # signed mantissa
    bias_exponent_max: int = 0


@dataclass(frozen=True)
class Cost:
    """Core cycles of each event; `None` means not known, and then no times are given."""

    units: str = "overlap"  # "overlap": send and receive run side by side; "shared": one unit does both
    visit_cycles: int | None = None
    update_cycles: int | None = None
    spike_cycles: int | None = None
    message_out_cycles: int | None = None
    message_in_cycles: int | None = None
    word_cycles: int | None = None
    synop_dense_cycles: int | None = None
    synop_sparse_cycles: int | None = None
    synop_conv_cycles: int | None = None
    barrier_cycles: dict[str, int] | None = None  # by tiles in use, largest key not above the count


@dataclass(frozen=True)
class Energy:
    """Picojoules of each event; `None` means no cited figure, and then no energies are given."""

    visit_pj: float | None = None
    update_pj: float | None = None
    spike_pj: float | None = None
    message_out_pj: float | None = None
    message_in_pj: float | None = None
    synop_dense_pj: float | None = None
    synop_sparse_pj: float | None = None
    synop_conv_pj: float | None = None
    hop_ew_pj: float | None = None
    hop_ns_pj: float | None = None


SECTIONS = {"noc": Noc, "core": CoreLimits, "weights": Weights, "state": State, "neuron": NeuronCapability,
            "cost": Cost, "energy": Energy}  # fmt: skip
CHOICES = {
    "noc.routing": ("xy",),
    "state.overflow": OVERFLOWS,
    "neuron.v_min": ("none", "zero", "any"),
    "neuron.reset": RESETS,
    "neuron.reset_timing": RESET_TIMINGS,
    "neuron.spikes": SPIKES,
    "cost.units": ("overlap", "shared"),
}
MAY_BE_ZERO = {"core.block_overhead_bits", "weights.index_bits", "neuron.delay_max_steps", "state.decay_offset",
               "neuron.refractory_max_steps", "neuron.threshold_shift_bits", "neuron.bias_exponent_max",
               "state.shift_bits", "weights.exponent_max"}  # fmt: skip
MAY_BE_NEGATIVE = {"weights.exponent_min", "weights.exponent_max"}
LARGEST = {"weights.bits": 16, "state.bits": 32, "state.decay_bits": 16, "state.shift_bits": 16,
           "weights.effective_limit": (1 << 24) - 1, "noc.columns": 1024, "noc.rows": 1024, "noc.virtual_channels": 16,
           "noc.cores_per_router": 64, "noc.buffer_flits": 4096, "noc.flits_per_message": 1024}  # fmt: skip


@dataclass(frozen=True)
class Chip:
    """A chip model. `Chip.load("loihi1")` reads a shipped one, `Chip.load(path)` a TOML file of your own."""

    name: str
    description: str
    noc: Noc
    core: CoreLimits
    weights: Weights
    state: State
    neuron: NeuronCapability
    cost: Cost
    energy: Energy
    sources: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, name_or_path) -> "Chip":
        """The shipped chip of that name, or the one in that TOML file; raises ChipError."""
        path = Path(name_or_path)
        if path.suffix != ".toml" and str(name_or_path) == path.name:
            path = HWMODELS / f"{name_or_path}.toml"
            if not path.is_file():
                raise ChipError(unknown_choice("chip", name_or_path, cls.names()) + ", or give the path of a .toml file")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            reason = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
            raise ChipError(f"chip file {path} cannot be read: {reason}") from None
        return cls.from_toml(text, str(path.name))

    @classmethod
    def from_toml(cls, text: str, where: str) -> "Chip":
        """A chip from the text of its TOML file; `where` names the file in errors."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as e:
            raise ChipError(f"chip file {where} is not TOML: {e}") from None
        return cls.from_dict(table, where)

    @classmethod
    def from_dict(cls, table: dict, where: str = "chip") -> "Chip":
        """A chip from nested dicts, as `to_dict` gives them."""
        _known(table, ("name", "description", "sources", *SECTIONS), "", where)
        for key in ("name", "noc", "core", "neuron"):
            if key not in table:
                raise ChipError(f"{where}: {key}: missing key; every chip file needs it")
        sections = {s: _section(kind, table.get(s, {}), s, where) for s, kind in SECTIONS.items()}
        for key in ("name", "description"):
            if not isinstance(table.get(key, ""), str):
                raise ChipError(f"{where}: {key}: expected a text, got {table[key]!r}")
        sources = table.get("sources", {})
        if not isinstance(sources, dict) or not all(isinstance(v, str) for v in sources.values()):
            raise ChipError(f"{where}: sources: expected a table of texts, key = source")
        chip = cls(table["name"], table.get("description", ""), **sections, sources=dict(sources))
        chip.verify(where)
        return chip

    @staticmethod
    def names() -> list[str]:
        """Names of the shipped chips."""
        return sorted(p.stem for p in HWMODELS.glob("*.toml"))

    def replace(self, changes: dict) -> "Chip":
        """A copy with keys like `"noc.buffer_flits"` overridden; checked like a file. Raises ChipError."""
        table = self.to_dict()
        for key, value in changes.items():
            section, _, name = key.partition(".")
            if section not in SECTIONS or not name:
                known = [f"{s}.{f.name}" for s, kind in SECTIONS.items() for f in fields(kind)]
                raise ChipError(f"--set {key}: unknown key (did you mean {nearest_first(key, known)[0]!r}?)")
            table[section][name] = value
            table["sources"].setdefault(key, "set by the user")
        return Chip.from_dict(table, "--set")

    def to_dict(self) -> dict:
        """Nested dicts as in the TOML file, without the keys that are None."""
        table = asdict(self)
        for section in SECTIONS:
            table[section] = {k: v for k, v in table[section].items() if v is not None}
        return table

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON of the chip."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @property
    def n_cores(self) -> int:
        """Physical cores."""
        return self.noc.columns * self.noc.rows * self.noc.cores_per_router

    @cached_property
    def sites(self) -> np.ndarray:
        """int32[core, 3]: (x, y, port) of every physical core, x fastest."""
        index = np.arange(self.n_cores)
        router, port = index // self.noc.cores_per_router, index % self.noc.cores_per_router
        return np.stack([router % self.noc.columns, router // self.noc.columns, port], 1).astype(np.int32)

    def site_index(self, sites: np.ndarray) -> np.ndarray:
        """Physical core of each site (x, y, port)."""
        sites = np.asarray(sites, np.int64)
        return (sites[:, 1] * self.noc.columns + sites[:, 0]) * self.noc.cores_per_router + sites[:, 2]

    def limit(self, name: str) -> np.ndarray | None:
        """Limit `core.<name>` of every physical core, int64[core]; None where the chip has no such limit."""
        value = getattr(self.core, name)
        return None if value is None else np.broadcast_to(np.asarray(value, np.int64), (self.n_cores,))

    @property
    def fixed_point(self) -> FixedPoint:
        """Number format of this chip's neurons."""
        return FixedPoint(self.state.bits, self.state.decay_bits, self.state.shift_bits, self.state.overflow)

    @property
    def has_times(self) -> bool:
        """Whether every cost is known, so that times can be given."""
        return all(getattr(self.cost, f.name) is not None for f in fields(Cost))

    @property
    def has_energies(self) -> bool:
        """Whether every energy is known."""
        return all(getattr(self.energy, f.name) is not None for f in fields(Energy))

    def barrier_cycles(self, n_tiles: int) -> int:
        """Core cycles of the barrier with `n_tiles` routers in use: the entry of the largest key not above it."""
        table = {int(k): v for k, v in self.cost.barrier_cycles.items()}
        keys = [k for k in table if k <= n_tiles]
        return table[max(keys)] if keys else 0

    @cached_property
    def ticks(self) -> tuple[int, int]:
        """Ticks per core cycle and per NoC cycle, where a tick divides both."""
        core, noc = (Fraction(str(c)) for c in (self.core.cycle_ns, self.noc.cycle_ns))
        common = Fraction(gcd(core.numerator * noc.denominator, noc.numerator * core.denominator),
                          core.denominator * noc.denominator)  # fmt: skip
        return int(core / common), int(noc / common)

    def source_of(self, key: str) -> str | None:
        """Where the figure `key` comes from: its own entry of `sources`, or its section's."""
        return self.sources.get(key, self.sources.get(key.partition(".")[0]))

    def verify(self, where: str = "chip") -> None:
        """Raise ChipError, naming the key, unless every figure is possible and has a source."""
        for section, kind in SECTIONS.items():
            for f in fields(kind):
                value = getattr(getattr(self, section), f.name)
                if value is not None:
                    _verify_value(f"{section}.{f.name}", value, where, self.n_cores)
        if lcm(*self.ticks) > LARGEST_CLOCK_RATIO:
            raise ChipError(
                f"{where}: noc.cycle_ns: {self.noc.cycle_ns} against core.cycle_ns {self.core.cycle_ns} is no ratio of "
                f"whole numbers up to {LARGEST_CLOCK_RATIO}; round one of them"
            )
        if self.weights.exponent_min > self.weights.exponent_max:
            raise ChipError(f"{where}: weights.exponent_min: {self.weights.exponent_min} is above weights.exponent_max")
        for key in self.sources:
            section, _, name = key.partition(".")
            if section not in SECTIONS or (name and name not in {f.name for f in fields(SECTIONS[section])}):
                raise ChipError(f"{where}: sources.{key}: there is no such section or key")
        for section, kind in SECTIONS.items():
            default = kind() if section not in ("noc", "core", "neuron") else None
            given = getattr(self, section)
            for f in fields(kind):
                if (default is None or getattr(given, f.name) != getattr(default, f.name)) and getattr(
                    given, f.name
                ) is not None:
                    if self.source_of(f"{section}.{f.name}") is None:
                        raise ChipError(
                            f"{where}: {section}.{f.name}: has no source; add sources.{section} or "
                            f'sources."{section}.{f.name}" ("assumed: <reason>" is allowed)'
                        )


def _known(table: dict, names, prefix: str, where: str) -> None:
    for key in table:
        if key not in names:
            best = nearest_first(key, names)[0]
            raise ChipError(f"{where}: {prefix}{key}: unknown key (did you mean {best!r}?)")


def _section(kind, table, section: str, where: str):
    if not isinstance(table, dict):
        raise ChipError(f"{where}: {section}: expected a table of keys, got {table!r}")
    _known(table, [f.name for f in fields(kind)], f"{section}.", where)
    values = {}
    for f in fields(kind):
        if f.name in table:
            values[f.name] = _typed(f"{section}.{f.name}", f.type, table[f.name], where)
    try:
        return kind(**values)
    except TypeError:
        missing = [f.name for f in fields(kind) if f.name not in values and f.name in _required(kind)]
        raise ChipError(f"{where}: {section}.{missing[0]}: missing key; every chip file needs it") from None


def _required(kind) -> set[str]:
    from dataclasses import MISSING

    return {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}


def _typed(key: str, annotation, value, where: str):
    """`value` if it is of one of the types that `annotation` names; an int may stand for a float."""
    options = [str(t) if not isinstance(t, type) else t.__name__ for t in getattr(annotation, "__args__", (annotation,))]
    if getattr(annotation, "__origin__", None) is not None:
        options = [str(annotation)]
    for option in options:
        if option == "int" and isinstance(value, int) and not isinstance(value, bool):
            return value
        if option == "float" and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if (option == "str" and isinstance(value, str)) or (option == "bool" and isinstance(value, bool)):
            return value
        if option == "NoneType" and value is None:
            return value
        inner = {"list[int]": int, "list[str]": str, "list[bool]": bool}.get(option)
        if inner and isinstance(value, list) and value and all(type(v) is inner for v in value):
            return value
        if option == "dict[str, int]" and isinstance(value, dict):
            if value and all(k.isdigit() and type(v) is int for k, v in value.items()):
                return value
    expected = " or ".join({"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false",
                            "list[int]": "a list of whole numbers", "list[str]": "a list of texts",
                            "list[bool]": "a list of true/false", "dict[str, int]": 'a table like {"1" = 6000}',
                            }[o] for o in options if o != "NoneType")  # fmt: skip
    raise ChipError(f"{where}: {key}: expected {expected}, got {value!r}")


def _verify_value(key: str, value, where: str, n_cores: int) -> None:
    if key in CHOICES:
        for word in value if isinstance(value, list) else [value]:
            if word not in CHOICES[key]:
                raise ChipError(f"{where}: {key}: {unknown_choice('value', word, CHOICES[key])}")
        return
    numbers = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if key.startswith("core.") and isinstance(value, list) and len(value) != n_cores:
        raise ChipError(f"{where}: {key}: a list needs one entry for each of the {n_cores} cores, got {len(value)}")
    zero_ok = key in MAY_BE_ZERO or key.startswith("energy.") or (key.startswith("cost.") and key.endswith("_cycles"))
    for number in numbers:
        if isinstance(number, bool | str):
            continue
        if number != number or number in (float("inf"), float("-inf")):
            raise ChipError(f"{where}: {key}: {number} is not a finite number")
        if key not in MAY_BE_NEGATIVE and (number < 0 or (number == 0 and not zero_ok)):
            raise ChipError(f"{where}: {key}: {number} must be {'0 or more' if zero_ok else 'above 0'}")
        if number > LARGEST.get(key, 1 << 40) or number < -64:
            raise ChipError(f"{where}: {key}: {number} is above the largest supported, {LARGEST.get(key, 1 << 40)}")
