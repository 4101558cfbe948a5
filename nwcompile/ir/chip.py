"""Chip: the hardware as data. One TOML file says its grid, limits, number formats, neuron capabilities and costs.

Every key carries its unit in its name; the `[sources]` table says where each figure comes from.
"""

import hashlib
import json
import tomllib
from dataclasses import MISSING, asdict, dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from math import gcd
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nwcompile.errors import ChipError, nearest_first, unknown_choice
from nwcompile.ir.chip_base import on_base
from nwcompile.ir.chip_check import LARGEST_CORE_COUNT, MOST_CHANNELS, check_names, check_noc, check_value, read_section
from nwcompile.ir.neuron import FixedPoint
from nwcompile.ir.routing import Grid, between_chips, grid

PACKAGE = Path(__file__).resolve().parent.parent
HWMODELS = PACKAGE / "hwmodels" if (PACKAGE / "hwmodels").is_dir() else PACKAGE.parent / "hwmodels"
LARGEST_CLOCK_RATIO = 1000


@dataclass(frozen=True)
class Noc:
    """The network on chip: a 2-D mesh or torus of input-buffered routers, `cores_per_router` cores at each.

    Routing is deterministic: a message's destination and the router where it is tell its next link.
    """

    columns: int  # routers along x, which points east
    rows: int  # routers along y, which points north
    cores_per_router: int = 1  # ports, counted fastest in site order
    virtual_channels: int = 1  # of each input port
    buffer_flits: int = 8  # flits a virtual channel's input buffer holds
    flits_per_message: int = 1  # flits that carry one spike to one core
    payload_flits: int = 0  # more flits for a message that carries a count or a sign
    payload_bits: int | None = None  # of that count, one of them the sign if it can be negative; 0: none is carried
    cycle_ns: float = 1.0  # length of a NoC cycle
    hop_cycles_ew: int = 3  # winning arbitration here -> may arbitrate in the next router, east or west
    hop_cycles_ns: int = 3  # the same, north or south
    link_cycles_per_flit: int = 1  # a link takes one flit in so many cycles
    inject_cycles: int = 2  # leaving the core -> may arbitrate in its router
    eject_cycles: int = 3  # winning arbitration -> in the core's receive queue
    credit_cycles: int = 2  # a buffer slot left -> usable by the sender upstream
    route_cycles: int = 0  # more cycles for the head of a packet, before it asks for a virtual channel
    speculative: bool = True  # a head asks for virtual channel and crossbar at once; false: one cycle after the other
    topology: str = "mesh"  # "torus": the first and last router of every row and column are joined as well
    routing: str = "xy"  # "xy": along x first; "west-first", "odd-even": longer rest first; "up-down": round faults too
    faults: list[str] | None = None  # routers like "1,0" and links like "1,0-2,0" out of use; needs routing "up-down"
    chip_columns: int | None = None  # routers along x of one chip, where several are joined; not given: all
    chip_rows: int | None = None  # routers along y of one chip
    chip_hop_cycles: int | None = None  # hop_cycles_* of a link between chips; not given: as within a chip
    chip_link_cycles_per_flit: int | None = None  # link_cycles_per_flit of such a link; not given: as within a chip


@dataclass(frozen=True)
class CoreLimits:
    """What a core holds. A list gives each core its own figure, in site order (port fastest, then x, then y).

    A limit that is not given does not exist.
    """

    max_neurons: int | list[int]  # of all layers together
    cycle_ns: float = 1.0  # length of a core cycle, the unit of all costs
    max_in_axons: int | list[int] | None = None  # (source neuron or input line, this core) pairs
    max_out_axons: int | list[int] | None = None  # (neuron of this core, destination core) pairs
    max_layers: int | list[int] | None = None  # layers with neurons on it
    max_destinations: int | list[int] | None = None  # cores that its neurons send to together, itself among them
    max_neuron_destinations: int | list[int] | None = None  # cores that each of its neurons sends to, itself among them
    synapse_bits: int | list[int] | None = None  # synapse memory
    word_bits: int = 64  # a synapse-memory word, the unit of `weight_reads`; a block takes whole words
    block_synapses: int = 64  # synapses one block of a row may hold
    block_overhead_bits: int = 0  # added to each block


