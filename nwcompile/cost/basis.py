"""Basis of the times and energies of a run: each constant is doubled, and those that move the figure decide.

Times, even measured ones, are recomputed by the formula of the bound (`cost/time/work.py`). The lengths of the cycles
do not count, because they are resolutions, or clocks that the user may choose.
"""

import json
from dataclasses import fields, replace
from functools import cache

import numpy as np

from nwcompile.cost.family import find_cost
from nwcompile.cost.time.work import Work, compute_work
from nwcompile.cost.traffic.link_flits import flits_of_run
from nwcompile.ir.chip import HWMODELS, Chip
from nwcompile.ir.chip_sections import BASES, given_figures
from nwcompile.ir.program import Program
from nwcompile.ir.run import Basis, Run, Silicon

TIME = "time"
ENERGY = "energy"
LEAST_MOVE = 0.01  # A constant decides if doubling it moves the figure by more than 1 %.
NETWORK_KEYS = ("flits_per_message", "link_cycles_per_flit", "hop_cycles_ew", "hop_cycles_ns", "inject_cycles",
                "eject_cycles", "chip_hop_cycles", "chip_link_cycles_per_flit", "buffer_flits", "virtual_channels",
                "slot_cycles", "lanes")  # fmt: skip


def find_basis(program: Program, run: Run, quantity: str) -> Basis | None:
    """Return the basis of a run's "time" or "energy"; None if the chip file lacks figures."""
    moves = (time_moves if quantity == TIME else energy_moves)(program, run)
    return decide_basis(program.chip, moves, quantity) if moves else None


def decide_basis(chip: Chip, moves: dict[str, float], quantity: str) -> Basis:
    """Return the basis of a figure that each key of the chip file, doubled, changes by the relative `moves[key]`."""
    basis_of = {key: chip.basis_of(key) for key in moves}
    deciding = {key: move for key, move in moves.items() if move > LEAST_MOVE}
    weakest = max((basis_of[key] for key in deciding or moves), key=BASES.index)
    keys = sorted((key for key in deciding if basis_of[key] == weakest), key=lambda key: -moves[key])
    return Basis(weakest, tuple(keys), find_silicon(chip, quantity))


def time_moves(program: Program, run: Run) -> dict[str, float] | None:
    """Return the relative change of the time by each key that is doubled; None if the chip has no times."""
    if not program.chip.has_times:
        return _pool_moves(program, run)
    flits = flits_of_run(program, run)
    n_samples = run.n_samples * (1 if run.totals is None else run.totals.n_hardware_steps)  # totals are one step
    base = compute_work(program, run.counters, flits, n_samples)

    def move(work: Work) -> float:
        total = float(base.bound_cycles.sum())
        return abs(float(work.bound_cycles.sum()) - total) / max(total, 1.0)

    def move_by(key: str, link_flits: np.ndarray, busiest: np.ndarray | None) -> float:
        return move(compute_work(_double(program, key), run.counters, link_flits, n_samples, busiest))

    cost = [f"cost.{f.name}" for f in fields(program.chip.cost) if f.name.endswith("_cycles")]
    moves = {key: move_by(key, flits, base.link_cycles) for key in cost if program.chip.value(key) is not None}
    network = {f"noc.{name}": 0.0 for name in NETWORK_KEYS if program.chip.value(f"noc.{name}")}
    links = (replace(base, link_cycles=cycles) for cycles in (2 * base.link_cycles + 1, base.link_cycles // 2))
    if not program.chip.family.has_barrier or any(move(work) > LEAST_MOVE for work in links):
        for key in network:
            sent = 2 * flits if key == "noc.flits_per_message" else flits
            network[key] = move_by(key, sent, None)
    return moves | network


def _pool_moves(program: Program, run: Run) -> dict[str, float] | None:
    """Return the same as `time_moves` for a pool of neurons, or None if the chip has no times of one."""
    activity = run.activity or program.activity
    base = find_cost(program.chip).mean_step_cycles(program, activity)
    if base is None:
        return None
    moves = {}
    for key in (f"pool.{name}" for name in given_figures(program.chip.pool) if name.endswith("_cycles")):
        cycles = find_cost(program.chip).mean_step_cycles(_double(program, key), activity)
        assert cycles is not None, "it has the same keys"
        moves[key] = abs(cycles - base) / max(base, 1.0)
    return moves


def energy_moves(program: Program, run: Run) -> dict[str, float] | None:
    """Return the relative change of the energy by each key that is doubled. Times count for the static energy."""
    if run.energy_pj is None:
        return None
    share = {kind: pj / max(run.energy_pj["total"], 1e-9) for kind, pj in run.energy_pj.items() if kind != "total"}
    moves = {f"energy.{kind}_pj": part for kind, part in share.items() if kind != "static"}
    if "static" in share:
        powers, total = program.chip.static_powers, program.chip.static_mw
        moves |= {key: share["static"] * mw / max(total, 1e-9) for key, mw in powers.items()}
        times = time_moves(program, run) or {}
        moves |= {key: share["static"] * move for key, move in times.items()}
    return moves


def _double(program: Program, key: str) -> Program:
    """Return the program on a chip with twice this constant. The chip is not checked, as only a formula uses it."""
    chip, (section, name) = program.chip, key.split(".")
    value = chip.value(key)
    doubled = {k: 2 * v for k, v in value.items()} if isinstance(value, dict) else (2 * np.asarray(value)).tolist()
    changed = replace(getattr(chip, section), **{name: doubled})
    return replace(program, chip=replace(chip, **{section: changed}))


def find_silicon(chip: Chip, quantity: str | None = None) -> tuple[Silicon, ...]:
    """Return the measurements of a shipped chip, of one quantity or all, except those that changed constants move."""
    rows = [row for row in read_silicon() if row.chip == chip.name and quantity in (row.quantity, None)]
    return tuple(
        row for row in rows if _constants(chip, row.quantity) == _constants(_load_shipped(chip.name), row.quantity)
    )


def _constants(chip: Chip, quantity: str) -> tuple:
    """Return all constants that a figure may depend on."""
    energy = chip.energy
    events = [getattr(energy, f.name) for f in fields(energy) if f.name.endswith("_pj")]
    noc = [getattr(chip.noc, name) for name in (*NETWORK_KEYS, "cycle_ns", "multicast", "routing", "topology")]
    of_time = chip.core.cycle_ns, chip.cost, chip.pool, noc
    powers = chip.static_mw, energy.core_static_mw, energy.host_mw
    by_quantity = {
        ENERGY: (events, chip.static_mw, of_time if chip.static_mw else None),
        "static power": powers[:2],
        "power of processors": powers[2:],
    }
    return of_time if quantity in (TIME, "latency") else by_quantity.get(quantity, (events, powers, of_time))


@cache
def read_silicon() -> tuple[Silicon, ...]:
    """Return the rows of hwmodels/silicon.json, which `benchmarks/silicon.py` writes."""
    names = [f.name for f in fields(Silicon)]
    rows = json.loads((HWMODELS / "silicon.json").read_text())
    return tuple(Silicon(**{name: row[name] for name in names}) for row in rows)


_load_shipped = cache(Chip.load)
