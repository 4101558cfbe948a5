"""Energies against hand sums and against SANA-FE's closed forms (reference/sanafe)."""

import csv
from math import fsum

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.energy import KINDS, energy_pj, predict, step_energy_pj
from nwcompile.errors import ChipError
from nwcompile.ir.chip import Chip
from nwcompile.ir.run import COUNTERS
from nwcompile.report.html_tables import energy_table
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.sim import BACKENDS
from tests.made.chips import small_chip
from tests.made.programs import run_of, spikes_in, three_cores

BOARD = small_chip(noc__chip_columns=1, energy__chip_link_pj=7.0, io__sites=["2,1,0"], energy__io_pj=2.5)


def counters(n_steps=1, **given):
    return {name: np.asarray(given.get(name, [[0]] * n_steps)) for name in COUNTERS}


def spent(counted, chip, step_cycles=None):
    return energy_pj(step_energy_pj(counted, chip, step_cycles=step_cycles))


def test_energy_is_events_times_figures():
    got = spent(
        counters(
            neuron_visits=[[10, 5]], neuron_updates=[[4, 0]], spikes_out=[[2, 1]], messages_out=[[3, 0]],
            messages_in=[[7, 7]], synops_dense=[[8, 0]], synops_sparse=[[0, 3]], synops_conv=[[1, 1]],
            hops_ew=[[4, 1]], hops_ns=[[2, 0]],
        ),
        small_chip(energy__message_in_pj=0.5),
    )  # fmt: skip
    assert tuple(got) == (*KINDS, "total")
    expected = {"visit": 15 * 51.2, "update": 4 * 21.6, "spike": 3 * 69.3, "message_out": 3 * 111,
                "message_in": 14 * 0.5, "synop_dense": 8 * 35.5, "synop_sparse": 3 * 33.6, "synop_conv": 2 * 24,
                "hop_ew": 5 * 3, "hop_ns": 2 * 4.2}  # fmt: skip
    assert {k: got[k] for k in expected} == pytest.approx(expected)
    assert got["total"] == pytest.approx(sum(expected.values()))


def test_energy_of_static_power_is_power_times_time():
    chip = small_chip(energy__static_mw=2.5)
    assert "static" not in spent(counters(), chip)
    got = spent(counters(neuron_visits=[[10]]), chip, step_cycles=np.array([3000]))  # of 1 ns
    assert got["static"] == pytest.approx(2.5e-3 * 3e-6 * 1e12)
    assert got["total"] == pytest.approx(10 * 51.2 + 7500)
    assert small_chip().has_energies and "static" not in spent(counters(), small_chip(), np.array([1000]))


def test_the_clock_adds_power_in_proportion_to_its_frequency():
    chip = small_chip(energy__static_mw=2.5, energy__clock_uw_per_mhz=20.0)
    for ns in (1.0, 20.0):  # 1000 and 50 MHz
        clocked = chip.replace({"core.cycle_ns": ns})
        assert clocked.static_mw == pytest.approx(2.5 + 0.020 * 1000 / ns)
        got = spent(counters(), clocked, step_cycles=np.array([3000]))
        assert got["static"] == pytest.approx(clocked.static_mw * 3000 * ns)
    alone = small_chip(energy__clock_uw_per_mhz=20.0)
    assert spent(counters(), alone, step_cycles=np.array([3000]))["static"] == pytest.approx(3000 * 20.0)