@dataclass(frozen=True)
class Weights:
    """Number format and storage of synapses."""

    bits: int = 8  # of a mantissa
    step: int = 1  # spacing of mixed-sign mantissas at full width
    exponent_min: int = 0  # least exponent of a connection
    exponent_max: int = 0  # largest exponent of a connection
    effective_limit: int = 32767  # |floor(mantissa * 2**exponent)| is clipped to this
    sharing: bool = False  # one copy of a convolution kernel per core, instead of one row per source
    index_bits: int = 0  # added per synapse of a sparse row
    axon_types: int | None = None  # a core's in-axons are of so many types, and a neuron has one weight for each type


@dataclass(frozen=True)
class State:
    """Number format of the neuron state: current u and membrane v."""

    bits: int = 24  # of u and of v
    decay_bits: int = 12  # k of 2**decay_bits is lost in a step
    shift_bits: int = 6  # a synaptic sum is shifted left by this
    overflow: str = "wrap"  # what u does; v always saturates
    decay_offset: int = 0  # decay register of u = k - decay_offset


@dataclass(frozen=True)
class NeuronCapability:
    """What the chip's neurons can do."""

    reset: list[str]  # kinds of reset at a spike
    reset_timing: list[str] = field(default_factory=lambda: ["now"])  # when the reset acts
    strict: list[bool] = field(default_factory=lambda: [True])  # true: fires at v > threshold; false: at v >= threshold
    spikes: list[str] = field(default_factory=lambda: ["binary"])  # kinds of spike that a message carries
    bias: bool = True  # whether a neuron has a constant input
    v_min: str = "none"  # "none": no clamp; "zero": every membrane is clamped at 0; "any": at any value
    delay_max_steps: int = 0  # beyond the one step of the pipeline
    refractory_max_steps: int = 1  # 1: no step after the spike is lost
    threshold_bits: int = 23  # of the threshold's mantissa
    threshold_shift_bits: int = 0  # the mantissa is shifted left by this
    bias_bits: int = 23  # of the signed bias mantissa
    bias_exponent_max: int = 0  # the mantissa is shifted left by 0 to this


@dataclass(frozen=True)
class Cost:
    """Core cycles of each event; what is not given is not known, and then no times are given."""

    units: str = "overlap"  # "overlap": send and receive run side by side; "shared": one unit does both
    visit_cycles: int | None = None  # send: every neuron, every step
    update_cycles: int | None = None  # send: a neuron with an event, a bias, or state that is not zero
    spike_cycles: int | None = None  # send: a spike
    message_out_cycles: int | None = None  # send: one spike to one destination core
    message_in_cycles: int | None = None  # receive: an in-axon looked up
    word_cycles: int | None = None  # receive: a synapse-memory word read
    synop_dense_cycles: int | None = None  # receive: a stored weight of a dense row accumulated
    synop_sparse_cycles: int | None = None  # receive: the same, of a sparse row
    synop_conv_cycles: int | None = None  # receive: the same, of a convolution with shared weights
    barrier_cycles: dict[str, int] | None = None  # end of a step, by tiles in use: largest key not above the count


@dataclass(frozen=True)
class Energy:
    """Picojoules of each event; what is not given has no cited figure, and then no energies are given."""

    visit_pj: float | None = None  # every neuron, every step
    update_pj: float | None = None  # a neuron with an event, a bias, or state that is not zero
    spike_pj: float | None = None  # a spike
    message_out_pj: float | None = None  # one spike to one destination core
    message_in_pj: float | None = None  # an in-axon looked up
    synop_dense_pj: float | None = None  # a stored weight of a dense row accumulated
    synop_sparse_pj: float | None = None  # the same, of a sparse row
    synop_conv_pj: float | None = None  # the same, of a convolution with shared weights
    hop_ew_pj: float | None = None  # a message, its payload included, carried to the next router, east or west
    hop_ns_pj: float | None = None  # the same, north or south
    static_mw: float | None = None  # milliwatts of the whole chip, whatever it does; may be left out


