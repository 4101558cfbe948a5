"""Hot loops of partitioning: exact resource use of a core as neurons are added and removed; synapse graph (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.ir import resources
from nwcompile.ir.resources import IN_AXONS, NEURONS, OUT_AXONS, SYNAPSE_BITS
from nwcompile.kernels.jit import compiled, kernel, part, spliced

LOAD = resources.N_RESOURCES  # row of the load, after the resources that have limits
N_RESOURCES = resources.N_RESOURCES + 1
ADD = np.int64(1)  # Signs of `shift_neuron`, which would be compiled once for each literal.
REMOVE = np.int64(-1)


class SharedKernels(NamedTuple):
    """Memory of shared kernels in a core. Sources of a channel group read the kernels of one kernel group."""

    group: np.ndarray  # int64[kernel]
    bits: np.ndarray  # int64[group, kernels + 1]: bits of 0, 1, ... kernels of a group in one core


class SynapseTable(NamedTuple):
    """The synapses of every neuron, over all connections.

    A slot is one connection into one neuron. A target class is a set of neurons of a connection with equal sources. A
    row stands for the sources of a connection with the same targets (a class of `nwcompile.cost.traffic.wiring`) and
    takes synapse memory for each of them. A source class is a set of sources that every row contains entirely or not at
    all.
    """

    slot_offset: np.ndarray  # int64[neuron + 1]
    slot_class: np.ndarray  # int64[slot]: target class
    slot_kernel: np.ndarray  # int64[slot]: shared kernel, or -1
    tap_offset: np.ndarray  # int64[target class + 1]
    taps: np.ndarray  # int32[tap]: row
    row_size: np.ndarray  # int64[row]: number of sources
    row_format: np.ndarray  # int64[row]: row of `step_bits`
    step_bits: np.ndarray  # int64[format, block_synapses]: bits of one more synapse in a row of n, by n % block
    class_offset: np.ndarray  # int64[row + 1]
    classes: np.ndarray  # int64[...]: source classes of a row
    class_size: np.ndarray  # int64[source class]: number of sources
    kernels: SharedKernels


class Tried(NamedTuple):
    """Kinds of neurons that need no further attempt on a full core.

    Neurons of a kind read the same rows, by kernels of the same groups, and have as many destination cores. If one of
    them with only new kernels does not fit, no other with only new kernels fits. `clock` advances when a core changes.
    """

    kind: np.ndarray  # int64[neuron]
    failed: np.ndarray  # int64[kind]: last clock at which one with only new kernels did not fit, -1 at first
    clock: np.ndarray  # int64[1]


class CoreUsage(NamedTuple):
    """Resource use of one core."""

    n_synapses: np.ndarray  # int64[row]: synapses per source
    n_rows: np.ndarray  # int64[source class]: rows of the core that contain it
    n_readers: np.ndarray  # int64[kernel]: neurons of the core that read it
    n_kernels: np.ndarray  # int64[group]: kernels in the core
    used: np.ndarray  # int64[resource]


@part
def shift_neuron(table, core, demand, neuron, sign):
    """Add a neuron to the core (sign 1) or remove it (-1). demand: int64[neuron, 2]: its out-axons and its load."""
    core.used[NEURONS] += sign
    core.used[OUT_AXONS] += sign * demand[neuron, 0]
    core.used[LOAD] += sign * demand[neuron, 1]
    block = table.step_bits.shape[1]
    for slot in range(table.slot_offset[neuron], table.slot_offset[neuron + 1]):
        shared = table.slot_kernel[slot]
        if shared >= 0:
            n_readers = core.n_readers[shared]
            core.n_readers[shared] = n_readers + sign
            if n_readers == 0 or n_readers + sign == 0:
                group = table.kernels.group[shared]
                n_kernels = core.n_kernels[group]
                core.n_kernels[group] = n_kernels + sign
                bits = table.kernels.bits[group, n_kernels + sign] - table.kernels.bits[group, n_kernels]
                core.used[SYNAPSE_BITS] += bits
        target = table.slot_class[slot]
        for i in range(table.tap_offset[target], table.tap_offset[target + 1]):
            row = table.taps[i]
            n = core.n_synapses[row]
            core.n_synapses[row] = n + sign
            fewer = min(n, n + sign)
            bits = table.step_bits[table.row_format[row], fewer % block]
            core.used[SYNAPSE_BITS] += sign * table.row_size[row] * bits
            if fewer == 0:
                for j in range(table.class_offset[row], table.class_offset[row + 1]):
                    source_class = table.classes[j]
                    n_rows = core.n_rows[source_class]
                    core.n_rows[source_class] = n_rows + sign
                    if n_rows == 0 or n_rows + sign == 0:
                        core.used[IN_AXONS] += sign * table.class_size[source_class]


@part
def has_new_kernels(table, core, neuron):
    """Whether no neuron of the core reads a kernel of this neuron; True if kernels are not shared."""
    is_new = True
    for slot in range(table.slot_offset[neuron], table.slot_offset[neuron + 1]):
        kernel = table.slot_kernel[slot]
        if kernel >= 0 and core.n_readers[kernel] > 0:
            is_new = False
    return is_new


@spliced
def is_over(used, limit):
    """Whether any use exceeds its limit, both int64[resource]."""
    over = False
    for r in range(len(used)):
        if used[r] > limit[r]:
            over = True
    return over


@kernel
def fill(table, core, demand, neurons, limit):
    """Add neurons to the core, in order, up to the first that does not fit; returns their number.

    neurons: int64[neuron]; limit: int64[resource].
    """
    n = 0
    while n < len(neurons) and core.used[NEURONS] < limit[NEURONS]:
        shift_neuron(table, core, demand, neurons[n], ADD)
        if is_over(core.used, limit):
            shift_neuron(table, core, demand, neurons[n], REMOVE)
            break
        n += 1
    return n


@kernel
def fill_choosing(table, core, demand, tried, neurons, limit, taken):
    """Add every neuron that fits to the core, in order, and set taken: bool[neuron] of `neurons` for these.

    neurons: int64[neuron]; limit: int64[resource], without the load.
    """
    tried.clock[0] += 1
    for i in range(len(neurons)):
        if core.used[NEURONS] >= limit[NEURONS]:
            break  # no other neuron fits, and an attempt visits all its synapses
        kind = tried.kind[neurons[i]]
        is_new = has_new_kernels(table, core, neurons[i])
        if is_new and tried.failed[kind] == tried.clock[0]:
            continue
        shift_neuron(table, core, demand, neurons[i], ADD)
        if not is_over(core.used, limit):
            taken[i] = True
            tried.clock[0] += 1
            continue
        shift_neuron(table, core, demand, neurons[i], REMOVE)
        if is_new:
            tried.failed[kind] = tried.clock[0]


@kernel
def clear(table, core, demand, neurons):
    """Remove `neurons`, int64[neuron], from the core."""
    for i in range(len(neurons)):
        shift_neuron(table, core, demand, neurons[i], REMOVE)


@kernel
def fill_in_turn(table, core, demand, neurons, limits, n_taken):
    """Fill one core after the other, in order, until neurons or cores are used up, or a core takes none.

    limits: int64[core, resource]. Sets n_taken: int64[core] to the neurons of each, and returns the number of cores
    with neurons. `core` is empty before and after.
    """
    at = 0
    for c in range(len(limits)):
        n_taken[c] = fill(table, core, demand, neurons[at:], limits[c])
        if n_taken[c] == 0:
            return c
        clear(table, core, demand, neurons[at : at + n_taken[c]])
        at += n_taken[c]
    return len(limits)


@kernel
def alone(table, core, demand, neurons, used):
    """Set used: int64[neuron, resource] to the use of each of `neurons` on a core of its own."""
    for i in range(len(neurons)):
        shift_neuron(table, core, demand, neurons[i], ADD)
        for r in range(N_RESOURCES):
            used[i, r] = core.used[r]
        shift_neuron(table, core, demand, neurons[i], REMOVE)


@kernel
def clusters_fit(table, core, demand, start, neurons, limit, fits):
    """Set fits: bool[cluster] to whether an empty core of limit: int64[resource] holds all neurons of each cluster.

    The core is empty; demand: int64[neuron, 2]; start: int64[cluster + 1] into neurons: int64[...].
    """
    for u in range(len(start) - 1):
        n = start[u]
        while n < start[u + 1] and not is_over(core.used, limit):
            shift_neuron(table, core, demand, neurons[n], ADD)
            n += 1
        fits[u] = not is_over(core.used, limit)
        for j in range(start[u], n):
            shift_neuron(table, core, demand, neurons[j], REMOVE)


@compiled()
def count_edges(members_offset, members, target, target_class, offset, taps, degree):
    """Add the edges of one connection to degree: int64[vertex] of both ends; self-loops do not count.

    members_offset: int64[source class + 1] into members: int64[...], vertices; target, target_class: int64 and
    int32[target vertex]; offset: int64[target class + 1], taps: int32[tap].
    """
    for j in range(len(target)):
        for i in range(offset[target_class[j]], offset[target_class[j] + 1]):
            for m in range(members_offset[taps[i]], members_offset[taps[i] + 1]):
                if members[m] != target[j]:
                    degree[members[m]] += 1
                    degree[target[j]] += 1


@compiled()
def write_edges(members_offset, members, target, target_class, offset, taps, weight, size, cursor, edges):
    """Write the edges counted by `count_edges`; weight: int64[vertex]: synapses per source, size: int64[vertex].

    cursor: int64[vertex] is where each vertex writes next in edges: int32[end, 2] (other vertex, weight).
    """
    for j in range(len(target)):
        for i in range(offset[target_class[j]], offset[target_class[j] + 1]):
            for m in range(members_offset[taps[i]], members_offset[taps[i] + 1]):
                source = members[m]
                if source != target[j]:
                    total = weight[source] * size[target[j]]
                    edges[cursor[source], 0] = target[j]
                    edges[cursor[target[j]], 0] = source
                    edges[cursor[source], 1] = total
                    edges[cursor[target[j]], 1] = total
                    cursor[source] += 1
                    cursor[target[j]] += 1


@compiled()
def merge_edges(start, edges):
    """Merge parallel edges in place: start: int64[vertex + 1] into edges: int32[end, 2]. Returns the new start."""
    n_vertices = len(start) - 1
    merged = np.zeros(n_vertices + 1, np.int64)
    place = np.full(n_vertices, -1, np.int64)
    n = 0
    for v in range(n_vertices):
        for i in range(start[v], start[v + 1]):
            other, weight = edges[i, 0], edges[i, 1]
            if place[other] >= merged[v]:
                edges[place[other], 1] += weight
            else:
                place[other] = n
                edges[n, 0] = other
                edges[n, 1] = weight
                n += 1
        merged[v + 1] = n
    return merged
