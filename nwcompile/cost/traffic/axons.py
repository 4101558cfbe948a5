"""Axons: the axons of a mapping, and their memory in each core.

There is one axon per source and destination core, for any number of synapses there (DESIGN 4.3 and 7).
"""

from typing import NamedTuple

import numpy as np

from nwcompile.cost.traffic.destinations import RowsByClass, rows_by_source
from nwcompile.cost.traffic.memory import kernel_memory, row_memory, stored_kind
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.network import Network
from nwcompile.ir.program import CONV, SYNAPSE_KINDS, Axons
from nwcompile.kernels.mapping import traffic


def build_axons(network: Network, core_of: np.ndarray, n_cores: int, chip: Chip) -> Axons:
    """Build the axons of a normalized network whose sources are on the cores `core_of`; only its structure matters.

    `core_of` is int32[source] in the order `network.offsets`, -1 for input lines; neurons on core -1 have no incoming
    axons. A stored zero counts as a synapse; a convolution's tap outside the map does not. Axons of neurons that set
    another neuron's axon read no synapses. Raises ModelError for a connection that `normalize` should have folded.
    """
    kernel_bits, n_axons, parts = np.zeros(n_cores, np.int64), np.zeros(len(core_of), np.int64), []
    for name, rows in rows_by_source(network, core_of):
        for c, _ in rows:
            wires, first = connection_wiring(network, c), network.offsets[c.target]
            kernel_bits += kernel_memory(c, wires, core_of[first : first + len(wires.target_class)], n_cores, chip)
        joined = _join_rows([_source_rows(network, c, rows_of, chip) for c, rows_of in rows])
        rows.clear()  # frees the unjoined rows
        first, scratch = network.offsets[name], np.zeros(joined.begin.shape[1], np.int64)
        of_node = n_axons[first : first + len(joined.begin)]
        traffic.count_merged(joined.begin, joined.end, joined.core, scratch, of_node)
        parts.append((first, joined))
    offset = csr_offset(n_axons)  # of all nodes, so that axons, which need more memory than rows, are written in place
    core, synops = np.zeros(offset[-1], np.int32), np.zeros((offset[-1], len(SYNAPSE_KINDS)), np.int32)
    words, row_bits = np.zeros(offset[-1], np.int32), np.zeros(offset[-1], np.int64)
    while parts:
        first, joined = parts.pop()
        scratch, of_node = np.zeros(joined.begin.shape[1], np.int64), offset[first : first + len(joined.begin) + 1]
        traffic.merge_rows(*joined, scratch, of_node, core, synops, words, row_bits)
    made = Axons(offset=offset, core=core, synops=synops, words=words, row_bits=row_bits, kernel_bits=kernel_bits)
    if (sets_other := sets_other_axon(network)).any():
        for array in (made.synops, made.words, made.row_bits):
            array[sets_other[made.source]] = 0
    return made


def sets_other_axon(network: Network) -> np.ndarray:
    """Return bool[source]: whether each source sets the axons of another neuron of its layer instead of its own."""
    nodes = [network.node(name) for name in network.offsets]
    every = (node.axon_of if node.axon_of is not None else np.arange(node.n_neurons) for node in nodes)
    return np.concatenate([axon_of != np.arange(len(axon_of)) for axon_of in every])


class _Rows(NamedTuple):
    """Rows of one node's sources, for one connection or several joined connections."""

    begin: np.ndarray  # int64[source], or [source, connection]
    end: np.ndarray
    kind: int | np.ndarray  # how the connection is stored, or int64[connection]
    word_bits: int | np.ndarray  # memory per word, 0 for shared kernels; or int64[connection]
    core: np.ndarray  # int32[row], ascending in each source's rows of a connection
    row: np.ndarray  # int32[row, 2]: synapses, words


def _source_rows(network: Network, connection: Connection, rows: RowsByClass, chip: Chip) -> _Rows:
    """Return the `Wiring.core_rows` of a connection by source, not by source class."""
    (offset, core, n_synapses), wires = rows, connection_wiring(network, connection)
    axon_of, kind = network.node(connection.source).axon_of, stored_kind(wires.kind, chip)
    source_class = wires.source_class if axon_of is None else wires.source_class[axon_of]
    row = np.stack([n_synapses, row_memory(connection, wires, n_synapses, chip)[1]], 1).astype(np.int32)
    return _Rows(
        begin=offset[source_class],
        end=offset[source_class + 1],
        kind=kind,
        word_bits=0 if kind == CONV else chip.core.word_bits,
        core=core,
        row=row,
    )


def _join_rows(parts: list[_Rows]) -> _Rows:
    first = csr_offset([len(p.core) for p in parts])[:-1]
    begin, end = (np.stack([p[i] for p in parts], 1) + first for i in range(2))
    return _Rows(
        begin=begin,
        end=end,
        kind=np.array([p.kind for p in parts], np.int64),
        word_bits=np.array([p.word_bits for p in parts], np.int64),
        core=np.concatenate([p.core for p in parts]),
        row=np.concatenate([p.row for p in parts]),
    )


def core_use(axons: Axons, core_of: np.ndarray, n_cores: int) -> dict[str, np.ndarray]:
    """Return the use of each core, int64[core]: `neurons`, `in_axons`, `out_axons`, `synapse_bits`."""
    bits, on_chip, n_out = axons.kernel_bits.copy(), core_of >= 0, np.zeros(n_cores, np.int64)
    np.add.at(bits, axons.core, axons.row_bits)
    np.add.at(n_out, core_of[on_chip], np.diff(axons.offset)[on_chip])
    return {
        "neurons": np.bincount(core_of[on_chip], minlength=n_cores),
        "in_axons": np.bincount(axons.core[axons.synops.any(1)], minlength=n_cores),
        "out_axons": n_out,
        "synapse_bits": bits,
    }
