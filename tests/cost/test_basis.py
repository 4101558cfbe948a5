"""The basis of times and energies: which constants decide it, and the errors against silicon that are quoted."""

import re
from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from benchmarks import silicon
from nwcompile.cost.basis import find_basis, find_silicon, read_silicon
from nwcompile.cost.energy import predict
from nwcompile.cost.time.floorline import floorline
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import SECTIONS, read_basis, weakest_basis
from nwcompile.ir.run import Basis, Silicon
from nwcompile.ir.shown import format_figure
from tests.made.chips import small_chip
from tests.made.nets import two_layer_net, two_layer_samples
from tests.made.pool_nets import pool_net
from tests.made.programs import chip_without, run_of, three_cores


def sourced(**sources):
    """A chip of published costs and energies, except keys with a source of their own: `cost__spike_cycles="..."`."""
    chip = small_chip(noc__flits_per_message=1, noc__link_cycles_per_flit=1)
    known = dict.fromkeys(SECTIONS, "a data sheet")
    return replace(chip, sources=known | {key.replace("__", "."): text for key, text in sources.items()})


def bases_of(chip, **run):
    found = run_of(three_cores(chip), **run)
    return found.time_basis, found.energy_basis


def row(error_percent, network="PilotNet", judges=True):
    return Silicon(
        "loihi2",
        network,
        "74 cores",
        "time",
        "us per step",
        100.0,
        100.0 + error_percent,
        error_percent,
        judges,
        "test",
    )


@pytest.mark.parametrize(
    ("source", "basis"),
    [
        ("Davies 2018, table 2: tile hop 4.1 ns", "published"),
        ("measured on our board", "measured"),
        ("fitted: SANA-FE arch/loihi.yaml, on a board", "fitted"),
        ("scaled, not measured: Loihi 1's 6.0 ns", "scaled"),
        ("assumed: not published; small against a hop", "assumed"),
        ("Davies 2018: a message is 32 bits; assumed to be one flit", "assumed"),
        ("scaled: as loihi1; measured: its clock", "scaled"),
        ("figures that were not measured", "published"),
        ("assumedly", "published"),
        ("set by the user", "assumed"),
        (None, "assumed"),
    ],
)
def test_basis_of_a_source_is_the_weakest_that_a_clause_begins_with(source, basis):
    assert read_basis(source) == basis


def test_basis_of_a_chips_constants():
    loihi1 = Chip.load("loihi1")
    keys = ("cost.spike_cycles", "energy.hop_ew_pj", "noc.hop_cycles_ew", "noc.flits_per_message", "noc.credit_cycles")
    assert [loihi1.basis_of(key) for key in keys] == ["fitted", "fitted", "published", "assumed", "assumed"]
    assert small_chip().basis_of("noc.route_cycles") == "assumed"  # a default
    changed = loihi1.replace({"cost.spike_cycles": 7})
    assert changed.basis_of("cost.spike_cycles") == "assumed" and changed.basis_of("cost.visit_cycles") == "fitted"
    of_loihi2 = {"synop_dense_cycles": "published", "spike_cycles": "scaled", "min_step_cycles": "fitted"}
    assert {key: Chip.load("loihi2").basis_of(f"cost.{key}") for key in of_loihi2} == of_loihi2
    for key in ("synop_dense_cycles", "barrier_cycles"):
        assert Chip.load("loihi1_davies2018").basis_of(f"cost.{key}") == "published"
    assert Chip.load("ranc").basis_of("cost.visit_cycles") == "published"  # of a simulated design, not of silicon


def test_weakest_basis_of_texts():
    assert weakest_basis(["fitted; +4 % on A", "scaled; -35 % on B", "measured"]) == "scaled; -35 % on B"
    assert weakest_basis([]) is None


def test_one_assumed_constant_that_moves_the_figure_makes_it_assumed():
    for key in ("cost__barrier_cycles", "cost__synop_dense_cycles", "cost__message_in_cycles"):
        time, energy = bases_of(sourced(**{key: "assumed: a test"}))
        assert (time.basis, time.keys, energy.basis) == ("assumed", (key.replace("__", "."),), "published")
    time, energy = bases_of(sourced(energy__visit_pj="scaled: a test"))
    assert (time.basis, energy.basis, energy.keys) == ("published", "scaled", ("energy.visit_pj",))


