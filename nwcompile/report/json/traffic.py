"""Traffic: the senders of every core and the traffic of every link, as plain values for report.json."""

import numpy as np

from nwcompile.cost.summary import Summary
from nwcompile.cost.traffic.core_traffic import OUTSIDE, largest_into, largest_over
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

MOST_SENDERS = 8  # Senders listed per core; the others are summed up.
MOST_CROSSING = 4  # Senders listed per link; the others are summed up.
MOST_ROUTED = 200_000  # Rows followed along their routes, those with most flits; more would take seconds.


def collect_traffic(program: Program, run: Run, summary: Summary) -> dict:
    """Integer sums over steps and samples: by core, the incoming messages; by link between routers, the flits.

    Lists are in the order of `cores` and `links` of report.json. A row is [source, from, to, messages or flits]:
    `source` is an index into `sources` (layers and inputs); `from` and `to` are cores, null for an input line or an io
    site. `others` is the sum of messages or flits over all rows that are left out; null for a link whose messages are
    trees, which share flits, or were dropped on the way. The links of the cores' own ports have no rows, as their
    traffic is that of the core.
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
