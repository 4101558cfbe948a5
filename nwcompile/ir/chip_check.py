"""Checks of a chip file: unknown, missing, mistyped and impossible keys are reported by their path.

`where` is the file (or chip) that an error names. Every function raises ChipError.
"""

import re
from dataclasses import MISSING, fields
from typing import Any, get_args, get_origin

from nwcompile.errors import ChipError, nearest_first, shown, unknown_choice
from nwcompile.families import FAMILIES
from nwcompile.ir.chip_sections import BARRIER, Variation
from nwcompile.ir.neuron import DECAYS, MESSAGES, OVERFLOWS, RESET_TIMINGS, RESETS
from nwcompile.ir.noc.routing import ROUTINGS, build_grid

ERROR_CODE = "NW4003"
CHOICES: dict[str, tuple[str, ...]] = {
    "noc.multicast": ("unicast", "tree"),
    "noc.topology": ("mesh", "torus"),
    "noc.routing": (*ROUTINGS, "up-down"),
    "noc.on_full": ("stall", "drop"),
    "core.axon_merge": ("or",),
    "state.overflow": OVERFLOWS,
    "state.decay": DECAYS,
    "neuron.v_min": ("none", "zero", "any", "reset"),
    "neuron.threshold_per": ("layer", "neuron"),
    "neuron.reset": RESETS,
    "neuron.reset_timing": RESET_TIMINGS,
    "neuron.spikes": MESSAGES,
    "cost.units": ("overlap", "shared"),
    "cost.visits": ("all",),
    "cost.sync": (BARRIER,),
    "crossbar.pairs": ("rows", "columns"),
}
for _family in FAMILIES:
    if _family.value is not None:
        CHOICES[_family.key] = (*CHOICES.get(_family.key, ()), _family.value)
MAY_BE_ZERO = {"noc.payload_flits", "noc.payload_bits", "noc.route_cycles", "core.block_overhead_bits",
               "weights.index_bits", "weights.exponent_min", "weights.exponent_max",
               "state.decay_offset", "state.shift_bits", "neuron.delay_max_steps", "neuron.refractory_max_steps",
               "neuron.threshold_shift_bits", "neuron.bias_exponent_max",
               "crossbar.drift_exponent", "crossbar.drift_spread"}  # fmt: skip
ZERO_IN_LISTS = {"core.max_neurons"}  # a core of 0 neurons is unused; at least one core has some
SMALLEST = {"weights.exponent_min": -24, "weights.exponent_max": -24,
            "weights.bits": 2, "state.bits": 2, "neuron.bias_bits": 2, "crossbar.levels": 2,
            "variation.levels": 2}  # fmt: skip
LARGEST = {"noc.columns": 1024, "noc.rows": 1024, "noc.chip_columns": 1024, "noc.chip_rows": 1024,
           "noc.cores_per_router": 32, "noc.virtual_channels": 16, "noc.lanes": 256,
           "noc.buffer_flits": 4096, "noc.flits_per_message": 1024, "noc.payload_flits": 1024,
           "noc.payload_bits": 32, "core.word_bits": 4096,
           "weights.bits": 16, "weights.step": 256, "weights.exponent_min": 24, "weights.exponent_max": 24,
           "weights.effective_limit": (1 << 24) - 1, "weights.index_bits": 32,
           "state.bits": 32, "state.decay_bits": 16, "state.shift_bits": 16, "state.decay_offset": 1 << 16,
           "neuron.delay_max_steps": 1 << 16, "neuron.refractory_max_steps": 1 << 16, "neuron.threshold_bits": 32,
           "neuron.threshold_shift_bits": 24, "neuron.bias_bits": 32, "neuron.bias_exponent_max": 24,
           "neuron.max_synapse_types": 256,
           "crossbar.levels": (1 << 15) + 1, "crossbar.drift_exponent": 1, "crossbar.drift_spread": 1,
           **dict.fromkeys((f"variation.{f.name}" for f in fields(Variation)), 1),
           "variation.levels": 1 << 16, "variation.jitter": 1 << 16, "variation.drift": 1 << 40}  # fmt: skip