def test_a_constant_that_moves_the_figure_by_less_than_a_percent_does_not_count():
    chip = sourced(cost__word_cycles="assumed: a test", energy__synop_conv_pj="assumed: a test")
    small = chip.replace({"cost.word_cycles": 1, "cost.barrier_cycles": {"1": 100000}})
    small = replace(small, sources=chip.sources)
    assert [basis.basis for basis in bases_of(small)] == ["published", "published"]
    large = replace(chip.replace({"cost.word_cycles": 100}), sources=chip.sources)
    assert bases_of(large)[0].keys == ("cost.word_cycles",)


def test_moving_by_a_percent_is_by_the_formula_of_the_bound():
    """The oracle: the bound of a program whose chip file has the doubled constant."""
    program = three_cores(sourced())
    run = predict(program)
    for event in ("visit", "update", "spike", "message_out", "message_in", "word", "synop_dense", "synop_sparse"):
        key = f"cost.{event}_cycles"
        doubled = replace(program, chip=program.chip.replace({key: 2 * program.chip.value(key)}))
        us = [floorline(p, run.counters, run.link_flits, run.n_samples).step_us.sum() for p in (program, doubled)]
        chip = replace(program.chip, sources=program.chip.sources | {key: "assumed: a test"})
        found = find_basis(replace(program, chip=chip), run, "time")
        assert (found.basis == "assumed") == (us[1] > 1.01 * us[0]), key


def test_lengths_of_cycles_do_not_count():
    time, energy = bases_of(sourced(core__cycle_ns="assumed: a resolution", noc__cycle_ns="assumed: a resolution"))
    assert time.basis == energy.basis == "published"


def test_a_link_that_bounds_the_step_decides():
    slow = {"noc.link_cycles_per_flit": 4000}
    chip = sourced()
    for key in ("noc.link_cycles_per_flit", "noc.flits_per_message"):
        sources = chip.sources | {key: "scaled: a test"}
        busy, idle = replace(chip.replace(slow), sources=sources), replace(chip, sources=sources)
        assert bases_of(busy)[0] == Basis("scaled", (key,)) and bases_of(idle)[0].basis == "published"


def test_a_chip_without_a_barrier_has_a_basis():
    chip = sourced(cost__message_in_cycles="assumed: a test")
    free = replace(chip.replace({"cost.sync": "neighbors"}), sources=chip.sources)
    assert bases_of(free)[0].keys == ("cost.message_in_cycles",)


def test_static_power_depends_on_what_the_time_depends_on():
    chip = sourced(cost__barrier_cycles="assumed: a test")
    static = replace(chip.replace({"energy.static_mw": 100.0}), sources=chip.sources)
    assert bases_of(static)[1].keys == ("cost.barrier_cycles",)
    assert bases_of(static, backend="reference")[1].basis == "published"  # without times, static power is left out


def test_the_power_of_the_clock_has_its_own_basis():
    chip = sourced(energy__clock_uw_per_mhz="assumed: a test")
    powers = {"energy.static_mw": 100.0, "energy.clock_uw_per_mhz": 10.0}
    clocked = replace(chip.replace(powers), sources=chip.sources)
    assert bases_of(clocked)[1].keys == ("energy.clock_uw_per_mhz",)
    little = replace(chip.replace(powers | {"energy.clock_uw_per_mhz": 1e-6}), sources=chip.sources)
    assert bases_of(little)[1].basis == "published"


def test_basis_of_totals_is_that_of_the_steps():
    program = nw.compile(two_layer_net(), "loihi1", two_layer_samples())
    whole, totals = (nw.simulate(program, two_layer_samples(), "cycle", record=r) for r in ("spikes", "totals"))
    assert (totals.time_basis.basis, totals.energy_basis) == (whole.time_basis.basis, whole.energy_basis)


def test_basis_of_a_pool_and_of_a_chip_without_figures():
    run = predict(nw.compile(pool_net(5, 10, 3), "xylo_imu", np.ones((2, 6, 5), np.int64)))
    assert run.time_basis.basis == "published" and "pool.hidden_cycles" in run.time_basis.keys
    assert run.energy_basis.basis == "scaled" and "energy.visit_pj" in run.energy_basis.keys
    assert bases_of(chip_without("cost.word_cycles", "energy.hop_ew_pj")) == (None, None)
    assert nw.simulate(two_layer_net(), two_layer_samples()).time_basis is None


