"""A small recurrent layer with delays of one step: its synapses as one table for a dedicated kernel."""

from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Node
from nwcompile.sim.reference.synaptic_sums import apply_connection, unit_connection

MAX_NEURONS = 128  # The recurrent weights of 128 neurons fit into the registers of one program.


@dataclass(frozen=True, eq=False)
class Loop:
    """Recurrent synapses on the device: `weight` int32[n, n] from row to column, and `synapse` uint8[n, n], 0 or 1."""

    weight: torch.Tensor
    synapse: torch.Tensor


def loop_of(node: Node, edges: list[tuple[Connection, int]], device: torch.device) -> Loop | None:
    """Merge a layer's connections to itself, given with delays, into one table; None if the kernel does not support it.

    The kernel supports up to MAX_NEURONS neurons, delays of one step, and weights of 32 bits.
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
