"""One network on many chips: the figures are those of compiling for each, and nothing is guessed."""

import json
from dataclasses import replace
from threading import Barrier, current_thread, main_thread

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.cost.tool_counts import ADD_PJ, MULTIPLY_PJ
from nwcompile.errors import ChipError, ModelError, NotEnoughMemoryError, OptionError
from nwcompile.ir.shown import grouped
from nwcompile.memory import Room
from nwcompile.report.json.collect import collect_report
from nwcompile.workbench.estimate import DEFAULTS, NO_SOURCE, ROUTERS_ONLY, _load_chips
from nwcompile.workbench.figures import collect_figures
from tests.interrupts import PATIENCE_S
from tests.made.nets import integers, two_layer_net, two_layer_samples

FEW = nw.Options(optimize="cores")


def test_estimate_of_a_chip_is_what_its_report_predicts():
    made = nw.estimate(two_layer_net(), ["loihi1", "loihi2"], two_layer_samples(), FEW)
    assert [row.chip for row in made.chips] == ["loihi1", "loihi2"]
    row = made.chips[0]
    program = nw.compile(two_layer_net(), "loihi1", two_layer_samples(), FEW)
    doc = collect_report(program, predict(program))
    assert (row.n_cores, row.of_cores, row.label, row.fits) == (1, 128, "exact", True)
    assert row.step_us == doc["time"]["step_us"] and row.sample_us == pytest.approx(doc["time"]["sample_us"])
    assert row.sample_nj == doc["energy"]["sample_nj"] and row.bound == doc["bottleneck"]["kind"]
    assert row.power_mw == pytest.approx(row.sample_nj * 1e-9 / (row.sample_us * 1e-6) * 1e3)
    assert made.chips[1].sample_nj is None and NO_SOURCE in repr(made).splitlines()[2]  # loihi2.toml gives no energy


def test_estimate_tells_the_basis_of_each_chip_and_its_error_against_silicon():
    made = nw.estimate(two_layer_net(), ["loihi1", "tiny", "h1v1"], two_layer_samples(), FEW)
    run = predict(nw.compile(two_layer_net(), "loihi1", two_layer_samples(), FEW))
    loihi1, tiny, _ = made.chips
    assert (loihi1.time_basis, loihi1.energy_basis) == (str(run.time_basis), str(run.energy_basis))
    assert (tiny.time_basis, tiny.energy_basis) == ("assumed", "assumed") and loihi1.time_basis.startswith("fitted; ")
    lines = repr(made).splitlines()
    energy = grouped(float(f"{loihi1.sample_nj:.3g}"))
    assert lines[1].split()[-4:] == [energy, f"{loihi1.power_mw:.3g}", "fitted", loihi1.bound]
    assert (
        f"{tiny.step_us:.2g}" in lines[2].split() and "nJ (per sample) and mW (mean) are of the cores only" in lines[3]
    )
    assert f"loihi1 against silicon: time {run.time_basis.error}, energy {run.energy_basis.error}" in made.bases
    assert "<p>loihi1 against silicon: time " in made._repr_html_()
    assert made.to_frame()["time_basis"].tolist()[:2] == [loihi1.time_basis, "assumed"]


def test_figures_of_a_run_are_those_of_its_report():
    program = nw.compile(two_layer_net(), "loihi1", two_layer_samples(), FEW)
    run = nw.simulate(program, two_layer_samples(), "cycle")
    doc, found = collect_report(program, run), collect_figures(program, run)
    assert doc["time"]["source"] == "measured" and found["bound"] == doc["bottleneck"]["kind"]
    assert (found["step_us"], found["sample_us"], found["sample_nj"], found["power_mw"]) == pytest.approx(
        (doc["time"]["step_us"], doc["time"]["sample_us"], doc["energy"]["sample_nj"], doc["energy"]["mean_mw"])
    )


