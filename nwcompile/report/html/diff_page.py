"""Diff page: two runs side by side, with a common color scale and a common slider over the steps."""

from nwcompile.report.diff import diff_verdict, figure_rows, layer_rows
from nwcompile.report.html.data import page_data, render_within_limit
from nwcompile.report.html.maps import core_heat
from nwcompile.report.html.page import (
    DETAIL,
    card,
    card_row,
    cores_card,
    floorline_card,
    links_card,
    page_title,
    run_title,
    step_bar,
    steps_card,
    whole_page,
)
from nwcompile.report.html_markup import Markup, tag
from nwcompile.report.html_tables import html_table
from nwcompile.report.text import headline

SIDES = ("before", "after")
ABOUT = {
    "predicted": "Figures of the first program's calibration on both mappings; the time is the floorline's bound.",
    "measured": "Figures of both programs, simulated by the cycle backend on the same samples.",
}


def render_diff(doc: dict, reports: dict[str, dict]) -> str:
    """Render the page of a comparison, from `doc` of report/diff.py and both reports by program name."""
    names = list(reports) if len(reports) > 1 else list(reports) * 2
    docs = [reports[name] for name in names]
    chips = dict.fromkeys(report["chip"]["name"] for report in docs)
    title = run_title(docs[0], " and ".join(chips))
    header = tag("header", page_title(f"{title}; {doc['source']}"), tag("p", diff_verdict(doc), class_="verdict"),
                 class_=None if doc["ok"] else "bad")  # fmt: skip
    hottest = [_hottest_value(docs, lambda report: [core[core_heat(docs[0])[0]] for core in report["cores"]]),
               _hottest_value(docs, lambda report: [link["flits_per_step"] for link in report["links"]])]  # fmt: skip
    if core_heat(docs[0]) != core_heat(docs[1]):  # One of the chips has no times.
        hottest[0] = None
    timed = [report for report in docs if report["time"]]
    drawn = [
        _draw_side(side, name, report, hottest, timed) for side, name, report in zip(SIDES, names, docs, strict=True)
    ]
    figures, layers = (_render_table(rows) for rows in (figure_rows(doc), layer_rows(doc)))
    tables = card_row(card("half", "Figures", ABOUT[doc["source"]], figures), card("half", "Layers", None, layers))

    def page(docs: list[dict]) -> str:
        sides = [tag("div", *marks, page_data(report), class_="run column", data_name=side)
                 for side, marks, report in zip(SIDES, drawn, docs, strict=True)]  # fmt: skip
        main = tag("main", header, tables, step_bar(docs), card_row(*sides))
        return whole_page(f"{title}: report of nwcompile", main)

    return render_within_limit(page, docs)


def _hottest_value(docs: list[dict], values) -> float | None:
    return max((value or 0.0 for doc in docs for value in values(doc)), default=None)


def _draw_side(side: str, name: str, doc: dict, hottest: list[float | None], timed: list[dict]) -> list[Markup]:
    """Draw a run; the plots of all `timed` runs have the same axes."""
    rows = [cell for word, said in doc["verdict_rows"] for cell in (tag("dt", word), tag("dd", said))]
    head = card("", f"{side}: {name}", None, tag("p", headline(doc)), tag("dl", *rows))
    plots = [floorline_card(doc, timed), steps_card(doc, timed)] if doc["time"] else []
    return [head, cores_card(doc, hottest[0]), links_card(doc, hottest[1]), DETAIL, *plots]


def _render_table(rows: list[tuple[str, ...]]) -> Markup:
    head, *lines = rows
    columns = [
        (heading, "name" if i == 0 else "left" if heading == "basis" else "right") for i, heading in enumerate(head)
    ]
    return html_table(columns, [list(line) for line in lines])
