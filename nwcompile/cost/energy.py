"""Energy: how often each event happened times the chip file's cited figure (DESIGN 6)."""

from dataclasses import fields

import numpy as np

from nwcompile.cost.work import COUNTER_OF
from nwcompile.ir.chip import Chip, Energy

KINDS = tuple(f.name.removesuffix("_pj") for f in fields(Energy))


def energy_pj(counters: dict[str, np.ndarray], chip: Chip) -> dict[str, float] | None:
    """Picojoules of each kind of event, summed over steps and cores, and their `total`.

    `counters[name]`: int64[H, core]. None where the chip lacks a cited figure. The closed forms are those of SANA-FE's
    Loihi description: synapse = synop_*, soma = visit + update + spike, network = message_* + hop_*.
    """
    if not chip.has_energies:
        return None
    table = {kind: float(np.sum(counters[COUNTER_OF[kind]])) * getattr(chip.energy, f"{kind}_pj") for kind in KINDS}
    return {**table, "total": sum(table.values())}
