"""Floorline: a lower bound on the time of a hardware step, and its causes (DESIGN 6).

Floorline-style, after arXiv 2511.21549 (whose equations we could not read) and the max-affine runtime model of
Loihi 2, arXiv 2601.10035. It is a true lower bound: every unit and every link does all of a step's work inside the
step. This also holds for sums over samples and phases, as a maximum of sums never exceeds the sum of the maxima. On a
chip without a barrier, a step's bound is the increase of the bound on all steps so far
(`families/neighbors/cost.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from nwcompile.cost.family import find_cost
from nwcompile.cost.time.advice import Advice, advise
from nwcompile.cost.time.layers import LayerShare, layer_share
from nwcompile.cost.time.work import FILLS, Bottleneck, Work, busiest_port_cycles, compute_work
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import ChipError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip_sections import BARRIER, NEIGHBORS
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run


@dataclass(frozen=True, eq=False)
class Floorline:
    """The bound of every hardware step and its causes; cycles are core cycles, summed over `n_samples` samples.

    `work`: busy cycles by event, unit and core. `link`: int64[H], the busiest link of each step (-1: no flit).
    `bottlenecks`: one per step; `bottleneck`: that of all steps together. `time_share`, `link_share`, `barrier_share`:
    the parts of the bound filled by each layer's work, the links, and the barrier with all other waiting of all cores.
    For the plot, per sample: `floor_cycles` is the barrier and the compute of the busiest core in the idlest step, or
    the shortest step if that is longer; `cycles_per_synop` the mean cost of a synaptic operation with its memory words.
    """

    work: Work
    link: np.ndarray
    n_samples: int
    cycle_ns: float
    bottlenecks: tuple[Bottleneck, ...]
    bottleneck: Bottleneck
    time_share: dict[str, float]
    link_share: float
    barrier_share: float
    find_advice: Callable[[], Advice]
    floor_cycles: float
    cycles_per_synop: float

    @cached_property
    def advice(self) -> Advice:
        """The best change. It is computed on first use, as this takes longer than everything else."""
        return self.find_advice()

    @property
    def bound_cycles(self) -> np.ndarray:
        """int64[H]: lower bound on the core cycles of each hardware step, summed over the samples.

        Without a barrier, only sums of the first k steps are bounds, on the time until step k is done.
        """
        return self.work.bound_cycles

    @property
    def barrier_cycles(self) -> float:
        """Core cycles of the barrier in one sample's step, summed over its phases."""
        return self.work.barrier_cycles / self.n_samples

    @property
    def step_us(self) -> np.ndarray:
        """float64[H]: the bound in microseconds per step of one sample."""
        return self.bound_cycles * (self.cycle_ns / 1000 / self.n_samples)


def floorline(
    program: Program,
    counters: dict[str, np.ndarray],
    link_flits: np.ndarray,
    n_samples: int,
    activity: Activity | None = None,
) -> Floorline | None:
    """Compute the floorline of `counters` int64[H, core] and `link_flits` int64[H, link], summed over `n_samples`.

    Returns None for a chip without costs. `activity` divides a core's work among its layers. Default: the activity that
    the program was compiled for, or a uniform one.
    """
    if not program.chip.has_times:
        return None
    done = compute_work(program, counters, link_flits, n_samples)
    share = layer_share(program, activity or program.activity or Activity.uniform(program.network, 1))
    link = np.where(link_flits.any(1), program.chip.family.link_busy(program.chip, link_flits).argmax(1), -1)
    find_ports = partial(busiest_port_cycles, program.chip, link_flits, 0 if done.paths is None else n_samples)
    critical = _critical_units(done)
    every = np.arange(len(link))
    busiest = _find_bottleneck(done, share, link, critical, every)
    single_steps = [every[h : h + 1] for h in every]
    steps = tuple(_or_barrier(done, _find_bottleneck(done, share, link, critical, h), h) for h in single_steps)
    time_share, link_share, barrier_share = _time_share(done, share, critical)
    return Floorline(
        work=done,
        link=link,
        n_samples=n_samples,
        cycle_ns=program.chip.core.cycle_ns,
        bottlenecks=steps,
        bottleneck=_or_barrier(done, busiest, every),
        time_share=time_share,
        link_share=link_share,
        barrier_share=barrier_share,
        find_advice=partial(advise, program, done, share, busiest, find_ports),
        floor_cycles=float(done.barrier_cycles + max(_kind_cycles(done, "compute").max(1).min(), done.min_cycles))
        / n_samples,
        cycles_per_synop=float(_kind_cycles(done, "memory").sum() / max(counters["synops"].sum(), 1)),
    )


