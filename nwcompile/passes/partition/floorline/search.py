"""What the searches of one compilation share, and what each of them gives."""

import time
from typing import NamedTuple

import numpy as np

from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule


class Search(NamedTuple):
    """What the searches of one compilation share."""

    network: Network
    chip: Chip
    activity: Activity
    timing: Schedule
    options: Options
    load: np.ndarray  # int64[neuron]: how heavy it is
    state: np.ndarray  # uint64[1]: of the random numbers
    deadline: float | None

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline


class Partition(NamedTuple):
    """Clusters of neurons on cores, and how good that is: what exceeds limits first, then the objective."""

    cluster_of: np.ndarray  # int64[neuron]
    core_of: np.ndarray  # int32[cluster]
    n_cores: int
    excess: int
    cost: float
    regions: np.ndarray | None = None  # int64[region]: how many cores, in order, are in each; clusters stay in theirs

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return self.excess, self.cost

    @property
    def neuron_core(self) -> np.ndarray:
        """int32[neuron]: the core of every neuron."""
        return self.core_of[self.cluster_of]
