"""Legalization in the report: one row for each change that the chip needed with its price, and the total price."""

from nwcompile.ir.manifest import APPROXIMATE
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.text import align_rows, percent, price_text

HEADINGS = ("layer", "network has", "chip has", "rewrite", "label", "price")
ABOUT = (
    "Rewrites of the network for the chip. “Exact”: spike for spike equal to the same integers on an ideal chip with "
    "every neuron feature. “Approximate”: the nearest neuron that the chip has, refitted; its price is the difference "
    "from that ideal run on held-out samples. “Host”: computed by the CPU. These prices do not include quantization, "
    "whose error is in the table below."
)


def legalization_lines(doc: dict) -> list[str]:
    """Lines for the terminal: the table, and the total price; empty if nothing was changed."""
    rows = [_change_row(change) for change in doc["legalization"]]
    return [*align_rows([HEADINGS, *rows], n_left=len(HEADINGS)), *_total_lines(doc)] if rows else []


def legalization_table(doc: dict) -> Markup:
    """Render the changes and their total price for the page."""
    columns = [(heading, "name" if i == 0 else "left") for i, heading in enumerate(HEADINGS)]
    rows: list[list[object]] = []
    for change in doc["legalization"]:
        *cells, label, price = _change_row(change)
        kind = "wrong" if label == APPROXIMATE else "good"
        rows.append([*cells, tag("b", label, class_=kind), price or None])
    return join([html_table(columns, rows), *(tag("p", text) for text in _total_lines(doc))])


def _total_lines(doc: dict) -> list[str]:
    price = doc["price"]
    if price is None:
        return []
    return [f"all approximations together: {price_text(price)}"]


def _change_row(change: dict) -> tuple[str, ...]:
    cells = tuple(change[name] for name in ("layer", "was", "has", "how", "label"))
    return (*cells, _format_price(change.get("price")))


def _format_price(price: dict | None) -> str:
    """Format a price: `rate 0.104 → 0.103 (-0.5 %), 45.7 % of its spikes changed`; other figures by name."""
    if not price:
        return ""
    known = dict(price)
    parts = []
    if {"rate_ideal", "rate_chip"} <= set(known):
        before, after = known.pop("rate_ideal"), known.pop("rate_chip")
        change = known.pop("rate_change_percent", None)
        parts.append(f"rate {before:.3f} → {after:.3f}" + ("" if change is None else f" ({change:+.1f} %)"))
    if "spikes_changed_percent" in known:
        parts.append(f"{percent(known.pop('spikes_changed_percent'))} of its spikes changed")
    return ", ".join([*parts, *(f"{name.replace('_', ' ')} {value:.3g}" for name, value in known.items())])
