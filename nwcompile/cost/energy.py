"""Energy: the count of each event times the chip file's cited figure (DESIGN 6), per step and in total.

`board_energy` adds power that is drawn all the time: static power, and the processors on the chips. It costs more the
longer a step takes. `predict` gives the run of a program without simulation. The objectives of the partitioner use the
energy of the events.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from math import fsum, prod
from typing import Any

import numpy as np

from nwcompile.cost.basis import decide_basis, find_basis, time_moves
from nwcompile.cost.time.work import n_events
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import MAY_LACK_PJ, Energy, chips_used, count_chips
from nwcompile.ir.program import Program
from nwcompile.ir.run import Basis, Run

NAMES = tuple(f.name for f in fields(Energy) if f.name.endswith("_pj"))
KINDS = tuple(name.removesuffix("_pj") for name in NAMES if name not in MAY_LACK_PJ)
BOARD = "energy with processors"  # quantity of silicon.json
NJ = 1e6  # nanojoules of 1 mW in 1 s


def step_energy_pj(
    counters: dict[str, np.ndarray], chip: Chip, flits: np.ndarray | None = None, step_cycles: np.ndarray | None = None
) -> dict[str, np.ndarray] | None:
    """Return picojoules of each kind of event per hardware step, and their `total`: float64[H], sums over cores.

    `counters[name]`: int64[H, core]. Returns None if the chip lacks a cited figure. The closed forms are those of
    SANA-FE's Loihi description: synapse = synop_*, soma = visit + update + spike, network = message_* + hop_*. If the
    chip gives the figures, there are also `io` (messages through io.sites), `chip_link` (flits between chips; needs
    `flits` int64[H, link]) and `static` (static power; needs the step times `step_cycles` int64[H]).
    """
    if not chip.has_energies:
        return None
    energy, table = chip.energy, {}
    for kind in KINDS:
        table[kind] = n_events(counters, kind).sum(1) * getattr(energy, f"{kind}_pj")
    if energy.io_pj is not None:
        table["io"] = counters["messages_io"].sum(1) * energy.io_pj
    if energy.chip_link_pj is not None and flits is not None:
        table["chip_link"] = flits[:, chip.links_between_chips].sum(1) * energy.chip_link_pj
    if chip.static_powers and step_cycles is not None:
        table["static"] = step_cycles * (chip.core.cycle_ns * chip.static_mw)  # a milliwatt for 1 ns is a picojoule
    total: Any = sum(table.values())  # one kind after the other; numpy.sum adds a single step in another order
    return {**table, "total": total}


def energy_pj(steps: dict[str, np.ndarray] | None) -> dict[str, float] | None:
    """Sum the result of `step_energy_pj` over the steps, by kind and in total. Sums are exact and rounded once."""
    return None if steps is None else {kind: fsum(pj) for kind, pj in steps.items()}


def measure_energy(program: Program, counters: dict, build_flits: Callable[[], np.ndarray]) -> dict[str, Any]:
    """Return counters and energies of a Run without times. `build_flits`: its `link_flits`, if an energy needs them."""
    flits = None if program.chip.energy.chip_link_pj is None else build_flits()
    steps = step_energy_pj(counters, program.chip, flits)
    return {
        "counters": counters,
        "step_energy_pj": steps,
        "energy_pj": energy_pj(steps),
        "find_basis": partial(find_basis, program),
    }


def kinds_without_source(chip: Chip) -> tuple[str, ...]:
    """Return which of "io" and "chip_link" events happen on the chip without an energy figure in its file."""
    happens = {"io": chip.io.sites is not None, "chip_link": chip.is_board}
    return tuple(kind for kind, does in happens.items() if does and getattr(chip.energy, f"{kind}_pj") is None)


def core_energy_pj(counters: dict[str, np.ndarray], chip: Chip) -> np.ndarray | None:
    """Return float64[core]: picojoules of the events of each core over all steps; None if the chip lacks a figure.

    Static power and links between chips belong to no core and are not included.
    """
    if not chip.has_energies:
        return None
    spent = sum(n_events(counters, kind).sum(0) * getattr(chip.energy, f"{kind}_pj") for kind in KINDS)
    return spent if chip.energy.io_pj is None else spent + counters["messages_io"].sum(0) * chip.energy.io_pj


@dataclass(frozen=True)
class BoardEnergy:
    """Nanojoules of a sample. A part is None if the chip file has no figure for it.

    `dynamic_nj`: the events of `Run.energy_pj`. For the time of a sample, `chip_static_nj`: `Chip.static_mw`, of all
    `n_chips`; `core_static_nj`: `energy.core_static_mw` of each of the `n_cores` in use; `host_nj`: `energy.host_mw` of
    each of the `n_chips_used`.
    """

    dynamic_nj: float | None
    chip_static_nj: float | None
    core_static_nj: float | None
    host_nj: float | None
    n_cores: int
    n_chips: int
    n_chips_used: int
    basis: Basis

    @property
    def static_nj(self) -> float | None:
        """Both kinds of static power; None if neither is known."""
        known = [nj for nj in (self.chip_static_nj, self.core_static_nj) if nj is not None]
        return sum(known) if known else None

    @property
    def total_nj(self) -> float | None:
        """The sum of the known parts; None if the energy of the events is not known."""
        if self.dynamic_nj is None:
            return None
        return self.dynamic_nj + (self.static_nj or 0.0) + (self.host_nj or 0.0)


def board_energy(program: Program, run: Run) -> BoardEnergy | None:
    """Return the energy of a run whose `seconds` are known; None without times or figures of power."""
    chip, noc, n_cores = program.chip, program.chip.noc, program.mapping.n_cores
    n_chips_used = chips_used(noc, program.mapping.site_of)
    counts = {"energy.core_static_mw": n_cores, "energy.host_mw": n_chips_used}
    powers = chip.static_powers | {key: n * mw for key, n in counts.items() if (mw := chip.value(key)) is not None}
    if run.seconds is None or not powers:
        return None
    spent = {key: mw * run.seconds * NJ / run.n_samples for key, mw in powers.items()}
    chip_static = [spent[key] for key in chip.static_powers]
    energies = {} if run.energy_pj is None else run.energy_pj
    events = {kind: pj / 1000 / run.n_samples for kind, pj in energies.items() if kind not in ("static", "total")}
    return BoardEnergy(
        dynamic_nj=fsum(events.values()) if energies else None,
        chip_static_nj=sum(chip_static) if chip_static else None,
        core_static_nj=spent.get("energy.core_static_mw"),
        host_nj=spent.get("energy.host_mw"),
        n_cores=n_cores,
        n_chips=prod(count_chips(noc)),
        n_chips_used=n_chips_used,
        basis=_find_board_basis(program, run, events, spent),
    )


def _find_board_basis(program: Program, run: Run, events: dict[str, float], spent: dict[str, float]) -> Basis:
    """Return the basis of the sum: each part moves with its own constants, and power also with those of the time.

    `events`, `spent`: nanojoules by kind of event and by key of a power.
    """
    power = sum(spent.values())
    total = max(sum(events.values()) + power, 1e-9)
    moves = {f"energy.{kind}_pj": nj / total for kind, nj in events.items()}
    moves |= {key: nj / total for key, nj in spent.items()}
    moves |= {key: move * power / total for key, move in (time_moves(program, run) or {}).items()}
    return decide_basis(program.chip, moves, BOARD)


def predict(program: Program, activity: Activity | None = None) -> Run:
    """Predict a run from an activity, by default the program's: exact event counts, no spikes, no times."""
    activity = activity or program.activity or Activity.uniform(program.network)
    flits = link_flits(program, activity)
    return Run(
        backend="prediction",
        device="none",
        window="aligned",
        n_samples=activity.n_samples,
        spikes={},
        states={},
        output=np.zeros(0),
        activity=activity,
        link_flits=flits,
        **measure_energy(program, count_events(program, activity), lambda: flits),
    )
