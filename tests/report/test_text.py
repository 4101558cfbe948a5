"""How figures are written, the verdict sentence word for word, and the terminal's tables."""

from dataclasses import replace

import pytest

from nwcompile.ir.activity import Activity
from nwcompile.ir.shown import grouped
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.report.text import (
    bottleneck_text,
    change_text,
    count_columns,
    fit_table,
    fold_table,
    format_verdict,
    layer_table,
    percent,
    profile_lines,
    stage_line,
    verdict_rows,
)
from tests.made.chips import small_chip
from tests.made.programs import chip_without, run_of, three_cores


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0, "0"),
        (9.2149, "9.21"),
        (92.149, "92.1"),
        (921.49, "921"),
        (999.6, "1 000"),
        (17904.4, "17 904"),
        (1 / 3, "0.333"),
    ],
)
def test_number_has_three_digits_or_is_whole(x, text):
    assert grouped(x) == text


def test_grouped_sets_thousands_apart():
    assert [grouped(x) for x in (999, 1000, 41210, 1234567.8, -4200, 0.5)] == [
        "999", "1 000", "41 210", "1 234 568", "-4 200", "0.5"
    ]  # fmt: skip


def test_percent_of_nothing_is_a_dash():
    assert [percent(x) for x in (62.54, None)] == ["62.5 %", "–"]


def test_verdict_of_a_measured_run():
    chip = small_chip(cost__barrier_cycles={"1": 10, "2": 20}, cost__synop_dense_cycles=40)
    program = three_cores(chip)
    doc = collect_report(program, run_of(program), {"float": 0.93, "chip": 0.925})
    # two samples: 2 x 20 + (5 x 16 + 5 + 15 x 40), then 2 x 20 + (12 x 16 + 12 + 24 x 40) and what the network adds
    assert run_of(program).step_cycles.tolist() == [725, 1204 + 108, 1204 + 108, 200]
    assert doc["verdict"] == (
        "fits small: 3 of 12 cores; 0.44 us per step (assumed), memory-bound; 6.4 nJ per sample (assumed), cores only; "
        "accuracy 93.0 % -> 92.5 %; advice: "
        "spread layer out over 2 cores instead of 1 (n_cores=4): about 1.5x shorter step"
    )


def test_verdict_without_measured_times_gives_the_bound():
    chip = small_chip(cost__barrier_cycles={"1": 10, "2": 20}, cost__synop_dense_cycles=40)
    program = three_cores(chip)
    doc = collect_report(program, run_of(program, "reference"), 0.9)
    assert ["bound by", "memory: out on core 2, receive; memory alone takes 76.5 % of the step"] in doc["verdict_rows"]
    assert doc["verdict"].startswith(
        "fits small: 3 of 12 cores; at least 0.42 us per step (assumed), memory-bound; 6.4 nJ per sample (assumed), "
        "cores only; accuracy 90.0 %; advice: "
    )


def test_verdict_leaves_out_what_the_chip_does_not_give():
    program = three_cores(chip_without("cost.word_cycles", "energy.hop_ew_pj"))
    assert collect_report(program, run_of(program))["verdict"] == "fits small: 3 of 12 cores"


def test_verdict_of_a_program_over_a_limit_says_that_it_does_not_fit():
    program = three_cores(small_chip(core__max_in_axons=5, cost__barrier_cycles={"1": 1000}))
    doc = collect_report(program, run_of(program))
    assert not doc["fits"]
    assert doc["verdict"].startswith("does not fit small: 3 of 12 cores; 1.1 us per step (assumed), barrier-bound; ")


def test_verdict_names_the_link_that_bounds_the_step():
    doc = collect_report(three_cores(), run_of(three_cores()))
    link = {"kind": "traffic", "core": None, "unit": None, "layer": None, "link": "(1, 0) E", "share_percent": 60.0}
    assert "), traffic-bound; " in format_verdict(doc | {"bottleneck": link})
    said = "traffic: link (1, 0) E; traffic alone takes 60.0 % of the step"
    assert ["bound by", said] in verdict_rows(doc | {"bottleneck": link})
    assert bottleneck_text(link | {"kind": "barrier", "link": None}) == "barrier-bound"


def test_what_the_barrier_costs_is_told_of_chips_that_could_do_without_it():
    doc = collect_report(three_cores(), run_of(three_cores()))
    free = three_cores(small_chip(cost__sync="neighbors"))
    other = collect_report(free, run_of(free))
    # the same two bounds, whichever of them is that of the chip
    assert doc["time"]["sync"] == other["time"]["sync"]
    assert doc["time"]["rows"]["bound"]["step_us"] == doc["time"]["sync"]["barrier_us"]
    assert other["time"]["rows"]["bound"]["step_us"] == doc["time"]["sync"]["neighbors_us"]
    assert other["time"]["barrier_percent"] == 0
    for keys in ({"noc__on_full": "drop"}, {"cost__barrier_cycles": None, "cost__sync": "neighbors"}):
        program = three_cores(small_chip(**keys))
        assert collect_report(program, run_of(program))["time"]["sync"] is None


