"""Costs that differ between chip families. The answers here are those of a mesh whose cores end a step at a barrier."""

from typing import Any

import numpy as np

from nwcompile.families import load_part
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.tables import PoolTimes


class FamilyCost:
    """Messages that carry no spikes, and times that `chip.cost` does not give."""

    def list_tokens(self, program: Program) -> Any:
        """Return the messages of a hardware step that do not depend on spikes (families/neighbors/cost.py:Tokens)."""
        return None

    def add_tokens(self, program: Program, counters: dict[str, np.ndarray], n_samples: int) -> None:
        """Add these messages to counters int64[H, core]."""

    def find_paths(self, program: Program, n_samples: int) -> Any:
        """Return what cores wait for instead of a barrier (families/neighbors/cost.py:TokenPaths)."""
        return None

    def pool_times(self, program: Program) -> PoolTimes:
        """Return the times of a step that replace those of the cores; zeros if there are none."""
        return PoolTimes(0, np.zeros(len(program.core_of), np.int64))

    def mean_step_cycles(self, program: Program, activity: Activity | None) -> float | None:
        """Return the mean core cycles of such a step under an activity; None if there are no such times."""
        return None


def find_cost(chip: Chip) -> FamilyCost:
    """Return the costs of a chip's family."""
    return getattr(load_part(chip.family, "cost"), "COST", FamilyCost())
