"""Axons: which axons a mapping needs, and what they take in each core.

One axon for each source and destination core, whatever the number of synapses there (DESIGN 4.3 and 7).
"""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.destinations import rows_by_connection
from nwcompile.cost.traffic.memory import kernel_memory, row_memory, stored_kind
from nwcompile.cost.traffic.wiring import wiring
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.network import Network
from nwcompile.ir.program import SYNAPSE_KINDS, Axons
from nwcompile.kernels.mapping import traffic


def build_axons(network: Network, core_of: np.ndarray, n_cores: int, chip: Chip) -> Axons:
    """The axons of a normalized network whose sources lie on the cores `core_of` (only its structure matters).

    `core_of` is int32[source] in the order `network.offsets`, -1 for input lines; neurons of core -1 have no axon to
    them. A stored zero counts as a synapse; a convolution's tap outside the map does not. What neurons send to the
    axon of another reads nothing of its own. Raises ModelError for a connection that `normalize` should have folded.
    """
    rows: dict[str, list[_Rows]] = {name: [] for name in network.offsets}
    kernel_bits = np.zeros(n_cores, np.int64)
    for c, (offset, core, n_synapses) in zip(
        network.connections, rows_by_connection(network, core_of, n_cores), strict=True
    ):
        wires, first = wiring(network, c), network.offsets[c.target]
        kernel_bits += kernel_memory(c, wires, core_of[first : first + len(wires.target_class)], n_cores, chip)
        bits, words = row_memory(c, wires, n_synapses, chip)
        row = np.stack([n_synapses, words, bits], 1)
        axon_of = network.node(c.source).axon_of
        source_class = wires.source_class if axon_of is None else wires.source_class[axon_of]
        at = offset[source_class], offset[source_class + 1]
        rows[c.source].append(_Rows(*at, stored_kind(wires.kind, chip), core, row))
    joined = {name: _joined(parts) for name, parts in rows.items() if parts}
    n_axons = np.zeros(len(core_of), np.int64)
    for name, node_rows in joined.items():
        first = network.offsets[name]
        traffic.count_merged(
            node_rows.begin, node_rows.end, node_rows.core, n_axons[first : first + len(node_rows.begin)]
        )
    offset = csr_offset(n_axons)
    n = offset[-1]
    made = Axons(
        offset=offset,
        core=np.empty(n, np.int32),
        synops=np.zeros((n, len(SYNAPSE_KINDS)), np.int32),
        words=np.zeros(n, np.int32),
        row_bits=np.zeros(n, np.int64),
        kernel_bits=kernel_bits,
    )
    for name, node_rows in joined.items():
        first = network.offsets[name]
        out = made.core, made.synops, made.words, made.row_bits
        traffic.merge_rows(*node_rows, offset[first : first + len(node_rows.begin) + 1], *out)
    for array in (made.synops, made.words, made.row_bits):
        array[sets_other_axon(network)[made.source]] = 0
    return made


def sets_other_axon(network: Network) -> np.ndarray:
    """bool[source]: whether each source has no axons of its own, and sets those of another neuron of its layer."""
    nodes = [network.node(name) for name in network.offsets]
    every = (node.axon_of if node.axon_of is not None else np.arange(node.n_neurons) for node in nodes)
    return np.concatenate([axon_of != np.arange(len(axon_of)) for axon_of in every])


class _Rows(NamedTuple):
    """Rows of one node's sources: of one connection, or of several joined."""

    begin: np.ndarray  # int64[source], or [source, connection]
    end: np.ndarray
    kind: int | np.ndarray  # how the connection is stored, or of each
    core: np.ndarray  # int32[row], ascending in each source's rows of a connection
    row: np.ndarray  # int64[row, 3]: synapses, words, bits


def _joined(parts: list[_Rows]) -> _Rows:
    first = csr_offset([len(p.core) for p in parts])[:-1]
    begin, end = (np.stack([p[i] for p in parts], 1) + first for i in range(2))
    kind = np.array([p.kind for p in parts])
    return _Rows(begin, end, kind, np.concatenate([p.core for p in parts]), np.concatenate([p.row for p in parts]))


def core_use(axons: Axons, core_of: np.ndarray, n_cores: int) -> dict[str, np.ndarray]:
    """What each core holds, int64[core]: `neurons`, `in_axons`, `out_axons`, `synapse_bits`."""
    bits, on_chip, n_out = axons.kernel_bits.copy(), core_of >= 0, np.zeros(n_cores, np.int64)
    np.add.at(bits, axons.core, axons.row_bits)
    np.add.at(n_out, core_of[on_chip], np.diff(axons.offset)[on_chip])
    return {
        "neurons": np.bincount(core_of[on_chip], minlength=n_cores),
        "in_axons": np.bincount(axons.core[axons.synops.any(1)], minlength=n_cores),
        "out_axons": n_out,
        "synapse_bits": bits,
    }
