"""SyOPs: operations as the package syops 0.0.5 counts them, layer by layer, on the network as it was imported.

Written from its rules (github.com/iCGY96/syops-counter, `ops.py`). It counts what a layer would do densely, and where
the input of a call holds at most two numbers, both in 0..1, takes the mean input's share of it as accumulates; else all
of it is multiplications. So biases count as weights do, and by the same share; taps on padding count, and so do weights
of 0; a Linear's bias counts once for all samples of a call; batch norm is two operations a number, pooling one a number
that goes in, and a neuron one accumulate a step. Shares are float32, as there.
"""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.layer_calls import calls, multiplications, neuron_layers, outputs
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, Scale
from nwcompile.ir.network import Network

OF_A_NORM = 2  # Operations of a batch norm on one number: its scale and its shift.


@dataclass(frozen=True)
class SyOps:
    """Operations of a sample: `ops` if every input were dense; the `acs` and `macs` that the inputs leave of them."""

    ops: float
    acs: float
    macs: float


def syops(network: Network, values: dict[str, np.ndarray]) -> SyOps:
    """The SyOps of a float network, not normalized, where its nodes send `values[name]`, float32[B, T, *shape].

    Raises ModelError for connections that the package has no rule for.
    """
    ops = acs = macs = 0.0
    n_samples, n_steps = next(iter(values.values())).shape[:2]
    for connection, x in calls(network, values):
        dense = _operations(network, connection, n_samples)
        share = shares(x)
        ops += dense * n_steps
        acs += sum(dense * s for s in share.tolist() if s == s)
        macs += dense * int(np.isnan(share).sum())
    for name in neuron_layers(network):
        n_updates = network.node(name).n_neurons * n_samples * n_steps
        ops, acs = ops + n_updates, acs + n_updates
    return SyOps(ops / n_samples, acs / n_samples, macs / n_samples)


def shares(x: np.ndarray) -> np.ndarray:
    """float64[T]: the mean of x [T, ...] in each step, rounded to float32; NaN where it is not taken for spikes."""
    flat = x.reshape(len(x), -1)
    low, high = flat.min(1, keepdims=True), flat.max(1, keepdims=True)
    is_spikes = ((flat == low) | (flat == high)).all(1) & (low[:, 0] >= 0) & (high[:, 0] <= 1)
    mean = flat.sum(1, dtype=np.float64).astype(np.float32) / np.float32(flat.shape[1])
    return np.where(is_spikes, mean, np.nan).astype(np.float64)


def _operations(network: Network, connection: Connection, n_samples: int) -> int:
    """Of one call, with all samples, if its input were dense."""
    n_inputs = network.node(connection.source).n_neurons
    if isinstance(connection, Dense):
        n_biases = 0 if connection.bias is None else len(connection.weight)
        return n_samples * multiplications(network, connection) + n_biases
    if isinstance(connection, Conv1d | Conv2d):
        n_biases = 0 if connection.bias is None else len(connection.weight) * outputs(network, connection)
        return n_samples * (multiplications(network, connection) + n_biases)
    return n_samples * n_inputs * (OF_A_NORM if isinstance(connection, Scale) else 1)
