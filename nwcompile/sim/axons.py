"""A program's axons, and the gates of its chip, as the table that the core kernels take."""

import numpy as np

from nwcompile.cost.gates import gates
from nwcompile.cost.traffic import hops_of_axons
from nwcompile.ir.program import Program
from nwcompile.kernels.cpu_core import AxonTable


def axon_table(program: Program) -> AxonTable:
    """The axons with their costs in ticks and their routes' hops, then those of output neurons to gates."""
    axons, chip = program.axons, program.chip
    cost, synops = chip.cost, axons.synops.astype(np.int64)
    counts = np.column_stack([synops, synops.sum(1), axons.words.astype(np.int64)])
    per_synop = np.array([c or 0 for c in (cost.synop_dense_cycles, cost.synop_sparse_cycles, cost.synop_conv_cycles)])
    cycles = (cost.message_in_cycles or 0) + synops @ per_synop + counts[:, 4] * (cost.word_cycles or 0)
    site = np.concatenate([chip.site_index(program.mapping.site_of), chip.io_cores]).astype(np.int32)
    core_at = np.full(chip.n_cores, -1, np.int32)
    core_at[site] = np.arange(len(site))
    by_core = np.lexsort((axons.source, axons.core))
    number = np.empty(axons.n_axons, np.int64)
    number[by_core] = np.arange(axons.n_axons)
    rows = axons.core, axons.source, counts, cycles * chip.ticks[0], hops_of_axons(program)
    rows, offset = tuple(np.ascontiguousarray(row[by_core]) for row in rows), axons.offset
    gate_first, gate_axon = np.zeros(1, np.int64), np.zeros(0, np.int64)
    if (ways := gates(program)) is not None:
        come, leave = (core_at[way.site] for way in ways)
        gate_first, gate_axon = _of_input(program, rows[0], rows[1], come)
        rows, offset, number = _with_output(program, rows, offset, number, leave)
    return AxonTable(offset, number, *rows, _flits(program)[rows[1]], site, core_at, program.mapping.n_cores,
                     gate_first, gate_axon)  # fmt: skip


def _of_input(program: Program, core: np.ndarray, source: np.ndarray, gate_of: np.ndarray):
    """The axons of input lines that each gate sends, by source: `gate_first` and `gate_axon` of `AxonTable`."""
    of_line = np.flatnonzero(program.core_of[source] < 0)
    gate = gate_of[core[of_line]] - program.mapping.n_cores
    counts = np.bincount(gate, minlength=len(program.chip.io_cores))
    return np.concatenate([[0], np.cumsum(counts)]), of_line[np.lexsort((core[of_line], source[of_line], gate))]


def _with_output(program: Program, rows: tuple, offset: np.ndarray, number: np.ndarray, gate_of: np.ndarray):
    """The axons with one more, the last, of every output neuron: its core is the gate of its own, all else is 0."""
    network = program.network
    leaves = np.zeros(len(program.core_of), np.int64)
    for name in network.outputs:
        first = network.offsets[name]
        leaves[first : first + network.node(name).n_neurons] = 1
    source = np.flatnonzero(leaves).astype(np.int32)
    core, old_source, *others = rows
    others = [np.concatenate([row, np.zeros((len(source), *row.shape[1:]), row.dtype)]) for row in others]
    number = np.insert(number, offset[source + 1], len(core) + np.arange(len(source)))
    offset = offset + np.concatenate([[0], np.cumsum(leaves)])
    core = np.concatenate([core, gate_of[program.core_of[source]]])
    return (core, np.concatenate([old_source, source]), *others), offset, number


def _flits(program: Program) -> np.ndarray:
    """int32[source]: flits of a message of each source."""
    network = program.network
    flits = [np.full(network.node(name).n_neurons, program.message_flits(name)) for name in network.offsets]
    return np.concatenate(flits).astype(np.int32)
