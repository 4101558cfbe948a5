"""Profile: the cycles of a profiled run, as plain values for report.json."""

import numpy as np

from nwcompile.cost.summary import Summary
from nwcompile.cost.time.profile import CriticalPath, Phases, congested_links, summarize_latency
from nwcompile.cost.time.work import link_name
from nwcompile.ir.chip import Chip
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.text import critical_text

MOST_VALUES = 200_000  # More values by step, core and phase would make report.json too large for a browser.
MOST_LINKS = 5  # Links listed, the most crowded ones; congestion elsewhere is usually caused by these.


def collect_profile(program: Program, run: Run, summary: Summary) -> dict | None:
    """The run's profile in core cycles; None for a run that was not profiled or a chip without times."""
    if summary.phases is None or summary.critical is None:
        return None
    return {
        **collect_messages(program, run),
        "phases": _collect_phases(summary.phases, run.n_samples),
        "critical_paths": [_collect_critical(path, program.chip) for path in summary.critical],
    }


def collect_messages(program: Program, run: Run) -> dict:
    """Messages and links of a run's profile in core cycles, also for `record="totals"`."""
    assert run.profile is not None, "simulate with profile=True"
    noc, latencies = program.chip.noc, summarize_latency(run.profile)
    ranks = {f"p{p}": cycles for p, cycles in latencies.percentiles.items()}
    return {
        "cycle_ns": program.chip.core.cycle_ns,
        "latency_cycles": {"n_messages": latencies.n_messages, "mean": latencies.mean, **ranks,
                           "max": latencies.largest},
        "buffer_flits": noc.buffer_flits * noc.virtual_channels,
        "congested_links": [
            {"link": link_name(program.chip, load.link), "flits": load.flits, "flits_max_step": load.flits_max_step,
             "peak_flits": load.peak, "mean_flits": load.mean}
            for load in congested_links(run, MOST_LINKS)
        ],
    }  # fmt: skip


def _collect_phases(phases_of_run: Phases, n_samples: int) -> dict:
    """Cycles by unit: of every core, the mean per step and sample; and every step, summed over the samples.

    `cycles[unit][phase]` is indexed by step, then core; None if it has more than MOST_VALUES numbers.
    """
    n_steps = len(phases_of_run.step_cycles)
    per_core = {
        unit: {phase: (cycles / (n_steps * n_samples)).tolist() for phase, cycles in table.items()}
        for unit, table in phases_of_run.of_cores().items()
    }
    n_values = sum(np.size(cycles) for table in phases_of_run.units.values() for cycles in table.values())
    if n_values > MOST_VALUES:
        note = f"{n_values} values are more than {MOST_VALUES}; simulate --profile -o OUT.npz writes them"
        return {"mean_cycles_per_step": per_core, "cycles": None, "cycles_left_out": note}
    cycles = {unit: {phase: a.tolist() for phase, a in table.items()} for unit, table in phases_of_run.units.items()}
    return {"mean_cycles_per_step": per_core, "cycles": cycles, "cycles_left_out": None}


def _collect_critical(path: CriticalPath, chip: Chip) -> dict:
    doc = {"step": path.step, "sample": path.sample, "cycles": path.cycles, "core": path.core, "layer": path.layer,
           "phase": path.phase, "source_core": path.source_core, "source_layer": path.source_layer,
           "link": None if path.link is None else link_name(chip, path.link), "parts": path.parts}  # fmt: skip
    return {**doc, "text": critical_text(doc)}