def bound_tightness(bound_cycles: np.ndarray, measured_cycles: np.ndarray) -> float:
    """Return the bound of all steps over the measured time, 0..1; 1 if nothing else took time."""
    return float(np.sum(bound_cycles) / max(np.sum(measured_cycles), 1))


def _kind_cycles(done: Work, kind: str) -> np.ndarray:
    """Return [H, core]: the cycles of all events of one kind."""
    return np.sum([done.cycles[event] for event in FILLS[kind]], axis=0)


def _critical_units(done: Work) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each step the index of the busiest unit, its core, and whether a link is even busier.

    Without a barrier, these are the units on the longest path; a link limits all steps if it is busy longer.
    """
    n_units, n_steps, n_cores = done.busy.shape
    flat = done.busy.transpose(1, 0, 2).reshape(n_steps, n_units * n_cores)
    first = flat.argmax(1)
    if done.path is not None:
        unit = np.where(done.path.sends, 0, n_units - 1)
        return unit, done.path.core, np.full(n_steps, done.link_cycles.sum() > done.path.end[-1])
    return first // n_cores, first % n_cores, done.link_cycles > flat.max(1)


def _find_bottleneck(done: Work, share: LayerShare, link, critical, steps: np.ndarray) -> Bottleneck:
    """Return the kind of event with most cycles in the busiest units and links of these steps, and its main place."""
    filled = dict.fromkeys(FILLS, 0)
    place: dict[tuple, int] = {}
    names = tuple(done.units)
    for h in steps:
        unit, core, by_link = (a[h] for a in critical)
        where: tuple
        if by_link:
            spent, where = {"traffic": int(done.link_cycles[h])}, (None, None, int(link[h]))
        else:
            events = done.units[names[unit]]
            spent = {k: sum(int(done.cycles[e][h, core]) for e in events if e in FILLS[k]) for k in FILLS}
            where = (int(core), names[unit], None)
        for kind, cycles in spent.items():
            filled[kind] += cycles
            place[kind, *where] = place.get((kind, *where), 0) + cycles
    kind = max(filled, key=filled.__getitem__)
    _, core, unit, link_id = max((p for p in place if p[0] == kind), key=place.__getitem__)
    layer = None if core is None else share.largest_layer(done.cycles, done.units[unit], core)
    bound = max(int(done.bound_cycles[steps].sum()), 1)
    return Bottleneck(kind=kind, core=core, unit=unit, layer=layer, link=link_id, share=min(filled[kind] / bound, 1.0))


def _or_barrier(done: Work, busiest: Bottleneck, steps: np.ndarray) -> Bottleneck:
    """Return the barrier if it fills half of these steps or more, else `busiest`."""
    bound = int(done.bound_cycles[steps].sum())
    barrier = int(done.wait_cycles[steps].sum())
    return Bottleneck(BARRIER, share=barrier / max(bound, 1)) if 2 * barrier >= bound else busiest


def _time_share(done: Work, share: LayerShare, critical) -> tuple[dict[str, float], float, float]:
    """Return the parts of the bound filled by each layer on the busiest cores, by the links and by the barrier."""
    total = max(float(done.bound_cycles.sum()), 1.0)
    layers = np.zeros(len(share.layers))
    names = tuple(done.units)
    links = 0
    for h, (unit, core, by_link) in enumerate(zip(*critical, strict=True)):
        if by_link:
            links += done.link_cycles[h]
        else:
            layers += sum(done.cycles[e][h, core] * share.event_share(e)[:, core] for e in done.units[names[unit]])
    table = {name: float(part) / total for name, part in zip(share.layers, layers, strict=True)}
    return table, float(links) / total, float(done.wait_cycles.sum()) / total


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
    chip = program.chip
    if not chip.has_times or run.activity is None or program.schedule.period > 1:
        return None
    sync = NEIGHBORS if chip.family.has_barrier else BARRIER
    try:
        other = chip.replace({"cost.sync": sync})
    except ChipError:
        return None
    if not other.has_times:
        return None
    counters = {name: count.copy() for name, count in run.counters.items()}
    changed = replace(program, chip=other)
    find_cost(other).add_tokens(changed, counters, run.n_samples)
    find_cost(chip).add_tokens(program, counters, -run.n_samples)
    bound = compute_work(changed, counters, link_flits(changed, run.activity, run.window), run.n_samples).bound_cycles
    return OtherSync(sync, float((bound * (chip.core.cycle_ns / 1000 / run.n_samples)).mean()))
