"""Energy as a board measures it: events, static power and processors, apart and in sum."""

import json
import re
from dataclasses import replace

import pytest

from nwcompile.cost.energy import board_energy
from nwcompile.ir.chip_sections import SECTIONS
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from tests.made.chips import small_chip
from tests.made.programs import run_of, three_cores

POWERS = {"energy.static_mw": 0.3, "energy.core_static_mw": 0.5, "energy.host_mw": 20.0}
BOARD = small_chip(noc__chip_columns=1, energy__chip_link_pj=7.0)


def test_each_part_is_power_times_the_time_of_a_sample():
    program = three_cores(BOARD.replace(POWERS))
    run = run_of(program)
    board = board_energy(program, run)
    us = run.seconds * 1e6 / run.n_samples
    columns = {x for x, _, _ in program.mapping.site_of.tolist()}  # a chip has one
    assert (board.n_cores, board.n_chips, board.n_chips_used) == (3, 3, len(columns)) and len(columns) > 1
    assert board.static_nj == pytest.approx((0.3 + 3 * 0.5) * us)  # a milliwatt for a microsecond is a nanojoule
    assert board.host_nj == pytest.approx(20 * board.n_chips_used * us)
    events = sum(pj for kind, pj in run.energy_pj.items() if kind not in ("static", "total"))
    assert board.dynamic_nj == pytest.approx(events / 1000 / run.n_samples)
    assert board.total_nj == board.dynamic_nj + board.static_nj + board.host_nj


def test_the_clock_is_static_power_of_the_chip():
    programs = [three_cores(BOARD.replace(POWERS | keys)) for keys in ({}, {"energy.clock_uw_per_mhz": 0.4})]
    plain, clocked = (board_energy(program, run_of(program)) for program in programs)
    assert clocked.chip_static_nj == pytest.approx(plain.chip_static_nj * (0.3 + 0.4) / 0.3)  # a cycle takes 1 ns
    assert (clocked.core_static_nj, clocked.host_nj) == (plain.core_static_nj, plain.host_nj)


def test_the_board_changes_no_other_energy_and_no_mapping():
    plain, powered = (three_cores(BOARD.replace(keys)) for keys in ({}, {k: POWERS[k] for k in list(POWERS)[1:]}))
    assert run_of(plain).energy_pj == run_of(powered).energy_pj
    assert (plain.mapping.site_of == powered.mapping.site_of).all()
    assert board_energy(plain, run_of(plain)) is None


def test_a_slower_step_costs_power_only():
    chips = [BOARD.replace(POWERS), BOARD.replace(POWERS | {"cost.min_step_cycles": {"1": 50_000}})]
    fast, slow = (board_energy(program, run_of(program)) for program in map(three_cores, chips))
    assert slow.dynamic_nj == fast.dynamic_nj
    assert slow.host_nj / fast.host_nj == pytest.approx(slow.static_nj / fast.static_nj)
    assert slow.host_nj > 2 * fast.host_nj


def test_the_total_is_unknown_without_energies_of_events():
    program = three_cores(BOARD.replace(POWERS | {"energy.spike_pj": None, "energy.host_mw": None}))
    run = run_of(program)
    board = board_energy(program, run)
    assert run.energy_pj is board.dynamic_nj is board.host_nj is board.total_nj is None and board.static_nj > 0
    text = render_text(collect_report(program, run))
    assert re.search(
        r"board +[\d.]+ nJ static \(3 chips\) \+ [\d.]+ nJ static \(3 cores\) per sample \(assumed\)", text
    )
    assert "; no figures for events and processors" in text and "no energies of events: the chip file" in text


@pytest.mark.parametrize(
    ("sources", "basis", "key"),
    [
        ({"energy": "a data sheet", "energy.host_mw": "assumed: as another"}, "assumed", "energy.host_mw"),
        ({"energy": "a data sheet", "cost.barrier_cycles": "scaled: from another"}, "scaled", "cost.barrier_cycles"),
    ],
)
def test_the_basis_is_that_of_the_powers_and_of_the_time(sources, basis, key):
    chip = small_chip(energy__host_mw=20.0, cost__barrier_cycles={"1": 5000})
    program = three_cores(replace(chip, sources=dict.fromkeys(SECTIONS, "a data sheet") | sources))
    board = board_energy(program, run_of(program))
    assert board.basis.basis == basis and key in board.basis.keys


def test_reports_print_the_parts_and_the_sum():
    program = three_cores(BOARD.replace(POWERS))
    doc = collect_report(program, run_of(program))
    board = doc["board"]
    assert json.loads(json.dumps(board))["total_nj"] == board["total_nj"] > 0
    row = next(text for name, text in doc["verdict_rows"] if name == "board")
    assert "static (3 cores) + " in row and "nJ per sample (" in row
    assert f"processors ({board['n_chips_used']} chips) = " in row
    assert row in render_text(doc) and row in render_html(doc).replace("\u00a0", " ")
    bound = collect_report(program, run_of(program, "sequence"))
    assert dict(map(tuple, bound["verdict_rows"]))["board"].startswith("at least ")
    assert bound["board"]["host_nj"] <= board["host_nj"]