def test_estimate_counts_the_operations_of_spikes_and_of_numbers():
    x = two_layer_samples()
    o = nw.estimate(two_layer_net(), "loihi1", x, FEW).operations
    hidden = nw.simulate(two_layer_net(), x).spikes["hidden"]
    first, last = (np.count_nonzero(c.weight, axis=0) for c in two_layer_net().connections)
    by_hand = (x.sum((0, 1)) @ first + hidden[:, :-1].sum((0, 1)) @ last + hidden[:, -1].sum(0) @ last) / len(x)
    assert o.acs == pytest.approx(by_hand) and o.macs == 0 and o.synops == o.acs
    assert o.ann_macs == 20 * 12 + 12 * 5 and o.counts[-1].energy_nj == o.ann_macs * (ADD_PJ + MULTIPLY_PJ) / 1000
    assert o.energy_nj == pytest.approx(o.acs * 0.9 / 1000)
    real = nw.estimate(two_layer_net(), "loihi2", x * 0.5, FEW).operations
    assert real.macs == pytest.approx(x.sum((0, 1)) @ first / len(x))  # the input's numbers; spikes stay ACs
    for count, given in zip(real.counts, (real, real.syops), strict=False):
        assert (count.acs, count.macs) == (given.acs, given.macs)
        assert count.energy_nj == pytest.approx((0.9 * given.acs + 4.6 * given.macs) / 1000)
    assert [count.tool for count in real.counts][2:] == ["spikingjelly 2.0.0", "ANN twin, one step"]


def test_estimate_of_a_network_in_integers_says_which_tools_do_not_count_it():
    fixed = nw.compile(two_layer_net(), "loihi1", two_layer_samples(), FEW).network
    made = nw.estimate(fixed, "loihi1", two_layer_samples().astype(int), FEW)
    assert [count.tool for count in made.counts] == ["neurobench 2.3.0", "ANN twin, one step"]
    assert "syops and SpikingJelly count layers of torch, not networks in integers" in repr(made)


def test_estimate_without_samples_says_that_a_model_of_real_values_gets_spikes():
    for is_real in (True, False):
        made = nw.estimate(replace(two_layer_net(), real_example=is_real), ["tiny"])
        real = ", and the figures are for spikes, though the model's example has real values" if is_real else ""
        assert made.lines == [f"operations are not counted without samples{real}; give --input (x=)"]


def test_estimate_says_that_the_operations_of_a_maximum_of_currents_are_not_counted():
    kernel = integers((3, 1, 3, 3), 0, -3, 5).astype(np.float32) / 4
    edges = [nw.Conv2d("in", "0", kernel, padding=1), nw.MaxPool2d("0", "out", 2)]
    spec = nw.NeuronSpec(threshold=1.0, beta=0.75)
    net = nw.Network.from_arrays({"0": (None, (3, 4, 4)), "out": (spec, (3, 2, 2))}, edges, {"in": (1, 4, 4)})
    made = nw.estimate(net, "loihi2", (np.random.default_rng(3).random((4, 9, 1, 4, 4)) < 0.3).astype(np.float32), FEW)
    assert made.chips[0].fits and made.counts == ()
    note = "operations are not counted: connection '0' -> 'out': the operations of a MaxPool2d are not counted"
    assert made.lines == [note]


def test_estimate_maps_coarsely_unless_told_otherwise(monkeypatch):
    asked = []

    def compiled(network, chip, x, options):
        asked.append(options.partitioner)
        return nw.compile(network, chip, x, options)

    monkeypatch.setattr("nwcompile.workbench.estimate.compile", compiled)
    nw.estimate(two_layer_net(), "loihi1")
    nw.estimate(two_layer_net(), "loihi1", options=nw.Options())
    assert asked == ["coarse", "floorline"]


def test_estimate_of_all_chips_says_what_is_in_the_way():
    made = nw.estimate(two_layer_net(300), "all", two_layer_samples(300), FEW)
    rows = {row.chip: row for row in made.chips}
    assert {"loihi1", "xylo_imu", "ranc", "tiny", "truenorth"} <= set(rows) and "loihi1_nahuku" not in rows
    assert "fan-in axons" in rows["truenorth"].reason and not rows["truenorth"].fits
    text = repr(made)
    sentences = text[text.rindex("ANN twin") :].partition("\n")[2]
    assert max(map(len, text.splitlines())) <= 80
    assert f": {' '.join(rows['truenorth'].reason.split())} " in f"{' '.join(sentences.split())} "
    assert text.splitlines()[0].startswith("chip ")
    assert made.to_frame()["n_cores"].notna().tolist() == [row.fits for row in made.chips]
    assert made._repr_html_().count("<tr>") == 1 + sum(row.fits for row in made.chips) + 1 + len(made.counts)


