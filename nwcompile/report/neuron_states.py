"""Neuron programs in the report: the unit and width of each state, the range and error of each table."""

from collections.abc import Iterable
from math import ceil, floor, frexp, log10

from nwcompile.ir.shown import grouped

HEADINGS = ("layer", "state", "unit", "scale", "width", "used", "enough", "beyond it")
N_LEFT = 3  # Columns of names and units are left-aligned.
UNKNOWN = "–"
DOES = {"saturate": "saturates", "modulo": "goes round"}
ABOUT = (
    "States of neuron programs. Unit: “membrane” scales with the layer, as input and thresholds do; “dimensionless” "
    "is a Q format, bits before and after the point; “count” is a whole number; “weights” adds up weights as they are. "
    "“Taken”: nothing in the program says which. “Enough”: bits for any input, proved."
)


def state_rows(doc: dict) -> list[tuple[str, ...]]:
    """One row for every state of a neuron program."""
    return [_state_row(layer, state) for layer, entry in _find_programs(doc) for state in entry["states"]]


def program_notes(doc: dict) -> list[str]:
    """One sentence for each program with its parameters, and one for each of its tables."""
    texts = []
    for layer, entry in _find_programs(doc):
        of = f"layer {layer}: program {entry['program']} of {entry['instructions']} instructions"
        texts.append(f"{of}{_list_parameters(entry.get('parameters') or ())}")
        texts += [f"layer {layer}: {_describe_table(table)}" for table in entry.get("tables") or ()]
    return texts


def _find_programs(doc: dict) -> Iterable[tuple[str, dict]]:
    for row in doc["layers"]:
        entry = row["quantization"] or {}
        if entry.get("states") and {"program", "instructions"} <= set(entry):
            yield row["layer"], entry


def _state_row(layer: str, state: dict) -> tuple[str, ...]:
    bits, bound, largest = state["bits"], state["bound"], state["largest"]
    is_proved = bound is not None and signed_bits(bound) <= bits
    return (
        layer,
        state["state"],
        state.get("unit") or UNKNOWN,
        _format_scale(state),
        f"{bits} bits",
        UNKNOWN if largest is None else f"{signed_bits(largest)} bits",
        UNKNOWN if bound is None else f"{signed_bits(bound)} bits",
        "never, proved" if is_proved else DOES[state["overflow"]],
    )


def _format_scale(state: dict) -> str:
    """Format a scale: `Q5.18` for a power of two of a dimensionless state, `1` for a count, else `123 665 units`."""
    unit, scale = state.get("unit"), state.get("scale")
    if scale is None:
        return UNKNOWN
    if unit == "dimensionless" and frexp(scale)[0] == 0.5:  # a power of two
        after = frexp(scale)[1] - 1
        return f"Q{state['bits'] - 1 - after}.{after}"
    return "1" if unit == "count" else f"{grouped(scale)} units"


def _list_parameters(parameters: Iterable[dict]) -> str:
    """List parameters by unit: `; parameters: membrane base, jump; dimensionless rho`."""
    by_unit: dict[str, list[str]] = {}
    for row in parameters:
        by_unit.setdefault(row["unit"], []).append(row["parameter"])
    parts = [f"{unit} {', '.join(names)}" for unit, names in by_unit.items()]
    return f"; parameters: {'; '.join(parts)}" if parts else ""


def _describe_table(table: dict) -> str:
    """Describe a table: its function, its range, and its error."""
    low, high, first, last = (grouped(table[name]) for name in ("low", "high", "first", "last"))
    is_whole = table["bounds"] == "proved" and (low, high) == (first, last)
    rule = "" if is_whole else f"; what lies outside {first}..{last} counts as the nearer end"
    error, units = _round_up(table["error"]), _round_up(table["error_units"])
    return (
        f"{table['of']} is a table of {table['entries']} entries for {table['argument']} of {low}..{high} "
        f"({table['bounds']}{rule}), wrong by at most {error} ({units} units)"
    )


def _round_up(x: float) -> str:
    """Format with three significant digits, rounded up."""
    if x <= 0:
        return "0"
    last = 10.0 ** (floor(log10(x)) - 2)
    return grouped(ceil(x / last) * last)


def signed_bits(largest: int) -> int:
    """The bits of a signed integer with at most this magnitude."""
    return int(largest).bit_length() + 1