LARGEST_OF_ALL = 1 << 40  # Sums of such numbers over cores and steps fit 64 bits.
LARGEST_CORE_COUNT = 1 << 20  # Tables by core fit into memory.
NO_DRIFT = (
    "the chip does not say how its memory cells drift; set crossbar.drift_exponent, crossbar.drift_spread and "
    "crossbar.drift_start_s"
)
MOST_CHANNELS = 64  # The virtual channels of all input ports of a router are bits of one 64-bit word.
TYPE_TEXT = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    list[int]: "a list of whole numbers",
    list[str]: "a list of texts",
    list[bool]: "a list of true/false",
    dict[str, int]: "a table like { 1 = 6000, 4 = 14000 }",
}


def check_names(table: Any, names, prefix: str, where: str) -> None:
    """Check that every key of `table` is one of `names`."""
    for key in table:
        if not isinstance(key, str):
            raise ChipError(f"{where}: {prefix}{shown(key)}: unknown key (keys are texts)", code="NW4002")
        if key not in names:
            best = nearest_first(key, names)[0]
            raise ChipError(f"{where}: {prefix}{key}: unknown key (did you mean {prefix + best!r}?)", code="NW4002")


def read_section(kind, table: Any, section: str, where: str):
    """Read a `kind` (a dataclass of `nwcompile.ir.chip_sections`) from one table of a chip file and check its types."""
    if not isinstance(table, dict):
        raise ChipError(f"{where}: {section}: expected a table of keys, got {shown(table)}", code="NW4002")
    check_names(table, [f.name for f in fields(kind)], f"{section}.", where)
    values = {}
    for f in fields(kind):
        if f.name in table:
            values[f.name] = _check_type(f"{section}.{f.name}", f.type, table[f.name], where)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise ChipError(f"{where}: {section}.{f.name}: missing key; every chip file needs it", code="NW4002")
    return kind(**values)


def check_value(key: str, value: Any, where: str, n_cores: int) -> None:
    """Check the value of `key`: a known word, a finite number within bounds, a list of the right length."""
    if key in CHOICES:
        for word in value if isinstance(value, list) else [value]:
            if word not in CHOICES[key]:
                raise ChipError(f"{where}: {key}: {unknown_choice('value', word, CHOICES[key])}", code="NW4002")
        return
    if key.startswith(("core.", "cost.")) and isinstance(value, list) and len(value) != n_cores:
        raise ChipError(
            f"{where}: {key}: a list needs one entry for each of the {n_cores} cores, got {len(value)}", code="NW4002"
        )
    if isinstance(value, dict) and "1" not in value:
        raise ChipError(f'{where}: {key}: the table needs an entry for "1"', code="NW4002")
    numbers = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if key in ZERO_IN_LISTS and any(numbers):
        numbers = [n for n in numbers if n != 0]
    for number in numbers:
        if not isinstance(number, bool | str):
            _check_number(key, number, where)


def check_listing(chip, where: str) -> None:
    """Check the types and the combination of the keys `proposed` and `board_of`."""
    proposed, board_of = chip.listing.proposed, chip.listing.board_of
    if type(proposed) is not bool:
        raise ChipError(f"{where}: proposed: expected true or false, got {shown(proposed)}")
    if board_of is not None and (not isinstance(board_of, str) or not board_of):
        raise ChipError(f"{where}: board_of: expected the name of a chip, got {shown(board_of)}")
    if board_of is not None and not chip.is_board:
        raise ChipError(f"{where}: board_of: this is one chip; give noc.chip_columns or noc.chip_rows, or leave it out")


