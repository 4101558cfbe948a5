"""Presentation of values: a `repr` of at most ten lines, a head and a row per part; DataFrames."""

from collections.abc import Sequence

from nwcompile.errors import OptionError, escape_controls

MOST_LINES = 10  # Larger networks show their first parts only.
MOST_COLUMNS = 120  # Width of a wide terminal, and of this package's code.

NO_PANDAS = (
    "a DataFrame needs pandas, which is not installed: pip install 'nwcompile[frames]' (the same tables stand in "
    "report.json, as lists of rows)"
)


def format_lines(head: str, rows: Sequence[str], what: str) -> str:
    """Join the head and the rows that fit; the last line counts the other `what`."""
    room = MOST_LINES - 1
    shown = list(rows)
    if len(rows) > room:
        shown = shown[: room - 1] + [f"... and {len(rows) - room + 1} more {what}"]
    return "\n".join([_shorten_line(head), *(_shorten_line(f"  {row}") for row in shown)])


def count_text(n: int, noun: str) -> str:
    """Return a count with its noun: `1 core`, `17 cores`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def data_frame(rows: list[dict] | dict):
    """Build a pandas.DataFrame of rows {column: value}, or of columns; raise OptionError without pandas."""
    try:
        import pandas
    except ImportError:
        raise OptionError(NO_PANDAS, code="NW1102") from None
    return pandas.DataFrame(rows)


def _shorten_line(line: str) -> str:
    """Shorten a line that is too long; line breaks and escape sequences are shown as text."""
    line = escape_controls(line)
    return line if len(line) <= MOST_COLUMNS else f"{line[: MOST_COLUMNS - 3]}..."
