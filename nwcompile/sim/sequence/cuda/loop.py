"""A small layer that is fed its own spikes of the step before: its synapses as one table, for a kernel of its own."""

from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Node
from nwcompile.sim.reference.synaptic_sums import apply_connection, unit_connection

MAX_NEURONS = 128  # The registers of one program hold the weights of so many neurons onto themselves.


@dataclass(frozen=True, eq=False)
class Loop:
    """weight int32[n, n] from row to column, and uint8[n, n] whether there is a synapse, on the device."""

    weight: torch.Tensor
    synapse: torch.Tensor


def loop_of(node: Node, edges: list[tuple[Connection, int]], device: torch.device) -> Loop | None:
    """The connections of a layer to itself, with their delays, as one table; None where the kernel does not take them.

    It takes up to MAX_NEURONS neurons, delays of one step, and weights of 32 bits.
    """
    n = node.n_neurons
    if n > MAX_NEURONS or any(delay != 1 for _, delay in edges):
        return None
    one_spike_each = np.eye(n, dtype=np.int64).reshape(n, *node.shape)
    weight, n_synapses = (
        sum(apply_connection(table(c), one_spike_each, node.shape).reshape(n, n) for c, _ in edges)
        for table in (lambda c: c.replace(bias=None), unit_connection)
    )
    if np.abs(weight).max() >= 1 << 31:
        return None
    arrays = (np.ascontiguousarray(weight, np.int32), np.ascontiguousarray(n_synapses > 0, np.uint8))
    return Loop(*(torch.from_numpy(a).to(device) for a in arrays))
