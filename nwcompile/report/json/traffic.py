"""Traffic as plain values for report.json: senders of every core, use of every link, trees, dropped messages."""

import numpy as np

from nwcompile.cost.summary import Summary
from nwcompile.cost.time.work import link_name
from nwcompile.cost.traffic.core_traffic import OUTSIDE, largest_into, largest_over
from nwcompile.ir.chip import Chip
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import grouped
from nwcompile.report.text import dropped_text

MOST_SENDERS = 8  # Senders listed per core; the others are summed up.
MOST_CROSSING = 4  # Senders listed per link; the others are summed up.
MOST_ROUTED = 200_000  # Rows followed along their routes, those with most flits; more would take seconds.
MOST_PLACES = 5  # Places listed, those with most dropped messages.
WORDS = {"unicast": "single messages", "tree": "trees"}


def collect_traffic(program: Program, run: Run, summary: Summary) -> dict:
    """Integer sums over steps and samples: by core, the incoming messages; by link between routers, the flits.

    Lists are in the order of `cores` and `links` of report.json. A row is [source, from, to, messages or flits]:
    `source` is an index into `sources` (layers and inputs); `from` and `to` are cores, null for an input line or an io
    site. `others` is the sum of messages or flits over all rows that are left out. It is null for a link if messages
    were dropped on the way, or share flits in trees. The cores' own ports have no rows: their traffic is that of the
    core.
    """
    rows, chip = summary.traffic, program.chip
    table = np.stack([rows.source, rows.home, rows.to], 1)
    sent = np.zeros(program.mapping.n_cores, np.int64)
    inside = rows.to != OUTSIDE
    np.add.at(sent, rows.to[inside], rows.messages[inside])
    offset, largest = largest_into(rows, program.mapping.n_cores, MOST_SENDERS)
    cores = [_list_rows(table, rows.messages, largest[i:j], sent[core]) for core, (i, j) in enumerate(_spans(offset))]
    is_exact = chip.noc.multicast == "unicast" and not run.n_dropped
    offset, largest = largest_over(program, rows, MOST_CROSSING, MOST_ROUTED)
    carried, spans = summary.step_flits.sum(0), _spans(offset)
    n_mesh = len(chip.link_cycles) - 2 * chip.n_cores
    links = []
    for link in np.flatnonzero(summary.link_flits).tolist():
        i, j = spans[link]
        crossing = _list_rows(table, rows.flits, largest[i:j], carried[link] if is_exact else None)
        links.append(crossing if link < n_mesh else None)
    return {"sources": list(program.network.offsets), "cores": cores, "links": links}


def _spans(offset: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(offset[:-1].tolist(), offset[1:].tolist(), strict=True))


def _list_rows(table: np.ndarray, amount: np.ndarray, rows: np.ndarray, total) -> dict:
    listed = [
        [source, None if home == OUTSIDE else home, None if to == OUTSIDE else to, n]
        for (source, home, to), n in zip(table[rows].tolist(), amount[rows].tolist(), strict=True)
    ]
    return {"rows": listed, "others": None if total is None else int(total - amount[rows].sum())}


def collect_multicast(chip: Chip, summary: Summary) -> dict | None:
    """Traffic of a sample as unicast and as trees; None if messages cannot fork, or if both are equal."""
    rows = {}
    for kind, sent in summary.sending.items():
        rows[kind] = {"messages_per_sample": sent.messages, "hops_per_sample": sent.hops,
                      "hottest_link_flits": sent.hottest}  # fmt: skip
    if "tree" not in rows or rows["unicast"] == rows["tree"]:
        return None
    kind_used = chip.noc.multicast
    other = "tree" if kind_used == "unicast" else "unicast"
    return {"sent_as": kind_used, **rows, "text": f"sent as {_words(kind_used, rows)}; as {_words(other, rows)}"}


def _words(kind: str, rows: dict) -> str:
    row = rows[kind]
    hottest = f"at most {row['hottest_link_flits']:.3g} flits over a link in a step"
    return (
        f"{WORDS[kind]}: {grouped(row['messages_per_sample'])} messages and {grouped(row['hops_per_sample'])} hops per "
        f"sample, {hottest}"
    )


def collect_dropped(program: Program, run: Run) -> dict | None:
    """Dropped messages per sample, and the places `at` and `to` with most of them; None if the chip drops none."""
    if run.dropped is None:
        return None
    chip, counters = program.chip, run.counters
    n_sites = len(chip.io_cores)
    names = [f"core {core}" for core in range(program.mapping.n_cores)]
    names += [f"site {text}" for text in chip.io.sites or ()]
    physical = np.concatenate([chip.site_index(program.mapping.site_of), chip.io_cores])
    inject = len(chip.link_cycles) - 2 * chip.n_cores + physical
    at, to = (a.sum(0) for a in (run.dropped.at, run.dropped.to))
    sent = sum(int(counters[name].sum()) for name in ("messages_out", "messages_io"))
    sent += int(at[len(at) - n_sites :].sum())  # of input lines
    rows: dict[str, list[dict]]
    rows = {"at": [{"place": names[i], "link": link_name(chip, int(inject[i]))} for i in _busiest_places(at)],
            "to": [{"place": names[i]} for i in _busiest_places(to)]}  # fmt: skip
    for key, amount in (("at", at), ("to", to)):
        for row, i in zip(rows[key], _busiest_places(amount), strict=True):
            row["messages_per_sample"] = int(amount[i]) / run.n_samples
    doc = {"messages_per_sample": run.n_dropped / run.n_samples, "percent": 100 * run.n_dropped / max(sent, 1), **rows}
    cause = {"cause": chip.family.loses_late} if chip.family.loses_late else {}
    return {**doc, "text": dropped_text(doc, **cause)}


def _busiest_places(amount: np.ndarray) -> list[int]:
    """The places with most messages in descending order, without places that have none."""
    order = np.argsort(-amount, kind="stable")[:MOST_PLACES]
    return order[amount[order] > 0].tolist()
