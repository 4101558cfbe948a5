"""Cores: the cores of a program, one row each, for `show` and `compile --plan-only`."""

from nwcompile.cli.outputs.text import format_table
from nwcompile.cost.traffic.axons import core_use
from nwcompile.ir.program import Program
from nwcompile.ir.resources import RESOURCES
from nwcompile.ir.shown import count_text


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
