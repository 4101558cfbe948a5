"""Prune zeros: replace a pruned dense connection by a list of its synapses.

The chip then neither stores nor reads zeros, and a source without synapses on a core sends no message there.
"""

import numpy as np

from nwcompile.cost.traffic.memory import synapse_bits
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.program import DENSE, SPARSE

MOST_LEFT = 0.5  # Fraction of non-zero weights above which a Dense stays one: a list would save little.


def prune_zeros(network: Network, chip: Chip) -> Network:
    """Replace every Dense with at most half its weights non-zero by a Sparse, if that is cheaper.

    It is cheaper if the synapses with their indices need less memory than all weights, and reading them takes no more
    time, by the chip's figures. A chip whose cores distinguish weights by axon types keeps rows. A Dense from more
    sources than a core has axons fits no core, so there every zero saves an axon.
    """
    connections = tuple(
        to_sparse(c) if isinstance(c, Dense) and _is_cheaper(c, chip) else c for c in network.connections
    )
    return Network(network.inputs, network.nodes, connections)


def _is_cheaper(dense_edge: Dense, chip: Chip) -> bool:
    n_left, (_, n_sources) = int(np.count_nonzero(dense_edge.weight)), np.shape(dense_edge.weight)
    return n_left <= most_listed(int(np.size(dense_edge.weight)), n_sources, dense_edge, chip)


def most_listed(n: int, n_sources: int, dense_edge: Dense, chip: Chip) -> int:
    """Return how many of `n` weights from `n_sources` a list may have at most; -1 if the chip always keeps rows."""
    in_axons = chip.limit("max_in_axons")
    if in_axons is not None and n_sources > in_axons.max():
        return n - 1
    if chip.weights.axon_types is not None:
        return -1
    dense, sparse = (np.max(getattr(chip.cost, f"synop_{kind}_cycles") or 0) for kind in ("dense", "sparse"))
    bits = [synapse_bits(dense_edge, kind, chip) for kind in (DENSE, SPARSE)]
    by_time = n if sparse == 0 else n * dense // sparse
    return min(int(MOST_LEFT * n), (n * bits[0] - 1) // bits[1], by_time)


def to_sparse(dense_edge: Dense) -> Sparse:
    """Return a dense connection's non-zero weights as a Sparse."""
    weight = np.asarray(dense_edge.weight)
    post, pre = np.nonzero(weight)
    return Sparse(
        source=dense_edge.source,
        target=dense_edge.target,
        pre=pre,
        post=post,
        weight=weight[post, pre],
        delay=dense_edge.delay,
        bias=dense_edge.bias,
        exponent=dense_edge.exponent,
        sign_mode=dense_edge.sign_mode,
        weight_bits=dense_edge.weight_bits,
    )
