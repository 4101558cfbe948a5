"""The timeline: JSON that Perfetto reads, slices that nest and add up to the counters, a file that stays small."""

import json

import numpy as np
import pytest

from nwcompile.cost.time.work import compute_work
from nwcompile.errors import ModelError
from nwcompile.report.export.perfetto import format_trace
from nwcompile.sim import simulate
from tests.made.programs import chip_without, crowded, run_of, spikes_in, three_cores

EVENTS = {"visits": "visit", "updates": "update", "spikes": "spike", "messages out": "message_out",
          "messages in": "message_in", "words": "word", "synops": "synop_dense"}  # fmt: skip


def traced(program, x, n_steps=200):
    run = simulate(program, x[:1], backend="cycle", profile=True, flight_steps=n_steps)
    return run, json.loads(format_trace(program, run, n_steps))


@pytest.mark.parametrize("units", ["overlap", "shared"])
def test_trace_slices_nest_and_add_up(units):
    program, x = crowded(cost__units=units)
    run, doc = traced(program, x)
    events = doc["traceEvents"]
    assert doc["displayTimeUnit"] == "ns" and doc["otherData"]["n_steps"] == 14
    assert all(event["pid"] == 1 and event["ph"] in "MXC" for event in events)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    expected = [f"core {c} {u}" for c in range(3) for u in ("send", "receive")] if units == "overlap" else [
        f"core {c}" for c in range(3)]  # fmt: skip
    assert list(names.values()) == ["steps", *expected]
    spent = dict.fromkeys([*EVENTS, "stalled", "barrier"], 0.0)
    for tid in names:
        slices = [e for e in events if e["ph"] == "X" and e["tid"] == tid]
        steps = [e for e in slices if e["name"].startswith("step ")]
        assert [s["name"] for s in steps] == [f"step {h}" for h in range(14)]
        ends = [s["ts"] + s["dur"] for s in steps]
        assert steps[0]["ts"] == 0 and [s["ts"] for s in steps[1:]] == pytest.approx(ends[:-1], abs=1e-9)
        assert ends[-1] == pytest.approx(run.step_cycles.sum() / 1000)
        for step, end in zip(steps, ends, strict=True):
            inner = [e for e in slices if e is not step and step["ts"] <= e["ts"] < end - 1e-9]
            assert all(e["dur"] > 0 and e["ts"] + e["dur"] <= end + 1e-9 for e in inner)
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-9 for a, b in zip(inner, inner[1:], strict=False))
        for e in slices:
            if e["name"] in spent:
                spent[e["name"]] += e["dur"]
    done = compute_work(program, run.counters, run.link_flits, 1)
    for name, event in EVENTS.items():
        assert spent[name] == pytest.approx(done.cycles[event].sum() / 1000), name
    assert spent["stalled"] == pytest.approx(run.profile.stall_cycles.sum() / 1000) and spent["stalled"] > 0
    assert spent["barrier"] == pytest.approx(14 * (len(names) - 1) * 1.0)
    flights = [(e["ts"], e["args"]["flits"]) for e in events if e["ph"] == "C"]
    assert [t for t, _ in flights] == sorted(t for t, _ in flights) and flights[-1][1] == 0
    assert 2 < max(n for _, n in flights) <= 2 * 4


def test_trace_of_the_first_steps_only():
    program, x = crowded()
    run, doc = traced(program, x, 3)
    steps = [e for e in doc["traceEvents"] if e["ph"] == "X" and e["tid"] == 0]
    assert len(steps) == 3 and doc["otherData"]["of_steps"] == 14
    assert steps[1]["args"]["messages_out"] == run.counters["messages_out"][1].sum()
    end = steps[-1]["ts"] + steps[-1]["dur"]
    assert all(e["ts"] + e.get("dur", 0) <= end + 1e-9 for e in doc["traceEvents"] if e["ph"] != "M")


def test_trace_of_a_long_crowded_step_keeps_few_points():
    program, _ = crowded(cost__synop_dense_cycles=400)
    run, doc = traced(program, np.ones((1, 3, 8), np.int64))
    counts = [len(curve) for curve in run.profile.flight]
    assert max(counts) <= 256 and run.step_cycles.max() > 100_000
    assert max(e["args"]["flits"] for e in doc["traceEvents"] if e["ph"] == "C") == 8


@pytest.mark.parametrize("case", ["no profile", "two samples", "no times"])
def test_trace_of_another_run_is_refused(case):
    program = three_cores(chip_without("cost.visit_cycles") if case == "no times" else None)
    x = spikes_in() if case == "two samples" else spikes_in()[:1]
    run = simulate(program, x, backend="cycle", profile=case != "no profile")
    with pytest.raises(ModelError) as e:
        format_trace(program, run)
    assert str(e.value) == (
        "a trace takes a run of one sample that was simulated with profile=True, on a chip with times"
    )


def test_trace_is_the_same_every_time():
    program = three_cores()
    runs = [run_of(program, profile=True, flight_steps=5) for _ in range(2)]
    assert runs[0].n_samples == 2
    texts = [format_trace(program, traced(program, spikes_in())[0]) for _ in range(2)]
    assert texts[0] == texts[1]
