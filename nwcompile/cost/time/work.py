"""Work: the core cycles of each event, unit by unit, and the resulting lower bound of a step.

One formula (DESIGN 6) serves the bound, the prediction and the advice:
`T_step >= barrier + max(max over cores and units of the unit's busy cycles, busiest link's cycles)`,
and no step is shorter than `cost.min_step_cycles`. If cores wait for their neighbors only, the longest path over cores
and steps replaces it (families/neighbors/cost.py).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nwcompile.cost.family import find_cost
from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.ir.chip import Chip
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import Program

COUNTERS_OF = {  # event: counters whose sum is its count
    "visit": ("neuron_visits",),
    "update": ("neuron_updates",),
    "spike": ("spikes_out",),
    "message_out": ("messages_out", "messages_io_out"),
    "message_in": ("messages_in",),
    "word": ("weight_reads",),
    "synop_dense": ("synops_dense",),
    "synop_sparse": ("synops_sparse",),
    "synop_conv": ("synops_conv",),
    "hop_ew": ("hops_ew", "hops_io_ew"),
    "hop_ns": ("hops_ns", "hops_io_ns"),
}
SEND = ("visit", "update", "spike", "message_out")
RECEIVE = ("message_in", "word", "synop_dense", "synop_sparse", "synop_conv")
FILLS = {  # what bounds a unit if these events take most of its time; generating a spike is the neuron's own work
    "compute": ("visit", "update", "spike"),
    "memory": ("word", "synop_dense", "synop_sparse", "synop_conv"),
    "traffic": ("message_out", "message_in"),
}


@dataclass(frozen=True)
class Bottleneck:
    """The limit of one hardware step, or of all: `kind` is memory, compute, traffic or barrier.

    It has a `core`, a `unit` (send, receive or shared) and the `layer` with most of the unit's work, or the `link` if
    a link is busier than any unit; all are None for the barrier. `share`: the part of the bound that it fills, 0..1.
    """

    kind: str
    core: int | None = None
    unit: str | None = None
    layer: str | None = None
    link: int | None = None
    share: float = 0.0


@dataclass(frozen=True, eq=False)
class Work:
    """Busy core cycles, summed over samples: `cycles[event]` [H, core], and `link_cycles` [H] of the busiest link.

    `units`: the units of each core, and the events that each processes one after another. `barrier_cycles`: cycles of
    the barrier in one hardware step, and `min_cycles`: cycles of the shortest step without it, both summed over samples
    and phases. `sample_cycles`: what all samples take once, with their first step. Float arrays mean an estimate.
    `paths`: the tokens that cores wait for, if there is no barrier. `link_cycles` are then the growth, per step, of the
    total cycles of the link that is busiest so far.
    """

    cycles: dict[str, np.ndarray]
    units: dict[str, tuple[str, ...]]
    link_cycles: np.ndarray
    barrier_cycles: int
    min_cycles: int = 0
    sample_cycles: int = 0
    paths: Any = None  # families/neighbors/cost.py:TokenPaths

    @cached_property
    def busy(self) -> np.ndarray:
        """[unit, H, core]: cycles that each unit is busy."""
        return np.stack([sum(self.cycles[event] for event in events) for events in self.units.values()])

    @cached_property
    def path(self) -> Any:
        """The longest path from the first step to the last; None if steps end with a barrier."""
        if self.paths is None:
            return None
        send: np.ndarray = np.sum([self.cycles[event] for event in SEND], axis=0)
        return self.paths.find_longest(send, self.busy[-1])

    @cached_property
    def bound_cycles(self) -> np.ndarray:
        """[H]: lower bound in core cycles of each hardware step; without a barrier, the growth of the bound so far."""
        if self.path is not None:
            return np.diff(np.maximum(self.path.end, self.link_cycles.cumsum()), prepend=0)
        return self.wait_cycles + np.maximum(self.busy.max((0, 2)), self.link_cycles)

    @cached_property
    def wait_cycles(self) -> np.ndarray:
        """[H]: cycles in which all cores wait: barrier, rest of the chip's minimum step, fixed cycles of a sample.

        The fixed cycles count in the first step. In a simulation, steps may exceed their bound; cores then wait less
        for the end of the minimum step.
        """
        wait = self.barrier_cycles + np.maximum(
            self.min_cycles - np.maximum(self.busy.max((0, 2)), self.link_cycles), 0
        )
        wait[:1] += self.sample_cycles
        return wait


def n_events(counters: dict[str, np.ndarray], event: str) -> np.ndarray:
    """Return the count of an event, int64[H, core] like the counters."""
    return sum((counters[name] for name in COUNTERS_OF[event][1:]), counters[COUNTERS_OF[event][0]])


def compute_work(
    program: Program,
    counters: dict[str, np.ndarray],
    link_flits: np.ndarray,
    n_samples: int,
    link_cycles: np.ndarray | None = None,
) -> Work:
    """Compute the work of `counters` int64[H, core] and `link_flits` int64[H, link], on a chip that has times.

    `link_cycles`: `Work.link_cycles`, if already known.
    """
    chip = program.chip
    cycles: dict[str, np.ndarray] = {}
    cycles |= {e: n_events(counters, e) * core_cycles(program, e) for e in SEND + RECEIVE}
    if chip.neuron.programmable:
        assert chip.cost.instruction_cycles is not None, "ask has_times first"
        cycles["update"] = cycles["update"] + counters["neuron_instructions"] * np.int64(chip.cost.instruction_cycles)
    units: dict[str, tuple[str, ...]]
    units = {"shared": SEND + RECEIVE} if chip.cost.units == "shared" else {"send": SEND, "receive": RECEIVE}
    n_barriers = n_samples * program.schedule.period
    if chip.scan_cycles:
        cycles["visit"] = np.full_like(cycles["visit"], chip.scan_cycles * n_barriers)
    paths = find_cost(chip).find_paths(program, n_samples)
    if link_cycles is None:
        link_cycles = busiest_link_cycles(chip, link_flits, 0 if paths is None else n_samples)
    n_tiles = program.mapping.n_tiles
    return Work(
        cycles,
        units,
        link_cycles,
        barrier_cycles=n_barriers * chip.barrier_cycles(n_tiles),
        min_cycles=n_barriers * chip.min_work_cycles(n_tiles),
        sample_cycles=n_samples * chip.sample_cycles,
        paths=paths,
    )


def busiest_port_cycles(chip: Chip, link_flits: np.ndarray, n_free: int) -> np.ndarray:
    """Return `busiest_link_cycles` of the cores' own links only."""
    on_ports = link_flits.copy()
    on_ports[:, : -2 * chip.n_cores] = 0
    return busiest_link_cycles(chip, on_ports, n_free)