def test_estimate_tells_how_many_chips_are_done_and_how_many_limits_are_exceeded():
    done: list[tuple[int, int]] = []
    made = nw.estimate(two_layer_net(), ["h1v1", "loihi1", "tiny"], options=FEW, on_chip=lambda *n: done.append(n))
    assert sorted(done) == [(1, 3), (2, 3), (3, 3)]
    assert made.chips[0].reason.endswith("the report shows the loss; 3 more limits are exceeded")
    nw.estimate(two_layer_net(), "loihi1", options=FEW, on_chip=lambda *_: pytest.fail("one chip takes no line"))


def test_estimate_takes_a_board_where_the_chip_is_too_small(monkeypatch):
    small = nw.Chip.load("loihi1").replace(
        {"noc.columns": 1, "noc.rows": 1, "noc.cores_per_router": 1, "core.max_neurons": 14}
    )
    monkeypatch.setattr(
        "nwcompile.workbench.estimate._load_chips",
        lambda chips: ([small], {"loihi1": [small, nw.Chip.load("loihi1")]}, []),
    )
    alone, smaller, row = nw.estimate(two_layer_net(), "all", two_layer_samples(), FEW).chips
    assert row.fits and row.of_cores == 128
    assert not alone.fits and alone.reason == smaller.reason


def test_estimate_of_all_chips_leaves_out_no_shipped_chip_and_no_board():
    chips, boards, others = _load_chips("all")
    names = [chip.name for chip in chips] + [board.name for of_chip in boards.values() for board in of_chip]
    assert {row.reason for row in others} == {ROUTERS_ONLY}
    assert [row.chip for row in others] == ["mesh_def", "mesh_la", "mesh_spec"]
    names += [row.chip for row in others]
    assert sorted(names) == nw.Chip.shipped()
    assert {name: [board.name for board in of_chip] for name, of_chip in boards.items()} == {
        "loihi1": ["loihi1_nahuku"],
        "loihi2": ["loihi2_kapoho", "loihi2_hala"],
        "spinnaker2": ["spinnaker2_48"],
    }


def test_estimate_says_what_it_cannot_do():
    with pytest.raises(ChipError, match="unknown chip 'lohi1'; choose one of: loihi1"):
        nw.estimate(two_layer_net(), ["lohi1"])
    with pytest.raises(OptionError, match="estimate: no chip is named; give names, or 'all'"):
        nw.estimate(two_layer_net(), [])
    with pytest.raises(OptionError, match="estimate: 'all' stands for every chip, alone"):
        nw.estimate(two_layer_net(), ["loihi1", "all"])
    with pytest.raises(ChipError, match="a chip is a shipped name or the path of a .toml file, not int"):
        nw.estimate(two_layer_net(), 3)
    with pytest.raises(ModelError, match="estimate takes a Network, not str; make one with nw.from_torch"):
        nw.estimate("net", "loihi1")
    with pytest.raises(ModelError, match="input 'in' must be .B, T, 20., got shape .4, 9, 7."):
        nw.estimate(two_layer_net(), "loihi1", two_layer_samples(7), FEW)
    made = nw.estimate(two_layer_net(), "loihi1", options=FEW)
    assert made.operations is None and "operations are not counted without samples" in repr(made)


def test_cli_estimate_prints_the_table_and_ends_with_1_where_nothing_fits(capsys, tmp_path, monkeypatch):
    from nwcompile.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    np.savez("x.npz", x=two_layer_samples(300))
    (tmp_path / "wide_model.py").write_text(
        "from tests.made.nets import two_layer_net\ndef make():\n    return two_layer_net(300)\n"
    )
    line = ["estimate", "wide_model:make", "--chips", "truenorth,loihi1", "--input", "x.npz", "--optimize", "cores"]
    assert main(line) == 0
    out, told = capsys.readouterr()
    assert told.splitlines()[-1].startswith("2 of 2 chips, 0:0") and told.endswith(", 0:00 left\n")
    assert out.splitlines()[1].split()[:2] == ["loihi1", "1"] and "\ndoes not fit truenorth: fan-in axons, " in out
    assert main([*line, "--json"]) == 0
    doc = json.loads(capsys.readouterr().out)
    assert [row["chip"] for row in doc["chips"]] == ["truenorth", "loihi1"] and doc["operations"]["acs"] > 0
    assert [row["tool"] for row in doc["counts"]][1] == "syops 0.0.5" and doc["counts"][1]["energy_nj"] > 0
    assert main(["estimate", "wide_model:make", "--chips", "truenorth"]) == 1


