"""Errors for users: one sentence that says what, where, used/limit and what to do, and a code.

A code like NW4001 names the kind of cause and stays the same in all releases. `nwcompile explain NW4001` prints its
page, `docs/errors/NW4001.md`. The code of an error comes from `code="NW4003"` at the raise, else from `ERROR_CODE` in
the file that raises it or in the `__init__` of its folder, else from the class.
"""

import difflib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import inf
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Self

PACKAGE = Path(__file__).resolve().parent
ERROR_PAGES = PACKAGE / "error_pages" if (PACKAGE / "error_pages").is_dir() else PACKAGE.parent / "docs" / "errors"
MOST_LISTED = 40  # Choices listed in a sentence; if there are more, only the N_NEAREST are listed.
N_NEAREST = 5


@cache
def error_titles() -> dict[str, str]:
    """Read the one-line title of every code from the index of the pages."""
    lines = (ERROR_PAGES / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (.*) \|$", lines, re.MULTILINE))


def escape_controls(text: str) -> str:
    """Escape control characters and line breaks, so that a terminal shows the text in one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value, write: Callable = repr) -> str:
    """Return `write(value)`, or a placeholder for integers with more digits than Python converts to text."""
    try:
        return write(value)
    except ValueError:
        return f"<{type(value).__name__} of more than {sys.get_int_max_str_digits()} digits>"


class NwError(Exception):
    """Base of all errors of nwcompile. `exit_code` is the exit code of the command line."""

    exit_code = 2
    class_code = "NW1000"  # if neither `code` nor an ERROR_CODE is given

    _code: str | None = None

    def __init__(self, *lines: str, code: str | None = None):
        super().__init__("\n".join(map(escape_controls, lines)))
        if code is not None:
            self._code = code

    def __reduce__(self):
        """Copy and pickle the finished sentence, without calling the `__init__` of the class again."""
        known = {} if self.__traceback__ is None else {"_code": self.code}  # A copy has no traceback.
        return BaseException.__new__, (type(self), *self.args), {**vars(self), **known}

    @property
    def code(self) -> str:
        """The code of its kind of cause, like NW4001, stable over releases. `nwcompile explain NW4001` explains it."""
        return self._code or _code_of_file(self.__traceback__) or self.class_code

    def ending(self, text: str) -> Self:
        """Append `text` to the sentence and return this error. Its traceback, and so its code, stays."""
        self.args = (f"{self}{escape_controls(text)}",)
        return self

    def starting(self, text: str) -> Self:
        """Put `text` before the sentence, unless it begins so, and return this error. Its traceback and code stay."""
        start = escape_controls(text)
        self.args = (f"{start}{str(self).removeprefix(start)}",)
        return self


def _code_of_file(traceback: TracebackType | None) -> str | None:
    """ERROR_CODE of the last file of this package in the traceback, or of the nearest folder that has one."""
    name = ""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        name = module if module.startswith("nwcompile.") else name
        traceback = traceback.tb_next
    while name and "ERROR_CODE" not in vars(sys.modules[name]):
        name = name.rpartition(".")[0]
    return vars(sys.modules[name])["ERROR_CODE"] if name else None


class ModelError(NwError, ValueError):
    """The network, or the data for it, cannot be used."""

    class_code = "NW2000"


class ChipError(NwError, ValueError):
    """The chip file, or an override of one of its keys, is wrong."""

    class_code = "NW4001"


class OptionError(NwError, ValueError):
    """An option or the name of a method is unknown or out of range."""

    class_code = "NW1101"


class BackendError(NwError, RuntimeError):
    """A backend or device is missing, or does not support the request."""

    class_code = "NW6101"


class ArtifactError(NwError):
    """A file cannot be written, or is found damaged when read."""

    class_code = "NW7002"


class NotEnoughMemoryError(NwError, MemoryError):
    """The work needs more memory than this process may use."""

    _code = "NW1009"  # fixed, wherever it is raised, like the codes of FitError and LossError


class NwWarning(UserWarning):
    """Something was assumed, or a file contradicts an option; the sentence says which value was used."""


MOST_OF_A_KIND = 5  # Places listed that exceed the same limit; the others are counted.


def warn_user(message: str) -> None:
    """Warn with NwWarning at the innermost line that is not of this package, whatever functions lie between."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, NwWarning, stacklevel=level)


def first_places(places: Sequence[str], kind: str) -> list[str]:
    """List the first places and, if there are more, their number: `3 more cores`."""
    n_more = len(places) - MOST_OF_A_KIND
    return list(places[:MOST_OF_A_KIND]) + ([f"{n_more} more {kind}{'s' if n_more > 1 else ''}"] if n_more > 0 else [])


@dataclass(frozen=True)
class Violation:
    """A limit of the chip that a network exceeds, `what  where  used of limit  advice`, or a rule that it breaks.

    A `limit` that is text is a rule: `what  where  must be limit, is used  advice`. `unit` follows both numbers.
    """

    what: str
    where: str
    used: int | float | str
    limit: int | float | str
    advice: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.what}  {self.where}  {self.relation}  {self.advice}"

    @property
    def relation(self) -> str:
        """The use and its limit, or the broken rule: `18 of 8`, `must be 24, is 32`."""
        used, limit = (f"{n:.4g}" if isinstance(n, float) else n for n in (self.used, self.limit))
        if isinstance(self.limit, str):
            return f"must be {limit}, is {used}"
        return f"{used}{self.unit} of {limit}{self.unit}"


