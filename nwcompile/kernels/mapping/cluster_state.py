"""What the kernels of the `floorline` partitioner work on: what clusters ask of cores, and what the cores hold and do.

A cluster is a set of neurons that move together. A source class is a set of sources that send to the very same neurons.
A row is what one source of a class has of one connection in a core. A group is the sources of one class in one cluster.
Spikes are messages to each destination core. Every structure is small because Numba compiles each field that is passed
to a function; a kernel gets the structures that it reads, one by one.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.mapping.core_usage import SharedKernels

# The totals of all cores: places in `StepLoads.total`.
TIME = 0
MESSAGES = 1
REMOTE = 2
AXONS = 3
EXCESS = 4
N_USED = 5
N_TOTALS = 6

# The events whose cycles `CoreRules.cycles` holds.
MESSAGE_OUT = 0
MESSAGE_IN = 1
WORD = 2


class Reads(NamedTuple):
    """What every cluster reads, as lists by cluster."""

    receive: np.ndarray  # int64[cluster, step]: cycles of synaptic operations
    row_offset: np.ndarray  # int64[cluster + 1]
    row: np.ndarray  # int32[entry]
    n_synapses: np.ndarray  # int32[entry]: of each source of the row in the cluster
    kernel_offset: np.ndarray  # int64[cluster + 1]
    kernel: np.ndarray  # int32[...]: shared kernels that the cluster reads
    n_readers: np.ndarray  # int32[...]: neurons of the cluster that read each of them


class Rows(NamedTuple):
    """What a row or a shared kernel takes of a core's synapse memory."""

    source_class: np.ndarray  # int64[row]
    format: np.ndarray  # int64[row]
    bits: np.ndarray  # int64[format, block + 1]: of a row of that many synapses
    shared_bits: np.ndarray  # int64[format]: bits of a synapse of a shared kernel, 0 where rows are stored
    kernels: SharedKernels


class Sends(NamedTuple):
    """What every cluster does and sends; its groups are group_offset[cluster]:group_offset[cluster + 1]."""

    n_neurons: np.ndarray  # int64[cluster]
    send: np.ndarray  # int64[cluster, step]: cycles of visits, updates and spikes, and of messages that fork
    group_offset: np.ndarray  # int64[cluster + 1]
    group_class: np.ndarray  # int32[group]: source class
    group_cluster: np.ndarray  # int32[group]
    group_size: np.ndarray  # int64[group]: sources
    group_spikes: np.ndarray  # int64[group]: over all steps
    spike_offset: np.ndarray  # int64[group + 1]
    spike_step: np.ndarray  # int32[...]
    spike_count: np.ndarray  # int32[...]


class SourceClasses(NamedTuple):
    """The sources that no cluster can tell apart, input lines included."""

    size: np.ndarray  # int64[class]: sources
    spikes: np.ndarray  # int64[class]: of all its sources, over all steps
    group_offset: np.ndarray  # int64[class + 1]
    group: np.ndarray  # int32[...]: the groups of each class
    arrival_offset: np.ndarray  # int64[class + 1]
    arrival_step: np.ndarray  # int32[...]
    arrival_count: np.ndarray  # int32[...]: spikes of all sources of the class


class CoreRules(NamedTuple):
    """What the chip asks and allows."""

    cycles: np.ndarray  # int64[3]: of a message out to each destination, of a message in, of a word
    word_bits: np.ndarray  # int64[1]
    limit: np.ndarray  # int64[core, resource], as `nwcompile.ir.resources` numbers them
    barrier: np.ndarray  # int64[cores in use + 1]: cycles of a step
    region: np.ndarray  # int64[core, 2]: first core, and how many, of those that its clusters may move to


class Demand(NamedTuple):
    """What clusters ask of the cores that hold them; nothing here changes when they move."""

    reads: Reads
    rows: Rows
    sends: Sends
    classes: SourceClasses
    rules: CoreRules


class CoreContents(NamedTuple):
    """What the cores hold."""

    core_of: np.ndarray  # int32[cluster], -1: on none
    n_clusters: np.ndarray  # int64[core]
    n_synapses: np.ndarray  # int32[core, row]
    n_rows: np.ndarray  # int32[core, class]
    n_readers: np.ndarray  # int32[core, kernel]
    n_kernels: np.ndarray  # int32[core, group]: as SharedKernels
    fan_out: np.ndarray  # int32[class]: cores it sends to
    used: np.ndarray  # int64[core, resource]
    excess: np.ndarray  # int64[core]: sum over resources of what is above the limit, per 2**20 of the limit


class StepLoads(NamedTuple):
    """What the cores do in every step. Columns: each core's send unit, then each core's receive unit.

    Where one unit does both, the columns are the cores'.
    """

    load: np.ndarray  # int64[column, step]
    top: np.ndarray  # int64[step]: largest load
    top_column: np.ndarray  # int64[step]
    total: np.ndarray  # int64[N_TOTALS]
    touched: np.ndarray  # int64[column + 1]: columns changed since `refresh_totals`; the last entry counts them
    is_touched: np.ndarray  # bool[column]


class Attempt(NamedTuple):
    """A move that is tried: who goes where, and the totals before it."""

    cluster: np.ndarray  # int64[2]: the cluster, and the one that takes its place, or -1
    to: np.ndarray  # int64[2]: the core that each goes to
    top: np.ndarray  # int64[step]
    top_column: np.ndarray  # int64[step]
    total: np.ndarray  # int64[N_TOTALS]


class CoreState(NamedTuple):
    """What the cores hold and do as clusters move, and the move that is tried."""

    held: CoreContents
    busy: StepLoads
    attempt: Attempt


class Objective(NamedTuple):
    """Weights of what a search makes small: `moves.cost` gives the formula."""

    fixed: float = 0.0
    time: float = 0.0  # of the predicted cycles of all steps
    messages: float = 0.0  # of all messages
    remote: float = 0.0  # of the messages to other cores
    axons: float = 0.0  # of the in-axons
    messages_by_cores: float = 0.0  # of all messages, shared by the cores in use
    factor: float = 1.0  # of the sum of all these
    factor_time: float = 0.0  # the cycles of all steps, in the factor
