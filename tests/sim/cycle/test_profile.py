"""What the cycle backend notes about its own time: it changes nothing, adds up, and is the same on any machine."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.summary import compare_multicast
from nwcompile.cost.time.work import RECEIVE, SEND, compute_work
from nwcompile.errors import OptionError
from nwcompile.kernels.cores.probes import N_BINS, bin_of
from nwcompile.sim import simulate
from nwcompile.sim.cycle.profile import last_of_bin
from tests.long import n_drawn
from tests.made.programs import crowded, spikes_in, three_cores
from tests.made.random_programs import inputs, programs

SAME = ("stall_cycles", "done_cycles", "link_peak", "link_mean", "latency_cycles", "latency_count")
OF_ONE_SAMPLE = ("ready", "injected", "since", "end", "total")


def profiled(program, x, **more):
    run = simulate(program, x, backend="cycle", profile=True, **more)
    return run, run.profile


@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_profile_changes_nothing_and_phases_fit_into_the_step(units):
    program, x = crowded(cost__units=units)
    plain = simulate(program, x, backend="cycle")
    run, found = profiled(program, x)
    assert plain.profile is None and np.array_equal(plain.step_cycles, run.step_cycles)
    assert all(np.array_equal(plain.counters[name], run.counters[name]) for name in plain.counters)
    done = compute_work(program, run.counters, run.link_flits, run.n_samples)
    length = (run.step_cycles - done.barrier_cycles)[:, None]
    send, receive = (sum(done.cycles[event] for event in events) for events in (SEND, RECEIVE))
    assert found.stall_cycles.sum() > 100 and (found.stall_cycles[:, 2] == 0).all()  # core 2 sends nothing
    assert (found.done_cycles <= length).all()
    if units == "overlap":
        assert (send + found.stall_cycles <= length).all() and (receive <= found.done_cycles).all()
    else:
        assert (send + receive + found.stall_cycles <= found.done_cycles).all()
        only_sends = found.done_cycles[:, :2].sum()
        assert (send + receive + found.stall_cycles)[:, :2].sum() == only_sends  # never idle before it is done


def test_profile_time_in_buffers_is_time_in_flight():
    program, x = crowded()
    run, found = profiled(program, x)
    assert found.latency_count.sum() == run.counters["messages_out"].sum()
    length = run.step_cycles.sum() - compute_work(program, run.counters, run.link_flits, 3).barrier_cycles * 14
    in_buffers = found.link_mean.sum() * length  # Little's law, one flit a message
    assert in_buffers == pytest.approx(found.latency_sum - found.stall_cycles.sum(), rel=1e-12)
    carried = run.link_flits.sum(0) > 0
    assert np.array_equal(found.link_peak > 0, carried)
    assert (found.link_peak <= 2).all() and (found.link_mean <= found.link_peak).all() and found.link_peak.max() == 2


def test_profile_of_one_message_is_a_hand_count():
    program = three_cores()
    x = np.zeros((1, 1, 4), np.int64)
    run, found = profiled(program, x, flight_steps=9)
    assert found.latency_count.sum() == 0 and found.latency_max == 0
    x[0, 0, 0] = 1
    run, found = profiled(program, x, flight_steps=9)
    # a neuron is visited (6), updated (4), spikes (30) and sends (5); its flit takes 2 + 4 + 3 cycles
    assert found.latency_cycles[0] == 9 and found.path["source"].tolist() == [-2, 0, -1]
    assert found.path["source_layer"].tolist() == ["", "fc1", ""]
    assert found.path["core"].tolist() == [0, 2, 2]
    assert found.path["since"][1] - found.path["injected"][1] == 9
    assert found.path["injected"][1] == found.path["ready"][1] == 45
    assert found.path["end"][1] == found.path["total"][1] == run.step_cycles[1] - 1000
    assert len(found.flight) == 3 and found.flight[0][:, 1].tolist() == [0]
    assert found.flight[1][:2].tolist() == [[0, 0], [44, 2]] and found.flight[1][-1, 1] == 0


@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_profile_does_not_depend_on_threads(monkeypatch, units):
    program, x = crowded(cost__units=units)
    found = []
    for n in (1, 2, 3):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=n: set(range(n)))
        found.append(profiled(program, x, flight_steps=4)[1])
    for other in found[1:]:
        for name in SAME:
            assert np.array_equal(getattr(found[0], name), getattr(other, name)), name
        assert (found[0].latency_sum, found[0].latency_max) == (other.latency_sum, other.latency_max)
        assert all(np.array_equal(found[0].path[name], other.path[name]) for name in found[0].path)
        assert all(np.array_equal(a, b) for a, b in zip(found[0].flight, other.flight, strict=True))
    assert 0 < found[0].path["sample"].max() < 3


def test_profile_bins_are_exact_and_then_within_one_in_512():
    values = np.concatenate([np.arange(5000), np.array([1 << k for k in range(12, 23)]) - 1])
    bins = np.array([bin_of.py_func(v) for v in values])
    last = last_of_bin(bins)
    assert (last >= values).all() and (last[:1024] == values[:1024]).all()
    assert ((last - values) * 512 <= values).all() and bins.max() < N_BINS
    assert all(bin_of.py_func(v + 1) == b + 1 for v, b in zip(last[:4000], bins[:4000], strict=True))


def test_profile_needs_the_cycle_backend():
    with pytest.raises(OptionError) as e:
        simulate(three_cores(), spikes_in(), backend="reference", profile=True)
    assert str(e.value) == "profile=True needs times, and only backend 'cycle' measures them, not 'reference'"


@settings(max_examples=n_drawn(25), deadline=None)
@given(st.data())
def test_profile_of_any_program_adds_up(data):
    program = data.draw(programs())
    x = data.draw(inputs(program))
    run, found = profiled(program, x, flight_steps=3)
    copies = round(run.n_samples * compare_multicast(program, run.activity, run.window)["unicast"].messages)
    assert found.latency_count.sum() == copies + run.counters["messages_io"].sum()
    assert (found.stall_cycles >= 0).all() and (found.link_mean <= found.link_peak).all()
    limit = program.chip.noc.buffer_flits * program.chip.noc.virtual_channels
    assert found.link_peak.max(initial=0) <= limit
    assert found.latency_max >= (found.latency_cycles.max() if len(found.latency_cycles) else 0)
    of_message = found.path["source"] >= 0
    times = np.stack([found.path[name][of_message] for name in OF_ONE_SAMPLE])
    assert (np.diff(times, axis=0) >= 0).all() and (found.path["stalled"][of_message] <= times[0]).all()
    assert (found.path["end"] <= found.path["total"]).all()
    assert all(curve[-1, 1] == 0 for curve in found.flight if len(curve))
