"""What reports say of a segmented bus: figures that can be counted, lines, a card, a drawing; nothing on a mesh."""

import json

import numpy as np
import pytest

from nwcompile import cli
from nwcompile.families.segmented_bus.cost import bus_use
from nwcompile.families.segmented_bus.report import collect
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.sim import simulate
from tests.made.buses import FREE, bus_chip, busy_program, pairs_program
from tests.made.chips import small_chip


def crossing():
    """Three messages in step 1 whose paths all cross segment 2-3, on 2 lanes: two go in slot 0, one in slot 1."""
    program = pairs_program(bus_chip(**FREE), [((0, 0), (3, 0)), ((1, 0), (4, 0)), ((2, 0), (5, 0))])
    return program, simulate(program, np.ones((2, 1, 1), np.int8), "cycle", profile=True)


def test_bus_use_of_crossing_messages_is_counted_by_hand():
    use = bus_use(*crossing())
    assert use.slots.tolist() == [0, 2, 0] and use.conflicts.tolist() == [0, 1, 0]
    assert use.least_slots.tolist() == [0, 3 / 2, 0]  # 6 messages of two samples over 2 lanes are 3 slots
    assert (use.transfers, use.waited_part, use.conflict_part) == (1.0, 1 / 3, 1 / 3)
    assert (use.lanes_mean, use.lanes_peak, use.queue_peak) == (1.5, 2, 1)
    assert use.segment_transfers.tolist() == pytest.approx([1 / 3, 2 / 3, 1, 2 / 3, 1 / 3])
    assert use.segment_use.tolist() == pytest.approx([1 / 4, 2 / 4, 3 / 4, 2 / 4, 1 / 4])
    assert use.schedule_us == pytest.approx(2 / 3 * 15 / 1000)
    assert use.schedule_part == pytest.approx(30 / 3030)


def test_bus_text_says_how_long_the_schedule_is_and_why():
    assert collect(*crossing())["text"] == [
        "bus: 0.667 slots of 15 ns per step (longest 2), 1.0 % of the time; at least 0.5 by segment 2-3; lanes in use "
        "1.5 of 2, at most 2",
        "transfers: 1 per step, 33.3 % waited for a slot, 33.3 % because paths crossed; busiest segment 2-3, in use "
        "75.0 %; at most 1 of 8 places of a core's queue taken",
    ]


def test_report_of_a_bus_has_its_lines_card_and_segments():
    doc = collect_report(*crossing())
    assert json.loads(json.dumps(doc))["bus"]["steps"]["slots"] == [0, 2, 0]
    assert all(line in render_text(doc) for line in doc["bus"]["text"])
    page = render_html(doc)
    assert "squares: the busiest of a position's switches and core ports" in page
    assert "<title>position (2, 0)\n" in page and "router (" not in page
    assert "<h2>Bus</h2>" in page and "segment 2-3: 1 transfers per step" in page and "Mean transfers per step" in page
    assert doc["chip"]["topology"] == "segmented_bus"
    assert doc["bottleneck"]["kind"] == "barrier"


def test_report_of_a_mesh_has_no_bus():
    run = simulate(busy_program(small_chip()), np.ones((1, 3, 12), np.int8), "cycle")
    doc = collect_report(busy_program(small_chip()), run)
    assert doc["bus"] is None and "<h2>Bus</h2>" not in render_html(doc)


def test_bus_use_of_totals_has_the_same_means():
    program = busy_program(bus_chip())
    x = np.random.default_rng(1).integers(0, 2, (2, 9, 12))
    whole, totals = (bus_use(program, simulate(program, x, "cycle", record=kind)) for kind in ("spikes", "totals"))
    assert totals.slots.tolist() == pytest.approx([whole.slots.mean()])
    assert totals.least_slots[0] <= whole.least_slots.mean()
    for name in ("transfers", "waited_part", "lanes_mean", "lanes_peak", "schedule_us", "schedule_part", "least_by"):
        assert getattr(totals, name) == pytest.approx(getattr(whole, name)), name


def test_cli_simulate_and_noc_tell_of_the_bus(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, run = crossing()
    program.save("net.nwc")
    np.savez("data.npz", x=np.ones((2, 1, 1), np.int8))
    assert cli.main(["simulate", "net.nwc", "--input", "data.npz", "--json", "-o", "out.npz"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bus"] == json.loads(json.dumps(collect(program, run)))
    with np.load("out.npz") as arrays:
        assert arrays["bus/slots"].tolist() == run.bus.slots.tolist()
    assert cli.main(["simulate", "net.nwc", "--input", "data.npz"]) == 0
    assert "\nbus: 0.667 slots of 15 ns per step" in capsys.readouterr().out
    assert (
        cli.main(
            ["noc", "--chip", "ladderbus", "--traffic", "uniform", "--load", "0.005", "--cycles", "8000", "--json"]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["stable"]
