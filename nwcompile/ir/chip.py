"""Chip: the hardware as data. One TOML file gives its grid, limits, number formats, neuron features and costs.

Every key has its unit in its name. The `[sources]` table has the source of each value.
"""

import hashlib
import json
import tomllib
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from math import gcd
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nwcompile import plugins
from nwcompile.argument_types import checked
from nwcompile.errors import ChipError, nearest_first, shown, unknown_choice
from nwcompile.families import FAMILIES, MESH
from nwcompile.families.family import Family
from nwcompile.ir.arithmetic import mantissa_range, mantissa_step
from nwcompile.ir.chip_check import (
    LARGEST_CORE_COUNT,
    MOST_CHANNELS,
    check_crossbar,
    check_energy,
    check_io,
    check_listing,
    check_names,
    check_neuron,
    check_noc,
    check_state,
    check_value,
    merge_with_base,
    read_section,
)
from nwcompile.ir.chip_sections import (
    KEYS,
    MAY_LACK_CYCLES,
    MAY_LACK_PJ,
    SECTIONS,
    SET_BY_USER,
    CoreLimits,
    Cost,
    Crossbar,
    Energy,
    Io,
    NeuronCapability,
    Noc,
    PoolCost,
    State,
    Variation,
    Weights,
    count_chips,
    read_basis,
)
from nwcompile.ir.neuron import FixedPoint
from nwcompile.ir.noc.routing import Grid, build_grid, find_chip_crossings
from nwcompile.ir.resources import RESOURCES, Resource
from nwcompile.ir.shown import count_text, format_lines, grouped
from nwcompile.lazy_names import look_up

ERROR_CODE = "NW4003"
PACKAGE = Path(__file__).resolve().parent.parent
HWMODELS = PACKAGE / "hwmodels" if (PACKAGE / "hwmodels").is_dir() else PACKAGE.parent / "hwmodels"
# Keys of limits whose passes assume one synaptic sum per neuron.
ONE_SUM = ("core.axon_merge", "core.max_inputs", "core.max_destinations", "core.max_neuron_destinations",
           "weights.axon_types", "weights.source_sign", "crossbar.pairs")  # fmt: skip
LARGEST_CLOCK_RATIO = 1000  # Core and network clocks are counted in common ticks, which must remain few.


@dataclass(frozen=True)
class Listing:
    """Folder of a chip file, whether a refusal on another chip may propose it, and the chip that a board consists of.

    `written`: keys with a value or a source in the file or its base; all others are defaults. None if unknown.
    """

    folder: Path | None = None
    proposed: bool = False
    board_of: str | None = None
    written: frozenset[str] | None = None