def test_errors_against_silicon_are_a_range_and_only_of_rows_that_judge():
    assert str(Basis("scaled", (), (row(-35.5),))) == "scaled; -36 % on PilotNet"
    two = row(-18.3, "Quartz"), row(-41.0, "Quartz"), row(90.0, judges=False)
    assert str(Basis("published", (), two)) == "published; -41 to -18 % on Quartz"
    assert Basis("fitted", (), (row(4.0), row(-0.2, "LIF"))).error == "+0 to +4 % on 2 networks"
    assert str(Basis("fitted", (), (row(4.0, judges=False),))) == "fitted"


def test_error_is_that_of_the_shipped_constants_only():
    program = nw.compile(two_layer_net(), "loihi1", two_layer_samples())
    assert re.fullmatch(r"fitted; [+-]\d+ to [+-]\d+ % on Quartz MNIST", str(predict(program).time_basis))

    def error(**changes):
        chip = program.chip.replace({key.replace("__", "."): value for key, value in changes.items()})
        run = predict(replace(program, chip=chip))
        return run.time_basis.error is not None, run.energy_basis.error is not None

    assert error(core__max_in_axons=4000) == error(noc__rows=5) == (True, True)
    assert error(cost__spike_cycles=1) == error(noc__hop_cycles_ew=1) == (False, True)
    assert error(energy__hop_ew_pj=9.0) == (True, False)
    mine = Chip.from_toml(
        'name = "mine"\nbase = "loihi1"\n[cost]\nspike_cycles = 5\n[sources]\ncost = "ours"\n', "mine"
    )
    assert predict(replace(program, chip=mine)).time_basis.error is None


def test_rows_of_silicon_are_those_that_the_changed_constants_do_not_move():
    def quantities(**changes):
        chip = Chip.load("loihi1").replace({key.replace("__", "."): value for key, value in changes.items()})
        return {found.quantity for found in find_silicon(chip)}

    everything = quantities()
    assert {"time", "energy", "static power", "power of processors", "energy with processors"} == everything
    assert everything - quantities(energy__host_mw=65.0) == {"power of processors", "energy with processors"}
    assert everything - quantities(energy__core_static_mw=None) == {"static power", "energy with processors"}
    assert everything - quantities(cost__spike_cycles=1) == {"time", "energy with processors"}
    assert everything - quantities(energy__spike_pj=1.0) == {"energy", "energy with processors"}


def test_rows_of_silicon_are_of_shipped_chips_and_their_errors_are_right():
    rows = read_silicon()
    assert {row.chip for row in rows} <= set(Chip.shipped())
    assert {row.quantity for row in rows} == set(silicon.QUANTITIES)
    for found in rows:
        assert found.error_percent == pytest.approx(100 * (found.model / found.measured - 1), abs=1)
        assert len(found.source) > 20


def test_figures_have_the_digits_of_their_basis():
    basis = Basis("scaled", (), (row(-35.5),))
    assert format_figure(98.6412, "us", basis) == "98.6 us (scaled; -36 % on PilotNet)"
    assert format_figure(35025.2, "samples per second", "assumed", tells_basis=False) == "35 000 samples per second"
    assert (
        format_figure(17904.4, "nJ", "fitted") == "17.9 uJ (fitted)"
        and format_figure(0.0, "nJ", "assumed")[:4] == "0 nJ"
    )
    assert format_figure(999.4, "nJ", None) == "999 nJ" and format_figure(999.6, "nJ", None) == "1 uJ"
    assert format_figure(-17904.4, "us per step", None) == "-17.9 ms per step"
    assert format_figure(35025.2, "s", None) == "35 025 s"


def test_a_run_and_its_frame_tell_the_basis():
    run = run_of(three_cores(sourced(energy__visit_pj="assumed: a test")))
    lines = repr(run).splitlines()
    us, nj = run.seconds * 1e6, run.energy_pj["total"] / 1000
    assert f"  time: {us:.3g} us (published)" in lines and f"  energy of the cores: {nj:.2g} nJ (assumed)" in lines
    assert "<p>time: " in run._repr_html_() and "\u00a0nJ (assumed)</p>" in run._repr_html_()
    assert run.to_frame("steps").attrs == {"time_basis": "published", "energy_basis": "assumed"}
    assert run.to_frame("layers").attrs == {} and np.array_equal(run.to_frame("cores")["core"], [0, 1, 2])
