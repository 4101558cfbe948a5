"""Verdict: what a mapping is worth by counting alone, so that mappings of any origin are judged alike."""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.energy import energy_pj
from nwcompile.cost.time.work import Work, work
from nwcompile.cost.traffic.destinations import core_pairs
from nwcompile.cost.traffic.events import count_events, link_flits
from nwcompile.ir.activity import Activity
from nwcompile.ir.noc.routing import routes
from nwcompile.ir.program import Program
from nwcompile.kernels.mapping import traffic


@dataclass(frozen=True, eq=False)
class Verdict:
    """Exact counts of an Activity on a program, summed over its samples; times are those of the floorline.

    `messages` between cores of the network, those to the own core included, `remote_messages` without; `hops` as sent,
    one message for each destination; `tree_hops` if a message forked where its ways part; `hottest_link` in flits.
    `balance_cycles` is the time of a chip in perfect balance, without waiting: in every step the barrier, and the work
    of each kind of unit spread evenly over the cores. Times and energies are None where the chip gives no costs.
    """

    n_cores: int
    messages: int
    remote_messages: int
    hops: int
    tree_hops: int
    hottest_link: int
    step_cycles: np.ndarray | None  # int64[H]
    balance_cycles: float | None
    energy_pj: float | None
    cycle_ns: float

    @property
    def seconds(self) -> float | None:
        """Of all steps and samples."""
        return None if self.step_cycles is None else float(self.step_cycles.sum()) * self.cycle_ns * 1e-9

    @property
    def balance_seconds(self) -> float | None:
        """Of a chip in perfect balance."""
        return None if self.balance_cycles is None else self.balance_cycles * self.cycle_ns * 1e-9

    @property
    def edp(self) -> float | None:
        """Energy times time, in joule seconds."""
        return None if self.seconds is None or self.energy_pj is None else self.energy_pj * 1e-12 * self.seconds


def verdict(program: Program, activity: Activity, window: str = "aligned") -> Verdict:
    """The Verdict on `program` where its neurons and input lines spike as `activity` says."""
    counters, flits = count_events(program, activity, window), link_flits(program, activity, window)
    done = work(program, counters, flits, activity.n_samples) if program.chip.has_times else None
    step_cycles = None if done is None else done.bound_cycles
    seconds = None if step_cycles is None else float(step_cycles.sum()) * program.chip.core.cycle_ns * 1e-9
    spent = energy_pj(counters, program.chip, seconds)
    remote, tree_hops = _trees(program, activity)
    return Verdict(
        program.mapping.n_cores, int(counters["messages_out"].sum()), remote, int(counters["hops"].sum()), tree_hops,
        int(flits.sum(0).max(initial=0)), step_cycles, None if done is None else _balance(done),
        None if spent is None else spent["total"], program.chip.core.cycle_ns,
    )  # fmt: skip


def _balance(done: Work) -> float:
    """Cycles of all steps if the work of every kind of unit were the same on all cores."""
    return float((done.barrier_cycles + done.busy.mean(2).max(0)).sum())


def _trees(program: Program, activity: Activity) -> tuple[int, int]:
    """Messages to other cores, and hops if every message forked: links in the union of the ways of each spike."""
    chip, axons, network = program.chip, program.axons, program.network
    axon_pair, pair = core_pairs(axons, program.core_of, program.mapping.n_cores)
    router = chip.site_index(program.mapping.site_of) // chip.noc.cores_per_router
    offset, link = routes(chip.grid, router[pair[:, 0]], router[pair[:, 1]])
    is_remote = pair[:, 0] != pair[:, 1]
    total = np.zeros(2, np.int64)
    seen = np.full(4 * len(chip.grid.is_open), -1)
    for name in network.layers:
        first = network.offsets[name]
        of = axons.offset[first : first + network.node(name).n_neurons + 1]
        count = activity.counts[name].sum(0, dtype=np.int64)
        seen[:] = -1
        traffic.count_trees(count, of, axon_pair, is_remote, offset, link, seen, total)
    return int(total[0]), int(total[1])
