"""Diff: compare two mappings of one network as JSON values, as text, and as a verdict for a gate."""

from dataclasses import asdict

from nwcompile.cost.compare import NAMES, Figures, Moved, change_percent
from nwcompile.ir.shown import grouped, round_figure
from nwcompile.report.json.collect import collect_basis
from nwcompile.report.text import align_rows

WORDS = {"cores": "cores", "messages_per_step": "messages per step", "hops_per_step": "hops per step",
         "hottest_link_cycles": "hottest link, cycles per step", "step_us": "step time, us",
         "sample_nj": "energy per sample, nJ"}  # fmt: skip
TITLES = {name: words.partition(",")[0] for name, words in WORDS.items()}  # without units
BASIS_OF = {"step_us": "time_basis", "sample_nj": "energy_basis"}  # for figures that are not counts
GATE = ("cores", "hops_per_step", "step_us", "sample_nj")


def collect_diff(
    before: Figures, after: Figures, layers: tuple[Moved, ...], source: str, gate: tuple[str, ...], tolerance: float
) -> dict:
    """The content of diff.json: figures, their change, the layers, and the figures of `gate` that are worse.

    A figure is worse if it is larger by more than `tolerance` percent, or no longer known. `source`: predicted or
    measured.
    """
    change = change_percent(before, after)
    worse = [
        name
        for name in gate
        if getattr(before, name) is not None and ((more := change[name]) is None or more > tolerance)
    ]
    return {
        "source": source, "before": _figures_doc(before), "after": _figures_doc(after), "change_percent": change,
        "layers": [asdict(row) for row in layers], "gate": list(gate), "tolerance_percent": tolerance,
        "worse": worse, "ok": not worse,
    }  # fmt: skip


def _figures_doc(figures: Figures) -> dict:
    """The figures as plain values, and the bases of time and energy."""
    bases = {name: collect_basis(getattr(figures, name)) for name in BASIS_OF.values()}
    return {**asdict(figures), **bases}


def diff_text(doc: dict) -> str:
    """Format a comparison for the terminal: verdict, figures, layers."""
    rows = figure_rows(doc)
    figures = align_rows([row[:-1] for row in rows], n_left=1)
    bases = [f"basis of {name.partition(',')[0]}: {basis}" for name, *_, basis in rows[1:] if basis]
    blocks = [[diff_verdict(doc)], [*figures, *bases], align_rows(layer_rows(doc), n_left=1)]
    return "\n\n".join("\n".join(block) for block in blocks)


def diff_verdict(doc: dict) -> str:
    """List the figures of the gate that are worse, and by how much, or those that are not worse."""
    change = {name: doc["change_percent"][name] for name in doc["gate"]}
    if not doc["worse"]:
        verdict = "better" if change and all((by or 0) < 0 for by in change.values()) else "no worse"
        return f"{verdict}: " + ", ".join(f"{TITLES[name]} {_change_text(by)}" for name, by in change.items())
    named = ", ".join(f"{TITLES[name]} {_format_worse(doc, name)}" for name in doc["worse"])
    beyond = f" by more than {doc['tolerance_percent']:g} %" if doc["tolerance_percent"] else ""
    better = ", ".join(f"{TITLES[name]} {_change_text(by)}" for name, by in change.items() if (by or 0) < 0)
    return f"worse{beyond}: {named}" + (f"; better: {better}" if better else "")


def figure_rows(doc: dict) -> list[tuple[str, ...]]:
    """The headings and one row per figure."""
    rows: list[tuple[str, ...]] = [(f"{doc['source']}", "before", "after", "change", "basis")]
    for name in NAMES:
        bases = [_basis_text(doc[side], name) for side in ("before", "after")]
        values = (_value_text(doc[side][name], basis) for side, basis in zip(("before", "after"), bases, strict=True))
        known = " -> ".join(dict.fromkeys(basis for basis in bases if basis is not None))
        words = WORDS[name].replace("energy", doc["after"]["energy_label"])
        rows.append((words, *values, _change_text(doc["change_percent"][name]), known))
    return rows


def _basis_text(figures: dict, name: str) -> str | None:
    basis = figures[BASIS_OF[name]] if name in BASIS_OF else None
    return None if basis is None else basis["text"]


def _value_text(value: float | None, basis: str | None) -> str:
    return "–" if value is None else grouped(round_figure(value, basis))


def layer_rows(doc: dict) -> list[tuple[str, ...]]:
    """The headings and one row per layer."""
    rows: list[tuple[str, ...]] = [("layer", "neurons", "cores before", "after", "neurons moved")]
    for r in doc["layers"]:
        counts = (grouped(r[key]) for key in ("n_neurons", "cores_before", "cores_after", "n_moved"))
        rows.append((r["layer"], *counts))
    return rows


def _format_worse(doc: dict, name: str) -> str:
    """Format by how much a figure is worse; a growth from 0 is shown as both values."""
    after, change = doc["after"][name], doc["change_percent"][name]
    if after is None:
        return "no longer known"
    return _change_text(change) if change is not None else f"{grouped(doc['before'][name])} -> {grouped(after)}"


def _change_text(percent: float | None) -> str:
    """Format a change in percent, above +100 % as a factor, `x8.0`; below 0.05 % it has one significant digit."""
    if percent is None:
        return "–"
    if percent > 100:
        return f"x{1 + percent / 100:.1f}"
    return f"{percent:+.1f} %" if percent == 0 or abs(percent) >= 0.05 else f"{percent:+.1g} %"
