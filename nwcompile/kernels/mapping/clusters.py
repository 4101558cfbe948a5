"""Hot loops that add up what units of neurons read and send, before any of them is on a core (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled
from nwcompile.kernels.mapping.core_usage import add, remove


@compiled()
def unit_rows(fan, start, neurons):
    """The rows that the neurons of every unit read, and how many synapses each source of a row has in the unit.

    fan: core_usage.FanIn; start: int64[unit + 1] into neurons: int64[neuron]. A row is an entry of `fan.atoms`.
    Returns offset: int64[unit + 1], row: int32[entry], count: int32[entry].
    """
    n_classes = len(fan.class_size)
    place = np.full(n_classes, -1, np.int64)
    offset = np.zeros(len(start), np.int64)
    for u in range(len(start) - 1):
        offset[u + 1] = offset[u]
        for j in range(start[u], start[u + 1]):
            for slot in range(fan.slot_offset[neurons[j]], fan.slot_offset[neurons[j] + 1]):
                target = fan.slot_class[slot]
                for i in range(fan.tap_offset[target], fan.tap_offset[target + 1]):
                    k = fan.taps[i]
                    if place[k] != u:
                        place[k] = u
                        offset[u + 1] += fan.atom_offset[k + 1] - fan.atom_offset[k]
    row, count = np.empty(offset[-1], np.int32), np.zeros(offset[-1], np.int32)
    place[:] = -1
    for u in range(len(start) - 1):
        n = offset[u]
        for j in range(start[u], start[u + 1]):
            for slot in range(fan.slot_offset[neurons[j]], fan.slot_offset[neurons[j] + 1]):
                target = fan.slot_class[slot]
                for i in range(fan.tap_offset[target], fan.tap_offset[target + 1]):
                    k = fan.taps[i]
                    if place[k] < offset[u]:
                        place[k] = n
                        for r in range(fan.atom_offset[k], fan.atom_offset[k + 1]):
                            row[n] = r
                            n += 1
                    for r in range(fan.atom_offset[k + 1] - fan.atom_offset[k]):
                        count[place[k] + r] += 1
    return offset, row, count


@compiled()
def spikes_of(counts, first_step, start, members, step_at, n_steps):
    """Spikes of groups of one layer's neurons in every step, as lists of the steps with any.

    counts: int32[T, n]; start: int64[group + 1] into members: int64[...], neurons of the layer; step_at: int64[H],
    where a hardware step is kept, or -1. Returns offset: int64[group + 1], step: int32[...], count: int32[...].
    """
    n_groups = len(start) - 1
    offset = np.zeros(n_groups + 1, np.int64)
    total = np.zeros(n_steps, np.int64)
    for write in range(2):
        if write == 1:
            for g in range(n_groups):
                offset[g + 1] += offset[g]
            step, count = np.empty(offset[-1], np.int32), np.empty(offset[-1], np.int32)
        for g in range(n_groups):
            total[:] = 0
            for j in range(start[g], start[g + 1]):
                for t in range(counts.shape[0]):
                    if counts[t, members[j]] and step_at[first_step + t] >= 0:
                        total[step_at[first_step + t]] += counts[t, members[j]]
            n = offset[g]
            for h in range(n_steps):
                if total[h]:
                    if write == 1:
                        step[n], count[n] = h, total[h]
                        n += 1
                    else:
                        offset[g + 1] += 1
    return offset, step, count


@compiled()
def add_received(in_offset, in_row, in_count, row_atom, row_cycles, offset, step, count, cycles):
    """Add to cycles: int[unit, step] those of the synaptic operations of every unit.

    row_cycles: int64[row]: cycles of one operation; offset, step, count: arrivals; all as in cluster_state.Demand.
    """
    for u in range(len(in_offset) - 1):
        for e in range(in_offset[u], in_offset[u + 1]):
            each = row_cycles[in_row[e]] * in_count[e]
            atom = row_atom[in_row[e]]
            for i in range(offset[atom], offset[atom + 1]):
                cycles[u, step[i]] += each * count[i]


@compiled()
def units_fit(fan, core, demand, start, neurons, limit, fits):
    """Sets fits: bool[unit] to whether an empty core of limit: int64[resource] holds all neurons of each unit.

    fan, core: of core_usage, the core empty; demand: int64[neuron, 2]; start: int64[unit + 1] into
    neurons: int64[...].
    """
    for u in range(len(start) - 1):
        n = start[u]
        while n < start[u + 1] and not (core.used > limit).any():
            add(fan, core, demand, neurons[n])
            n += 1
        fits[u] = not (core.used > limit).any()
        for j in range(start[u], n):
            remove(fan, core, demand, neurons[j])
