"""A profiled run: phases of every core, the causes of the slowest steps, latencies of messages, crowded links.

The phases of a core, waiting included, add up to the step's time. Within a step a core works, sends and receives, and
nothing that it receives makes it send. So the core that finishes last either worked from the beginning, or waited for
one message whose core had worked from the beginning: that chain is the critical path.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nwcompile.cost.time.layers import layer_share
from nwcompile.cost.time.work import Work, compute_work
from nwcompile.ir.program import Program
from nwcompile.ir.run import Profile, Run

PHASE_OF = {"synop_dense": "synop", "synop_sparse": "synop", "synop_conv": "synop"}  # else the event's own name
STALL = "stall"  # A message is ready, but the network has no room for it.
IDLE = "idle"  # The unit waits for messages, or for the end of the step.
BARRIER = "barrier"  # All cores have finished and synchronize.
PERCENTILES = (50, 90, 99)
OWN = -1  # In `Profile.path`: the last uninterrupted work was the core's own, not started by a message.


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


@dataclass(frozen=True)
class Latency:
    """Core cycles from when a message is ready for injection until the receiving core takes it; None: no messages.

    `percentiles[p]` is the nearest-rank percentile: the least latency that p % of the messages do not exceed. Above
    1024 cycles it may be too long by up to 1/512.
    """

    n_messages: int
    mean: float | None
    percentiles: Mapping[int, int | None]
    largest: int | None


@dataclass(frozen=True)
class LinkLoad:
    """One link: flits of all steps and samples, the most in one step, and flits in the buffers behind it.

    `flits_max_step` is summed over the samples, and None if only totals were recorded.
    """

    link: int
    flits: int
    flits_max_step: int | None
    peak: int
    mean: float


def summarize_latency(profile: Profile) -> Latency:
    """Summarize the message latencies of a profiled run."""
    n = int(profile.latency_count.sum())
    if n == 0:
        return Latency(0, None, dict.fromkeys(PERCENTILES), None)
    upto = np.cumsum(profile.latency_count)
    ranks = {p: -(-n * p // 100) for p in PERCENTILES}
    percentiles = {p: int(profile.latency_cycles[np.searchsorted(upto, rank)]) for p, rank in ranks.items()}
    return Latency(n, profile.latency_sum / n, percentiles, profile.latency_max)


def congested_links(run: Run, n: int | None = None) -> tuple[LinkLoad, ...]:
    """Return the links of a profiled run with flits, most crowded first: by mean flits in their buffers, then flits.

    `n`: maximum number of links; None: all.
    """
    assert run.profile is not None and run.link_flits is not None, "simulate with profile=True"
    flits, peak_flits = run.link_flits.sum(0), run.link_flits.max(0)
    order = np.lexsort((-flits, -run.profile.link_mean))
    order = order[flits[order] > 0][:n]
    peak, mean = run.profile.link_peak, run.profile.link_mean
    return tuple(
        LinkLoad(i, int(flits[i]), None if run.totals else int(peak_flits[i]), int(peak[i]), float(mean[i]))
        for i in order.tolist()
    )


@dataclass(frozen=True)
class CriticalPath:
    """The longest phase of one hardware step: the core that finished last, and the message that it waited for.

    `parts`: core cycles, with sum `cycles`. `send`, `stall` and `network` belong to the message that `core` waited for
    (sent by `source_layer` on `source_core`, None for an input). `receive` is the last uninterrupted work, and `link`
    the time until the last link became idle. Without such a message `source_layer` is None, and `send`, `stall` and
    `receive` belong to the core itself; in a shared unit `send` is all its work, in any order. `phase` is the largest
    part. `layer` has most of the core's work. `link`: the busiest on the route of that message, or of the one that
    stalled the core longest.
    """

    step: int
    sample: int
    cycles: float
    core: int
    phase: str
    layer: str
    source_core: int | None
    source_layer: str | None
    link: int | None
    parts: dict[str, float]


def critical_paths(program: Program, run: Run, n: int = 5) -> tuple[CriticalPath, ...] | None:
    """Return the critical paths of the `n` slowest steps, the slowest first; None without profile or times."""
    if run.profile is None or run.step_cycles is None or run.link_flits is None or run.activity is None:
        return None
    path = run.profile.path
    done = compute_work(program, run.counters, run.link_flits, run.n_samples)
    share = layer_share(program, run.activity)
    slowest = np.argsort(-path["total"], kind="stable")[:n]
    paths = []
    for h in slowest.tolist():
        row = {name: values[h].item() for name, values in path.items()}
        parts, core, layer, source = _split_path(row), row["core"], row["source_layer"], row["source"]
        phase = max(parts, key=lambda part: parts[part])
        unit = "shared" if "shared" in done.units else "send" if source == OWN else "receive"
        paths.append(
            CriticalPath(
                step=row["step"],
                sample=row["sample"],
                cycles=row["total"],
                core=core,
                phase=phase,
                layer=share.largest_layer(done.cycles, done.units[unit], core),
                source_core=int(program.mapping.core_of[layer][source]) if layer in program.mapping.core_of else None,
                source_layer=layer or None,
                link=row["link"] if row["link"] >= 0 else None,
                parts=parts,
            )
        )
    return tuple(paths)


def _split_path(row: dict) -> dict[str, float]:
    after = row["total"] - row["end"]
    if row["source"] >= 0:
        stall = row["stalled"] + row["injected"] - row["ready"]
        parts = {"send": row["ready"] - row["stalled"], "stall": stall, "network": row["since"] - row["injected"],
                 "receive": row["end"] - row["since"]}  # fmt: skip
    elif row["source"] == OWN:
        parts = {"send": row["end"] - row["stalled"], "stall": row["stalled"], "network": 0.0, "receive": 0.0}
    else:
        parts = {"send": 0.0, "stall": 0.0, "network": 0.0, "receive": row["end"]}
    return {**parts, "link": after}
