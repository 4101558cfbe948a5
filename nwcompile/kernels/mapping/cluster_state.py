"""What the kernels of the `floorline` partitioner work on: what units ask of cores, and what the cores hold and do."""

from typing import NamedTuple

import numpy as np

TIME, MESSAGES, REMOTE, AXONS, EXCESS, N_USED = 0, 1, 2, 3, 4, 5  # of `Loads.total`
N_TOTALS = 6


class Demand(NamedTuple):
    """What units ask of the cores that hold them; nothing here changes when they move.

    An atom is a set of sources that send to the very same neurons; a row is what one source of an atom has of one
    connection in a core; a group is the sources of one atom in one unit. Spikes are messages to each destination core.
    """

    size: np.ndarray  # int64[unit]: neurons
    send: np.ndarray  # int[unit, step]: cycles of visits, updates and spikes, and of messages that fork
    receive: np.ndarray  # int[unit, step]: cycles of synaptic operations
    in_offset: np.ndarray  # int64[unit + 1]
    in_row: np.ndarray  # int32[entry]: row
    in_count: np.ndarray  # int32[entry]: synapses of each source of the row in the unit
    out_offset: np.ndarray  # int64[unit + 1]: the groups of unit u are out_offset[u]:out_offset[u + 1]
    group_atom: np.ndarray  # int32[group]
    group_unit: np.ndarray  # int32[group]
    group_size: np.ndarray  # int64[group]: sources
    group_spikes: np.ndarray  # int64[group]: over all steps
    spike_offset: np.ndarray  # int64[group + 1]
    spike_step: np.ndarray  # int32[...]
    spike_count: np.ndarray  # int32[...]
    atom_offset: np.ndarray  # int64[atom + 1]
    atom_group: np.ndarray  # int32[...]: groups of each atom
    atom_size: np.ndarray  # int64[atom]: sources, input lines included
    arrival_offset: np.ndarray  # int64[atom + 1]
    arrival_step: np.ndarray  # int32[...]
    arrival_count: np.ndarray  # int32[...]: spikes of all sources of the atom
    atom_spikes: np.ndarray  # int64[atom]: over all steps
    row_atom: np.ndarray  # int64[row]
    row_format: np.ndarray  # int64[row]
    row_bits: np.ndarray  # int64[format, block + 1]: synapse memory of a row of that many synapses
    shared_bits: np.ndarray  # int64[format]: bits of a synapse of a shared kernel, 0 where rows are stored
    kernel_offset: np.ndarray  # int64[unit + 1]
    kernel: np.ndarray  # int32[...]: shared kernels that the unit reads
    kernel_readers: np.ndarray  # int32[...]: by how many of its neurons
    kernel_bits: np.ndarray  # int64[kernel]
    cycles: np.ndarray  # int64[3]: of a message out to each destination, of a message in, of a word
    word_bits: np.ndarray  # int64[1]
    limit: np.ndarray  # int64[core, resource]
    barrier: np.ndarray  # int64[cores in use + 1]: cycles of a step
    zone: np.ndarray  # int64[core, 2]: first core, and how many, of those that its units may move to


class Loads(NamedTuple):
    """What the cores hold and do. Columns of `load`: each core's send unit, then each core's receive unit.

    Where one unit does both, the columns are the cores'.
    """

    core_of: np.ndarray  # int32[unit], -1: on none
    n_units: np.ndarray  # int64[core]
    n_synapses: np.ndarray  # int32[core, row]
    n_rows: np.ndarray  # int32[core, atom]
    n_readers: np.ndarray  # int32[core, kernel]
    fan_out: np.ndarray  # int32[atom]: cores it sends to
    used: np.ndarray  # int64[core, resource]
    excess: np.ndarray  # int64[core]: sum over resources of what is above the limit, per 2**20 of the limit
    load: np.ndarray  # int64[column, step]
    top: np.ndarray  # int64[step]: largest load
    top_column: np.ndarray  # int32[step]
    total: np.ndarray  # int64[N_TOTALS]
    touched: np.ndarray  # int64[column + 1]: columns changed since `settle`; the last entry counts them
    is_touched: np.ndarray  # bool[column]
    old_top: np.ndarray  # int64[step]
    old_column: np.ndarray  # int32[step]
    old_total: np.ndarray  # int64[N_TOTALS]
