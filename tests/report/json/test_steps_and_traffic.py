"""What report.json says of every step, of who sends to whom, and of what crosses links."""

import json

import pytest

from nwcompile.cost.energy import predict
from nwcompile.report import format_json
from nwcompile.report.html.data import collect_data, pack_integers
from nwcompile.report.json import collect, traffic
from nwcompile.report.json.collect import collect_report
from nwcompile.sim import simulate
from tests.made.chips import small_chip
from tests.made.programs import chip_without, run_of, spikes_in, spread, three_cores


def test_steps_of_a_run_add_up_to_its_means():
    doc = collect_report(three_cores(), run_of(three_cores()))
    steps, n = doc["by_step"], doc["run"]["n_samples"] * doc["run"]["n_hardware_steps"]
    assert steps["n_steps"] == 4 and steps["left_out"] is steps["missing"] is None
    assert steps["cores"] == {
        "busy_cycles": [[145, 270, 270, 36], [145, 270, 270, 36], [24, 300, 300, 160]],
        "synops": [[15, 15, 0, 0], [15, 15, 0, 0], [0, 24, 24, 0]],
        "spikes_out": [[0, 6, 6, 0], [0, 6, 6, 0], [0, 0, 4, 4]],
        "messages_in": [[5, 5, 0, 0], [5, 5, 0, 0], [0, 12, 12, 0]],
    }
    assert [sum(row) / n for row in steps["flits"]] == [link["flits_per_step"] for link in doc["links"]]
    assert [sum(row) / n for row in steps["cores"]["synops"]] == [core["synops_per_step"] for core in doc["cores"]]


def test_traffic_names_who_sends_and_what_crosses():
    doc = collect_report(three_cores(), run_of(three_cores()))
    sent = {"rows": [[1, 0, 2, 12], [1, 1, 2, 12]], "others": 0}
    assert doc["traffic"] == {
        "sources": ["in", "fc1", "out"],
        "cores": [{"rows": [[0, None, 0, 10]], "others": 0}, {"rows": [[0, None, 1, 10]], "others": 0}, sent],
        "links": [sent, None, None, None],
    }


def test_what_is_not_listed_is_summed_up(monkeypatch):
    monkeypatch.setattr(traffic, "MOST_SENDERS", 1)
    monkeypatch.setattr(traffic, "MOST_CROSSING", 1)
    doc = collect_report(three_cores(), run_of(three_cores()))["traffic"]
    assert doc["cores"][2] == doc["links"][0] == {"rows": [[1, 0, 2, 12]], "others": 12}


def test_trees_share_flits_so_what_is_left_out_is_not_known():
    run = simulate(spread(noc__multicast="tree"), None, "cycle", steps=2, window="hardware")
    assert {
        item["others"] for item in collect_report(spread(noc__multicast="tree"), run)["traffic"]["links"] if item
    } == {None}


def test_steps_that_are_too_many_are_left_out_and_it_is_said(monkeypatch):
    monkeypatch.setattr(collect, "MOST_VALUES", 2 * (3 * 4 + 4))
    steps = collect_report(three_cores(), run_of(three_cores()))["by_step"]
    assert steps["n_steps"] == 2 and len(steps["flits"][0]) == len(steps["cores"]["synops"][2]) == 2
    assert steps["left_out"] == (
        "Steps 2 to 3 are left out: 16 values per step are many; nwcompile simulate -o OUT.npz writes them all."
    )


def test_without_steps_that_differ_the_report_says_how_to_get_them():
    assert collect_report(three_cores(), predict(three_cores()))["by_step"]["missing"] == (
        "Every step is alike in this prediction, as without calibration samples. "
        "nwcompile report PROGRAM.nwc --input SAMPLES.npz -o DIR shows every step."
    )
    assert (
        collect_report(three_cores(calibrated=True), predict(three_cores(calibrated=True)))["by_step"]["n_steps"] == 4
    )
    run = simulate(three_cores(), spikes_in(1), "cycle", window="hardware")
    assert collect_report(three_cores(), run)["by_step"] == {
        "n_steps": 0, "cores": {}, "flits": [], "left_out": None,
        "missing": "The run has one hardware step; simulate more of them to see how they differ.",
    }  # fmt: skip


def test_a_chip_without_costs_has_steps_without_times():
    program = three_cores(chip_without("cost.word_cycles"))
    doc = collect_report(program, run_of(program))
    assert doc["work"] is None and list(doc["by_step"]["cores"]) == ["synops", "spikes_out", "messages_in"]


def test_work_is_what_the_floorline_counts():
    doc = collect_report(three_cores(small_chip()), run_of(three_cores(small_chip())))
    spent = {unit: sum(doc["work"]["cycles_per_step"][e][2] for e in events)
             for unit, events in doc["work"]["units"].items()}  # fmt: skip
    assert max(spent.values()) * doc["work"]["cycle_us"] == pytest.approx(doc["cores"][2]["busy_us_per_step"])


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([0, 127], "AH8="), ([128, 300], "gAGsAg=="), ([2**40], "gICAgIAg")]
)
def test_packed_numbers_are_seven_bits_a_byte(numbers, text):
    assert pack_integers(numbers) == text


def test_data_of_the_page_is_small_and_plain():
    data = collect_data(collect_report(three_cores(), run_of(three_cores())))
    assert json.loads(json.dumps(data, allow_nan=False))["cores"]["layers"] == [[[1, 3]], [[1, 3]], [[2, 2]]]
    assert data["traffic"]["links"] == pack_integers([2, 1, 1, 1, 3, 12, 1, 2, 3, 12, 0, 0, 0, 0, 0, 0])


def test_json_file_has_a_line_for_each_list_of_numbers():
    doc = {"steps": [[1, 2.5e-7], [None]], "text": "[\n1,\n2]", "rows": [{"n": 1}], "none": []}
    text = format_json(doc).decode()
    assert json.loads(text) == doc
    assert '"steps": [\n  [1, 2.5e-07],\n  [null]\n ]' in text