class FitError(NwError):
    """The network does not fit the chip. `violations` lists every limit that is exceeded.

    `change`: the smallest changes, each of which alone makes it fit, if any is known. `elsewhere`: the shipped chips
    and boards that the unchanged network fits.
    """

    exit_code = 1
    _code = "NW5001"

    def __init__(
        self, chip_name: str, violations: Iterable[Violation], change: str | None = None, elsewhere: str | None = None
    ):
        self.chip_name, self.violations = chip_name, tuple(dict.fromkeys(violations))  # each once
        self.change, self.elsewhere = change, elsewhere
        count = len(self.violations)
        head = f"{count} limit{'s' if count != 1 else ''} exceeded on {chip_name}"
        last = [] if change is None else [f"it fits with {change}"]
        last += [] if elsewhere is None else [elsewhere]
        super().__init__(head, *(f"  {v}" for v in self.violations), *last)


class LossError(NwError):
    """The network fits the chip, but its approximations cost more than `Options.max_loss`."""

    exit_code = 1
    _code = "NW5002"


def require_torch(what: str) -> None:
    """Raise BackendError if PyTorch, which `what` needs, is not installed."""
    if find_spec("torch") is None:
        raise BackendError(
            f"{what} needs PyTorch, which is not installed: pip install 'nwcompile[torch]'", code="NW6107"
        )


def one_line(e: BaseException) -> str:
    """Format an exception of another library as one line: type and message."""
    text = " ".join(str(e).split())
    return f"{type(e).__name__}: {text}" if text else type(e).__name__


def nearest_first(word: str, choices: Iterable[str]) -> list[str]:
    """Sort the choices, with the one spelled most like `word` first."""
    choices = sorted(choices)
    best = max(choices, key=lambda choice: (_compare_spelling(word, choice), choice), default="")
    if _compare_spelling(word, best) < 0.5:
        return choices
    return [best, *(c for c in choices if c != best)]


def _compare_spelling(word: str, choice: str) -> float:
    """Return how alike two names are, from 0 to 1; less if `word` is the misspelled beginning of `choice`."""
    whole, beginning = (difflib.SequenceMatcher(None, part, word).ratio() for part in (choice, choice[: len(word)]))
    return max(whole, 0.9 * beginning)


def unknown_choice(kind: str, word: object, choices: Iterable[str]) -> str:
    """Message for a name that is not one of `choices`. It lists them, or the most similar ones if there are many."""
    name, choices = shown(word, str), list(choices)
    listed, more = nearest_first(name, choices), ""
    if len(choices) > MOST_LISTED:
        listed = sorted(sorted(choices), key=lambda choice: -_compare_spelling(name, choice))[:N_NEAREST]
        more = f" or {len(choices) - N_NEAREST} others"
    return f"unknown {kind} {name!r}; choose one of: {', '.join(listed)}{more}"


def check_int(name: str, value, least: int, largest: int | None = None) -> int:
    """Return `value` as an int. Raises OptionError unless it is an integer in `least`..`largest` (None: no limit)."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if isinstance(value, bool) or number is None or not least <= number <= (inf if largest is None else largest):
        to = "on" if largest is None else f"to {largest}"
        raise OptionError(f"{name}={shown(value)} must be a whole number from {least} {to}")
    return number
