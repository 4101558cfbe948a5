"""How a segmented bus was used, and what its schedule could not be shorter than."""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.program import Program
from nwcompile.ir.run import Run


@dataclass(frozen=True, eq=False)
class BusUse:
    """Means of a step and sample, unless said otherwise; H hardware steps.

    `slots`, `least_slots`, `conflicts`: float64[H]; `least_slots` is what the busiest port, or the busiest switch over
    all lanes, needs of each step, `least_by` the link with most of it in all steps. `transfers`, and the parts of them
    that `waited` and that had `conflicts`, are those of `BusSchedule`. `lanes_mean`: lanes in use in a slot of the
    schedule, `lanes_peak` the most. `segment_transfers` float64[segment], and `segment_use`, the part of the lanes'
    slots that they took. `schedule_us`: how long the bus worked; `schedule_part`: of the measured time, None where the
    chip has no times. `queue_peak`: most messages waiting in a core. Of a run that keeps totals only, arrays by step
    have one row, the mean of all, and `least_slots` is that of all steps together.
    """

    slots: np.ndarray
    least_slots: np.ndarray
    least_by: int
    conflicts: np.ndarray
    transfers: float
    waited_part: float
    conflict_part: float
    lanes_mean: float
    lanes_peak: int
    segment_transfers: np.ndarray
    segment_use: np.ndarray
    schedule_us: float
    schedule_part: float | None
    queue_peak: int


def bus_use(program: Program, run: Run) -> BusUse | None:
    """What a run of the cycle backend says of its bus; None on other chips and backends."""
    bus, flits, chip = run.bus, run.link_flits, program.chip
    if bus is None or flits is None:
        return None
    n_rows = len(bus.slots) if run.totals is None else run.totals.n_hardware_steps
    per_step_and_sample = 1 / (n_rows * run.n_samples)  # of a step and sample, from sums
    row = 1 / run.n_samples if run.totals is None else per_step_and_sample
    needed = -(-flits // chip.link_lanes)
    n_slots, n_transfers = int(bus.slots.sum()), max(int(bus.transfers.sum()), 1)
    carried = flits[:, : chip.noc.columns - 1].sum(0)
    slot_ns = chip.slot_cycles * chip.noc.cycle_ns
    return BusUse(
        slots=bus.slots * row,
        least_slots=needed.max(1) * row,
        least_by=int((flits.sum(0) / chip.link_lanes).argmax()),
        conflicts=bus.conflicts * row,
        transfers=float(bus.transfers.sum() * per_step_and_sample),
        waited_part=float(bus.waited.sum() / n_transfers),
        conflict_part=float(bus.conflicts.sum() / n_transfers),
        lanes_mean=float(bus.lane_slots.sum() / max(n_slots, 1)),
        lanes_peak=int(bus.peak_lanes.max(initial=0)),
        segment_transfers=carried * per_step_and_sample,
        segment_use=carried / max(n_slots * int(chip.link_lanes[0]), 1),
        schedule_us=n_slots * per_step_and_sample * slot_ns / 1000,
        schedule_part=None if not run.seconds else n_slots * slot_ns * 1e-9 / run.seconds,
        queue_peak=int(bus.peak_queue.max(initial=0)),
    )
