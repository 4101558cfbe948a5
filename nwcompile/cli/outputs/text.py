"""Text: format results for a terminal."""

import json
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

from nwcompile.cost.traffic.axons import core_use
from nwcompile.ir.program import Program
from nwcompile.ir.resources import RESOURCES
from nwcompile.ir.shown import count_text, grouped
from nwcompile.report.text import fold_table


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format rows under a header; numbers are right-aligned, texts left-aligned."""
    lines = [list(header), *([_cell_text(cell) for cell in row] for row in rows)]
    right = [len(lines) > 1 and all(_is_number(line[i]) for line in lines[1:]) for i in range(len(header))]
    return "\n".join(fold_table(lines, right))


def _cell_text(cell: object) -> str:
    return grouped(int(cell)) if isinstance(cell, Integral) and not isinstance(cell, bool) else str(cell)


def format_counters(totals: Mapping[str, float], n_samples: int) -> str:
    """Format the counters of a run as a table without those that are zero, which a line below it names."""
    rows = [(name.replace("_", " "), total, grouped(total / n_samples)) for name, total in totals.items() if total]
    zero = [name.replace("_", " ") for name, total in totals.items() if not total]
    columns = ("counter", "total", "per sample")[: 2 if n_samples == 1 else 3]
    table = format_table(columns, [row[: len(columns)] for row in rows])
    return table + (f"\nzero: {', '.join(zero)}" if zero else "")


def as_json(value) -> str:
    """Format as JSON; NumPy values become plain ones."""
    return json.dumps(value, indent=1, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))


def format_ranges(indices: Iterable[int]) -> str:
    """Format sorted indices as `0-63, 70`."""
    parts: list[list[int]] = []
    for i in indices:
        if parts and i == parts[-1][1] + 1:
            parts[-1][1] = i
        else:
            parts.append([i, i])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(" ", "").replace(".", "", 1).lstrip("-").isdigit()


def core_rows(program: Program) -> list[dict]:
    """One row per logical core: its site, its layers and its used resources."""
    mapping = program.mapping
    used = core_use(program.axons, program.core_of, mapping.n_cores)
    return [
        {
            "core": c,
            "site": mapping.site_of[c].tolist(),
            "layers": {layer: len(neurons) for layer, neurons in mapping.who(c).items()},
            **{name: int(amount[c]) for name, amount in used.items()},
            "note": mapping.note.get(c),
        }
        for c in range(mapping.n_cores)
    ]


def cores_text(program: Program) -> str:
    """Format the cores as a table."""
    rows = core_rows(program)
    head = f"{count_text(len(rows), 'core')} of {program.chip.n_cores} on {program.chip.name}"
    lines = []
    for row in rows:
        layers = ", ".join(f"{layer} {n}" for layer, n in row["layers"].items())
        lines.append((row["core"], site_text(row["site"]), layers, *(row[r.key] for r in RESOURCES), row["note"] or ""))
    return f"{head}\n\n{format_table(('core', 'site', 'layers', *(r.name for r in RESOURCES), 'note'), lines)}"


def site_text(site: list[int]) -> str:
    """Format a site as (x, y, port)."""
    return f"({', '.join(map(str, site))})"
