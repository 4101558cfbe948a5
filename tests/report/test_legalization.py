"""What was rewritten for a chip, in verdict, terminal and page."""

import json

import pytest

from nwcompile.cost.energy import predict
from nwcompile.flow import compile
from nwcompile.ir.options import Options
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.legalization import legalization_lines
from nwcompile.report.terminal import render_text
from nwcompile.report.text import price_text
from tests.made.leaky_net import LEAKY, ONE_CORE, leaky_net, leaky_samples


def test_report_has_a_row_for_each_change_and_says_approximate_in_the_verdict():
    options = Options(approximate="all", **ONE_CORE)
    program = compile(leaky_net(), "loihi1", leaky_samples(10), options, labels=[0, 1] * 5)
    doc = json.loads(json.dumps(collect_report(program, predict(program)), allow_nan=False))
    whole = price_text(program.manifest["price"])
    assert "; approximate in 3 layers; advice: " in doc["verdict"] and "accuracy " in whole
    named = ", ".join(dict.fromkeys(row["layer"] for row in doc["legalization"] if row["label"] == "approximate"))
    assert ["approximate", f"{named}: {whole}"] in doc["verdict_rows"]
    head, *rows, last = legalization_lines(doc)
    assert head.split() == ["layer", "network", "has", "chip", "has"]
    was, met, price = (row for row in rows if row.startswith("l1 "))
    assert was == "l1     reset subtract, one step late  reset zero, at once" and met.startswith("l1     threshold x ")
    assert price.startswith("l1     approximate  rate 0.") and price.endswith("of its spikes changed")
    assert len(rows) == 3 * 3 + 2 * 2
    assert last == f"all approximations together: {whole}" and last.endswith(" (2 samples held out)")
    assert "\n".join([head, *rows, last]) in render_text(doc)
    page = render_html(doc)
    assert "<h2>Legalization</h2>" in page and page.count('<b class="wrong">approximate</b>') == 3
    assert whole.replace("->", "-&gt;") in page.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("n_samples", "text"),
    [(1, "1 of 1 answers changed (1 sample held out)"), (9, "9 of 9 answers changed (9 samples held out)"),
     (20, "100.0 % of the answers changed (20 samples held out)")],
)  # fmt: skip
def test_answers_of_few_samples_are_counted(n_samples, text):
    price = {"n_samples": n_samples, "spikes_changed_percent": 5.0, "output_changed_percent": 100.0}
    assert price_text(price | {"accuracy_chip": None}) == f"5.0 % of the spikes and {text}"


def test_report_of_an_exact_change_is_not_called_approximate():
    spec = LEAKY.replace(reset="zero")
    program = compile(leaky_net(spec), "loihi1", leaky_samples(2), Options(**ONE_CORE))
    doc = collect_report(program, predict(program))
    assert [row["label"] for row in doc["legalization"]] == ["exact"] * 3 and doc["price"] is None
    assert "approximate" not in doc["verdict"] and "exact" in render_text(doc)


def test_report_of_a_network_that_is_as_it_was_has_no_such_table():
    spec = LEAKY.replace(reset="zero", reset_timing="now")
    program = compile(leaky_net(spec), "loihi1", leaky_samples(2), Options(**ONE_CORE))
    doc = collect_report(program, predict(program))
    assert legalization_lines(doc) == [] and "Legalization" not in render_html(doc)
