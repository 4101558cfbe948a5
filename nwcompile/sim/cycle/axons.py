"""A program's axons, and the gates of its chip, as the table that the core kernels take."""

import numpy as np

from nwcompile.cost.traffic.io_sites import io_routes
from nwcompile.cost.traffic.multicast import MulticastTrees, hops_of_axons, spike_fanout
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.program import SYNAPSE_KINDS, Program
from nwcompile.kernels.cores.tables import AXON, AxonTable


def axon_table(program: Program, own: MulticastTrees | None) -> AxonTable:
    """The axons with their costs in ticks, then those of output neurons to gates; with trees, where those begin."""
    axons, chip = program.axons, program.chip
    site = np.concatenate([chip.site_index(program.mapping.site_of), chip.io_cores]).astype(np.int32)
    core_at = np.full(chip.n_cores, -1, np.int32)
    core_at[site] = np.arange(len(site))
    rows, offset = _rows(program), axons.offset
    gate_first, gate_axon = np.zeros(1, np.int64), np.zeros(0, np.int64)
    if (ways := io_routes(program)) is not None:
        come, leave = (core_at[way.site] for way in ways)
        gate_first, gate_axon = _of_input(program, rows, come)
        rows, offset = _with_output(program, rows, offset, leave)
    rows["to"], rows["flits"] = site[rows["core"]], _flits(program)[rows["source"]]
    root = np.full(len(program.core_of), -1, np.int32)
    if own is not None:
        root[own.tree_of >= 0] = own.trees.root[own.tree_of[own.tree_of >= 0]]
    sent = spike_fanout(program)
    n_lines = int(np.count_nonzero(program.core_of < 0))
    return AxonTable(offset, rows, np.column_stack([sent.messages, sent.hops]), root, site, core_at,
                     program.mapping.n_cores, n_lines, gate_first, gate_axon)  # fmt: skip


def _rows(program: Program) -> np.ndarray:
    """AXON[axon] of the program's axons, without `to` and `flits`."""
    axons, cost = program.axons, program.chip.cost
    per_synop = np.array([c or 0 for c in (cost.synop_dense_cycles, cost.synop_sparse_cycles, cost.synop_conv_cycles)])
    cycles = (cost.message_in_cycles or 0) + axons.synops.astype(np.int64) @ per_synop
    cycles += axons.words.astype(np.int64) * (cost.word_cycles or 0)
    rows = np.zeros(axons.n_axons, AXON)
    rows["ticks"], rows["source"], rows["core"] = cycles * program.chip.ticks[0], axons.source, axons.core
    for kind, synops in zip(SYNAPSE_KINDS, axons.synops.T, strict=True):
        rows[kind] = synops
    rows["words"] = axons.words
    rows["hops_ew"], rows["hops_ns"] = hops_of_axons(program).T
    return rows


def _of_input(program: Program, rows: np.ndarray, gate_of: np.ndarray):
    """The axons of input lines that each gate sends, by source: `gate_first` and `gate_axon` of `AxonTable`."""
    core, source = rows["core"], rows["source"]
    of_line = np.flatnonzero(program.core_of[source] < 0)
    gate = gate_of[core[of_line]] - program.mapping.n_cores
    counts = np.bincount(gate, minlength=len(program.chip.io_cores))
    return csr_offset(counts), of_line[np.lexsort((core[of_line], source[of_line], gate))]


def _with_output(program: Program, rows: np.ndarray, offset: np.ndarray, gate_of: np.ndarray):
    """The axons, and their offsets, with one more of every output neuron: to the gate of its core, all else is 0."""
    network = program.network
    goes_out = np.zeros(len(program.core_of), np.int64)
    for name in network.outputs:
        first = network.offsets[name]
        goes_out[first : first + network.node(name).n_neurons] = 1
    source = np.flatnonzero(goes_out).astype(np.int32)
    more = np.zeros(len(source), AXON)
    more["source"], more["core"] = source, gate_of[program.core_of[source]]
    return np.insert(rows, offset[source + 1], more), offset + csr_offset(goes_out)


def _flits(program: Program) -> np.ndarray:
    """int32[source]: flits of a message of each source."""
    network = program.network
    flits = [np.full(network.node(name).n_neurons, program.message_flits(name)) for name in network.offsets]
    return np.concatenate(flits).astype(np.int32)