def check_noc(chip, where: str) -> None:
    """Check the combination of keys of a Chip's network and family, and that no message waits forever."""
    noc = chip.noc
    for family in FAMILIES:
        for key in family.own_keys if family is not chip.family else ():
            if chip.value(key) is not None:
                raise ChipError(f'{where}: {key}: a {noc.topology} has none; set {family.key} = "{family.value}"')
    first, *others = [family for family in FAMILIES if family.has_member(chip)] or [chip.family]
    for other in others:
        value = f'"{other.value}"' if other.value else chip.value(other.key)
        raise ChipError(
            f"{where}: {other.key}: {value} does not go with {first.key} = {chip.value(first.key)!r}: a chip is of one "
            "family; change one of them"
        )
    first.verify(chip, where)
    if noc.topology == "torus" and noc.routing in ("xy", "yx") and noc.virtual_channels < 2:
        raise ChipError(
            f"{where}: noc.virtual_channels: {noc.virtual_channels} could deadlock: routing {noc.routing!r} needs 2 or "
            "more on a torus, half of them for messages that have gone round"
        )
    if noc.multicast == "tree" and noc.flits_per_message + noc.payload_flits > 1:
        raise ChipError(
            f'{where}: noc.multicast: "tree" forks messages of one flit only, longer ones could deadlock; set '
            'noc.flits_per_message = 1 and noc.payload_flits = 0, or noc.multicast = "unicast"'
        )
    if noc.faults or noc.topology == "torus" or noc.routing == "up-down":
        build_grid(noc, where)
    for key in ("chip_hop_cycles", "chip_link_cycles_per_flit"):
        if getattr(noc, key) is not None and noc.chip_columns is None and noc.chip_rows is None:
            raise ChipError(f"{where}: noc.{key}: there is one chip; give noc.chip_columns or noc.chip_rows too")
    if chip.core.axon_merge is not None and noc.on_full == "drop":
        raise ChipError(
            f'{where}: core.axon_merge: {chip.core.axon_merge!r} does not go with noc.on_full = "drop", where the '
            'spike that is read may be the one that is lost; set noc.on_full = "stall", or leave it out'
        )


def check_energy(chip, where: str) -> None:
    """Check that energies belong to events of the Chip: links between chips on a board, messages at `io.sites`."""
    if chip.energy.chip_link_pj is not None and not chip.is_board:
        raise ChipError(f"{where}: energy.chip_link_pj: there is one chip; give noc.chip_columns or noc.chip_rows too")
    if chip.energy.io_pj is not None and chip.io.sites is None:
        raise ChipError(
            f"{where}: energy.io_pj: messages enter and leave at io.sites, and none is given; give them too"
        )


def check_crossbar(chip, where: str) -> None:
    """Check that a Chip's array has a pair of cells for each synapse, levels for mantissas, and all drift keys."""
    array, bits = chip.crossbar, chip.weights.bits
    for key, lacks, reason in (
        ("weights.sharing", chip.weights.sharing, "each synapse has cells of its own; set it to false"),
        ("neuron.delay_max_steps", chip.neuron.delay_max_steps, "a row drives all its cells at once; set it to 0"),
    ):
        if array.limits and lacks:
            raise ChipError(f"{where}: {key}: {chip.value(key)!r} does not go with a crossbar: {reason}")
    if any(n < 1 for _, n in array.limits.values()):
        raise ChipError(f"{where}: crossbar.{array.pairs}: 1 is less than the 2 cells of a pair")
    if array.levels is not None and not 1 << bits - 2 <= array.levels - 1 <= 1 << bits - 1:
        needed = (array.levels - 1).bit_length() + 1
        raise ChipError(
            f"{where}: crossbar.levels: a pair of cells of {array.levels} levels stores a weight of {needed} bits; set "
            f"weights.bits = {needed}, not {bits}"
        )
    drift = {key: getattr(array, key) for key in ("drift_exponent", "drift_spread", "drift_start_s")}
    given = [key for key, value in drift.items() if value is not None]
    for key, value in drift.items():
        if given and value is None:
            raise ChipError(f"{where}: crossbar.{key}: missing key; a chip with crossbar.{given[0]} needs it")
    if chip.variation.drift and not given:
        raise ChipError(f"{where}: variation.drift: {NO_DRIFT}")
    if (chip.variation.levels or 0) > chip.most_levels:
        text = f"weights of {bits} bits have at most {chip.most_levels} levels, not {chip.variation.levels}"
        raise ChipError(f"{where}: variation.levels: {text}")


def check_state(state, where: str) -> None:
    """Check the combination of keys of a `State`."""
    if state.decay == "shift" and (state.overflow != "clip" or state.decay_offset):
        raise ChipError(f'{where}: state.decay: "shift" needs state.overflow = "clip" and no state.decay_offset')


def check_neuron(neuron, where: str) -> None:
    """Check the combination of keys of a `NeuronCapability`."""
    if neuron.max_synapse_types is not None and not neuron.programmable:
        raise ChipError(
            f"{where}: neuron.max_synapse_types: only neuron programs read several sums; "
            "set neuron.programmable = true, or leave the key out"
        )


