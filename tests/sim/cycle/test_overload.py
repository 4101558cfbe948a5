"""Overload: messages that find no room are lost where the chip drops them, and no step goes on for ever."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.time.profile import core_phases
from nwcompile.errors import BackendError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.tables import STUCK
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text
from nwcompile.sim import simulate
from nwcompile.sim.crosscheck import crosscheck
from nwcompile.sim.cycle.noc import replay_packets
from tests.long import EXAMPLES, n_drawn
from tests.made.chips import small_chip
from tests.made.nets import FIXED
from tests.made.programs import SMALLEST_BUFFERS, all_to_one, with_keys
from tests.made.random_programs import buses, chips, inputs, programs

FREE = {f"cost__{event}_cycles": 0 for event in ("visit", "update", "spike")}


def two_cores(n=8, **chip) -> Program:
    """Every neuron of `a` on core 0 sends one message to `b`, on core 1 beside it; the weight of neuron i is 2**i."""
    weights = 2 ** np.arange(n, dtype=np.int16)[None]
    edges = [Dense("in", "a", np.full((n, 1), 2, np.int8)), Dense("a", "b", weights)]
    spec = FIXED.replace(threshold=(1 << 22))
    network = Network.from_arrays({"a": (FIXED, n), "b": (spec, 1)}, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0] * n, "b": [1]}, [[0, 0, 0], [0, 0, 1]])
    figures = {"cost__message_in_cycles": 20, **FREE, **chip}
    return emit(network, schedule(network), mapping, small_chip(**figures), None, {})


def test_a_message_that_finds_its_injection_buffer_full_is_lost():
    """One every 5 cycles from cycle 5 on; core 1 takes 25 for each, in the way is room for two more.

    The first is in the receive queue at 5 + 2 + 3 = 10 and taken; the second waits there from 15 to 35, the third in
    the injection buffer, which it leaves at 37, when the slot of the second is free; until 39 messages are lost.
    """
    program = two_cores(noc__on_full="drop", **SMALLEST_BUFFERS)
    run = simulate(program, np.array([[[1], [0]]]), "cycle", record="all")
    assert run.dropped.at.tolist() == [[0, 0], [4, 0], [0, 0], [0, 0]]
    assert run.dropped.to.tolist() == [[0, 0], [0, 4], [0, 0], [0, 0]]
    assert run.n_dropped == 4
    assert run.states["b"]["v"][0, 0, 0] == 64 * (1 + 2 + 4 + 128)  # what the first three and the last one carry
    assert run.counters["messages_out"].sum() == 8 and run.counters["deliveries"][1].tolist() == [0, 4]
    assert run.counters["synops"][1].sum() == 4
    # taken at 10, 35, 60 and 85
    assert run.step_cycles[1] - program.chip.barrier_cycles(1) == 85 + 25
    run.verify()


def test_a_chip_that_stalls_loses_nothing():
    run = simulate(two_cores(**SMALLEST_BUFFERS), np.array([[[1], [0]]]), "cycle", record="all")
    assert run.dropped is None and run.n_dropped == 0
    assert run.states["b"]["v"][0, 0, 0] == 64 * 255


def test_hops_and_flits_are_those_of_messages_that_were_not_lost():
    edges = [Dense("in", "a", np.full((30, 1), 2, np.int8)), Dense("a", "b", np.full((9, 30), 2, np.int8))]
    network = Network.from_arrays({"a": (FIXED, 30), "b": (FIXED, 9)}, edges, {"in": 1})
    sites = [[0, 0, 0], [2, 1, 0], [1, 1, 0]]
    mapping = Mapping.from_arrays({"a": [0] * 30, "b": [1, 1, 1, 2, 2, 2, 1, 1, 2]}, sites)
    program = emit(
        network, schedule(network), mapping, small_chip(**FREE, **SMALLEST_BUFFERS, noc__on_full="drop"), None, {}
    )
    run = simulate(program, np.array([[[1], [0]]]), "cycle")
    to_1, to_2 = (run.counters["deliveries"][1, core] for core in (1, 2))
    assert 0 < to_1 < 30 and 0 < to_2 < 30
    assert run.dropped.to[1].tolist() == [0, 30 - to_1, 30 - to_2]
    assert run.counters["hops_ew"][1].tolist() == [2 * to_1 + to_2, 0, 0]
    assert run.counters["hops_ns"][1].tolist() == [to_1 + to_2, 0, 0]
    assert run.link_flits[1, 24] == run.link_flits[1, 36:].sum() == to_1 + to_2
    assert run.counters["messages_out"][1, 0] == 60  # each took the core's time
    assert run.energy_pj["message_out"] == pytest.approx(60 * 111.0)


def test_input_and_output_are_lost_at_their_sites():
    keys = {"noc__on_full": "drop", "io__sites": ["0,0,0"]}
    edges = [Dense("in", "a", np.full((40, 9), 2, np.int8))]
    network = Network.from_arrays({"a": (FIXED, 40)}, edges, {"in": 9})
    mapping = Mapping.from_arrays({"a": [0] * 40}, [[1, 0, 0]])
    program = emit(network, schedule(network), mapping, small_chip(**FREE, **SMALLEST_BUFFERS, **keys), None, {})
    run = simulate(program, np.array([[[1] * 9, [0] * 9]]), "cycle")
    assert run.dropped.at.shape == (3, 2)
    came, gone = run.counters["messages_io_in"].sum(), run.counters["messages_io_out"].sum()
    assert 0 < came < 9 and run.dropped.at[0].tolist() == [0, 9 - came] and run.dropped.to[0].tolist() == [9 - came, 0]
    left = run.link_flits[1, 36]
    assert gone == 40 and run.dropped.at[1].tolist() == [40 - left, 0] and run.dropped.to[1].tolist() == [0, 40 - left]
    assert run.counters["hops_io_ew"].sum() == came + left


@settings(max_examples=n_drawn(40), deadline=None, derandomize=True)
@given(data=st.data())
def test_what_is_not_lost_arrives(data):
    stalls = data.draw(programs())
    x = data.draw(inputs(stalls))
    program = with_keys(stalls, noc__on_full="drop")
    run = simulate(program, x, "cycle", profile=True)
    run.verify()
    n = program.mapping.n_cores
    counters, lost = run.counters, run.dropped
    n_cores, taken = program.chip.n_cores, run.profile.latency_count.sum()
    assert lost.at.sum() == run.n_dropped <= lost.to.sum()
    assert program.chip.noc.flits_per_message > 1 or run.link_flits[:, -n_cores:].sum() >= taken
    if program.chip.noc.multicast == "unicast":
        assert lost.to.sum() == run.n_dropped
        sent = counters["messages_out"].sum() + counters["messages_io_out"].sum() - lost.at[:, :n].sum()
        assert taken == sent + counters["messages_io_in"].sum()
        assert run.link_flits[:, -2 * n_cores : -n_cores].sum() == run.link_flits[:, -n_cores:].sum()
    bound = floorline(program, counters, run.link_flits, run.n_samples).bound_cycles
    assert (bound <= run.step_cycles).all()
    for table in core_phases(program, run).units.values():
        assert all((cycles >= 0).all() for cycles in table.values())
    if run.n_dropped == 0:
        other = simulate(stalls, x, "cycle")
        for name in program.network.layers:
            assert np.array_equal(run.spikes[name], other.spikes[name])
        assert np.array_equal(run.link_flits, other.link_flits)
    plain = simulate(program, x, "cycle")
    parts = [simulate(program, x[b : b + 1], "cycle") for b in range(len(x))]
    assert np.array_equal(plain.step_cycles, run.step_cycles)
    assert np.array_equal(plain.dropped.at, sum(part.dropped.at for part in parts))


def test_the_report_says_how_many_were_lost_and_where():
    program = two_cores(noc__on_full="drop", **SMALLEST_BUFFERS)
    run = simulate(program, np.array([[[1], [0]]] * 2), "cycle")
    doc = collect_report(program, run)
    assert doc["run"]["n_dropped"] == 8
    found = doc["dropped"]
    text = (
        "dropped because an injection buffer was full: 4 messages per sample, 50.0 % of all; "
        "most at core 0, link (0, 0) port 0 inject (4), most to core 1 (4)"
    )
    assert found == {
        "messages_per_sample": 4, "percent": 50, "text": text, "to": [{"place": "core 1", "messages_per_sample": 4}],
        "at": [{"place": "core 0", "link": "(0, 0) port 0 inject", "messages_per_sample": 4}],
    }  # fmt: skip
    assert text in render_text(doc).splitlines() and text in render_html(doc).replace("\u00a0", " ")
    calm = with_keys(program, noc__buffer_flits=20)
    assert (
        collect_report(calm, simulate(calm, np.ones((1, 1, 1)), "cycle"))["dropped"]["text"] == "no message was dropped"
    )
    stalls = with_keys(program, noc__on_full="stall")
    assert collect_report(stalls, simulate(stalls, np.ones((1, 1, 1)), "cycle"))["dropped"] is None


def test_totals_tell_what_was_lost():
    program = two_cores(noc__on_full="drop", **SMALLEST_BUFFERS)
    x = np.tile(np.array([[1], [0]]), (2, 3, 1))
    steps, sums = (simulate(program, x, "cycle", record=record) for record in ("spikes", "totals"))
    assert steps.n_dropped == sums.n_dropped == 24
    assert sums.dropped.to.tolist() == [[0, 24]]
    assert sums.counters["deliveries"].sum() == steps.counters["deliveries"].sum()


def test_threads_do_not_change_what_is_lost(monkeypatch):
    program, x = all_to_one(noc__on_full="drop"), np.ones((3, 4, 3), np.int8)
    found = []
    for n in (1, 2, 3):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=n: set(range(n)))
        found.append(simulate(program, x, "cycle"))
    assert found[0].n_dropped > 0
    for other in found[1:]:
        assert np.array_equal(found[0].dropped.at, other.dropped.at)
        assert np.array_equal(found[0].step_cycles, other.step_cycles)
        assert np.array_equal(found[0].output, other.output)


@pytest.mark.parametrize("units", ["overlap", "shared"])
@pytest.mark.parametrize("on_full", ["stall", "drop"])
@pytest.mark.parametrize("flits", [1, 3])
def test_all_to_one_through_the_smallest_buffers_ends(units, on_full, flits):
    program = all_to_one(cost__units=units, noc__on_full=on_full, noc__flits_per_message=flits, **FREE)
    run = simulate(program, np.ones((2, 10, 3), np.int8), "cycle")
    arrived = run.counters["deliveries"].sum()
    assert (run.n_dropped > 0) == (on_full == "drop") and arrived > 500


@pytest.mark.long
@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_a_long_overload_with_drops_loses_and_keeps_all(units):
    keys = {"noc__on_full": "drop", "noc__virtual_channels": 2, "cost__units": units, **FREE}
    program = all_to_one(n_senders=700, core__max_neurons=1000, core__synapse_bits=None, **keys)
    n_steps = 10 * EXAMPLES
    run = simulate(program, np.ones((1, n_steps, 3), np.int8), "cycle", record="totals", profile=True)
    counters = run.counters
    inputs_in = n_steps * 3 * 11
    assert counters["deliveries"].sum() == counters["messages_out"].sum() - run.n_dropped + inputs_in
    assert run.profile.latency_count.sum() == counters["messages_out"].sum() - run.n_dropped


def test_other_backends_refuse_a_chip_that_drops():
    program, x = two_cores(noc__on_full="drop"), np.ones((1, 2, 1))
    text = (
        "cannot tell which messages small drops (noc.on_full = 'drop'); use backend 'cycle', or noc.on_full = 'stall'"
    )
    for backend in ("reference", "sequence"):
        with pytest.raises(BackendError) as caught:
            simulate(program, x, backend)
        assert str(caught.value) == f"backend {backend!r} {text}"
    with pytest.raises(BackendError) as caught:
        crosscheck(program, x, against=("cycle", "sequence"))
    assert str(caught.value) == f"backend 'sequence' {text}"
    with pytest.raises(OptionError) as caught:
        replay_packets(program.chip, [0], [0], [1], [1])
    assert str(caught.value) == "packets wait at their source, and small has noc.on_full = 'drop'; set it to 'stall'"


def test_a_chip_that_drops_needs_costs():
    with pytest.raises(BackendError) as caught:
        simulate(two_cores(noc__on_full="drop", cost__message_in_cycles=None), np.ones((1, 2, 1)), "cycle")
    assert str(caught.value) == (
        "which messages small drops (noc.on_full = 'drop') depends on its times, and it gives no "
        "cost.message_in_cycles; give them, or set noc.on_full = 'stall'"
    )


def test_a_step_that_takes_too_long_names_its_link():
    # 8 messages of 25 cycles each from cycle 10 on take 210
    program = two_cores(noc__max_step_cycles=209, **SMALLEST_BUFFERS)
    x = np.array([[[0], [0]], [[1], [0]]])
    with pytest.raises(BackendError) as caught:
        simulate(program, x, "cycle")
    assert str(caught.value) == (
        "step 1 of sample 1 on small: not done after 209 cycles (noc.max_step_cycles), 8 of 8 flits offered were "
        "accepted; the busiest link is (0, 0) port 1 eject; send less, place it again, or raise noc.max_step_cycles"
    )
    run = simulate(with_keys(program, noc__max_step_cycles=210), x, "cycle")
    assert run.step_cycles[1] == 210 + 2 * program.chip.barrier_cycles(1)
    with pytest.raises(BackendError) as caught:
        simulate(with_keys(program, noc__max_step_cycles=60, noc__link_cycles_per_flit=9), x, "cycle", record="totals")
    assert str(caught.value) == (
        "step 1 of sample 1 on small: not done after 60 cycles (noc.max_step_cycles), 3 of 8 flits offered were "
        "accepted; the busiest link is (0, 0) port 0 inject; send less, place it again, or raise noc.max_step_cycles"
    )


@pytest.mark.parametrize("on", [chips, buses])
@settings(max_examples=n_drawn(25), deadline=None, derandomize=True)
@given(data=st.data())
def test_a_step_may_take_max_step_cycles_and_no_cycle_more(on, data):
    program = with_keys(data.draw(programs(on)), cost__min_step_cycles=None, cost__sample_cycles=None)
    x = data.draw(inputs(program))[:1]
    done = simulate(program, x, "cycle").step_cycles - program.chip.barrier_cycles(program.mapping.n_tiles)
    most = int(done.max())
    if program.schedule.period > 1 or most < 2:
        return
    again = simulate(with_keys(program, noc__max_step_cycles=most), x, "cycle").step_cycles
    assert np.array_equal(again - program.chip.barrier_cycles(program.mapping.n_tiles), done)
    with pytest.raises(BackendError, match=f"step {done.argmax()} of sample 0 on random: not done after {most - 1} "):
        simulate(with_keys(program, noc__max_step_cycles=most - 1), x, "cycle")


def test_a_run_that_we_let_hang_says_so(monkeypatch):
    program, x = two_cores(**SMALLEST_BUFFERS), np.array([[[1], [0]]])
    limits = {"longest_step": 0, "longest_idle": 30, "longest_message": 1}
    monkeypatch.setattr("nwcompile.sim.cycle.run.longest_step", lambda *_: limits)
    with pytest.raises(BackendError) as caught:
        simulate(program, x, "cycle")
    assert str(caught.value) == (
        "step 1 of sample 0 on small: not done after twice the sequential time of its work, "
        "4 of 8 flits offered were accepted; the busiest link is (0, 0) port 1 eject; please report this chip file"
    )
    monkeypatch.setattr("nwcompile.sim.cycle.run.run_samples", lambda *_: STUCK)
    with pytest.raises(BackendError) as caught:
        simulate(program, x, "cycle")
    assert str(caught.value) == (
        "step 0 of sample 0 on small: messages got stuck, 0 of 0 flits offered were accepted; "
        "please report this chip file"
    )


@pytest.mark.parametrize("sync", ["barrier", "neighbors"])
@pytest.mark.parametrize("max_neurons", [64, 4096])
def test_visits_of_neurons_that_are_not_in_use_are_work_of_a_step(sync, max_neurons):
    chip = small_chip().replace({"cost.visits": "all", "cost.sync": sync, "core.max_neurons": max_neurons})
    network = Network.from_arrays({"a": (FIXED, (2,))}, [Dense("in", "a", np.ones((2, 2), np.int32))], {"in": (2,)})
    mapping = Mapping.from_arrays({"a": [0, 1]}, chip.sites[[0, 4]])
    program = emit(network, schedule(network), mapping, chip, Activity.uniform(network), {})
    silent = np.zeros((1, 3, 2), np.int8)
    assert crosscheck(program, silent).agree
    steps = simulate(program, silent, "cycle").step_cycles
    assert (steps[1:] >= max_neurons * chip.cost.visit_cycles).all()
