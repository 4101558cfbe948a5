"""Messages that a chip dropped, as plain values for report.json: how many, where, and on their way to where."""

import numpy as np

from nwcompile.cost.time.work import link_name
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.text import dropped_text

MOST_PLACES = 5


def collect_dropped(program: Program, run: Run) -> dict | None:
    """Means per sample; `at` and `to` are the places with most of them. None for a run on a chip that drops none."""
    if run.dropped is None:
        return None
    chip, counters = program.chip, run.counters
    n_sites = len(chip.io_cores)
    names = [f"core {core}" for core in range(program.mapping.n_cores)]
    names += [f"site {text}" for text in chip.io.sites or ()]
    physical = np.concatenate([chip.site_index(program.mapping.site_of), chip.io_cores])
    inject = len(chip.link_cycles) - 2 * chip.n_cores + physical
    at, to = (a.sum(0) for a in (run.dropped.at, run.dropped.to))
    sent = sum(int(counters[name].sum()) for name in ("messages_out", "messages_io")) + int(
        at[len(at) - n_sites :].sum()
    )
    rows = {"at": [{"place": names[i], "link": link_name(chip, int(inject[i]))} for i in _most(at)],
            "to": [{"place": names[i]} for i in _most(to)]}  # fmt: skip
    for key, amount in (("at", at), ("to", to)):
        for row, i in zip(rows[key], _most(amount), strict=True):
            row["messages_per_sample"] = int(amount[i]) / run.n_samples
    doc = {"messages_per_sample": run.n_dropped / run.n_samples, "percent": 100 * run.n_dropped / max(sent, 1), **rows}
    return {**doc, "text": dropped_text(doc)}


def _most(amount: np.ndarray) -> list[int]:
    """The places with most messages, the most first, without those that have none."""
    order = np.argsort(-amount, kind="stable")[:MOST_PLACES]
    return order[amount[order] > 0].tolist()
