"""The cost of the barrier: the bound of the same events with the other kind of synchronization."""

from dataclasses import dataclass, replace

from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.cost.traffic.tokens import add_tokens
from nwcompile.errors import ChipError
from nwcompile.ir.chip_sections import BARRIER, NEIGHBORS
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run


@dataclass(frozen=True)
class OtherSync:
    """The other `cost.sync`, and its bound in microseconds per mean hardware step of a sample."""

    sync: str
    step_us: float


def other_sync(program: Program, run: Run) -> OtherSync | None:
    """Return the bound of a run's events with the other `cost.sync`, with tokens added or removed.

    Returns None if the chip gives no times or cannot use the other kind: it has no routers or no cycles for a barrier,
    or the program runs in phases.
    """
    chip, waits = program.chip, program.chip.waits_for_neighbors
    if not chip.has_times or run.activity is None or program.schedule.period > 1:
        return None
    sync = BARRIER if waits else NEIGHBORS
    try:
        other = chip.replace({"cost.sync": sync})
    except ChipError:
        return None
    if not other.has_times:
        return None
    counters = {name: count.copy() for name, count in run.counters.items()}
    changed = replace(program, chip=other)
    add_tokens(changed, counters, run.n_samples)
    if waits:
        add_tokens(program, counters, -run.n_samples)
    bound = compute_work(changed, counters, link_flits(changed, run.activity, run.window), run.n_samples).bound_cycles
    return OtherSync(sync, float((bound * (chip.core.cycle_ns / 1000 / run.n_samples)).mean()))
