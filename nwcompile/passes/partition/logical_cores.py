"""What every partitioner gives: the logical core of each neuron, and what there is to say about it."""

from typing import NamedTuple

import numpy as np

from nwcompile.ir.flat import join_layers, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network


class FewestCores(NamedTuple):
    """As few cores as contiguous slices take, where a partitioner takes more for their shorter steps."""

    n_cores: int
    step_us: float  # the predicted mean step on them, links between routers left out


class LogicalCores(NamedTuple):
    """The answer of a partitioner; `partition` puts the cores at sites and judges whether they fit."""

    core_of: dict[str, np.ndarray]  # int[n] by layer: the logical core of every neuron
    mapping: Mapping | None = None  # the same cores at sites of the partitioner's own choice, which are kept
    warnings: tuple[str, ...] = ()  # what the partitioner could not do, as sentences
    fewest: FewestCores | None = None  # where the partitioner took more cores than hold the network

    def by_neuron(self, network: Network) -> np.ndarray:
        """The cores as one vector, int[neuron]."""
        return join_layers(network, self.core_of)


class Partitioned(NamedTuple):
    """The result of the stage `partition`."""

    mapping: Mapping
    warnings: tuple[str, ...]
    fewest: FewestCores | None = None


def logical_cores(network: Network, core_of: np.ndarray) -> LogicalCores:
    """The answer of a partitioner that knows no sites, from int[neuron]."""
    return LogicalCores(split_layers(network, core_of.astype(np.int32)))
