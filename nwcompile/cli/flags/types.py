"""Types of flags: words from a list, numbers, and settings KEY=VALUE; errors list the choices."""

import argparse
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nwcompile.errors import unknown_choice

ERROR_CODE = "NW1001"


@dataclass(frozen=True, eq=False)  # argparse hashes types, and `words` may be a list
class OneOf:
    """The type of a flag that accepts one of some words, which `completion` reads. `hint` ends the error."""

    kind: str
    words: Sequence[str]
    hint: str = ""

    def __call__(self, word: str) -> str:
        if word not in self.words:
            raise argparse.ArgumentTypeError(unknown_choice(self.kind, word, self.words) + self.hint)
        return word


class OneOrFunction(OneOf):
    """The type of a flag that accepts one of some words, or `package.module:function`."""

    def __call__(self, word: str) -> str:
        is_function = ":" in word and all(part.isidentifier() for part in word.replace(":", ".", 1).split("."))
        return word if is_function else super().__call__(word)


class InAnyCase(OneOf):
    """The type of a flag that accepts one of some words, in lower or upper case."""

    def __call__(self, word: str) -> str:
        by_lower = {known.lower(): known for known in self.words}
        return super().__call__(by_lower.get(word.strip().lower(), word))


class SomeOf(OneOf):
    """The type of a flag that accepts one or several of some words, separated by commas."""

    def __call__(self, text: str) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(super(SomeOf, self).__call__(word.strip()) for word in text.split(","))


def to_int(text: str) -> int:
    try:
        return int(float(text)) if text.lower().count("e") == 1 and float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def to_stagger(text: str) -> int | str:
    try:
        return "auto" if text == "auto" else to_int(text)
    except argparse.ArgumentTypeError as e:
        raise argparse.ArgumentTypeError(f"{e}; or give auto") from None


def to_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def to_numbers(number: Callable[[str], float], text: str) -> list[float]:
    return [number(word) for word in text.split(",")]


def read_fixed_sites(text: str) -> tuple[str, list]:
    """Parse `LAYER=X,Y,PORT`; sites of several cores are separated by +."""
    layer, _, sites = text.rpartition("=")
    try:
        return layer, [tuple(int(n) for n in site.split(",")) for site in sites.split("+")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected LAYER=X,Y,PORT, got {text!r}") from None


def read_setting(text: str) -> tuple[str, object]:
    """Parse `KEY=VALUE`: the value is read as TOML, `none` is None, and anything else is a string."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    if value.lower() == "none":
        return key, None
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