def busiest_link_cycles(chip: Chip, link_flits: np.ndarray, n_free: int) -> np.ndarray:
    """Return `Work.link_cycles`; `n_free` as in `link_busy`, 0 on a chip with a barrier."""
    core_ticks, noc_ticks = chip.ticks
    busiest = chip.family.link_busy(chip, link_flits.cumsum(0) if n_free else link_flits, n_free).max(1, initial=0)
    busiest = busiest * noc_ticks // core_ticks  # rounded down, so it remains a bound
    return np.diff(busiest, prepend=0) if n_free else busiest


def core_cycles(program: Program, event: str) -> np.ndarray:
    """Return int64[core]: the core cycles of an event on each core in use; 0 if the chip gives none."""
    cycles = np.asarray(getattr(program.chip.cost, f"{event}_cycles") or 0, np.int64)
    n_cores = program.mapping.n_cores
    return cycles[program.chip.site_index(program.mapping.site_of)] if cycles.ndim else np.full(n_cores, cycles)


def cycles_of_event(chip: Chip, event: str) -> int:
    """Return the core cycles of an event on the slowest core, or 1 if the chip gives none: the mapper needs a figure.

    A visit costs nothing if all slots are visited, used or not: no mapping changes that.
    """
    if event == "visit" and chip.scan_cycles:
        return 0
    cycles = getattr(chip.cost, f"{event}_cycles")
    return 1 if cycles is None else int(np.max(cycles))


def update_cycles(chip: Chip, spec: NeuronSpec | NeuronProgram) -> int:
    """Return the core cycles of an update of such neurons, with their program's instructions (`cycles_of_event`)."""
    return cycles_of_event(chip, "update") + chip_instructions(chip, spec) * cycles_of_event(chip, "instruction")


def link_place(chip: Chip, link: int) -> tuple[int, int, str]:
    """Return the router (x, y) of a link id, and its direction E, W, N, S, or `port p inject` or `port p eject`.

    A chip family may have other links between its cores, and names them itself.
    """
    n_between = len(chip.link_cycles) - 2 * chip.n_cores
    if link < n_between:
        return chip.family.link_place(chip, link)
    x, y, port = (int(v) for v in chip.sites[(link - n_between) % chip.n_cores])
    return x, y, f"port {port} {'inject' if link < n_between + chip.n_cores else 'eject'}"


def link_name(chip: Chip, link: int) -> str:
    """Name a link: `(1, 0) E`, `(1, 0) port 2 inject`."""
    if link < len(chip.link_cycles) - 2 * chip.n_cores:
        return chip.family.link_name(chip, link)
    x, y, kind = link_place(chip, link)
    return f"({x}, {y}) {kind}"
