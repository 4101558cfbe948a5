"""Energy as a board's power meter sees it: the events of the cores, the static power, and the processors on the chips.

Power that is drawn all the time costs more the longer a step takes, so slow steps are paid here even if nothing
happens in them. The objectives of the partitioner use `Run.energy_pj`.
"""

from dataclasses import dataclass
from math import fsum

from nwcompile.cost.basis import decide_basis, energy_moves, time_moves
from nwcompile.ir.noc.board import chips_used
from nwcompile.ir.program import Program
from nwcompile.ir.run import Basis, Run

BOARD = "board energy"
NJ = 1e6  # nanojoules of 1 mW in 1 s


@dataclass(frozen=True)
class BoardEnergy:
    """Nanojoules of a sample. A part is None if the chip file has no figure for it.

    `dynamic_nj`: the events of `Run.energy_pj`. `static_nj`: `energy.static_mw`, and `energy.core_static_mw` of each of
    the `n_cores` in use, for the time of a sample. `host_nj`: the same of `energy.host_mw` and the `n_chips` in use.
    """

    dynamic_nj: float | None
    static_nj: float | None
    host_nj: float | None
    n_cores: int
    n_chips: int
    basis: Basis

    @property
    def total_nj(self) -> float | None:
        """The sum of the known parts; None if the energy of the events is not known."""
        if self.dynamic_nj is None:
            return None
        return self.dynamic_nj + (self.static_nj or 0.0) + (self.host_nj or 0.0)


def board_energy(program: Program, run: Run) -> BoardEnergy | None:
    """Return the energy of a run whose `seconds` are known; None without times or figures of power."""
    energy, n_cores = program.chip.energy, program.mapping.n_cores
    n_chips = chips_used(program.chip.noc, program.mapping.site_of)
    powers = {"static_mw": 1, "core_static_mw": n_cores, "host_mw": n_chips}
    given = {key: n * getattr(energy, key) for key, n in powers.items() if getattr(energy, key) is not None}
    if run.seconds is None or not given:
        return None
    spent = {key: mw * run.seconds * NJ / run.n_samples for key, mw in given.items()}
    dynamic = None
    if run.energy_pj is not None:
        events = fsum(pj for kind, pj in run.energy_pj.items() if kind not in ("static", "total"))
        dynamic = events / 1000 / run.n_samples
    static = [spent[key] for key in ("static_mw", "core_static_mw") if key in spent]
    return BoardEnergy(
        dynamic_nj=dynamic,
        static_nj=sum(static) if static else None,
        host_nj=spent.get("host_mw"),
        n_cores=n_cores,
        n_chips=n_chips,
        basis=_find_basis(program, run, dynamic or 0.0, spent),
    )


def _find_basis(program: Program, run: Run, dynamic_nj: float, spent: dict[str, float]) -> Basis:
    """Return the basis of the sum: each part moves with its own constants, and power with those of the time too."""
    total = max(dynamic_nj + sum(spent.values()), 1e-9)
    events = {key: move for key, move in (energy_moves(program, run) or {}).items() if key.endswith("_pj")}
    scale = dynamic_nj / max(sum(events.values()), 1e-9) / total if events else 0.0
    moves = {key: move * scale for key, move in events.items()} | {f"energy.{k}": nj / total for k, nj in spent.items()}
    of_time = sum(spent.values()) / total
    moves |= {key: move * of_time for key, move in (time_moves(program, run) or {}).items()}
    return decide_basis(program.chip, moves, BOARD)