def check_io(chip, where: str) -> None:
    """Check that each of a Chip's `io.sites` is usable and listed once, and that cores are left for neurons."""
    noc, seen = chip.noc, set()
    for text in chip.io.sites or ():
        match = re.fullmatch(r"(\d{1,4}),(\d{1,4}),(\d{1,4})", text)
        if match is None:
            raise ChipError(f'{where}: io.sites: expected sites like "0,0,1" (x, y, port), got {text!r}', code="NW4006")
        x, y, port = (int(n) for n in match.groups())
        if x >= noc.columns or y >= noc.rows or port >= noc.cores_per_router:
            last = f"{noc.columns - 1},{noc.rows - 1},{noc.cores_per_router - 1}"
            raise ChipError(f"{where}: io.sites: there is no site {text}; the last one is {last}", code="NW4006")
        if not chip.grid.is_open[y * noc.columns + x]:
            raise ChipError(
                f"{where}: io.sites: {text} is at a router of noc.faults; take one of both out", code="NW4006"
            )
        if (x, y, port) in seen:
            raise ChipError(f"{where}: io.sites: {text} is there twice; name every site once", code="NW4006")
        seen.add((x, y, port))
    if seen and not chip.is_usable.any():
        raise ChipError(f"{where}: io.sites: no core is left for neurons; take some out", code="NW4006")


def find_bounds(key: str) -> tuple[int, bool, int]:
    """(smallest value, whether it is excluded, largest value) of a key; the schema has these bounds too."""
    zero_ok = key in MAY_BE_ZERO or key.startswith(("energy.", "cost.", "pool.", "variation."))
    least = SMALLEST.get(key, 0)
    return least, not (zero_ok or least), LARGEST.get(key, LARGEST_OF_ALL)


def _check_number(key: str, number: int | float, where: str) -> None:
    least, is_above, largest = find_bounds(key)
    if number != number or number in (float("inf"), float("-inf")):
        raise ChipError(f"{where}: {key}: {number} is not a finite number", code="NW4002")
    if number < least or (is_above and number == least):
        bound = f"above {least}" if is_above else f"{least} or more"
        raise ChipError(f"{where}: {key}: {shown(number)} must be {bound}", code="NW4002")
    if number > largest:
        raise ChipError(f"{where}: {key}: {shown(number)} is above the largest supported, {largest}", code="NW4002")


def _check_type(key: str, annotation: Any, value: Any, where: str) -> Any:
    """Return `value` if it has one of the types in `annotation`; an int may replace a float."""
    kinds = [annotation] if get_origin(annotation) in (None, list, dict) else list(get_args(annotation))
    for kind in kinds:
        if kind is float and type(value) is int:
            return float(value) if abs(value) <= LARGEST_OF_ALL else float("inf")
        if _has_type(kind, value):
            return value
    expected = " or ".join(TYPE_TEXT[kind] for kind in kinds if kind is not type(None))
    raise ChipError(f"{where}: {key}: expected {expected}, got {shown(value)}", code="NW4002")


def _has_type(kind: Any, value: Any) -> bool:
    if get_origin(kind) is list:
        return isinstance(value, list) and bool(value) and all(type(v) is get_args(kind)[0] for v in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(
            re.fullmatch("[1-9][0-9]{0,8}", k) and type(v) is int for k, v in value.items()
        )
    return type(value) is kind


def merge_with_base(base: dict, table: dict) -> dict:
    """Merge the tables of a chip file over those of its base; both are as from `Chip.to_dict`.

    `base["sources"]` has an entry for every key. A key in the file loses the base's source: the file must give its own,
    for the key or its section.
    """
    merged = {**base, **{key: value for key, value in table.items() if key not in ("base", "sources")}}
    inherited = dict(base["sources"])
    stated = table.get("sources", {})
    if not isinstance(stated, dict):
        return {**merged, "sources": stated}
    for section, keys in table.items():
        if not isinstance(base.get(section), dict) or not isinstance(keys, dict) or section == "sources":
            continue
        merged[section] = {**base[section], **keys}
        for name in keys:
            inherited.pop(f"{section}.{name}", None)
    return {**merged, "sources": inherited | stated}