def test_estimate_tries_no_other_chips_for_a_refusal(monkeypatch):
    monkeypatch.setattr(nw.Chip, "proposals", lambda _: pytest.fail("all others are tried once more"))
    (row,) = nw.estimate(two_layer_net(300), "truenorth", two_layer_samples(300)).chips
    assert not row.fits


def test_chips_at_once_give_the_rows_of_one_after_another(monkeypatch):
    monkeypatch.setattr("nwcompile.workbench.estimate.n_threads", lambda: 1)
    one_by_one = nw.estimate(two_layer_net(300), "all", two_layer_samples(300))
    monkeypatch.setattr("nwcompile.workbench.estimate.n_threads", lambda: 4)
    assert nw.estimate(two_layer_net(300), "all", two_layer_samples(300)).chips == one_by_one.chips


@pytest.mark.parametrize(
    "options, n_chips",
    [({}, 2), ({"partitioner": "metis"}, 1), ({"placer": "spectral"}, 1), ({"time_budget_s": 0.1}, 1)],
)
def test_chips_are_compiled_for_one_by_one_where_threads_could_change_a_row(monkeypatch, options, n_chips):
    asked = []
    monkeypatch.setattr("nwcompile.workbench.estimate.n_threads", lambda: 2)
    monkeypatch.setattr(
        "nwcompile.workbench.estimate.at_once", lambda work, chips, n: asked.append(n) or [work(c) for c in chips]
    )
    nw.estimate(two_layer_net(), "loihi1", options=replace(DEFAULTS, **options))
    monkeypatch.setattr("nwcompile.workbench.estimate.MAX_NEURONS_AT_ONCE", 16)
    nw.estimate(two_layer_net(), "loihi1", options=replace(DEFAULTS, **options))
    assert asked == [n_chips, 1]


def test_so_many_chips_are_compiled_for_at_once_as_have_room(monkeypatch):
    asked = []
    monkeypatch.setattr("nwcompile.workbench.estimate.n_threads", lambda: 2)
    monkeypatch.setattr("nwcompile.passes.quantize.memory.measure_room", lambda: Room(100, "a limit"))
    monkeypatch.setattr(
        "nwcompile.workbench.estimate.at_once", lambda work, chips, n: asked.append(n) or [work(c) for c in chips]
    )
    nw.estimate(two_layer_net(), ["loihi1", "loihi2"])
    assert asked == [1]


def test_chips_that_have_no_room_together_are_compiled_for_one_by_one(monkeypatch):
    """Stands in for the system's memory: two mappings at once have none, one has."""
    together, working = Barrier(2), set()

    def compiled(network, chip, x, options):
        if current_thread() is not main_thread():
            together.wait(PATIENCE_S)
            raise NotEnoughMemoryError("no room for two")
        working.add(chip.name)
        return nw.compile(network, chip, x, options)

    monkeypatch.setattr("nwcompile.workbench.estimate.n_threads", lambda: 2)
    monkeypatch.setattr("nwcompile.workbench.estimate.compile", compiled)
    made = nw.estimate(two_layer_net(), ["loihi1", "loihi2"])
    assert working == {"loihi1", "loihi2"} and all(row.fits for row in made.chips)


def test_what_has_no_room_alone_is_not_tried_twice(monkeypatch):
    tried = []

    def compiled(network, chip, x, options):
        tried.append(chip.name)
        raise NotEnoughMemoryError("no room")

    monkeypatch.setattr("nwcompile.workbench.estimate.n_threads", lambda: 1)
    monkeypatch.setattr("nwcompile.workbench.estimate.compile", compiled)
    with pytest.raises(NotEnoughMemoryError, match="no room"):
        nw.estimate(two_layer_net(), ["loihi1", "loihi2"])
    assert tried == ["loihi1"]
