"""Shown: how a noun presents itself: in at most ten lines, a head and a row for each of its parts; as a DataFrame."""

from collections.abc import Sequence

from nwcompile.errors import OptionError, printable

MOST_LINES = 10  # What stands on a screen beside the next question; larger networks show their first parts only.
MOST_COLUMNS = 120  # A line of a terminal that is wide, and of this package's own code.

NO_PANDAS = (
    "a DataFrame needs pandas, which is not installed: pip install 'nwcompile[frames]' (the same tables stand in "
    "report.json, as lists of rows)"
)


def format_lines(head: str, rows: Sequence[str], what: str) -> str:
    """The head and as many rows as fit; the last line says how many more of `what` there are."""
    room = MOST_LINES - 1
    shown = list(rows)
    if len(rows) > room:
        shown = shown[: room - 1] + [f"... and {len(rows) - room + 1} more {what}"]
    return "\n".join([_shorten_line(head), *(_shorten_line(f"  {row}") for row in shown)])


def count_text(n: int, noun: str) -> str:
    """`1 core`, `17 cores`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def data_frame(rows: list[dict] | dict):
    """The pandas.DataFrame of rows {column: value}, or of columns. Raises OptionError where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise OptionError(NO_PANDAS, code="NW1102") from None
    return pandas.DataFrame(rows)


def _shorten_line(line: str) -> str:
    """The line with its last characters left out if it is too long; a line break or an escape is shown, not obeyed."""
    line = printable(line)
    return line if len(line) <= MOST_COLUMNS else f"{line[: MOST_COLUMNS - 3]}..."
