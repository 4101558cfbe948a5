"""Terminal: print text for people, wrapped at 80 columns."""

import re
import sys
from collections.abc import Callable, Iterable
from textwrap import fill
from typing import TextIO

from nwcompile.ir.shown import WIDTH, wrap_lines

UNWRAPPED = re.compile(r"(\n*^```.*?^```\n*|\n*^[|-][^\n]*\n*|\n{2,})", re.DOTALL | re.MULTILINE)  # parts of a page


def print_text(
    text: str, stream: TextIO | None = None, wrap: Callable[[Iterable[str]], Iterable[str]] = wrap_lines
) -> None:
    """Print a text on `stream` (default: stdout), its lines wrapped.

    On stderr they are wrapped on a terminal only, so that a script finds a refusal or warning in one line.
    """
    lines: Iterable[str] = text.split("\n")
    is_one_line = stream is not None and stream is sys.stderr and not stream.isatty()
    print(*(lines if is_one_line else wrap(lines)), sep="\n", file=stream, flush=True)


def wrap_page(lines: Iterable[str]) -> list[str]:
    """Wrap the paragraphs of a Markdown page; code blocks, tables and lists stay unchanged."""
    parts = UNWRAPPED.split("\n".join(lines))
    for i in range(0, len(parts), 2):
        parts[i] = fill(parts[i], WIDTH, break_long_words=False, break_on_hyphens=False)
    return ["".join(parts)]
