"""Lower bounds on the time, energy and energy-delay product of a network's steps over all mappings to a chip.

Work that no mapping changes (visits, updates, spikes, synops) is spread evenly over the cores, as if neurons were
divisible. Every spike with a reader is one message, sent and received. Hops, links and memory words are free. On K
cores, `T >= sum of steps: barrier(K) + max over units of (work of the unit / K)`, where the shortest step of the chip
is one more unit. The minimum over all K holds for any mapping, as the mean over cores never exceeds their maximum,
which determines a step (cost/time/floorline.py). If cores wait only for their neighbors, work is summed over the steps
before the maximum is taken.

The certificate is a price of 1/K for every core's busy time in every step, a dual solution of the linear program that
moves shares of neurons between cores. No other prices give a better bound: cores are interchangeable, so the average of
any prices over all permutations is as good, and that average is 1/K.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nwcompile.cost.energy import energy_pj, step_energy_pj
from nwcompile.cost.time.work import compute_work
from nwcompile.cost.traffic.events import place_rows
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

FREE = ("hops_ew", "hops_ns", "hops_io_ew", "hops_io_ns", "messages_io", "messages_io_out", "weight_reads")
NS_PER_US = 1000  # A milliwatt for a nanosecond is a picojoule.


@dataclass(frozen=True)
class Least:
    """Lower bounds of a sample: microseconds per mean hardware step, nanojoules, and nanojoules times microseconds.

    They are None if the chip file lacks the figures.
    """

    step_us: float | None
    sample_nj: float | None
    edp_nj_us: float | None


def find_lower_bounds(program: Program, run: Run, n_cores: int | None = None) -> Least:
    """Return lower bounds for this run over all mappings of the program's network, on `n_cores` cores if given.

    All are None for runs with totals only, on chips with cores of different speeds, and on chips for which mapping
    changes the network itself: neurons share axons, or are copied because each may send to few cores.
    """
    chip, core, activity = program.chip, program.chip.core, run.activity
    changes = core.axon_merge, core.max_destinations, core.max_neuron_destinations
    has_fast_cores = any(isinstance(cycles, list) for cycles in vars(chip.cost).values())
    if activity is None or has_fast_cores or any(limit is not None for limit in changes):
        return Least(None, None, None)
    counters = _fewest_messages(program, activity, run.counters, run.window)
    us = _least_us(program, counters, run.n_samples)
    if us is not None and n_cores is not None:
        us = us[n_cores - 1 : n_cores]
    energy = energy_pj(step_energy_pj(counters, chip))
    if energy is None or us is None:
        nj = None if energy is None else energy["total"] / 1000 / run.n_samples
        return Least(None if us is None else float(us.min()), nj, None)
    n_steps = len(counters["synops"])
    pj = energy["total"] / run.n_samples + chip.static_mw * us * n_steps * NS_PER_US
    return Least(float(us.min()), float(pj.min()) / 1000, float((us * n_steps * pj).min()) / 1000)


def _fewest_messages(program: Program, activity: Activity, counters: dict, window: str) -> dict[str, np.ndarray]:
    """Return a run's counters with one message on one core for every spike with a reader, and no other traffic."""
    sends, hears = spike_fanout(program).messages > 0, np.diff(program.axons.offset) > 0
    fewest = {name: np.zeros_like(count) if name in FREE else count for name, count in counters.items()}
    fewest |= {name: np.zeros_like(counters[name]) for name in ("messages_in", "messages_out")}
    for name, first in program.network.offsets.items():
        count, h0 = place_rows(program, name, activity.counts[name], window)
        rows, nodes = slice(h0, h0 + len(count)), slice(first, first + count.shape[1])
        fewest["messages_in"][rows, 0] += count[:, hears[nodes]].sum(1, dtype=np.int64)
        if name in program.network.layers:
            fewest["messages_out"][rows, 0] += count[:, sends[nodes]].sum(1, dtype=np.int64)
    return fewest


def _least_us(program: Program, counters: dict[str, np.ndarray], n_samples: int) -> np.ndarray | None:
    """Return float64[core]: lower bounds in microseconds per mean step on 1, 2, ... cores; None if not known."""
    chip = program.chip
    if not chip.has_times:
        return None
    no_flits = np.zeros((len(counters["synops"]), len(chip.link_cycles)), np.int64)
    done = compute_work(program, counters, no_flits, n_samples)
    n_cores = np.arange(1, int(chip.is_usable.sum()) + 1)
    scan = done.cycles["visit"].max(1)[:, None] if chip.scan_cycles else 0  # on every core, whatever is mapped to it
    spread = {event: cycles.sum(1) for event, cycles in done.cycles.items()}
    if chip.scan_cycles:
        spread["visit"] = np.zeros_like(spread["visit"])
    busy = [
        sum(spread[event] for event in events)[:, None] / n_cores + (scan if "visit" in events else 0)
        for events in map(list, done.units.values())
    ]
    barrier, min_work = (
        _fewest_cycles(chip, of_tiles, n_cores) for of_tiles in (chip.barrier_cycles, chip.min_work_cycles)
    )
    n_barriers = n_samples * program.schedule.period
    spent = np.maximum.reduce([*busy, n_barriers * np.tile(min_work, (len(done.busy[0]), 1))]).sum(0)
    if not chip.family.has_barrier:  # a unit with little work in one step may begin the next
        spent = np.maximum.reduce([cycles.sum(0) for cycles in busy])
    cycles = spent + barrier * n_barriers * len(counters["synops"]) + n_samples * chip.sample_cycles
    return cycles * (chip.core.cycle_ns / 1000 / n_samples / len(counters["synops"]))


def _fewest_cycles(chip: Chip, cycles_of_tiles: Callable[[int], int], n_cores: np.ndarray) -> np.ndarray:
    """Return int64[n]: the fewest cycles that `n_cores` int64[n] can have, over all numbers of routers that hold them.

    The cycles change only at the numbers of routers that the chip file lists.
    """
    fewest = -(-n_cores // chip.noc.cores_per_router)
    largest = np.maximum(np.minimum(n_cores, chip.noc.columns * chip.noc.rows), fewest)
    listed = {int(n) for costs in (chip.cost.barrier_cycles, chip.cost.min_step_cycles) for n in costs or ()}
    tiles = np.array(sorted({1} | listed))
    at_tiles = np.array([cycles_of_tiles(n) for n in tiles.tolist()])
    cycles = at_tiles[np.searchsorted(tiles, fewest, "right") - 1]
    for n, lower in zip(tiles, at_tiles, strict=True):
        cycles = np.where((fewest < n) & (n <= largest), np.minimum(cycles, lower), cycles)
    return cycles
