"""Trace: a run as a timeline for ui.perfetto.dev or chrome://tracing, in the JSON object format of Chrome's traces.

Every core has a thread for each of its units. A step is a slice; inside it each phase is one slice, as long as the
phase's total work in the step, even if that was scattered. Sending (with its stalls) is drawn from the start of the
step, receiving (and a shared unit's work) up to the end of the core's work. Waiting is left empty. The format is "Trace
Event Format" (Google, 2016): complete events X, counters C, metadata M; times are in microseconds.
"""

import json

import numpy as np

from nwcompile.cost.time.profile import BARRIER, IDLE, Phases, core_phases
from nwcompile.errors import ModelError
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.text import PHASES

ERROR_CODE = "NW7104"
STEPS = 200  # Default number of hardware steps, which opens quickly in the viewer; --trace-steps changes it.
PID = 1  # The viewer needs a process number; a chip is one process.
NEW_LINE = ",\n"


def format_trace(program: Program, run: Run, n_steps: int = STEPS) -> str:
    """Format the first `n_steps` hardware steps of a profiled run of one sample as the text of a JSON file.

    Raises ModelError for a run of several samples, without a profile, or on a chip without times.
    """
    phases_of_run = core_phases(program, run)
    if phases_of_run is None or run.profile is None or run.n_samples != 1:
        raise ModelError("a trace takes a run of one sample that was simulated with profile=True, on a chip with times")
    shown = min(n_steps, len(phases_of_run.step_cycles))
    us = program.chip.core.cycle_ns / 1000
    starts = np.concatenate([[0], np.cumsum(phases_of_run.step_cycles[:shown])])
    events = [_name("process_name", 0, f"{program.chip.name}, {run.backend} backend"), _name("thread_name", 0, "steps")]
    events += _step_events(run, starts, us)
    units = tuple(phases_of_run.units)
    for core in range(program.mapping.n_cores):
        for u, unit in enumerate(units):
            tid = 1 + core * len(units) + u
            events.append(_name("thread_name", tid, f"core {core}" + ("" if unit == "shared" else f" {unit}")))
            events += _unit_events(phases_of_run, unit, core, tid, starts, us)
    events += _flight_events(run, starts, us)
    about = {
        "chip": program.chip.name,
        "program": program.hash,
        "n_steps": shown,
        "of_steps": len(phases_of_run.step_cycles),
    }
    lines = NEW_LINE.join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events)
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n{lines}\n]}}\n'


def _name(kind: str, tid: int, name: str) -> dict:
    return {"ph": "M", "pid": PID, "tid": tid, "name": kind, "args": {"name": name}}


def _slice_event(name: str, tid: int, start: float, end: float, us: float, **args) -> dict:
    """A complete event between two times in cycles; equal times have equal text."""
    ts = round(start * us, 6)
    event = {"ph": "X", "pid": PID, "tid": tid, "name": name, "ts": ts, "dur": round(round(end * us, 6) - ts, 6)}
    return {**event, "args": args} if args else event


def _step_events(run: Run, starts: np.ndarray, us: float) -> list[dict]:
    """One slice per step, with its counters and its last core."""
    assert run.profile is not None, "format_trace checks it"
    path, events = run.profile.path, []
    for h, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        counts = {name: int(run.counters[name][h].sum()) for name in ("spikes_out", "messages_out", "synops")}
        if run.bus is not None:
            counts |= {"bus_slots": int(run.bus.slots[h]), "bus_conflicts": int(run.bus.conflicts[h])}
        events.append(_slice_event(f"step {h}", 0, start, end, us, **counts, last_core=int(path["core"][h])))
    return events


def _unit_events(phases_of_run: Phases, unit: str, core: int, tid: int, starts: np.ndarray, us: float) -> list[dict]:
    """The slices of one unit: its steps, and the phases inside them."""
    table = {phase: cycles[: len(starts) - 1, core].tolist() for phase, cycles in phases_of_run.units[unit].items()}
    done = phases_of_run.done_cycles[:, core].tolist()
    events = []
    for h, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        work = {phase: cycles[h] for phase, cycles in table.items() if phase not in (IDLE, BARRIER) and cycles[h] > 0}
        at = start if unit == "send" else start + done[h] - sum(work.values())
        events.append(_slice_event(f"step {h}", tid, start, end, us))
        for phase, cycles in work.items():
            events.append(_slice_event(PHASES[phase], tid, at, at + cycles, us))
            at += cycles
        events.append(_slice_event(PHASES[BARRIER], tid, end - table[BARRIER][h], end, us))
    return events


def _flight_events(run: Run, starts: np.ndarray, us: float) -> list[dict]:
    """The counter of flits in the network."""
    assert run.profile is not None, "format_trace checks it"
    events = []
    for start, curve in zip(starts[:-1].tolist(), run.profile.flight, strict=False):
        for cycles, flits in curve.tolist():
            ts = round((start + cycles) * us, 6)
            counter = {"ph": "C", "pid": PID, "name": "flits in flight", "ts": ts, "args": {"flits": int(flits)}}
            events.append(counter)
    return events
