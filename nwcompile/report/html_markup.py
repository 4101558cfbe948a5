"""Markup: build HTML and SVG elements with all text escaped, and no-break spaces between a number and its unit."""

from collections.abc import Iterable
from html import escape

from nwcompile.ir.shown import IN_A_NUMBER

VOID = ("meta", "input")


class Markup(str):
    """A string that is markup already; any other string is escaped when it is put into an element."""


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """Build `<element attributes>children</element>`: `class_` is `class`, `a_b` is `a-b`, None is left out."""
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{element}{''.join(pairs)}>"
    return Markup(opening if element in VOID else f"{opening}{join(children)}</{element}>")


def join(children) -> Markup:
    """Concatenate children; strings other than Markup are escaped, None is left out."""
    return Markup("".join(c if isinstance(c, Markup) else _escape_text(c) for c in children if c is not None))


def keep_names(page: str, names: Iterable[str]) -> str:
    """Print names unchanged, also those like `12 us`, in which a space looks like that before a unit."""
    for name in names:
        page = page.replace(_escape_text(name), escape(name, quote=False))
    return page


def _escape_text(value: object) -> str:
    return escape(IN_A_NUMBER.sub("\u00a0", _value_text(value)), quote=False)


def _value_text(value: object) -> str:
    """Format a value; floats get at most one decimal, to keep the file small."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)
