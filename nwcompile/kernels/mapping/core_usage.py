"""Hot loops of partitioning: exact use of one core as neurons come and go, and the synapse graph (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.ir import resources
from nwcompile.ir.resources import IN_AXONS, NEURONS, OUT_AXONS, SYNAPSE_BITS
from nwcompile.kernels.jit import compiled, kernel, part, spliced

LOAD = resources.N_RESOURCES  # row of the load, which comes after the resources that have limits
N_RESOURCES = resources.N_RESOURCES + 1


class SharedKernels(NamedTuple):
    """What shared kernels take of a core: those of a group lie together, the sources of a channel group read them."""

    group: np.ndarray  # int64[kernel]
    bits: np.ndarray  # int64[group, kernels + 1]: of so many kernels of a group in one core


class SynapseTable(NamedTuple):
    """What every neuron reads, all connections together.

    A slot is one connection into one neuron, a target class those neurons of a connection that read the same sources. A
    row stands for those sources of a connection that have the same targets (a class of `nwcompile.cost.traffic.wiring`)
    and takes synapse memory for each of them. A source class is a set of sources that every row holds whole or not at
    all.
    """

    slot_offset: np.ndarray  # int64[neuron + 1]
    slot_class: np.ndarray  # int64[slot]: target class
    slot_kernel: np.ndarray  # int64[slot]: shared kernel, or -1
    tap_offset: np.ndarray  # int64[target class + 1]
    taps: np.ndarray  # int64[tap]: row
    row_size: np.ndarray  # int64[row]: sources in it
    row_format: np.ndarray  # int64[row]: row of `step_bits`
    step_bits: np.ndarray  # int64[format, block_synapses]: bits one more synapse takes in a row of n, by n % block
    class_offset: np.ndarray  # int64[row + 1]
    classes: np.ndarray  # int64[...]: the source classes of a row
    class_size: np.ndarray  # int64[source class]: sources in it
    kernels: SharedKernels


class Tried(NamedTuple):
    """Which neurons need not be tried: where one of a kind has no room, no other has whose kernels are all new there.

    Of a kind are those that read the same rows, by kernels of the same groups, and send to as many cores. Moments are
    counted in `clock`: it goes on whenever a core changes.
    """

    kind: np.ndarray  # int64[neuron]
    failed: np.ndarray  # int64[kind]: the last moment at which one of it with new kernels had no room, -1 at first
    clock: np.ndarray  # int64[1]


class CoreUsage(NamedTuple):
    """The running account of one core."""

    n_synapses: np.ndarray  # int64[row]: length of each source's row
    n_rows: np.ndarray  # int64[source class]: rows here that hold it
    n_readers: np.ndarray  # int64[kernel]: neurons here that read it
    n_kernels: np.ndarray  # int64[group]: kernels here
    used: np.ndarray  # int64[resource]


@part
def shift_neuron(table, core, demand, neuron, sign):
    """Put a neuron on the core (sign 1) or take it off (-1). demand: int64[neuron, 2]: its out-axons and its load."""
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
    """Whether no neuron on the core reads a kernel of this one, as where nothing is shared."""
    is_new = True
    for slot in range(table.slot_offset[neuron], table.slot_offset[neuron + 1]):
        kernel = table.slot_kernel[slot]
        if kernel >= 0 and core.n_readers[kernel] > 0:
            is_new = False
    return is_new


@spliced
def is_over(used, limit):
    """Whether more is used than the limit, both int64[resource]."""
    over = False
    for r in range(len(used)):
        if used[r] > limit[r]:
            over = True
    return over


@kernel
def fill(table, core, demand, neurons, limit):
    """Put neurons on the core, in order, up to the first that does not fit; returns how many it took.

    neurons: int64[neuron]; limit: int64[resource].
    """
    n = 0
    while n < len(neurons) and core.used[NEURONS] < limit[NEURONS]:
        shift_neuron(table, core, demand, neurons[n], 1)
        if is_over(core.used, limit):
            shift_neuron(table, core, demand, neurons[n], -1)
            break
        n += 1
    return n


@kernel
def fill_choosing(table, core, demand, tried, neurons, limit, taken):
    """Put on the core, in order, every neuron that fits, and set taken: bool[neuron] of `neurons` for these.

    neurons: int64[neuron]; limit: int64[resource], none of the load.
    """
    tried.clock[0] += 1
    for i in range(len(neurons)):
        if core.used[NEURONS] >= limit[NEURONS]:
            break  # no other one fits, and to try it costs a visit of all its synapses
        kind = tried.kind[neurons[i]]
        is_new = has_new_kernels(table, core, neurons[i])
        if is_new and tried.failed[kind] == tried.clock[0]:
            continue
        shift_neuron(table, core, demand, neurons[i], 1)
        if not is_over(core.used, limit):
            taken[i] = True
            tried.clock[0] += 1
            continue
        shift_neuron(table, core, demand, neurons[i], -1)
        if is_new:
            tried.failed[kind] = tried.clock[0]


@kernel
def clear(table, core, demand, neurons):
    """Take `neurons`, int64[neuron], off the core."""
    for i in range(len(neurons)):
        shift_neuron(table, core, demand, neurons[i], -1)


@kernel
def fill_in_turn(table, core, demand, neurons, limits, n_taken):
    """Fill one core after the other, in order, until neurons or cores are used up, or a core takes none.

    limits: int64[core, resource]. Sets n_taken: int64[core] to the neurons of each, and returns how many cores have
    any. The account is empty before and after.
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
    """Sets used: int64[neuron, resource] to what each of `neurons` takes on a core of its own."""
    for i in range(len(neurons)):
        shift_neuron(table, core, demand, neurons[i], 1)
        for r in range(N_RESOURCES):
            used[i, r] = core.used[r]
        shift_neuron(table, core, demand, neurons[i], -1)


@kernel
def clusters_fit(table, core, demand, start, neurons, limit, fits):
    """Sets fits: bool[cluster] to whether an empty core of limit: int64[resource] holds all neurons of each cluster.

    The core is empty; demand: int64[neuron, 2]; start: int64[cluster + 1] into neurons: int64[...].
    """
    for u in range(len(start) - 1):
        n = start[u]
        while n < start[u + 1] and not is_over(core.used, limit):
            shift_neuron(table, core, demand, neurons[n], 1)
            n += 1
        fits[u] = not is_over(core.used, limit)
        for j in range(start[u], n):
            shift_neuron(table, core, demand, neurons[j], -1)


@compiled()
def count_edges(members_offset, members, target, target_class, offset, taps, degree):
    """Add the edges of one connection to degree: int64[vertex] of both their ends; those onto itself are left out.

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
    """Write what `count_edges` counted: weight: int64[vertex] of its sources' synapses, size: int64[vertex] of neurons.

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
    """Add up parallel edges in place: start: int64[vertex + 1] into edges: int32[end, 2]. Returns the new start."""
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
