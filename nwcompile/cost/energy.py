"""Energy: the count of each event times the chip file's cited figure (DESIGN 6), per step and in total."""

from dataclasses import fields, replace
from functools import partial
from math import fsum
from typing import Any

import numpy as np

from nwcompile.cost.basis import find_basis
from nwcompile.cost.time.work import n_events
from nwcompile.cost.traffic.link_flits import flits_of_run
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import MAY_LACK_PJ, Energy
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

NAMES = tuple(f.name for f in fields(Energy) if f.name.endswith("_pj"))
KINDS = tuple(name.removesuffix("_pj") for name in NAMES if name not in MAY_LACK_PJ)


def step_energy_pj(
    counters: dict[str, np.ndarray],
    chip: Chip,
    flits: np.ndarray | None = None,
    step_cycles: np.ndarray | None = None,
) -> dict[str, np.ndarray] | None:
    """Return picojoules of each kind of event per hardware step, and their `total`: float64[H], sums over cores.

    `counters[name]`: int64[H, core]. Returns None if the chip lacks a cited figure. The closed forms are those of
    SANA-FE's Loihi description: synapse = synop_*, soma = visit + update + spike, network = message_* + hop_*. If the
    chip gives figures for them, there are also `io`, messages through its io.sites; with `flits` int64[H, link],
    `chip_link`, those between chips; and with the step times `step_cycles` int64[H], `static`, its static power.
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
    if energy.static_mw is not None and step_cycles is not None:
        table["static"] = step_cycles * (chip.core.cycle_ns * energy.static_mw)  # a milliwatt for 1 ns is a picojoule
    total: Any = sum(table.values())  # one kind after the other; numpy.sum adds a single step in another order
    return {**table, "total": total}


def energy_pj(steps: dict[str, np.ndarray] | None) -> dict[str, float] | None:
    """Sum the result of `step_energy_pj` over the steps, by kind and in total. Sums are exact and rounded once."""
    return None if steps is None else {kind: fsum(pj) for kind, pj in steps.items()}


def with_energy(program: Program, run: Run) -> Run:
    """Add the energies to a run of `program`, or None if the chip lacks a cited figure; and how to find a basis."""
    flits = None if program.chip.energy.chip_link_pj is None else flits_of_run(program, run)
    steps = step_energy_pj(run.counters, program.chip, flits, run.step_cycles)
    finder = partial(find_basis, program)
    return replace(run, energy_pj=energy_pj(steps), step_energy_pj=steps, find_basis=finder)


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
