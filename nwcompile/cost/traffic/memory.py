"""Synapse memory of a synapse, a row of synapses and a shared kernel in a core, in bits and words."""

import numpy as np

from nwcompile.cost.traffic.wiring import Wiring
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d
from nwcompile.ir.program import CONV, DENSE, SPARSE


def synapse_bits(connection: Connection, kind: int, chip: Chip) -> int:
    """Return the bits of one stored synapse of a connection on the chip, with its index if sparse."""
    return (connection.weight_bits or chip.weights.bits) + (chip.weights.index_bits if kind == SPARSE else 0)


def row_bits(n_synapses, bits: int, chip: Chip):
    """Return the bits of a row of `n_synapses`: blocks of up to `core.block_synapses` with overhead, in whole words.

    It follows the discrete-axon format of Loihi 1 (DESIGN 5). `n_synapses` may be an array.
    """
    core = chip.core

    def block_bits(n):
        return -(-(n * bits + core.block_overhead_bits) // core.word_bits) * core.word_bits

    rest = n_synapses % core.block_synapses
    return n_synapses // core.block_synapses * block_bits(core.block_synapses) + (rest > 0) * block_bits(rest)


def stored_kind(kind: int, chip: Chip) -> int:
    """Return the format of a connection of that kind in the synapse memory, which determines its cost to read.

    Without shared weights a convolution is stored as dense rows, a run of taps for each source (as SANA-FE counts its
    convolutions on Loihi 1: reference/models, sanafe_dvs).
    """
    return DENSE if kind == CONV and not chip.weights.sharing else kind


def row_memory(connection: Connection, wires: Wiring, n_synapses: np.ndarray, chip: Chip):
    """Return the bits of rows of `n_synapses` of a connection, int64[row], and the words that a message reads of each.

    A row of a shared kernel occupies no memory of its own, but its synapses are read.
    """
    bits_each = synapse_bits(connection, wires.kind, chip)
    if stored_kind(wires.kind, chip) == CONV:
        return np.zeros(len(n_synapses), np.int64), -(-n_synapses * bits_each // chip.core.word_bits)
    bits = row_bits(n_synapses, bits_each, chip)
    return bits, bits // chip.core.word_bits


def kernel_groups(connection: Conv2d) -> np.ndarray:
    """Return int64[kernel]: the channel group of every kernel (output channel) of a convolution."""
    n_kernels = len(connection.weight)
    return np.arange(n_kernels) // (n_kernels // connection.groups)


def shared_bits(connection: Conv2d, wires: Wiring, n_kernels: np.ndarray, chip: Chip) -> np.ndarray:
    """Return the bits of `n_kernels` int64[...] kernels of one channel group in one core.

    If the chip stores kernels in rows, there is a row for each input channel and tap, with a synapse for each kernel.
    Otherwise only the bits of the weights count.
    """
    bits_each = synapse_bits(connection, wires.kind, chip)
    if not chip.weights.kernel_rows:
        return n_kernels * (wires.kernel_size * bits_each)
    return wires.kernel_size * row_bits(n_kernels, bits_each, chip)


def kernel_memory(connection: Connection, wires: Wiring, target_core: np.ndarray, n_cores: int, chip: Chip):
    """Return int64[core]: bits of the shared kernels that a connection's targets on each core read; 0 if not shared.

    `target_core`: int32[target], -1 for targets on no core.
    """
    if stored_kind(wires.kind, chip) != CONV:
        return np.zeros(n_cores, np.int64)
    assert isinstance(connection, Conv2d) and wires.kernel is not None
    n_kernels = len(connection.weight)
    held = np.unique(target_core[target_core >= 0].astype(np.int64) * n_kernels + wires.kernel[target_core >= 0])
    core, group = held // n_kernels, kernel_groups(connection)[held % n_kernels]
    count = np.bincount(core * connection.groups + group, minlength=n_cores * connection.groups)
    return shared_bits(connection, wires, count, chip).reshape(n_cores, connection.groups).sum(1)