def test_energy_of_a_step_does_not_depend_on_how_many_steps_are_summed_at_once():
    rng = np.random.default_rng(0)
    counted = {name: rng.integers(0, 1000, (50, 3)) for name in COUNTERS}
    cycles = rng.integers(1, 10**6, 50)
    chip = small_chip(energy__static_mw=0.37, energy__io_pj=2.3, io__sites=["2,1,0"])
    whole = step_energy_pj(counted, chip, step_cycles=cycles)
    for size in (1, 7):
        parts = [slice(h, h + size) for h in range(0, 50, size)]
        of_parts = [step_energy_pj({k: c[p] for k, c in counted.items()}, chip, step_cycles=cycles[p]) for p in parts]
        for kind, pj in whole.items():
            assert np.concatenate([part[kind] for part in of_parts]).tolist() == pj.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_energy_of_a_stream_is_that_of_its_run(backend):
    figures = {f"energy.{kind}_pj": 0.1 + i / 7 for i, kind in enumerate(KINDS)}
    program, x = three_cores(BOARD.replace(figures)), spikes_in(9)[1:]
    run, session = nw.simulate(program, x, backend), nw.Session(program, backend)
    chunks = [session.feed(x[0, t : t + 1]) for t in range(9)] + [session.close()]
    for kind, pj in run.step_energy_pj.items():
        assert np.concatenate([chunk.step_energy_pj[kind] for chunk in chunks]).tolist() == pj.tolist(), kind


def test_energy_of_a_chip_without_cited_figures_is_none():
    table = small_chip().to_dict()
    del table["energy"]["hop_ns_pj"]
    assert step_energy_pj(counters(), Chip.from_dict(table)) is None and energy_pj(None) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_energy_of_input_output_and_links_between_chips_is_that_of_a_hand_count(backend):
    """Two columns east of core 2 and one step at a time: 5 spikes of lines to 2 cores, 3 + 3 to core 2, 2 outputs."""
    run = run_of(three_cores(BOARD), backend)
    come = np.array([5, 5, 0, 0]) * 2  # 1 + 4 lines, to cores 0 and 1
    inner = np.array([0, 2, 2, 0]) * 6  # 6 neurons of 2 samples, from x = 0 to core 2 at x = 1
    leave = np.array([0, 0, 2, 2]) * 2
    assert run.step_energy_pj["io"].tolist() == ((come + leave) * 2.5).tolist()
    crossed = come * 2 + inner + leave  # the site is at x = 2, and every column is a chip
    assert run.step_energy_pj["chip_link"].tolist() == (crossed * 7.0).tolist()
    assert run.energy_pj["io"] == 28 * 2.5 and run.energy_pj["chip_link"] == 72 * 7.0


