"""Use of a segmented bus, and a lower bound on the length of its schedule."""

from dataclasses import dataclass

import numpy as np

from nwcompile.families.segmented_bus.chip import count_lanes, slot_cycles
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run


@dataclass(frozen=True, eq=False)
class BusUse:
    """Means per step and sample, unless stated otherwise; H hardware steps.

    `slots`, `least_slots`, `conflicts`: float64[H]. `least_slots` is a lower bound: the transfers of the busiest port,
    or of the busiest switch divided by its lanes. `least_by`: the link with the most transfers per lane over all steps.
    `transfers`, and the fractions `waited_part` and `conflict_part` of them, are those of `BusSchedule`. `lanes_mean`,
    `lanes_peak`: lanes in use per slot of the schedule. `segment_transfers`: float64[segment]; `segment_use`: the
    fraction of the lanes' slots that they occupied. `schedule_us`: busy time of the bus; `schedule_part`: its fraction
    of the measured time, None if the chip has no times. `queue_peak`: the largest number of messages that waited in a
    core. With `record="totals"`, arrays per step have one row, the mean over steps; `least_slots` bounds all steps
    together.
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
    """Return the bus figures of a run of the cycle backend; None for other chips and backends."""
    bus, flits, chip = run.bus, run.link_flits, program.chip
    if bus is None or flits is None:
        return None
    lanes = count_lanes(chip)
    n_rows = len(bus.slots) if run.totals is None else run.totals.n_hardware_steps
    per_step_and_sample = 1 / (n_rows * run.n_samples)  # converts sums to means
    row = 1 / run.n_samples if run.totals is None else per_step_and_sample
    needed = -(-flits // lanes)
    n_slots, n_transfers = int(bus.slots.sum()), max(int(bus.transfers.sum()), 1)
    carried = flits[:, : chip.noc.columns - 1].sum(0)
    slot_ns = slot_cycles(chip.noc) * chip.noc.cycle_ns
    return BusUse(
        slots=bus.slots * row,
        least_slots=needed.max(1) * row,
        least_by=int((flits.sum(0) / lanes).argmax()),
        conflicts=bus.conflicts * row,
        transfers=float(bus.transfers.sum() * per_step_and_sample),
        waited_part=float(bus.waited.sum() / n_transfers),
        conflict_part=float(bus.conflicts.sum() / n_transfers),
        lanes_mean=float(bus.lane_slots.sum() / max(n_slots, 1)),
        lanes_peak=int(bus.peak_lanes.max(initial=0)),
        segment_transfers=carried * per_step_and_sample,
        segment_use=carried / max(n_slots * int(lanes[0]), 1),
        schedule_us=n_slots * per_step_and_sample * slot_ns / 1000,
        schedule_part=None if not run.seconds else n_slots * slot_ns * 1e-9 / run.seconds,
        queue_peak=int(bus.peak_queue.max(initial=0)),
    )
