"""`record="totals"`: the sums of the same run step by step, in memory that does not grow with the steps."""

import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nwcompile.cost.summary import summarize
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import simulate
from nwcompile.sim.cycle import totals
from tests.long import n_drawn
from tests.made.chips import small_chip
from tests.made.programs import crowded, run_of, spikes_in, three_cores
from tests.made.random_programs import inputs, programs

SUMMED = ("stall_cycles", "done_cycles")
EQUAL = ("link_peak", "link_mean", "latency_cycles", "latency_count", "latency_sum", "latency_max")


def both(program, x, **more):
    """The run step by step, and the one that keeps totals, their sums compared."""
    whole = simulate(program, x, backend="cycle", record="all", profile=True, **more)
    kept = simulate(program, x, backend="cycle", record="totals", profile=True, **more)
    kept.verify()
    assert kept.counters.keys() == whole.counters.keys()
    for name, counts in whole.counters.items():
        assert np.array_equal(kept.counters[name], counts.sum(0, keepdims=True)), name
    assert np.array_equal(kept.link_flits, whole.link_flits.sum(0, keepdims=True))
    for name, spikes in whole.spikes.items():
        assert np.array_equal(kept.spikes[name], np.abs(spikes.astype(np.int64)).sum(1, keepdims=True))
    for name, states in kept.states.items():
        assert all(np.array_equal(states[s][:, 0], whole.states[name][s][:, -1]) for s in ("u", "v"))
    assert kept.seconds == whole.seconds
    assert whole.energy_pj is None or kept.energy_pj == pytest.approx(whole.energy_pj, rel=1e-14)
    assert (kept.energy_pj is None) == (whole.energy_pj is None)
    for name in SUMMED:
        assert np.array_equal(getattr(kept.profile, name), getattr(whole.profile, name).sum(0, keepdims=True))
    assert all(np.array_equal(getattr(kept.profile, name), getattr(whole.profile, name)) for name in EQUAL)
    return whole, kept


@pytest.mark.parametrize("chunk", [1, 3, 128])
def test_totals_are_the_sums_of_the_steps_whatever_is_done_at_once(monkeypatch, chunk):
    monkeypatch.setattr(totals, "CHUNK_STEPS", chunk)
    program, x = crowded()
    whole, kept = both(program, x)
    assert (kept.totals.n_steps, kept.totals.n_hardware_steps) == (12, 14)
    alone = [simulate(program, x[b : b + 1], backend="cycle").step_cycles.max() for b in range(3)]
    assert kept.totals.longest_cycles == max(alone)
    slowest = whole.profile.path["total"].argmax()
    assert {n: v.tolist() for n, v in kept.profile.path.items() if n != "link"} == {
        n: [v[slowest]] for n, v in whole.profile.path.items() if n != "link"
    }


@settings(max_examples=n_drawn(25), deadline=None)
@given(st.data(), st.sampled_from(["aligned", "hardware"]))
def test_totals_of_any_program_are_the_sums_of_its_steps(data, window):
    program = data.draw(programs())
    x = data.draw(inputs(program))
    chunk, totals.CHUNK_STEPS = totals.CHUNK_STEPS, 2
    try:
        both(program, x, window=window)
    finally:
        totals.CHUNK_STEPS = chunk


def test_totals_do_not_depend_on_threads(monkeypatch):
    program, x = crowded()
    runs = []
    for n in (1, 2):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=n: set(range(n)))
        runs.append(both(program, x)[1])
    assert runs[0].totals == runs[1].totals and np.array_equal(runs[0].output, runs[1].output)


def test_totals_take_no_more_memory_for_more_steps():
    program, _ = crowded()
    peaks = []
    for steps in (200, 200, 20_000):  # the first run loads what is needed once
        tracemalloc.start()
        run = simulate(program, None, steps=steps, backend="cycle", record="totals", profile=True)
        given_zeros = steps * 8 * 4  # silent input, which is never written
        peaks.append(tracemalloc.get_traced_memory()[1] - given_zeros)
        tracemalloc.stop()
        assert run.totals.n_steps == steps
    assert peaks[2] < 2 * peaks[1]  # the steps themselves would take 20 MB


@pytest.mark.parametrize("window", ["aligned", "hardware"])
def test_totals_name_the_step_in_which_a_neuron_fires_too_often(window):
    spec = NeuronSpec(threshold=64, strict=False, spikes="multi", reset="subtract", fixed=FixedPoint())
    edges = [Dense("in", "a", np.array([[1]], np.int8)), Dense("a", "b", np.array([[4]], np.int8))]
    network = Network.from_arrays({"a": (spec, 1), "b": (spec, 1)}, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0], "b": [1]}, [[0, 0, 0], [2, 0, 0]])
    program = emit(network, schedule(network), mapping, small_chip(noc__payload_bits=4), None, {}, "graded")
    x = np.zeros((2, 2 * totals.CHUNK_STEPS, 1), np.int32)
    x[1, totals.CHUNK_STEPS + 5] = 5
    texts = []
    for record in ("spikes", "totals"):
        with pytest.raises(ModelError) as error:
            simulate(program, x, backend="cycle", record=record, window=window)
        texts.append(str(error.value))
    step = totals.CHUNK_STEPS + 5 + program.schedule.offset["b"] * (window == "hardware")
    assert texts[0].startswith(f"layer 'b' fires 20 spikes at once (sample 1, step {step}, neuron 0), but a message ")
    assert texts[1] == texts[0]


@pytest.mark.parametrize(
    "more, text",
    [
        ({"backend": "reference"}, "record='totals' needs backend 'cycle', not 'reference'; use record='spikes'"),
        ({"backend": "cycle", "flight_steps": 3, "profile": True},
         "record='totals' keeps no steps, so there are no flits in flight to show; use record='spikes'"),
    ],
)  # fmt: skip
def test_totals_that_cannot_be_are_refused(more, text):
    with pytest.raises(OptionError) as e:
        simulate(three_cores(), spikes_in(), record="totals", **more)
    assert str(e.value) == text


def test_totals_make_no_report():
    program = three_cores()
    with pytest.raises(ModelError) as e:
        summarize(program, run_of(program, record="totals"))
    assert str(e.value) == (
        "the run keeps totals only, and a report shows steps; simulate with record='spikes' for one"
    )
