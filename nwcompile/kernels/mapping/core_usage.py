"""Hot loops of partitioning: exact use of one core as neurons come and go, and the synapse graph (Numba)."""

from typing import NamedTuple

import numpy as np

from nwcompile.ir import resources
from nwcompile.ir.resources import IN_AXONS, NEURONS, OUT_AXONS, SYNAPSE_BITS
from nwcompile.kernels.jit import compiled

LOAD = resources.N_RESOURCES  # row of the load, which comes after the resources that have limits
N_RESOURCES = resources.N_RESOURCES + 1


class FanIn(NamedTuple):
    """What every neuron reads, all connections together; classes are those of `nwcompile.cost.traffic.wiring`.

    A slot is one connection into one neuron. An atom is a set of sources that every class holds whole or not at all.
    """

    slot_offset: np.ndarray  # int64[neuron + 1]
    slot_class: np.ndarray  # int64[slot]: target class
    slot_kernel: np.ndarray  # int64[slot]: shared kernel, or -1
    tap_offset: np.ndarray  # int64[target class + 1]
    taps: np.ndarray  # int64[tap]: source class
    class_size: np.ndarray  # int64[source class]: sources in it
    class_format: np.ndarray  # int64[source class]: row of `step_bits`
    step_bits: np.ndarray  # int64[format, block_synapses]: bits one more synapse takes in a row of n, by n % block
    atom_offset: np.ndarray  # int64[source class + 1]
    atoms: np.ndarray  # int64[class atom]: atom
    atom_size: np.ndarray  # int64[atom]: sources in it
    kernel_bits: np.ndarray  # int64[kernel]


class Core(NamedTuple):
    """The running account of one core."""

    n_synapses: np.ndarray  # int64[source class]: length of each source's row
    n_classes: np.ndarray  # int64[atom]: classes of the atom with a row here
    n_readers: np.ndarray  # int64[kernel]: neurons here that read it
    used: np.ndarray  # int64[resource]


@compiled()
def add(fan, core, demand, neuron):
    """Put a neuron on the core. demand: int64[neuron, 2]: its out-axons and its load."""
    core.used[NEURONS] += 1
    core.used[OUT_AXONS] += demand[neuron, 0]
    core.used[LOAD] += demand[neuron, 1]
    block = fan.step_bits.shape[1]
    for slot in range(fan.slot_offset[neuron], fan.slot_offset[neuron + 1]):
        kernel = fan.slot_kernel[slot]
        if kernel >= 0:
            if core.n_readers[kernel] == 0:
                core.used[SYNAPSE_BITS] += fan.kernel_bits[kernel]
            core.n_readers[kernel] += 1
        for i in range(fan.tap_offset[fan.slot_class[slot]], fan.tap_offset[fan.slot_class[slot] + 1]):
            k = fan.taps[i]
            n = core.n_synapses[k]
            core.used[SYNAPSE_BITS] += fan.class_size[k] * fan.step_bits[fan.class_format[k], n % block]
            core.n_synapses[k] = n + 1
            if n == 0:
                for j in range(fan.atom_offset[k], fan.atom_offset[k + 1]):
                    if core.n_classes[fan.atoms[j]] == 0:
                        core.used[IN_AXONS] += fan.atom_size[fan.atoms[j]]
                    core.n_classes[fan.atoms[j]] += 1


@compiled()
def remove(fan, core, demand, neuron):
    """Take a neuron off the core: the reverse of `add`."""
    core.used[NEURONS] -= 1
    core.used[OUT_AXONS] -= demand[neuron, 0]
    core.used[LOAD] -= demand[neuron, 1]
    block = fan.step_bits.shape[1]
    for slot in range(fan.slot_offset[neuron], fan.slot_offset[neuron + 1]):
        kernel = fan.slot_kernel[slot]
        if kernel >= 0:
            core.n_readers[kernel] -= 1
            if core.n_readers[kernel] == 0:
                core.used[SYNAPSE_BITS] -= fan.kernel_bits[kernel]
        for i in range(fan.tap_offset[fan.slot_class[slot]], fan.tap_offset[fan.slot_class[slot] + 1]):
            k = fan.taps[i]
            n = core.n_synapses[k] - 1
            core.used[SYNAPSE_BITS] -= fan.class_size[k] * fan.step_bits[fan.class_format[k], n % block]
            core.n_synapses[k] = n
            if n == 0:
                for j in range(fan.atom_offset[k], fan.atom_offset[k + 1]):
                    core.n_classes[fan.atoms[j]] -= 1
                    if core.n_classes[fan.atoms[j]] == 0:
                        core.used[IN_AXONS] -= fan.atom_size[fan.atoms[j]]


@compiled()
def fill(fan, core, demand, neurons, limit, skip, taken):
    """Put on the core, in order, every neuron that fits; unless `skip`, stop at the first that does not.

    neurons: int64[neuron]; limit: int64[resource]. Sets taken: bool[neuron] of `neurons`; returns how many it took.
    """
    n = 0
    for i in range(len(neurons)):
        add(fan, core, demand, neurons[i])
        if (core.used > limit).any():
            remove(fan, core, demand, neurons[i])
            if not skip:
                break
            continue
        taken[i] = True
        n += 1
    return n


@compiled()
def clear(fan, core, demand, neurons):
    """Take `neurons`, int64[neuron], off the core."""
    for neuron in neurons:
        remove(fan, core, demand, neuron)


@compiled()
def alone(fan, core, demand, neurons, used):
    """Sets used: int64[neuron, resource] to what each of `neurons` takes on a core of its own."""
    for i in range(len(neurons)):
        add(fan, core, demand, neurons[i])
        used[i] = core.used
        remove(fan, core, demand, neurons[i])


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
