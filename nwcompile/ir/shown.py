"""Presentation of values: figures with their basis; a `repr` of at most ten lines; DataFrames."""

import re
from collections.abc import Iterable, Sequence
from textwrap import fill

from nwcompile.errors import OptionError, escape_controls

MOST_LINES = 10  # Larger networks show their first parts only.
WIDTH = 80  # Columns of a terminal, at which sentences are wrapped.
LEAST_TEXT = 26  # Columns for the text of a table's last column; if fewer are left, it follows below the table.
MOST_COLUMNS = 120  # Width of a wide terminal, and of this package's code.
LARGER_UNITS = {"pJ": "nJ", "nJ": "uJ", "uJ": "mJ", "mJ": "J", "ns": "us", "us": "ms", "ms": "s", "mW": "W"}

# Spaces within a number, and between it and its unit; of a site, those after its commas. No line breaks there.
IN_A_NUMBER = re.compile(
    r"(?<=[<>]) (?=\d)|(?<=\d) (?=\d{3}(?!\d)|(?:[fpnumkMGT]?(?:s|J|W|Hz)|[kKMG]i?B|%|mm2|min|h)(?!\w))"
)
IN_A_SITE = re.compile(r"(?<=\d,) (?=\d+[,)])")

NO_PANDAS = (
    "a DataFrame needs pandas, which is not installed: pip install 'nwcompile[frames]' (the same tables are in "
    "report.json, as lists of rows)"
)


def format_lines(head: str, rows: Sequence[str], what: str) -> str:
    """Join the head and the rows that fit; the last line counts the other `what`."""
    room = MOST_LINES - 1
    shown = list(rows)
    if len(rows) > room:
        shown = shown[: room - 1] + [f"... and {len(rows) - room + 1} more {what}"]
    return "\n".join([_shorten_line(head), *(_shorten_line(f"  {row}") for row in shown)])


def wrap_lines(lines: Iterable[str]) -> list[str]:
    """Wrap lines at the width of a terminal, below their last column; a longer name or path stays whole."""
    wrapped = []
    for line in lines:
        column = line.rfind("  ") + 2
        indent = " " * (column if 2 < column <= WIDTH - LEAST_TEXT else 2)
        glued = IN_A_SITE.sub("\0", IN_A_NUMBER.sub("\0", line))
        text = fill(glued, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        wrapped.append(text.replace("\0", " "))
    return wrapped


def count_text(n: int, noun: str) -> str:
    """Return a count with its noun: `1 core`, `17 904 cores`."""
    return f"{grouped(n)} {noun}{'' if n == 1 else 's'}"


def network_title(n_layers: int, n_neurons: int, chip: str) -> str:
    """Name a network and its chip: `2 layers of 42 neurons on loihi1`."""
    return f"{count_text(n_layers, 'layer')} of {grouped(n_neurons)} neurons on {chip}"


def grouped(x: float) -> str:
    """Format with three significant digits, from 1000 on as an integer: `17 904`. No exponent above 0.0001."""
    whole, dot, rest = (f"{x:.0f}" if abs(x) >= 999.5 else f"{x:.3g}").partition(".")
    return (f"{int(whole):,}".replace(",", " ") if whole.lstrip("-").isdigit() else whole) + dot + rest


def round_figure(x: float, basis: object) -> float:
    """Round a time or an energy to the digits of its basis (a Basis or its text): two if assumed, else three."""
    return x if basis is None else float(f"{x:.{2 if str(basis).startswith('assumed') else 3}g}")


def format_figure(x: float, unit: str, basis: object, tells_basis: bool = True) -> str:
    """Format a time, an energy or a power with its basis: `98.6 us (scaled; -35 % on PilotNet)`, or without telling it.

    From 1000 on, the next larger unit is used: 9809 "nJ per sample" are `9.81 uJ per sample`.
    """
    x = round_figure(x, basis)
    first, space, rest = unit.partition(" ")
    while abs(x) >= 999.5 and first in LARGER_UNITS:
        x, first = x / 1000, LARGER_UNITS[first]
    figure = f"{grouped(x)} {first}{space}{rest}"
    return figure if basis is None or not tells_basis else f"{figure} ({basis})"


def name_energy(static: float | None) -> str:
    """Name what an energy covers: without `static` power, the cores only."""
    return "energy of the cores" if static is None else "energy"


def data_frame(rows: list[dict] | dict, time_basis: object = None, energy_basis: object = None):
    """Build a pandas.DataFrame of rows {column: value}, or of columns; raise OptionError without pandas.

    `DataFrame.attrs` has the texts of the bases, if they are given.
    """
    try:
        import pandas
    except ImportError:
        raise OptionError(NO_PANDAS, code="NW1102") from None
    frame = pandas.DataFrame(rows)
    bases = {"time_basis": time_basis, "energy_basis": energy_basis}
    frame.attrs.update({name: str(basis) for name, basis in bases.items() if basis is not None})
    return frame


def _shorten_line(line: str) -> str:
    """Shorten a line that is too long; line breaks and escape sequences are shown as text."""
    line = escape_controls(line)
    return line if len(line) <= MOST_COLUMNS else f"{line[: MOST_COLUMNS - 3]}..."
