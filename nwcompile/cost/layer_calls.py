"""Layer calls: what every torch layer of a network is called with, for the counts of tools that hook into torch.

A float network as it was imported has a connection for every layer of the module that computes anything: Linear and
convolutions, pooling, and batch norm as a Scale. A module that goes step by step calls each of them once a step, with
all samples.
"""

from collections.abc import Iterator
from math import prod

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, MaxPool2d, Pool2d, Scale
from nwcompile.ir.network import Network

ERROR_CODE = "NW5008"
COUNTED = (Dense, Conv1d, Conv2d, Pool2d, MaxPool2d, Scale)


def calls(network: Network, values: dict[str, np.ndarray]) -> Iterator[tuple[Connection, np.ndarray]]:
    """Every connection, and float32[T, B, *shape], what it takes in each step; `values` as `sim.sequence` gives them.

    Raises ModelError for a connection that no layer of torch is known to be.
    """
    for connection in network.connections:
        if not isinstance(connection, COUNTED):
            raise connection.fail(f"what torch computes for a {type(connection).__name__} is not known")
        x = values[connection.source]
        late = np.zeros_like(x[:, : connection.aligned_delay])
        yield connection, np.concatenate([late, x[:, : x.shape[1] - late.shape[1]]], 1).swapaxes(0, 1)


def neuron_layers(network: Network) -> list[str]:
    """The layers that are modules of neurons, as readouts that we add are not, nor maxima of spikes."""

    def is_maximum(name: str) -> bool:
        into = network.into(name)
        return bool(into) and all(isinstance(c, Pool2d) and c.kind == "sum" for c in into)

    return [name for name in network.layers if network.node(name).neuron.fires and not is_maximum(name)]


def is_one_of(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """bool[T]: whether in a step all of x [T, ...] is one of two numbers."""
    flat = x.reshape(len(x), -1)
    return ((flat == low) | (flat == high)).all(1)


def multiplications(network: Network, connection: Connection) -> int:
    """Of a Dense, Conv1d or Conv2d on a sample: weights times the outputs that take each, taps on padding included."""
    weight = np.asarray(connection.weight)
    if isinstance(connection, Dense):
        return weight.size
    return weight.size * outputs(network, connection)


def outputs(network: Network, connection: Connection) -> int:
    """Places of a convolution's output, of one channel."""
    shape = connection.output_shape(network.node(connection.source).shape)
    if shape is None:
        raise ModelError(f"connection {connection.source!r} -> {connection.target!r} has no shape")
    return prod(shape[1:])
