"""Markup: HTML and SVG elements with everything escaped."""

from html import escape

VOID = ("meta", "input")


class Markup(str):
    """Text that is markup already; any other string is escaped when it is put into an element."""


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """`<element attributes>children</element>`. `class_`, `stroke_width` give `class`, `stroke-width`; no None."""
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{element}{''.join(pairs)}>"
    return Markup(opening if element in VOID else f"{opening}{join(children)}</{element}>")


def join(children) -> Markup:
    """Children one after the other, strings that are no Markup escaped, None left out."""
    return Markup(
        "".join(c if isinstance(c, Markup) else escape(_text(c), quote=False) for c in children if c is not None)
    )


def _text(value: object) -> str:
    """Coordinates with at most one decimal; the file stays small."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)