def test_terminal_tells_where_the_cycles_went():
    program = three_cores()
    doc = collect_report(program, run_of(program, profile=True), model_dt=1e-3, wall_seconds=0.5)
    assert profile_lines(doc | {"energy": None}) == [
        "messages: 24; latency in cycles: p50 19, p90 44, p99 44, max 44",
        "send side of the cores: visits 1.4 %, updates 0.5 %, spikes 3.5 %, messages out 0.4 %, idle 6.5 %, "
        "barrier 87.7 %",
        "receive side of the cores: messages in 2.6 %, words 0.2 %, synops 1.6 %, idle 8.0 %, barrier 87.7 %",
        "most crowded links, mean (peak) flits waiting in a buffer of 8: (1, 0) port 0 eject 0.428 (2), "
        "(0, 0) E 0.0856 (2), (0, 0) port 1 inject 0.0321 (1), (0, 0) port 0 inject 0.0214 (1)",
        "critical path of the slowest step 1: out on core 2 ends after 204 cycles, waits for fc1 on core 0 over link "
        "(0, 0) E: 45 sending, 9 in the network, 150 receiving",
        "a second of model time (steps of 0.001 s) takes 0.0023 s (assumed) on the chip and 125 s to simulate",
    ]  # fmt: skip


def test_terminal_shows_verdict_fit_layers_and_warnings():
    program = three_cores(warnings=["fc1: neuron 3 never fires"])
    lines = render_text(collect_report(program, run_of(program))).splitlines()
    assert lines[0].startswith("fits small: 3 of 12 cores; ")
    assert lines[1:] == [
        "advice    run fewer steps per sample: the barrier is 90 % of each",
        "bound by  barrier; 89.8 % of the step",
        "basis     time: assumed (cost.barrier_cycles, cost.message_in_cycles, cost.spike_cycles and 1 more); energy "
        "of the cores: assumed (energy.synop_dense_pj, energy.visit_pj, energy.message_out_pj and 2 more)",
        "",
        "resource                            used         limit",
        "cores           all cores        3 cores         of 12  25.0 %",
        "neurons         core 0, worst  3 neurons         of 64   4.7 %",
        "                all cores      8 neurons        of 768   1.0 %",
        "fan-in axons    core 2, worst    6 axons        of 256   2.3 %",
        "                all cores       14 axons      of 3 072   0.5 %",
        "fan-out axons   core 0, worst    3 axons        of 256   1.2 %",
        "                all cores        6 axons      of 3 072   0.2 %",
        "synapse memory  core 2, worst   384 bits    of 131 072   0.3 %",
        "                all cores       896 bits  of 1 572 864   0.1 %",
        "",
        "       binding                          spikes    synops  share of",
        "layer  resource       neurons  cores  per step  per step      time",
        "fc1    neurons 4.7 %        6      2         6        15     1.6 %",
        "out    neurons 3.1 %        2      1         2        12     8.5 %",
        "",
        "energy per synop: 120 pJ (assumed), cores only",
        "power of the cores: mean 1.4 mW, peak 2.2 mW (assumed)",
        "",
        "NeuroBench",
        "footprint                 45 bytes",
        "connection sparsity          0.0 %",
        "activation sparsity          0.0 %",
        "dense synops         72 operations",
        "effective MACs        0 operations",
        "effective ACs        54 operations",
        "membrane updates                 –",
        "",
        "a mean step takes 1.1 us or more with a barrier, and 0.13 us (-89 %) if cores wait for their neighbors only "
        '(cost.sync = "neighbors", with its tokens)',
        "warning: fc1: neuron 3 never fires",
    ]


def test_terminal_says_why_times_and_energies_are_missing():
    program = three_cores(chip_without("cost.spike_cycles", "energy.visit_pj"))
    assert render_text(collect_report(program, run_of(program))).splitlines()[-3:] == [
        "",
        "no times: the chip file of small lacks figures that they need",
        "no energies of events: the chip file of small lacks figures that they need",
    ]


def test_one_of_a_thing_is_not_many():
    doc = collect_report(three_cores(), run_of(three_cores()))
    doc["fit"][0].update(used=1, total_used=1)
    assert "  1 core  " in fit_table(doc)[1]


def test_layers_of_a_chip_without_costs_or_limits_have_dashes():
    chip = chip_without("cost.word_cycles", "core.max_in_axons", "core.max_out_axons", "core.synapse_bits")
    rows = layer_table(collect_report(three_cores(chip), run_of(three_cores(chip))))
    assert rows[2].split() == ["fc1", "neurons", "4.7", "%", "6", "2", "6", "15", "–"]


