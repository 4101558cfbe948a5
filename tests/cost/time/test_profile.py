"""Phases, critical paths and latencies of profiled runs: what they add up to, and percentiles against a plain list."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.time.profile import congested_links, core_phases, critical_paths, summarize_latency
from nwcompile.flow import compile
from nwcompile.ir.options import Options
from nwcompile.kernels.cores import probes
from nwcompile.report.json.collect import collect_report
from nwcompile.sim import simulate
from nwcompile.sim.cycle.profile import last_of_bin
from nwcompile.sim.inputs import prepare_inputs
from tests.long import n_drawn
from tests.made.nets import float_net, registers_as_inputs
from tests.made.programs import chip_without, crowded, run_of, spikes_in, three_cores
from tests.made.random_programs import inputs, programs


@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_phases_of_every_unit_add_up_to_the_step(units):
    program, x = crowded(cost__units=units)
    run = simulate(program, x, backend="cycle", profile=True)
    found = core_phases(program, run)
    assert tuple(found.units) == (("send", "receive") if units == "overlap" else ("shared",))
    for table in found.units.values():
        assert all((cycles >= 0).all() for cycles in table.values())
        assert np.array_equal(sum(table.values()), np.broadcast_to(run.step_cycles[:, None], (14, 3)))
    assert found.of_cores()["send" if units == "overlap" else "shared"]["visit"].tolist() == [
        run.counters["neuron_visits"][:, core].sum() * 6 for core in range(3)
    ]


@settings(max_examples=n_drawn(15), deadline=None)
@given(st.data())
def test_phases_of_any_program_fit_and_critical_parts_add_up(data):
    program = data.draw(programs())
    run = simulate(program, data.draw(inputs(program)), backend="cycle", profile=True)
    found = core_phases(program, run)
    for table in found.units.values():
        assert all((cycles >= 0).all() for cycles in table.values())
    for path in critical_paths(program, run, 100):
        assert sum(path.parts.values()) == pytest.approx(path.cycles)
        assert all(part >= 0 for part in path.parts.values())
        assert path.phase == max(path.parts, key=path.parts.__getitem__)


def test_critical_path_of_three_cores_is_a_hand_count():
    program = three_cores()
    run = run_of(program, profile=True)
    first, second = critical_paths(program, run, 2)
    assert (first.step, first.sample, first.cycles, first.core, first.layer) == (1, 0, 204, 2, "out")
    assert (first.source_core, first.source_layer, first.phase) == (0, "fc1", "receive")
    # visit, update, spike, message out; 2 + 4 + 3 cycles on the way; then six messages of 16 + 1 + 2 * 4
    assert first.parts == {"send": 45, "stall": 0, "network": 9, "receive": 6 * 25, "link": 0}
    assert first.link == 0 and second.step == 2  # router (0, 0) E, which all six take


@pytest.mark.parametrize("chip", ["tiny", "loihi2"])
def test_critical_path_of_a_program_with_registers_names_the_layers_that_sent(chip):
    x = np.random.default_rng(0).random((2, 1, 6)).astype(np.float32).repeat(8, 1)
    program = compile(float_net(6, 20, 12, 4), chip, x, Options(input_layer="bias"))
    run = simulate(program, x, backend="cycle", profile=True)
    bare = registers_as_inputs(program)
    given = dict(prepare_inputs(program.network, x, None, program.chip)[0])
    found = critical_paths(program, run, 100)
    assert found == critical_paths(bare, simulate(bare, given, backend="cycle", profile=True), 100)
    assert {path.source_layer for path in found} >= {"fc1", "fc2"}
    assert collect_report(program, run)["profile"]["critical_paths"][0]["source_layer"] == found[0].source_layer


def test_critical_path_and_phases_need_a_profile_and_times():
    program = three_cores()
    assert core_phases(program, run_of(program)) is None and critical_paths(program, run_of(program)) is None
    timeless = three_cores(chip_without("cost.spike_cycles"))
    assert core_phases(timeless, run_of(timeless, profile=True)) is None


@settings(max_examples=n_drawn(50), deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60))
def test_latency_percentiles_equal_those_of_a_list(values):
    bins = [probes.bin_of.py_func(v) for v in values]
    taken, count = np.unique(bins, return_counts=True)
    cycles = np.minimum(last_of_bin(taken), max(values))
    profile = simulate(three_cores(), spikes_in(), backend="cycle", profile=True).profile
    profile = replace(
        profile, latency_cycles=cycles, latency_count=count, latency_sum=sum(values), latency_max=max(values)
    )
    found = summarize_latency(profile)
    assert (found.n_messages, found.largest) == (len(values), max(values))
    assert found.mean == pytest.approx(sum(values) / len(values))
    for p, cycles in found.percentiles.items():
        exact = sorted(values)[ceil(p * len(values) / 100) - 1]
        assert exact <= cycles <= (exact if exact < 1024 else exact * 513 / 512)


def test_latency_of_no_message_is_none():
    program = three_cores()
    found = summarize_latency(simulate(program, np.zeros((1, 1, 4)), backend="cycle", profile=True).profile)
    assert (found.n_messages, found.mean, found.largest) == (0, None, None)
    assert found.percentiles == {50: None, 90: None, 99: None}


def test_congested_links_come_first_by_what_waits_for_them():
    program, x = crowded()
    run = simulate(program, x, backend="cycle", profile=True)
    loads = congested_links(run)
    assert [load.link for load in loads] == [38, 0, 24, 25]  # into core 2, (0, 0) E, out of cores 0 and 1
    assert loads[0].flits == loads[1].flits == run.counters["messages_out"].sum() == loads[2].flits + loads[3].flits
    assert loads[0].flits_max_step == run.link_flits[:, 38].max()
    assert 0 < loads[1].mean <= loads[0].mean <= loads[0].peak == 2
    assert congested_links(run, 1) == loads[:1]


def test_critical_path_of_a_stalled_core_names_the_link_it_waits_for():
    program, x = crowded(cost__message_in_cycles=1, cost__synop_dense_cycles=1, cost__visit_cycles=400)
    run = simulate(program, x, backend="cycle", profile=True)
    paths = critical_paths(program, run, 14)
    alone = [path for path in paths if path.source_layer is None]
    assert alone and all((path.link is None) == (path.parts["stall"] == 0) for path in alone)
    program, x = crowded(cost__message_in_cycles=1000, cost__barrier_cycles={"1": 0}, cost__units="shared")
    run = simulate(program, x[:1], backend="cycle", profile=True)
    path = run.profile.path
    stalled = (path["source"] == -1) & (path["stalled"] > 0)
    assert (path["link"][stalled] >= 0).all() and (path["link"][(path["source"] < 0) & ~stalled] == -1).all()