@dataclass(frozen=True)
class Chip:
    """A chip model. `Chip.load("loihi1")` reads a shipped one, `Chip.load(path)` a TOML file of your own.

    `listing` says how the chip is listed among others; programs do not depend on it.
    """

    name: str
    description: str
    noc: Noc
    core: CoreLimits
    weights: Weights
    state: State
    neuron: NeuronCapability
    cost: Cost
    pool: PoolCost
    energy: Energy
    io: Io
    crossbar: Crossbar
    variation: Variation
    sources: dict[str, str] = field(default_factory=dict)
    listing: Listing = field(default=Listing(), compare=False)

    def __repr__(self) -> str:
        noc = self.noc
        head = f"Chip {self.name}: {count_text(self.n_cores, 'core')}, {noc.columns} x {noc.rows} routers with "
        head += f"{noc.cores_per_router} each, {noc.topology}"
        limits = []
        for resource in RESOURCES:
            largest = self.largest_limit(resource)
            what = resource.name if resource.name.endswith(resource.unit) else f"{resource.unit} of {resource.name}"
            limits.append(f"any number of {what}" if largest is None else f"{grouped(largest)} {what}")
        known = [
            f"{what} {'known' if is_known else 'not known'}"
            for what, is_known in (("times", self.gives_times), ("energies", self.has_energies))
        ]
        rows = [
            f"a core: {', '.join(limits)}",
            f"weights of {self.weights.bits} bits, states of {self.state.bits} bits",
            f"{'programmable neurons' if self.neuron.programmable else 'resets ' + ', '.join(self.neuron.reset)}; "
            f"spikes {', '.join(self.neuron.spikes)}",
            ", ".join(known),
        ]
        return format_lines(head, [self.description, *rows] if self.description else rows, "lines")

    def _repr_html_(self) -> str:
        return look_up("nwcompile.ir.chip", "html_of_chip")(self)

    def largest_limit(self, resource: Resource) -> int | None:
        """The limit of a core, or the largest if cores have limits of their own; None: there is no limit."""
        limit = self.limit(resource.limit_key)
        return None if limit is None else int(limit.max())

    def limit_key(self, name: str) -> str:
        """The key to raise for a higher limit `core.<name>`: the array's size if that is the lower limit."""
        key, n = self.crossbar.limits.get(name, (f"core.{name}", None))
        given = getattr(self.core, name)
        return key if n is not None and (given is None or n < np.max(given)) else f"core.{name}"

    @classmethod
    def load(cls, name_or_path) -> "Chip":
        """The shipped chip or plugin chip of that name, or the chip of that TOML file.

        Raises ChipError, and OptionError for a plugin that cannot be imported.
        """
        if not isinstance(name_or_path, str | PathLike):
            raise ChipError(
                f"a chip is a shipped name or the path of a .toml file, not {type(name_or_path).__name__}",
                code="NW4001",
            )
        path = Path(name_or_path)
        if path.suffix != ".toml" and str(name_or_path) == path.name:
            if plugins.has_plugin(plugins.CHIPS, "chip", path.name, cls.shipped()):
                return cls._load_plugin(path.name)
            path = HWMODELS / f"{name_or_path}.toml"
            if path.name not in {f"{name}.toml" for name in cls.shipped()}:
                known = unknown_choice("chip", name_or_path, cls.names())
                raise ChipError(f"{known}, or give the path of a .toml file", code="NW4001")
        return cls._load_file(path)

    @classmethod
    def _load_plugin(cls, name: str) -> "Chip":
        """Load a plugin's chip; the plugin gives a Chip, or the text or the path of its TOML file."""
        given = plugins.load_plugin(plugins.CHIPS, "chip", name)
        if isinstance(given, str) and "\n" in given:
            given = cls.from_toml(given, f"{name} (a plugin)")
        elif isinstance(given, str | PathLike):
            given = cls._load_file(Path(given))
        if not isinstance(given, Chip):
            raise ChipError(
                f"chip {name!r} of a plugin is a Chip, or the text or path of its TOML, not {type(given).__name__}",
                code="NW1103",
            )
        if given.name != name:
            raise ChipError(f"chip {name!r} of a plugin calls itself {given.name!r}; give both one name", code="NW1103")
        return given

    @classmethod
    def _load_file(cls, path: Path) -> "Chip":
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else "not UTF-8 text"
            raise ChipError(f"chip file {path} cannot be read: {reason}", code="NW4001") from None
        chip = cls.from_toml(text, path.name)
        return replace(chip, listing=replace(chip.listing, folder=path.parent))

    @classmethod
    def from_toml(cls, text: str, where: str) -> "Chip":
        """A chip from the text of its TOML file; `where` names the file in errors."""
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as e:
            reason = str(e) if isinstance(e, ValueError) else "nested too deeply"
            raise ChipError(f"chip file {where} is not TOML: {reason}", code="NW4001") from None
        return cls.from_dict(table, where)

    @classmethod
    def from_dict(cls, table: dict, where: str = "chip") -> "Chip":
        """A chip from nested dicts as `to_dict` returns them, or with a `base` whose values they override."""
        if not isinstance(table, dict):
            raise ChipError(f"{where}: expected a table of keys, got {shown(table)}", code="NW4002")
        written = _find_written_keys(table)
        if "base" in table:
            if table["base"] not in cls.shipped():
                raise ChipError(f"{where}: base: {unknown_choice('chip', table['base'], cls.shipped())}", code="NW4002")
            base = cls._load_file(HWMODELS / f"{table['base']}.toml")
            stated = {key: base.sources.get(key, base.sources.get(key.partition(".")[0])) for key in KEYS}
            sources = {key: text for key, text in stated.items() if text is not None and base.value(key) is not None}
            table = merge_with_base(base.to_dict() | {"sources": sources}, table)
            written |= base.listing.written or frozenset(KEYS)
        check_names(table, ("name", "description", "proposed", "board_of", "sources", *SECTIONS), "", where)
        for key in ("name", "noc", "core", "neuron"):
            if key not in table:
                raise ChipError(f"{where}: {key}: missing key; every chip file needs it", code="NW4002")
        for key in ("name", "description"):
            if not isinstance(table.get(key, ""), str) or (key == "name" and not table[key]):
                raise ChipError(f"{where}: {key}: expected a text, got {shown(table[key])}", code="NW4002")
        sources = table.get("sources", {})
        if not isinstance(sources, dict) or not all(isinstance(v, str) and v.strip() for v in sources.values()):
            raise ChipError(
                f'{where}: sources: expected texts, like noc = "..." for a section or "noc.rows" = "..." (in quotes)',
                code="NW4002",
            )
        sections = {s: read_section(kind, table.get(s, {}), s, where) for s, kind in SECTIONS.items()}
        listing = Listing(proposed=table.get("proposed", False), board_of=table.get("board_of"), written=written)
        chip = cls(table["name"], table.get("description", ""), **sections, sources=dict(sources), listing=listing)
        chip.verify(where)
        return chip

    @staticmethod
    def shipped() -> list[str]:
        """Names of the shipped chips."""
        return sorted(p.stem for p in HWMODELS.glob("*.toml"))

    @classmethod
    def names(cls) -> list[str]:
        """Names of all chips that `load` knows: shipped ones, then those of plugins."""
        return plugins.list_names(plugins.CHIPS, cls.shipped())

    @cached_property
    def family(self) -> Family:
        """The chip's family (nwcompile/families/): what differs from a mesh with a barrier."""
        return next((family for family in FAMILIES if family.has_member(self)), MESH)

    @property
    def chip_of_board(self) -> str:
        """The name of the chip, or of the chip that this board consists of."""
        return self.listing.board_of or self.name

    def proposals(self) -> list["Chip"]:
        """Other chips and boards that a refusal on this chip may propose: shipped ones, and those in its folder.

        The same chip on other boards comes first. Boards follow their chip, smaller ones first.
        """
        folders = dict.fromkeys(folder for folder in (HWMODELS, self.listing.folder) if folder is not None)
        files = (path for folder in folders for path in sorted(folder.glob("*.toml")))
        known = {c.name: c for path in files if (c := _load_proposed(path)) is not None and c.name != self.name}

        def rank_proposal(chip: "Chip") -> tuple:
            return chip.chip_of_board != self.chip_of_board, chip.chip_of_board, chip.is_board * chip.n_cores

        return sorted(known.values(), key=rank_proposal)

    @checked()
    def replace(self, changes: dict[str, Any]) -> "Chip":
        """A copy with keys like `"noc.buffer_flits"` overridden (None: removed); checked like a file."""
        if not changes:
            return self
        table = self.to_dict()
        for key, value in changes.items():
            if key not in KEYS:
                raise ChipError(
                    f"{self.name}: {key}: unknown key (did you mean {nearest_first(key, KEYS)[0]!r}?)", code="NW4002"
                )
            section, _, name = key.partition(".")
            if isinstance(value, np.generic | np.ndarray):
                value = value.tolist()
            table.setdefault(section, {})[name] = list(value) if isinstance(value, tuple) else value
            table["sources"][key] = SET_BY_USER
        chip = Chip.from_dict(table, self.name)
        written = None if self.listing.written is None else self.listing.written | set(changes)
        return replace(chip, listing=Listing(written=written))

    def to_dict(self) -> dict:
        """Nested dicts as in the TOML file, without keys that are None."""
        table = asdict(self)
        del table["listing"]
        for section in SECTIONS:
            table[section] = {k: v for k, v in table[section].items() if v is not None}
        if not table["crossbar"]:  # programs and hashes stay those of versions without the section
            del table["crossbar"]
        return table

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON of the chip."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @property
    def n_cores(self) -> int:
        """Number of physical cores."""
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
        """The routers, their links and the routes of messages."""
        return build_grid(self.noc, self.name)

    @property
    def is_board(self) -> bool:
        """Whether several chips are joined into one mesh (nwcompile/ir/chip_sections.py)."""
        return count_chips(self.noc) != (1, 1)

    @property
    def scan_cycles(self) -> int:
        """Core cycles to visit all of core.max_neurons; 0 if only used neurons are visited."""
        n_slots = int(np.max(self.core.max_neurons)) if self.cost.visits == "all" else 0
        return n_slots * (self.cost.visit_cycles or 0)

    def has_key(self, key: str) -> bool:
        """Whether a key applies to this chip; some keys of a mesh do not apply to other families."""
        return key.removeprefix("noc.") not in self.family.silent_keys

    @cached_property
    def link_cycles(self) -> np.ndarray:
        """int64[link]: NoC cycles that a flit occupies each link; numbered as in `link_flits` of cost.traffic."""
        return self.family.link_cycles(self)

    @cached_property
    def links_between_chips(self) -> np.ndarray:
        """int64: links of a board from one chip to another."""
        return np.flatnonzero(find_chip_crossings(self.grid, self.noc.chip_columns, self.noc.chip_rows))

    @cached_property
    def link_latency(self) -> np.ndarray:
        """int64[link]: NoC cycles from a flit's entry into a link until it may leave the buffer at its end.

        Links as in `link_cycles`; for families whose links have such buffers.
        """
        noc, g = self.noc, self.grid
        hop = np.tile([noc.hop_cycles_ew, noc.hop_cycles_ew, noc.hop_cycles_ns, noc.hop_cycles_ns], (len(g.is_open), 1))
        if noc.chip_hop_cycles is not None:
            hop[find_chip_crossings(g, noc.chip_columns, noc.chip_rows)] = noc.chip_hop_cycles
        return np.concatenate([hop.reshape(-1), np.repeat([noc.inject_cycles, noc.eject_cycles], self.n_cores)])

    def limit(self, name: str) -> np.ndarray | None:
        """Limit `core.<name>` of every physical core, int64[core], at most the size of its array; None without a limit.

        The limit of neurons is 0 where a core is not usable.
        """
        given, array = getattr(self.core, name), self.crossbar.limits.get(name)
        known = [n for n in (given, array and array[1]) if n is not None]
        if not known:
            return None
        least = np.broadcast_to(np.minimum.reduce([np.asarray(n, np.int64) for n in known]), (self.n_cores,))
        return least * self.is_usable if name == "max_neurons" else least

    @property
    def max_neurons(self) -> np.ndarray:
        """int64[core]: neurons that each physical core may hold, none where it is not usable."""
        limit = self.limit("max_neurons")
        assert limit is not None, "every chip file gives core.max_neurons"
        return limit

    def mantissa_range(self, bits: int, sign_mode: str) -> tuple[int, int]:
        """Smallest and largest mantissa of synapses of `bits`, at most the levels of a crossbar's cells from 0."""
        can, levels = self.weights, self.crossbar.levels
        low, high = mantissa_range(bits, can.bits, can.step, sign_mode)
        if levels is None:
            return low, high
        step = mantissa_step(bits, can.bits, can.step, sign_mode)
        reach = (levels - 1) * mantissa_step(can.bits, can.bits, can.step, sign_mode)
        return low + step * -(min(low + reach, 0) // step), high - step * -(min(reach - high, 0) // step)

    @cached_property
    def io_cores(self) -> np.ndarray:
        """int64[site]: physical core of each of `io.sites`."""
        sites = [[int(n) for n in text.split(",")] for text in self.io.sites or ()]
        return self.site_index(np.array(sites, np.int64).reshape(-1, 3))

    @cached_property
    def is_usable(self) -> np.ndarray:
        """bool[core]: whether a physical core can hold neurons: its router is in use, and it is no `io.sites` core."""
        usable = np.repeat(self.grid.is_open, self.noc.cores_per_router)
        usable[self.io_cores] = False
        return usable

    @property
    def fixed_point(self) -> FixedPoint:
        """Number format of this chip's neurons."""
        state = self.state
        return FixedPoint(state.bits, state.decay_bits, state.shift_bits, state.overflow, state.decay or "fraction")

    @property
    def n_synapse_types(self) -> int:
        """Number of separate synaptic sums that a neuron may have; 1 if a limit of the chip assumes one."""
        is_free = self.neuron.programmable and not any(map(self.value, ONE_SUM))
        return (self.neuron.max_synapse_types or 1) if is_free else 1

    @property
    def unknown_costs(self) -> list[str]:
        """Keys of costs that the chip file does not give; only chips with neuron programs need instruction_cycles."""
        needed = [f.name for f in fields(Cost) if f.name.endswith("_cycles") and f.name not in MAY_LACK_CYCLES]
        if not self.neuron.programmable:
            needed.remove("instruction_cycles")
        if not self.family.has_barrier:
            needed.remove("barrier_cycles")
        return [f"cost.{name}" for name in needed if getattr(self.cost, name) is None]

    @property
    def most_levels(self) -> int:
        """Number of magnitudes of a stored weight, 0 included: the levels of a memory cell, or those of a mantissa."""
        return self.crossbar.levels or (1 << self.weights.bits - 1) + 1

    @property
    def has_times(self) -> bool:
        """Whether every cost is known, so that times can be computed."""
        return not self.unknown_costs

    @property
    def gives_times(self) -> bool:
        """Whether the cycle backend reports times; bounds and predictions of times need `has_times`."""
        return self.has_times or self.family.has_own_times

    @property
    def has_profile(self) -> bool:
        """Whether the cycle backend simulates single flits step by step, so that a run can be profiled."""
        return self.family.refuse_run(self, profile=True, totals=False) is None

    @property
    def has_steps(self) -> bool:
        """Whether all cores end a step together after their work; otherwise a pool or the neighbors set the pace."""
        return self.family.has_barrier and not self.family.has_own_times

    @property
    def has_energies(self) -> bool:
        """Whether the energy of every event is known."""
        names = (f.name for f in fields(Energy) if f.name.endswith("_pj") and f.name not in MAY_LACK_PJ)
        return all(getattr(self.energy, name) is not None for name in names)

    @property
    def static_powers(self) -> dict[str, float]:
        """Static power in mW of the chip or the whole board, by chip-file key, of the keys that are given."""
        static, clock = self.energy.static_mw, self.energy.clock_uw_per_mhz
        powers = {} if static is None else {"energy.static_mw": static}
        return powers if clock is None else powers | {"energy.clock_uw_per_mhz": clock / self.core.cycle_ns}

    @property
    def static_mw(self) -> float:
        """The sum of `static_powers`; 0 if none is given."""
        return sum(self.static_powers.values())

    def carries_message(self, message: str) -> bool:
        """Whether a message payload can encode this kind of spikes (`NeuronSpec.message`)."""
        bits = self.noc.payload_bits
        return bits is None or bits >= (2 if message in ("bipolar", "graded") else 1)

    def barrier_cycles(self, n_tiles: int) -> int:
        """Core cycles of the barrier with `n_tiles` routers in use: the entry of the largest key not above it."""
        if not self.has_steps:
            return 0
        assert self.cost.barrier_cycles is not None, "ask has_times first"
        return _entry_of_tiles(self.cost.barrier_cycles, n_tiles)

    def min_work_cycles(self, n_tiles: int) -> int:
        """Core cycles from a step's begin to its barrier if there is little or no work (`cost.min_step_cycles`)."""
        if not self.has_steps or self.cost.min_step_cycles is None:
            return 0
        return max(_entry_of_tiles(self.cost.min_step_cycles, n_tiles) - self.barrier_cycles(n_tiles), 0)

    @property
    def sample_cycles(self) -> int:
        """Core cycles that a sample takes once, in addition to its steps."""
        return (self.cost.sample_cycles or 0) if self.has_steps else 0

    @cached_property
    def ticks(self) -> tuple[int, int]:
        """Ticks per core cycle and per NoC cycle; a tick divides both."""
        core, noc = (Fraction(str(c)) for c in (self.core.cycle_ns, self.noc.cycle_ns))
        common = Fraction(
            gcd(core.numerator * noc.denominator, noc.numerator * core.denominator), core.denominator * noc.denominator
        )
        return int(core / common), int(noc / common)

    def source_of(self, key: str) -> str | None:
        """The source of key `key`: its own entry of `sources`, or its section's; None for a default."""
        if self.listing.written is not None and key not in self.listing.written:
            return None
        return self.sources.get(key, self.sources.get(key.partition(".")[0]))

    def basis_of(self, key: str) -> str:
        """The basis of a key's value by its source: measured, published, fitted, scaled or assumed."""
        return read_basis(self.source_of(key))

    def value(self, key: str):
        """The value of a key like `"noc.buffer_flits"`."""
        section, _, name = key.partition(".")
        return getattr(getattr(self, section), name)

    def verify(self, where: str = "chip") -> None:
        """Raise ChipError, naming the key, unless every value is possible and has a source."""
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
        check_listing(self, where)
        check_noc(self, where)
        check_state(self.state, where)
        check_neuron(self.neuron, where)
        check_io(self, where)
        check_energy(self, where)
        check_crossbar(self, where)
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
                raise ChipError(
                    f"{where}: sources.{key}: there is no such section or key (did you mean {best!r}?)", code="NW4004"
                )
        lacking, first = [], ""
        for section, kind in SECTIONS.items():
            stated = []
            for f in fields(kind):
                default = f.default_factory() if f.default_factory is not MISSING else f.default
                if self.value(f"{section}.{f.name}") not in (None, default):
                    stated.append(f"{section}.{f.name}")
            without = [key for key in stated if self.source_of(key) is None]
            first = first or next(iter(without), "")
            lacking += [section] if without == stated and len(without) > 3 else without
        if lacking:
            has, section = "has no source" if len(lacking) == 1 else "have no source", first.partition(".")[0]
            more = "" if len(lacking) == 1 else " and so on"
            raise ChipError(
                f'{where}: {", ".join(lacking)}: {has}; add sources.{section} or sources."{first}"{more} '
                '("assumed: <reason>" is allowed)',
                code="NW4004",
            )


def _entry_of_tiles(table: dict[str, int], n_tiles: int) -> int:
    return max((int(tiles), cycles) for tiles, cycles in table.items() if int(tiles) <= n_tiles)[1]


def _find_written_keys(table: dict) -> frozenset[str]:
    """The keys to which a table gives a value or a source."""
    sections = ((section, table.get(section)) for section in SECTIONS)
    figures = {f"{section}.{shown(name, str)}" for section, keys in sections if isinstance(keys, dict) for name in keys}
    sources = table.get("sources")
    return frozenset(figures | {key for key in (sources if isinstance(sources, dict) else ()) if key in KEYS})


def _load_proposed(path: Path) -> Chip | None:
    """The chip of a file, if it may be proposed; else None."""
    try:
        chip = Chip.load(path)
    except ChipError:  # another kind of TOML file
        return None
    return chip if chip.listing.proposed else None
