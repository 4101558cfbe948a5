"""Search: the shared data of all searches of one compilation, and the result of each."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nwcompile.checkpoint import has_checkpoint, load_or_compute
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.partition.logical_cores import TriedCores

MAX_LISTED_SOURCES = 1 << 17  # With more sources of synapse lists, tables by source and core take gigabytes.


class Search(NamedTuple):
    """The shared data of all searches of one compilation."""

    network: Network
    chip: Chip
    activity: Activity
    timing: Schedule
    options: Options
    load: np.ndarray  # int64[neuron]: its weight
    state: np.ndarray  # uint64[1]: of the random numbers
    deadline: float | None
    n_levels: int  # of finer and finer clusters, after the number of cores is chosen
    tried: dict[int, TriedCores]  # by the number of cores in use, in the order of the searches

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def is_large(self) -> bool:
        """Whether clusters stay where the last start has them, see `MAX_LISTED_SOURCES`."""
        listed = (c.source for c in self.network.connections if isinstance(c, Sparse))
        return sum(self.network.node(source).n_neurons for source in listed) > MAX_LISTED_SOURCES


class Partition(NamedTuple):
    """Clusters of neurons on cores, and their rank: excess over limits first, then the objective."""

    cluster_of: np.ndarray  # int64[neuron]
    core_of: np.ndarray  # int32[cluster]
    n_cores: int
    excess: int
    cost: float
    regions: np.ndarray | None = None  # int64[region]: number of consecutive cores of each; clusters stay in theirs

    @property
    def rank(self) -> tuple[int, float]:
        """The sort key; smaller is better."""
        return self.excess, self.cost

    @property
    def neuron_core(self) -> np.ndarray:
        """The core of every neuron, int32[neuron]."""
        return self.core_of[self.cluster_of]


def kept_partition(search: Search, name: str, given, make: Callable[[], Partition]) -> Partition:
    """Return `make()`, or its result from the checkpoint; it depends only on `name`, `search` and `given`.

    The random state of the search is restored as after `make()`. With a deadline nothing is stored, as the clock
    decides.
    """
    if not has_checkpoint() or search.deadline is not None:
        return make()

    def arrays() -> dict[str, np.ndarray]:
        made = make()
        return {
            "cluster_of": made.cluster_of,
            "core_of": made.core_of,
            "regions": np.zeros(0, np.int64) if made.regions is None else made.regions,
            "whole": np.array([made.n_cores, made.excess], np.int64),
            "cost": np.array([made.cost], np.float64),
            "state": search.state,
        }

    activity = search.activity
    of_search = [
        search.network.hash,
        search.chip.hash,
        repr(search.options),
        repr(search.timing),
        search.n_levels,
        search.load,
        search.state,
        [activity.counts, activity.updates, activity.heard, repr(activity.n_samples)],
        [[of.largest, of.by_source] for of in activity.multi.values()],
    ]
    stored = load_or_compute(name, [of_search, given], arrays)
    search.state[:] = stored["state"]
    return Partition(
        cluster_of=stored["cluster_of"],
        core_of=stored["core_of"],
        n_cores=int(stored["whole"][0]),
        excess=int(stored["whole"][1]),
        cost=float(stored["cost"][0]),
        regions=stored["regions"] if len(stored["regions"]) else None,
    )