def test_stage_line_shows_size_seconds_and_what_improved():
    figure = change_text("hops/step", 41210, 17904)
    assert stage_line(4, 6, "place", "132 cores", 1.8, figure) == (
        "[4/6] place  132 cores  1.8 s  hops/step 41 210 -> 17 904"
    )
    assert stage_line(1, 6, "normalize", "3 layers", 0.04) == "[1/6] normalize  3 layers  0.0 s"


def test_prediction_of_a_quiet_network_is_reported():
    program = three_cores()
    silent = Activity({n: run_of(program).activity.counts[n] * 0 for n in program.network.offsets}, 2)
    run = run_of(program, "reference")
    quiet = type(run)("prediction", "none", "aligned", 2, {}, {}, None, {k: v * 0 for k, v in run.counters.items()},
                      activity=silent)  # fmt: skip
    assert collect_report(program, quiet)["verdict"].startswith(
        "fits small: 3 of 12 cores; at least 1 us per step (assumed), barrier-bound; 0 nJ per sample (assumed), "
        "cores only; "
    )


def test_verdict_of_a_board_says_how_many_of_its_chips_are_used():
    program = three_cores(small_chip(noc__chip_columns=1, noc__chip_hop_cycles=9))
    doc = collect_report(program, run_of(program))
    assert (doc["chip"]["n_chips"], doc["chip"]["n_chips_used"]) == (3, 2)
    assert doc["verdict"].split(";")[0] == "fits small: 3 of 12 cores on 2 of 3 chips"


def test_verdict_is_four_lines_of_a_terminal_whatever_the_names():
    chip = small_chip(cost__barrier_cycles={"1": 10, "2": 20}, cost__synop_dense_cycles=40)
    chip = replace(chip, name="chip" * 30)
    program = three_cores(chip, hidden="layer" * 60)
    doc = collect_report(program, run_of(program), {"float": 0.93, "chip": 0.925})
    assert doc["verdict"].startswith("fits chipchipchipchipchipchi…: 3 of 12 cores; ") and len(doc["verdict"]) <= 320
    advice = "train layer " + "layer" * 60 + " to half its spikes: about 1.5x shorter step"
    assert "advice: " not in format_verdict(doc | {"advice": {"text": advice}})
    assert ["advice", advice] in verdict_rows(doc | {"advice": {"text": advice}})


def test_a_table_that_is_too_wide_has_high_headings_and_then_several_parts():
    rows = [("layer", "mean of spikes", "beyond the limit"), ("a", "1" * 20, "2" * 40)]
    assert fold_table(rows, [False, True, True]) == [
        f"layer  {'mean of spikes':>20}  {'beyond the limit':>40}",
        f"a      {'1' * 20}  {'2' * 40}",
    ]
    wide = [(*rows[0], "of the step", "a sentence"), (*rows[1], "3", "word " * 12 + "end")]
    lines = fold_table(wide, [False, True, True, True, False])
    assert [" ".join(line.split()) for line in lines[:3]] == ["of", "the", "layer mean of spikes beyond the limit step"]
    assert max(map(len, lines[:4])) <= 80 and lines[4:] == ["", "layer  a sentence", "a      " + "word " * 12 + "end"]


def test_long_names_take_several_lines_before_a_table_takes_more_parts():
    head = ("layer", "binding resource", "neurons", "cores", "spikes per step", "synops per step", "share of time")
    cells = ("synapse memory 93.5 %", "65 536", "128", "12 345", "1 234 567", "60.1 %")
    names = ("backbone.stages.0.blocks.2.attention.projection.neuron", "y" * 70)
    lines = fold_table([head, *((name, *cells) for name in names)], [False, False] + [True] * 5)
    parts = "\n".join(lines).split("\n\n")
    assert len(parts) == 2 and max(map(len, lines)) <= 80
    assert parts[0].splitlines()[3:] == [
        "backbone.stages.0.blocks.2.     synapse memory 93.5 %   65 536    128  12 345",
        "  attention.projection.neuron",
        f"{'y' * 28}    synapse memory 93.5 %   65 536    128  12 345",
        f"  {'y' * 28}",
        f"  {'y' * 14}",
    ]
    assert fold_table([("layer", "n"), (names[1], "1")], [False, True])[1] == f"{names[1]}  1"


def test_wide_characters_take_two_columns():
    assert [count_columns(text) for text in ("abc", "隠れ層", "ﾊﾝｶｸ", "e\u0301")] == [3, 6, 4, 1]
    rows = [("layer", "n", "note"), ("隠れ層", "12", "x"), ("e\u0301", "3", "數")]
    assert fold_table(rows, [False, True, False]) == ["layer    n  note", "隠れ層  12  x", "e\u0301        3  數"]