def test_energy_of_a_flit_counts_payloads_on_links_between_chips_once_a_flit():
    one, three = (run_of(three_cores(BOARD.replace({"noc.flits_per_message": n}))) for n in (1, 3))
    assert three.energy_pj["chip_link"] == 3 * one.energy_pj["chip_link"] > 0
    assert three.energy_pj["hop_ew"] == one.energy_pj["hop_ew"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_energy_of_the_steps_is_exactly_that_of_the_run(backend):
    run = run_of(three_cores(BOARD.replace({"energy.static_mw": 0.3})), backend)
    assert {kind: fsum(pj) for kind, pj in run.step_energy_pj.items()} == run.energy_pj
    frame = run.to_frame("steps")
    assert fsum(frame["energy_pj"]) == run.energy_pj["total"] and len(frame) == 4
    assert ("static" in run.energy_pj) == ("power_mw" in frame) == (backend == "cycle")
    if backend == "cycle":
        joules = fsum(run.step_power_mw * 1e-3 * run.step_cycles * 1e-9)
        assert joules == pytest.approx(run.energy_pj["total"] * 1e-12, rel=1e-12)


def test_report_gives_the_energy_and_power_of_every_step():
    program = three_cores(BOARD)
    run = run_of(program)
    doc = collect_report(program, run)
    steps, energy = doc["steps"], doc["energy"]
    assert [2 * pj for pj in steps["energy_pj"]] == run.step_energy_pj["total"].tolist()
    assert steps["power_mw"] == pytest.approx(run.step_power_mw.tolist())
    assert fsum(steps["energy_pj"]) == pytest.approx(energy["sample_nj"] * 1000, rel=1e-14)
    assert energy["largest_mw"] == max(steps["power_mw"]) > energy["mean_mw"] > min(steps["power_mw"])
    assert f"power of the cores: mean {energy['mean_mw']:.2g} mW, peak {energy['largest_mw']:.2g} mW" in render_text(
        doc
    )
    bound = collect_report(program, run_of(program, "sequence"))["steps"]
    assert bound["power_mw"] == pytest.approx(np.divide(bound["energy_pj"], bound["bound_us"]) / 1000)


def test_report_says_what_the_energy_is_without():
    program = three_cores(BOARD.replace({"energy.io_pj": None, "energy.chip_link_pj": None}))
    doc = collect_report(program, run_of(program))
    assert (
        doc["energy"]["by_kind_pj_per_sample"]["io_pj"]
        is doc["energy"]["by_kind_pj_per_sample"]["chip_link_pj"]
        is None
    )
    text = render_text(doc)
    assert "the energy is without input and output: small gives no energy.io_pj" in text
    assert "the energy is without links between chips: small gives no energy.chip_link_pj" in text
    alone = collect_report(three_cores(), run_of(three_cores()))
    assert not {"io_pj", "chip_link_pj"} & set(alone["energy"]["by_kind_pj_per_sample"])
    assert "the energy is without" not in render_text(alone)


def test_energy_of_a_run_without_times_is_the_least_where_the_chip_has_static_power():
    program = three_cores(BOARD.replace({"energy.static_mw": 0.3}))
    for run, least in (
        (predict(program), "at least "),
        (run_of(program, "sequence"), "at least "),
        (run_of(program), ""),
    ):
        doc = collect_report(program, run)
        only = ", cores only" if least else ""
        assert f"; {least}{doc['energy']['sample_nj']:.2g} nJ per sample (assumed){only};" in doc["verdict"]
        is_least = "the energy is without static power: only a run of backend cycle has the times" in render_text(doc)
        assert is_least == bool(least) == ("not measured" in energy_table(doc))
    assert "at least" not in collect_report(three_cores(BOARD), run_of(three_cores(BOARD)))["verdict"]


def test_energies_of_what_a_chip_has_not_are_refused():
    with pytest.raises(
        ChipError, match="energy.chip_link_pj: there is one chip; give noc.chip_columns or noc.chip_rows"
    ):
        small_chip(energy__chip_link_pj=1.0)
    with pytest.raises(ChipError, match="energy.io_pj: messages enter and leave at io.sites, and none is given"):
        small_chip(energy__io_pj=1.0)
    assert nw.Chip.load("loihi1_nahuku").energy.chip_link_pj is None  # no figure is published


def test_energy_equals_sanafe_on_the_dvs_net(reference):
    with open(reference / "sanafe" / "dvs_challenge_loihi_1000steps.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    column = {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}
    chip = Chip.load("loihi1")
    done = {"neuron_visits": np.full(1000, 18678), "neuron_updates": column["updated"], "spikes_out": column["fired"],
            "synops_dense": column["spikes"]}  # fmt: skip
    done = {name: values[:, None] for name, values in done.items()}
    sent = np.array([[2482643]] + [[0]] * 999)
    steps = step_energy_pj(counters(1000, **done, messages_out=sent), chip)
    got = energy_pj(steps)
    assert got["synop_dense"] == pytest.approx(1.830003e9, rel=1e-6)
    assert got["visit"] + got["update"] + got["spike"] == pytest.approx(1.317286e9, rel=1e-6)
    assert got["message_out"] + 0.017709e9 == pytest.approx(0.293282e9, rel=3e-6)
    assert steps["synop_dense"] == pytest.approx(column["synapse_energy"] * 1e12, rel=1e-6)
    assert steps["visit"] + steps["update"] + steps["spike"] == pytest.approx(column["soma_energy"] * 1e12, rel=1e-6)
