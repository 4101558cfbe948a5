"""Structures of the `floorline` partitioner's kernels: the demand of clusters, and the contents and loads of cores.

A cluster is a set of neurons that move together. A source class is a set of sources with exactly the same targets. A
row holds the synapses in a core from one source of a class by one connection. A group holds the sources of one class in
one cluster. A spike sends one message to each destination core. Structures are small, because Numba compiles each field
that is passed to a function; a kernel gets only the structures that it reads.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.mapping.core_usage import SharedKernels

# Totals over all cores: indices of `StepLoads.total`.
TIME = 0
MESSAGES = 1
REMOTE = 2
AXONS = 3
EXCESS = 4
N_USED = 5
N_TOTALS = 6

# Events with a cycle count: indices of `CoreRules.cycles`.
MESSAGE_OUT = 0
MESSAGE_IN = 1
WORD = 2


class Reads(NamedTuple):
    """The rows and kernels that every cluster reads, as lists by cluster."""

    receive: np.ndarray  # int64[cluster, step]: cycles of synaptic operations
    row_offset: np.ndarray  # int64[cluster + 1]
    row: np.ndarray  # int32[entry]
    n_synapses: np.ndarray  # int32[entry]: synapses from each source of the row in the cluster
    kernel_offset: np.ndarray  # int64[cluster + 1]
    kernel: np.ndarray  # int32[...]: shared kernels
    n_readers: np.ndarray  # int32[...]: neurons of the cluster that read each of these kernels


class Rows(NamedTuple):
    """Synapse memory of rows and shared kernels."""

    source_class: np.ndarray  # int64[row]
    format: np.ndarray  # int64[row]
    bits: np.ndarray  # int64[format, block + 1]: bits of a row with 0 to block synapses
    shared_bits: np.ndarray  # int64[format]: bits of one synapse of a shared kernel, 0 if rows are stored
    kernels: SharedKernels


class Sends(NamedTuple):
    """Neurons, work and spikes of every cluster; its groups are group_offset[cluster]:group_offset[cluster + 1]."""

    n_neurons: np.ndarray  # int64[cluster]
    send: np.ndarray  # int64[cluster, step]: cycles of visits, updates and spikes, and of multicast messages
    group_offset: np.ndarray  # int64[cluster + 1]
    group_class: np.ndarray  # int32[group]: source class
    group_cluster: np.ndarray  # int32[group]
    group_size: np.ndarray  # int64[group]: number of sources
    group_spikes: np.ndarray  # int64[group]: spikes over all steps
    spike_offset: np.ndarray  # int64[group + 1]
    spike_step: np.ndarray  # int32[...]
    spike_count: np.ndarray  # int32[...]


class SourceClasses(NamedTuple):
    """Sources that every cluster reads identically, input lines included."""

    size: np.ndarray  # int64[class]: number of sources
    spikes: np.ndarray  # int64[class]: spikes of all its sources, over all steps
    group_offset: np.ndarray  # int64[class + 1]
    group: np.ndarray  # int32[...]: groups of each class
    arrival_offset: np.ndarray  # int64[class + 1]
    arrival_step: np.ndarray  # int32[...]
    arrival_count: np.ndarray  # int32[...]: spikes of all sources of the class


class CoreRules(NamedTuple):
    """Costs and limits of the chip."""

    cycles: np.ndarray  # int64[3]: per message out to each destination, message in, and word
    word_bits: np.ndarray  # int64[1]
    limit: np.ndarray  # int64[core, resource], numbered as in `nwcompile.ir.resources`
    barrier: np.ndarray  # int64[cores in use + 1]: cycles of the barrier in a step
    min_work: np.ndarray  # int64[cores in use + 1]: cycles of the shortest step, without the barrier
    region: np.ndarray  # int64[core, 2]: first core and number of cores that its clusters may move to


class Demand(NamedTuple):
    """The demand of clusters, which is independent of their cores."""

    reads: Reads
    rows: Rows
    sends: Sends
    classes: SourceClasses
    rules: CoreRules


class CoreContents(NamedTuple):
    """Clusters, rows and resource use of the cores."""

    core_of: np.ndarray  # int32[cluster], -1: on no core
    n_clusters: np.ndarray  # int64[core]
    n_synapses: np.ndarray  # int32[core, row]
    n_rows: np.ndarray  # int32[core, class]
    n_readers: np.ndarray  # int32[core, kernel]
    n_kernels: np.ndarray  # int32[core, group]: as in SharedKernels
    fan_out: np.ndarray  # int32[class]: number of destination cores
    used: np.ndarray  # int64[core, resource]
    excess: np.ndarray  # int64[core]: sum over resources of the excess over the limit, in 2**-20 of the limit


class StepLoads(NamedTuple):
    """Loads of the cores in every step. Columns: the send unit of each core, then the receive unit of each core.

    If one unit does both, there is one column per core.
    """

    load: np.ndarray  # int64[column, step]
    top: np.ndarray  # int64[step]: largest load
    top_column: np.ndarray  # int64[step]: column of that load
    total: np.ndarray  # int64[N_TOTALS]
    touched: np.ndarray  # int64[column + 1]: columns changed since `refresh_totals`; the last entry is their number
    is_touched: np.ndarray  # bool[column]


class Attempt(NamedTuple):
    """A proposed move, and the totals before it."""

    cluster: np.ndarray  # int64[2]: the cluster, and the cluster that swaps with it, or -1
    to: np.ndarray  # int64[2]: target core of each
    top: np.ndarray  # int64[step]
    top_column: np.ndarray  # int64[step]
    total: np.ndarray  # int64[N_TOTALS]


class CoreState(NamedTuple):
    """State of the cores during the search, and the proposed move."""

    held: CoreContents
    busy: StepLoads
    attempt: Attempt


class Objective(NamedTuple):
    """Weights of the search's objective; `moves.cost` has the formula."""

    fixed: float = 0.0
    time: float = 0.0  # per predicted cycle of all steps
    messages: float = 0.0  # per message
    remote: float = 0.0  # per message to another core
    axons: float = 0.0  # per in-axon
    messages_by_cores: float = 0.0  # per message, divided by the cores in use
    factor: float = 1.0  # factor of the sum of these terms
    factor_time: float = 0.0  # added to the factor, per cycle of all steps
