"""Quantization in the report: per layer its integers, their error, and the range of its states."""

import re

from nwcompile.ir.shown import grouped
from nwcompile.report import neuron_states
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.text import align_rows, percent

HEADINGS = ("layer", "weights", "scale", "clipped weights", "weight error", "tau", "tau error",
            "spikes per step", "as in float", "bits of u: used, worst case", "bits of v: used, worst case")  # fmt: skip
N_LEFT = 1  # The first column, the layer's name, is left-aligned; numbers are right-aligned.
UNKNOWN = "–"
ABOUT = (
    "“Clipped”: beyond the largest weight of the width at this scale. “Tau”: time constants of current (u) and "
    "membrane (v), wanted → on the chip. “Spikes per step”: of a neuron, in the calibration samples, in float → "
    "on the chip; “as in float”: the share of these spikes that both send. Bits of the states: used in the samples, "
    "and in the worst case of any input (∞: no leak, so no bound)."
)


def quantization_lines(doc: dict) -> list[str]:
    """Lines for the terminal: tables of the layers and of the states of neuron programs, then notes on overflow."""
    rows, states = _layer_rows(doc), neuron_states.state_rows(doc)
    if not rows:
        return []
    of_states = align_rows([neuron_states.HEADINGS, *states], n_left=neuron_states.N_LEFT) if states else []
    return [*align_rows([HEADINGS, *rows], n_left=N_LEFT), *of_states, *overflow_notes(doc)]


def quantization_table(doc: dict) -> Markup:
    """Render the tables and notes for the page, without columns that have no figure."""
    columns = [(heading, "name" if i < N_LEFT else "right") for i, heading in enumerate(HEADINGS)]
    rows = [[None if cell == UNKNOWN else cell for cell in row] for row in _layer_rows(doc)]
    kept = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    notes = tag("ul", *(tag("li", text) for text in overflow_notes(doc)), class_="warnings")
    shown = html_table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return join([shown, _states_table(doc), notes if overflow_notes(doc) else None])


def overflow_notes(doc: dict) -> list[str]:
    """One sentence for layers that differ in bits only, with the most bits; then notes on programs and their tables."""
    alike: dict[str, list[tuple[list[int], str, str]]] = {}
    for row in doc["layers"]:
        if text := (row["quantization"] or {}).get("overflow"):
            bits = [int(n) for n in re.findall(r"\d+", text)]
            alike.setdefault(re.sub(r"\d+", "", text), []).append((bits, row["layer"], text))
    notes = [f"{', '.join(name for _, name, _ in rows)}: {max(rows)[2]}" for rows in alike.values()]
    return [*notes, *neuron_states.program_notes(doc)]


def _states_table(doc: dict) -> Markup | None:
    """The states of neuron programs for the page."""
    states = neuron_states.state_rows(doc)
    if not states:
        return None
    columns = [(name, "name" if i < neuron_states.N_LEFT else "right") for i, name in enumerate(neuron_states.HEADINGS)]
    return join([tag("p", neuron_states.ABOUT, class_="about"), html_table(columns, [list(row) for row in states])])


def _layer_rows(doc: dict) -> list[tuple[str, ...]]:
    return [_layer_row(r["layer"], r["quantization"]) for r in doc["layers"] if r["quantization"]]


def _layer_row(layer: str, entry: dict) -> tuple[str, ...]:
    clipped, error = entry.get("clipped_weights"), entry.get("weight_error_rms")
    rates = (entry.get("rate_float"), entry.get("rate_fixed"))
    rate_float, rate_fixed = (None if rate is None else f"{rate:.3f}" for rate in rates)
    return (
        layer,
        UNKNOWN if entry.get("bits") is None else f"{entry['bits']} bits",
        UNKNOWN if entry.get("scale") is None else f"{grouped(entry['scale'])} unit{'s' * (entry['scale'] != 1)}",
        UNKNOWN if clipped is None else f"{grouped(clipped)} ({percent(entry.get('clipped_percent'))})",
        UNKNOWN if error is None else percent(100 * error),
        _format_taus(entry),
        percent(entry.get("tau_error_percent")),
        _change_text(rate_float, rate_fixed),
        percent(entry.get("spike_agreement_percent")),
        _format_bits(entry, "u"),
        _format_bits(entry, "v"),
    )


def _format_taus(entry: dict) -> str:
    """Format time constants: `u 2.5 → 2.49, v 10 → 10 steps`, only of states that leak."""
    parts = []
    for state in ("u", "v"):
        wanted, chip = entry.get(f"tau_{state}"), entry.get(f"tau_{state}_chip")
        if wanted is not None or chip is not None:
            before, after = (None if x is None else _format_span(x) for x in (wanted, chip))
            parts.append(f"{state} {_change_text(before, after)}")
    return f"{', '.join(parts)} steps" if parts else UNKNOWN


def _change_text(before: str | None, after: str | None) -> str:
    """Format a change: `0.17 → 0.16`, or only the known value."""
    known = [x for x in (before, after) if x is not None]
    return " → ".join(known) if known else UNKNOWN


def _format_span(value) -> str:
    return f"{grouped(value[0])}..{grouped(value[1])}" if isinstance(value, list) else grouped(value)


def _format_bits(entry: dict, state: str) -> str:
    """Format widths of a state: `18, 22 of 24 bits` used, enough for any input, and available; a dash for unknown."""
    if entry.get("state_bits") is None:
        return UNKNOWN
    used, enough = (entry.get(f"{state}_{what}") for what in ("largest", "bound"))
    bits_used = UNKNOWN if used is None else neuron_states.signed_bits(used)
    return f"{bits_used}, {'∞' if enough is None else neuron_states.signed_bits(enough)} of {entry['state_bits']} bits"
