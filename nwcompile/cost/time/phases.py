"""Phases: the activities of every core in every step, waiting included. They add up to the step's time."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.time.work import Work, compute_work
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

PHASE_OF = {"synop_dense": "synop", "synop_sparse": "synop", "synop_conv": "synop"}  # else the event's own name
STALL = "stall"  # A message is ready, but the network has no room for it.
IDLE = "idle"  # The unit waits for messages, or for the end of the step.
BARRIER = "barrier"  # All cores have finished and synchronize.


@dataclass(frozen=True, eq=False)
class Phases:
    """Core cycles by unit and phase, float64[H, core], summed over samples. A unit's phases add up to `step_cycles`.

    Phases of the send side: visit, update, spike, message_out, stall (no room to inject), idle, barrier. Phases of the
    receive side: message_in, word, synop, idle, barrier. A shared unit has all of them. `done_cycles` is
    `Profile.done_cycles`.
    """

    units: dict[str, dict[str, np.ndarray]]
    step_cycles: np.ndarray
    done_cycles: np.ndarray

    def of_cores(self) -> dict[str, dict[str, np.ndarray]]:
        """Return float64[core] by unit and phase: the cycles of all steps."""
        return {unit: {phase: cycles.sum(0) for phase, cycles in table.items()} for unit, table in self.units.items()}


def core_phases(program: Program, run: Run) -> Phases | None:
    """Return the phases of a profiled run; None without a profile or times, or if the run has only totals."""
    if run.profile is None or run.step_cycles is None or run.link_flits is None or run.totals is not None:
        return None
    done = compute_work(program, run.counters, run.link_flits, run.n_samples)
    units = {unit: _phases_of(done, unit, run) for unit in done.units}
    return Phases(units, run.step_cycles, run.profile.done_cycles)


def _phases_of(done: Work, unit: str, run: Run) -> dict[str, np.ndarray]:
    """Return the phases of one unit: its work by event, and the waiting in the remaining time."""
    assert run.profile is not None and run.step_cycles is not None, "core_phases tests both"
    table: dict[str, np.ndarray] = {}
    for event in done.units[unit]:
        phase = PHASE_OF.get(event, event)
        table[phase] = table.get(phase, 0.0) + done.cycles[event].astype(np.float64)
    if unit != "receive":
        table[STALL] = run.profile.stall_cycles
    table[IDLE] = (run.step_cycles - done.barrier_cycles)[:, None] - sum(table.values())
    table[BARRIER] = np.full_like(table[IDLE], done.barrier_cycles)
    return table