SECTIONS: dict[str, Any] = {
    "noc": Noc,
    "core": CoreLimits,
    "weights": Weights,
    "state": State,
    "neuron": NeuronCapability,
    "cost": Cost,
    "energy": Energy,
}
KEYS = tuple(f"{section}.{f.name}" for section, kind in SECTIONS.items() for f in fields(kind))


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
        if not isinstance(name_or_path, str | PathLike):
            raise ChipError(f"a chip is a shipped name or the path of a .toml file, not {type(name_or_path).__name__}")
        path = Path(name_or_path)
        if path.suffix != ".toml" and str(name_or_path) == path.name:
            path = HWMODELS / f"{name_or_path}.toml"
            if not path.is_file():
                known = unknown_choice("chip", name_or_path, cls.names())
                raise ChipError(f"{known}, or give the path of a .toml file")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
            raise ChipError(f"chip file {path} cannot be read: {reason}") from None
        return cls.from_toml(text, path.name)

    @classmethod
    def from_toml(cls, text: str, where: str) -> "Chip":
        """A chip from the text of its TOML file; `where` names the file in errors."""
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as e:
            reason = str(e) if isinstance(e, ValueError) else "nested too deeply"
            raise ChipError(f"chip file {where} is not TOML: {reason}") from None
        return cls.from_dict(table, where)

    @classmethod
    def from_dict(cls, table: dict, where: str = "chip") -> "Chip":
        """A chip from nested dicts, as `to_dict` gives them, or with a `base` whose figures they change."""
        if not isinstance(table, dict):
            raise ChipError(f"{where}: expected a table of keys, got {table!r}")
        if "base" in table:
            if table["base"] not in cls.names():
                raise ChipError(f"{where}: base: {unknown_choice('chip', table['base'], cls.names())}")
            base = cls.load(table["base"])
            sources = {key: base.source_of(key) for key in KEYS if None not in (base.value(key), base.source_of(key))}
            table = on_base(base.to_dict() | {"sources": sources}, table)
        check_names(table, ("name", "description", "sources", *SECTIONS), "", where)
        for key in ("name", "noc", "core", "neuron"):
            if key not in table:
                raise ChipError(f"{where}: {key}: missing key; every chip file needs it")
        for key in ("name", "description"):
            if not isinstance(table.get(key, ""), str) or (key == "name" and not table[key]):
                raise ChipError(f"{where}: {key}: expected a text, got {table[key]!r}")
        sources = table.get("sources", {})
        if not isinstance(sources, dict) or not all(isinstance(v, str) and v.strip() for v in sources.values()):
            raise ChipError(
                f'{where}: sources: expected texts, like noc = "..." for a section or "noc.rows" = "..." (in quotes)'
            )
        sections = {s: read_section(kind, table.get(s, {}), s, where) for s, kind in SECTIONS.items()}
        chip = cls(table["name"], table.get("description", ""), **sections, sources=dict(sources))
        chip.verify(where)
        return chip

    @staticmethod
    def names() -> list[str]:
        """Names of the shipped chips."""
        return sorted(p.stem for p in HWMODELS.glob("*.toml"))

    def replace(self, changes: dict[str, Any]) -> "Chip":
        """A copy with keys like `"noc.buffer_flits"` overridden (None: left out); checked like a file."""
        table = self.to_dict()
        for key, value in changes.items():
            if key not in KEYS:
                raise ChipError(f"{self.name}: {key}: unknown key (did you mean {nearest_first(key, KEYS)[0]!r}?)")
            section, _, name = key.partition(".")
            if isinstance(value, np.generic | np.ndarray):
                value = value.tolist()
            table[section][name] = list(value) if isinstance(value, tuple) else value
            table["sources"][key] = "set by the user"
        return Chip.from_dict(table, self.name)

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
        """int32[core, 3]: (x, y, port) of every physical core, port fastest, then x, then y."""
        index = np.arange(self.n_cores)
        router, port = index // self.noc.cores_per_router, index % self.noc.cores_per_router
        return np.stack([router % self.noc.columns, router // self.noc.columns, port], 1).astype(np.int32)

    def site_index(self, sites: np.ndarray) -> np.ndarray:
        """Physical core of each site (x, y, port)."""
        sites = np.asarray(sites, np.int64)
        return (sites[:, 1] * self.noc.columns + sites[:, 0]) * self.noc.cores_per_router + sites[:, 2]

    @cached_property
    def grid(self) -> Grid:
        """The routers, their links and the ways of messages."""
        return grid(self.noc, self.name)

    @cached_property
    def link_cycles(self) -> np.ndarray:
        """int64[link]: NoC cycles in which each link takes one flit; links as `link_flits` of cost.traffic has them."""
        noc, of_link = self.noc, np.full(4 * len(self.grid.is_open) + 2 * self.n_cores, self.noc.link_cycles_per_flit)
        slow = np.flatnonzero(between_chips(self.grid, noc.chip_columns, noc.chip_rows))
        of_link[slow] = noc.chip_link_cycles_per_flit or noc.link_cycles_per_flit
        return of_link

    def limit(self, name: str) -> np.ndarray | None:
        """Limit `core.<name>` of every physical core, int64[core]; None where the chip has no such limit.

        No neuron fits a core at a router that is out of use.
        """
        value = getattr(self.core, name)
        if value is None:
            return None
        limit = np.broadcast_to(np.asarray(value, np.int64), (self.n_cores,))
        if self.noc.faults and name == "max_neurons":
            return limit * np.repeat(self.grid.is_open, self.noc.cores_per_router)
        return limit

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
        """Whether the energy of every event is known."""
        return all(getattr(self.energy, f.name) is not None for f in fields(Energy) if f.name.endswith("_pj"))

    def barrier_cycles(self, n_tiles: int) -> int:
        """Core cycles of the barrier with `n_tiles` routers in use: the entry of the largest key not above it."""
        assert self.cost.barrier_cycles is not None, "ask has_times first"
        table = {int(k): v for k, v in self.cost.barrier_cycles.items()}
        return table[max(k for k in table if k <= n_tiles)]

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

    def value(self, key: str):
        """The figure of a key like `"noc.buffer_flits"`."""
        section, _, name = key.partition(".")
        return getattr(getattr(self, section), name)

    def verify(self, where: str = "chip") -> None:
        """Raise ChipError, naming the key, unless every figure is possible and has a source."""
        for key in KEYS:
            if self.value(key) is not None:
                check_value(key, self.value(key), where, self.n_cores)
        if self.n_cores > LARGEST_CORE_COUNT:
            raise ChipError(f"{where}: noc: {self.n_cores} cores are above the largest supported, {LARGEST_CORE_COUNT}")
        n_channels = (4 + self.noc.cores_per_router) * self.noc.virtual_channels
        if n_channels > MOST_CHANNELS:
            raise ChipError(
                f"{where}: noc.virtual_channels: 4 + {self.noc.cores_per_router} ports of {self.noc.virtual_channels} "
                f"are {n_channels} input channels a router, above the largest supported, {MOST_CHANNELS}"
            )
        check_noc(self.noc, where)
        if max(self.ticks) > LARGEST_CLOCK_RATIO:
            raise ChipError(
                f"{where}: noc.cycle_ns: {self.noc.cycle_ns} against core.cycle_ns {self.core.cycle_ns} is no ratio of "
                f"whole numbers up to {LARGEST_CLOCK_RATIO}; round one of them"
            )
        if self.weights.exponent_min > self.weights.exponent_max:
            raise ChipError(
                f"{where}: weights.exponent_min: {self.weights.exponent_min} is above weights.exponent_max, "
                f"{self.weights.exponent_max}"
            )
        self._verify_sources(where)

    def _verify_sources(self, where: str) -> None:
        for key in self.sources:
            if key not in KEYS and key not in SECTIONS:
                best = nearest_first(key, (*KEYS, *SECTIONS))[0]
                raise ChipError(f"{where}: sources.{key}: there is no such section or key (did you mean {best!r}?)")
        for section, kind in SECTIONS.items():
            for f in fields(kind):
                key = f"{section}.{f.name}"
                default = f.default_factory() if f.default_factory is not MISSING else f.default
                if self.value(key) not in (None, default) and self.source_of(key) is None:
                    raise ChipError(
                        f'{where}: {key}: has no source; add sources.{section} or sources."{key}" '
                        '("assumed: <reason>" is allowed)'
                    )
