"""Energy: how often each event happened times the chip file's cited figure (DESIGN 6)."""

from dataclasses import fields

import numpy as np

from nwcompile.cost.time.work import n_events
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import Energy

KINDS = tuple(f.name.removesuffix("_pj") for f in fields(Energy) if f.name.endswith("_pj"))
PJ_PER_MW_SECOND = 1e9  # A milliwatt for a second is a millijoule, 1e9 picojoules.


def energy_pj(counters: dict[str, np.ndarray], chip: Chip, seconds: float | None = None) -> dict[str, float] | None:
    """Picojoules of each kind of event, summed over steps and cores, and their `total`.

    Where the chip gives its static power and `seconds` is what the steps took, `static` is that power for that time,
    and part of the total; without a time there is no `static`.

    `counters[name]`: int64[H, core]. None where the chip lacks a cited figure. The closed forms are those of SANA-FE's
    Loihi description: synapse = synop_*, soma = visit + update + spike, network = message_* + hop_*.
    """
    if not chip.has_energies:
        return None
    table = {kind: float(np.sum(n_events(counters, kind))) * getattr(chip.energy, f"{kind}_pj") for kind in KINDS}
    if chip.energy.static_mw is not None and seconds is not None:
        table["static"] = chip.energy.static_mw * seconds * PJ_PER_MW_SECOND
    return {**table, "total": sum(table.values())}
