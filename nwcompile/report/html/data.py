"""Data: the part of report.json that report.js needs, compact: columns instead of rows, packed integers.

Packed integers are base 64 of bytes: seven bits per byte, lowest bits first; the last byte of a number is below 128.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable
from itertools import chain
from json import dumps

import numpy as np

from nwcompile.report.html.maps import HEAT
from nwcompile.report.html_markup import Markup, keep_names
from nwcompile.report.text import basis_text, bottleneck_text

CORE_COLUMNS = ("x", "y", "port", "in_axons", "out_axons", "synapse_bits", "note")
CORE_MEANS = ("synops_per_step", "busy_us_per_step", "energy_pj_per_sample")
MOST_BYTES = 2_000_000  # Bytes per run in a page; a larger page is slow to open and to send.
SPARE_BYTES = 200  # Step numbers in sentences have more digits if more steps are included.


def render_within_limit(page: Callable[[list[dict]], str], docs: list[dict]) -> str:
    """Render the page of these runs with as many first steps as fit into `MOST_BYTES` per run, at least one.

    Other content is never left out: from about 1,200 cores on, drawings alone take 2 MB.
    """
    least = page([first_steps(doc, 0) for doc in docs])
    room = MOST_BYTES - (len(least.encode()) + SPARE_BYTES) // len(docs)
    names = {name for doc in docs for name in doc["traffic"]["sources"]}
    return keep_names(page([first_steps(doc, room) for doc in docs]), names)


def first_steps(doc: dict, n_bytes: int) -> dict:
    """The report with its first step, and the following steps that fit into `n_bytes` of the page."""
    by_step = doc["by_step"]
    tables = [np.array(table) for table in (*by_step["cores"].values(), by_step["flits"]) if table]
    if not tables:
        return doc
    n_packed = np.zeros(by_step["n_steps"], np.int64)
    for table in tables:
        n_packed += table.shape[0] + sum((table >> bits > 0).sum(0) for bits in range(7, 63, 7))
    n = 1 + int(np.sum(np.cumsum(n_packed[1:]) * 4 / 3 <= n_bytes))
    if n >= by_step["n_steps"]:
        return doc
    last = doc["run"]["n_hardware_steps"] - 1
    left_out = (
        f"Steps {n} to {last} are left out: with them this page would be larger than {MOST_BYTES / 1e6:g} MB. "
        f"report.json has them to step {by_step['n_steps'] - 1}; nwcompile simulate -o OUT.npz writes them all."
    )
    cores = {name: [row[:n] for row in table] for name, table in by_step["cores"].items()}
    flits = [row[:n] for row in by_step["flits"]]
    return doc | {"by_step": by_step | {"n_steps": n, "cores": cores, "flits": flits, "left_out": left_out}}


def page_data(doc: dict) -> Markup:
    """The script element with the data of one report."""
    return embed_data(collect_data(doc))


def embed_data(data: dict) -> Markup:
    """The script element with these plain values, escaped so that no text can close the element."""
    text = dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json" class="data">{text}</script>')


def _short(figures: list[float | None]) -> list[float | None]:
    """Round figures to seven digits; the page shows three."""
    return [None if x is None else float(f"{x:.7g}") for x in figures]


def collect_data(doc: dict) -> dict:
    """The data of one report as plain values."""
    cores, traffic, by_step = doc["cores"], doc["traffic"], doc["by_step"]
    place = {name: i for i, name in enumerate(traffic["sources"])}
    columns: dict = {name: [core[name] for core in cores] for name in CORE_COLUMNS}
    columns |= {name: _short([core[name] for core in cores]) for name in CORE_MEANS}
    columns["layers"] = [[[place[name], n] for name, n in core["layers"].items()] for core in cores]
    steps, work = doc["steps"], doc["work"]
    if work is not None:
        work = work | {"cycles_per_step": {event: _short(cycles) for event, cycles in work["cycles_per_step"].items()}}
    return {
        "n_samples": doc["run"]["n_samples"], "n_steps": doc["run"]["n_hardware_steps"],
        "topology": doc["chip"]["topology"], "heat": HEAT, "sources": traffic["sources"], "cores": columns,
        "links": _pack_links(doc["links"]), "work": work, "floorline": doc["floorline"],
        "traffic": {name: pack_integers(_flatten_traffic(traffic[name])) for name in ("cores", "links")},
        "by_step": {"n_steps": by_step["n_steps"], "flits": pack_integers(chain.from_iterable(by_step["flits"])),
                    "cores": {name: pack_integers(chain.from_iterable(rows))
                              for name, rows in by_step["cores"].items()}},
        "step_us": steps["measured_us"] or steps["bound_us"],
        "time_basis": basis_text(doc, "us"), "energy_basis": basis_text(doc, "nJ"),
        "bounds": None if steps["bottleneck"] is None else [bottleneck_text(b) for b in steps["bottleneck"]],
    }  # fmt: skip


def _pack_links(rows: list[dict]) -> dict:
    """The columns of the links. `kind` is an index into `kinds`; `peak` is the peak of flits plus 1, 0 if unknown."""
    kinds = list(dict.fromkeys(link["kind"] for link in rows))
    place = {kind: i for i, kind in enumerate(kinds)}
    peaks = (link.get("peak_flits") for link in rows)
    return {
        "x": pack_integers(link["x"] for link in rows), "y": pack_integers(link["y"] for link in rows), "kinds": kinds,
        "kind": pack_integers(place[link["kind"]] for link in rows),
        "flits": _short([link["flits_per_step"] for link in rows]),
        "peak": pack_integers(0 if peak is None else peak + 1 for peak in peaks),
        "mean": _short([link.get("mean_flits") for link in rows]),
    }  # fmt: skip


def pack_integers(numbers: Iterable[int]) -> str:
    """Pack non-negative integers into a text."""
    data = bytearray()
    for n in numbers:
        while n > 127:
            data.append(128 | n & 127)
            n >>= 7
        data.append(n)
    return b64encode(data).decode()


def _flatten_traffic(listed: list[dict | None]) -> Iterable[int]:
    """Yield per item: the number of rows, `others` plus 1 (0: unknown), then the rows, with cores as number plus 1."""
    for item in listed:
        rows, others = ([], None) if item is None else (item["rows"], item["others"])
        yield len(rows)
        yield 0 if others is None else others + 1
        for source, home, to, n in rows:
            yield source
            yield 0 if home is None else home + 1
            yield 0 if to is None else to + 1
            yield n
