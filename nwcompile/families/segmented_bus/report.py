"""Bus: the segmented bus of a run, as plain values for report.json, terminal lines and a card of report.html."""

import numpy as np

from nwcompile.cost.time.work import link_name
from nwcompile.families.segmented_bus.chip import slot_cycles
from nwcompile.families.segmented_bus.cost import bus_use
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import grouped
from nwcompile.report.html_markup import Markup, join, tag
from nwcompile.report.html_tables import bar, html_table
from nwcompile.report.text import percent

KEY = "bus"  # of report.json
TITLE = "Bus"
ABOUT = (
    "Messages go in slots, and in a slot no two paths share a switch on a lane. No schedule is shorter than its "
    "busiest port, or busiest switch over all lanes."
)
MOST_SEGMENTS = 16  # Rows of the table, the busiest segments.


def collect(program: Program, run: Run) -> dict | None:
    """The figures of `BusUse`, means per step and sample; None for a chip or backend without a bus schedule."""
    use, chip = bus_use(program, run), program.chip
    if use is None:
        return None
    by_step = None
    if run.totals is None:
        by_step = {name: getattr(use, name).tolist() for name in ("slots", "least_slots", "conflicts")}
    segments = [
        {"segment": link_name(chip, i), "transfers_per_step": float(n), "use_percent": 100 * float(part)}
        for i, (n, part) in enumerate(zip(use.segment_transfers, use.segment_use, strict=True))
    ]
    doc = {
        "lanes": chip.noc.lanes, "lanes_mean": use.lanes_mean, "lanes_peak": use.lanes_peak,
        "slot_ns": slot_cycles(chip.noc) * chip.noc.cycle_ns, "slots_per_step": float(use.slots.mean()),
        "slots_longest_step": None if by_step is None else float(use.slots.max(initial=0)),
        "least_slots_per_step": float(use.least_slots.mean()), "least_slots_by": link_name(chip, use.least_by),
        "schedule_us_per_step": use.schedule_us,
        "schedule_percent": None if use.schedule_part is None else 100 * use.schedule_part,
        "transfers_per_step": use.transfers, "waited_percent": 100 * use.waited_part,
        "conflicts_per_step": float(use.conflicts.mean()), "conflict_percent": 100 * use.conflict_part,
        "queue_peak": use.queue_peak, "queue_places": chip.noc.buffer_flits,
        "busiest_segment": segments[int(np.argmax(use.segment_transfers))] if segments else None,
        "segments": segments, "steps": by_step,
    }  # fmt: skip
    return {**doc, "text": bus_text(doc)}


def bus_text(bus: dict) -> list[str]:
    """Two sentences: the length of the schedule and its cause, and the transfers that waited."""
    longest = "" if bus["slots_longest_step"] is None else f" (longest {grouped(bus['slots_longest_step'])})"
    part = "" if bus["schedule_percent"] is None else f", {percent(bus['schedule_percent'])} of the time"
    busiest = bus["busiest_segment"]
    crowded = "" if busiest is None else f"; busiest {busiest['segment']}, in use {percent(busiest['use_percent'])}"
    return [
        f"bus: {grouped(bus['slots_per_step'])} slots of {grouped(bus['slot_ns'])} ns per step{longest}{part}; at "
        f"least {grouped(bus['least_slots_per_step'])} by {bus['least_slots_by']}; lanes in use "
        f"{grouped(bus['lanes_mean'])} of {bus['lanes']}, at most {bus['lanes_peak']}",
        f"transfers: {grouped(bus['transfers_per_step'])} per step, {percent(bus['waited_percent'])} waited for a "
        f"slot, {percent(bus['conflict_percent'])} because paths crossed{crowded}; at most {bus['queue_peak']} of "
        f"{bus['queue_places']} places of a core's queue taken",
    ]


def card(bus: dict) -> Markup:
    """Render the sentences and the busiest segments."""
    rows = sorted(bus["segments"], key=lambda r: -r["transfers_per_step"])[:MOST_SEGMENTS]
    cells = [[r["segment"], grouped(r["transfers_per_step"]), bar(r["use_percent"])] for r in rows]
    columns = [("segment", "name"), ("transfers per step", "right"), ("of its lanes' slots", "left")]
    return join([*(tag("p", text) for text in bus["text"]), html_table(columns, cells)])
