"""Logical cores: the result of every partitioner, with the logical core of each neuron, and its warnings."""

from typing import NamedTuple

import numpy as np

from nwcompile.ir.flat import join_layers, split_layers
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network


class TriedCores(NamedTuple):
    """A number of cores that a partitioner tried, in a short search."""

    n_cores: int
    fits: bool
    step_us: float | None  # the predicted mean step, without links between routers; None if the chip has no times
    objective: float  # what was minimized; for `time` times the square root of the cores


class LogicalCores(NamedTuple):
    """The result of a partitioner; `partition` puts the cores at sites and checks whether they fit."""

    core_of: dict[str, np.ndarray]  # int[n] by layer: the logical core of every neuron
    mapping: Mapping | None = None  # the same cores at sites; a partitioner may choose these, and they are kept
    warnings: tuple[str, ...] = ()  # what the partitioner could not do, as sentences
    tried: tuple[TriedCores, ...] = ()  # the numbers of cores that the partitioner tried, in this order

    def by_neuron(self, network: Network) -> np.ndarray:
        """Return the cores as one vector, int[neuron]."""
        return join_layers(network, self.core_of)


def logical_cores(network: Network, core_of: np.ndarray) -> LogicalCores:
    """Return the result of a partitioner without sites, from int[neuron]."""
    return LogicalCores(split_layers(network, core_of.astype(np.int32)))
