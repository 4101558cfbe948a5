"""Every error a person can meet: one sentence that says what, where, used/limit and what to do, and a code.

A code like NW4001 names the kind of cause, is the same in all releases and has a page, `docs/errors/NW4001.md`, which
`nwcompile explain NW4001` prints. A file of the package says the code of the errors that it raises in its `ERROR_CODE`;
without one, the `__init__` of its folder does, or else the class. An error of another kind in a file says
`code="NW4003"` where it is raised.
"""

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Self

PACKAGE = Path(__file__).resolve().parent
ERROR_PAGES = PACKAGE / "error_pages" if (PACKAGE / "error_pages").is_dir() else PACKAGE.parent / "docs" / "errors"
MOST_LISTED = 40  # A sentence lists so many choices; of more of them N_NEAREST.
N_NEAREST = 5


@cache
def error_titles() -> dict[str, str]:
    """Read what is wrong, in one line, for every code: the index of the pages."""
    lines = (ERROR_PAGES / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (.*) \|$", lines, re.MULTILINE))


def printable(text: str) -> str:
    """The text in one line: characters that a terminal would obey instead of show are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value, write: Callable = repr) -> str:
    """`write(value)`; where it holds a whole number of more digits than Python writes, its type and that."""
    try:
        return write(value)
    except ValueError:
        return f"<{type(value).__name__} of more than {sys.get_int_max_str_digits()} digits>"


class NwError(Exception):
    """Base of all errors of nwcompile; `exit_code` is what the command line returns for it."""

    exit_code = 2
    class_code = "NW1000"  # where neither `code` nor an ERROR_CODE says another

    _code: str | None = None

    def __init__(self, *lines: str, code: str | None = None):
        super().__init__("\n".join(map(printable, lines)))
        if code is not None:
            self._code = code

    def __reduce__(self):
        """Copy and pickle the error as it is: its sentence is finished, and no class has to make it again."""
        known = {} if self.__traceback__ is None else {"_code": self.code}  # A copy has no traceback.
        return BaseException.__new__, (type(self), *self.args), {**vars(self), **known}

    @property
    def code(self) -> str:
        """A code like NW4001 that stays the same, of its kind of cause: `nwcompile explain NW4001` tells more."""
        return self._code or _code_of_file(self.__traceback__) or self.class_code

    def ending(self, text: str) -> Self:
        """This error, its sentence with more at its end; where it was raised, and so its code, stays."""
        self.args = (f"{self}{printable(text)}",)
        return self


def _code_of_file(traceback: TracebackType | None) -> str | None:
    """Return ERROR_CODE of the last file of this package in the traceback, or of the nearest folder that has one."""
    name = ""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        name = module if module.startswith("nwcompile.") else name
        traceback = traceback.tb_next
    while name and "ERROR_CODE" not in vars(sys.modules[name]):
        name = name.rpartition(".")[0]
    return vars(sys.modules[name])["ERROR_CODE"] if name else None


class ModelError(NwError, ValueError):
    """The network, or data given to it, cannot be used as it is."""

    class_code = "NW2000"


class ChipError(NwError, ValueError):
    """The chip file, or an override of one of its keys, is wrong."""

    class_code = "NW4001"


class OptionError(NwError, ValueError):
    """An option or the name of a method is unknown or out of range."""

    class_code = "NW1101"


class BackendError(NwError, RuntimeError):
    """A backend or device is missing, or does not cover what was asked."""

    class_code = "NW6101"


class ArtifactError(NwError):
    """A file cannot be written, or cannot be proved whole when read."""

    class_code = "NW7002"


class NotEnoughMemoryError(NwError, MemoryError):
    """The work needs more memory than this process may take."""

    _code = "NW1009"  # wherever it is raised, as of the next two


class NwWarning(UserWarning):
    """Something was assumed, or a file contradicts what was said about it; the sentence says what was used."""


MOST_OF_A_KIND = 5  # Of places that break one limit alike, five are listed, and how many more there are.


def first_places(places: Sequence[str], kind: str) -> list[str]:
    """List the first places and, if there are more, their number: `3 more cores`."""
    n_more = len(places) - MOST_OF_A_KIND
    return list(places[:MOST_OF_A_KIND]) + ([f"{n_more} more {kind}{'s' if n_more > 1 else ''}"] if n_more > 0 else [])


@dataclass(frozen=True)
class Violation:
    """One limit of the chip that a mapped network exceeds: `what  where  used of limit  advice`."""

    what: str
    where: str
    used: int | float | str
    limit: int | float | str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}  {self.where}  {self.used} of {self.limit}  {self.advice}"


class FitError(NwError):
    """The network does not fit the chip; `violations` lists every limit that is exceeded.

    `change`: the smallest changes of which each alone makes it fit, where some are known; `elsewhere`: which shipped
    chips and boards take it as it is.
    """

    exit_code = 1
    _code = "NW5001"

    def __init__(
        self,
        chip_name: str,
        violations: Iterable[Violation],
        change: str | None = None,
        elsewhere: str | None = None,
    ):
        self.chip_name, self.violations = chip_name, tuple(violations)
        self.change, self.elsewhere = change, elsewhere
        count = len(self.violations)
        head = f"{count} limit{'s' if count != 1 else ''} exceeded on {chip_name}"
        last = [] if change is None else [f"it fits with {change}"]
        last += [] if elsewhere is None else [elsewhere]
        super().__init__(head, *(f"  {v}" for v in self.violations), *last)


class LossError(NwError):
    """The network fits the chip, but what was approximated costs more than `Options.max_loss` accepts."""

    exit_code = 1
    _code = "NW5002"


def nearest_first(word: str, choices: Iterable[str]) -> list[str]:
    """The choices, the one spelled most like `word` first."""
    choices = sorted(choices)
    best = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return best + [c for c in choices if c not in best]


def unknown_choice(kind: str, word: object, choices: Iterable[str]) -> str:
    """Text for a name that is not one of `choices`: these are listed, nearest spelling first; of many, the nearest."""
    name, choices = shown(word, str), list(choices)
    listed, more = nearest_first(name, choices), ""
    if len(choices) > MOST_LISTED:
        listed = sorted(sorted(choices), key=lambda c: -difflib.SequenceMatcher(None, c, name).ratio())[:N_NEAREST]
        more = f" or {len(choices) - N_NEAREST} others"
    return f"unknown {kind} {name!r}; choose one of: {', '.join(listed)}{more}"


def whole(name: str, value, least: int, largest: int | None = None) -> int:
    """`value` as an int, if it is a whole number from `least` to `largest` (None: no limit), else OptionError."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if isinstance(value, bool) or number is None or not least <= number <= (inf if largest is None else largest):
        to = "on" if largest is None else f"to {largest}"
        raise OptionError(f"{name}={shown(value)} must be a whole number from {least} {to}")
    return number
