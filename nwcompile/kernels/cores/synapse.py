"""Accumulating the synapses of one spike, in Numba: dense rows, sparse rows and convolution taps, never unrolled."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.neuron import is_at_rest, step
from nwcompile.kernels.jit import inlined, kernel

DENSE, SPARSE, CONV = 0, 1, 2


class Synapses(NamedTuple):
    """All connections of a network, flat. Neurons and input lines are numbered as in `Network.offsets`."""

    node_of: np.ndarray  # int32[source]: input or layer of each source
    node_first: np.ndarray  # int64[node + 1]: first source of each node
    fan_out: np.ndarray  # int64[node + 1]: CSR into `connection`
    connection: np.ndarray  # int64[...]: connections that leave each node
    kind: np.ndarray  # int8[connection]: DENSE, SPARSE, CONV
    target: np.ndarray  # int32[connection]: node it ends at
    delay: np.ndarray  # int64[connection]: steps until it acts
    weight_first: np.ndarray  # int64[connection]: into `weight`
    row_first: np.ndarray  # int64[connection]: sparse, into `row`
    geometry: np.ndarray  # int64[connection, 16]: C H W, Co Ho Wo, per_in per_out, kh kw, sh sw, ph pw, dh dw
    row: np.ndarray  # int64[...]: row starts of sparse connections, into `post`
    post: np.ndarray  # int32[...]: target neuron of each sparse synapse, within its node; in a row, sorted by core
    weight: np.ndarray  # int32[...]: dense [source, target], sparse by row, convolution [Ci/g, kh, kw, Co]


class Members(NamedTuple):
    """Which neurons of each node lie on which core: CSR over node * n_cores + core.

    A cell is the output channels of a convolution that share a place of its map and a core.
    """

    offset: np.ndarray  # int64[node * n_cores + 1]
    neuron: np.ndarray  # int32[...]: within the node
    core_of: np.ndarray  # int32[source]
    place_first: np.ndarray  # int64[connection]: convolution, into `place`
    place: np.ndarray  # int64[...]: first cell of each place, row by row, and of the one after the last
    cell_core: np.ndarray  # int32[cell]
    cell_first: np.ndarray  # int64[cell + 1]: into `channel`
    channel: np.ndarray  # int32[...]: ascending in a cell
    n_cores: int


@inlined
def deliver(c, members, core, source, payload, now, acc, events):
    """Add a spike's synapses on one core (all cores where `core < 0`) to the slots in which they act.

    acc: int64[slot, source], events: uint8[slot, source]. Slot of step m is m modulo the number of slots.
    """
    node = c.node_of[source]
    local = source - c.node_first[node]
    for k in range(c.fan_out[node], c.fan_out[node + 1]):
        e = c.connection[k]
        slot = (now + c.delay[e]) % acc.shape[0]
        first = c.node_first[c.target[e]]
        if c.kind[e] == DENSE:
            n_target = c.node_first[c.target[e] + 1] - first
            base = c.weight_first[e] + local * n_target
            if core < 0:
                for j in range(n_target):
                    acc[slot, first + j] += c.weight[base + j] * payload
                    events[slot, first + j] = 1
            else:
                at = c.target[e] * members.n_cores + core
                for q in range(members.offset[at], members.offset[at + 1]):
                    j = members.neuron[q]
                    acc[slot, first + j] += c.weight[base + j] * payload
                    events[slot, first + j] = 1
        elif c.kind[e] == SPARSE:
            base = c.weight_first[e] - c.row[c.row_first[e]]
            start, end = c.row[c.row_first[e] + local], c.row[c.row_first[e] + local + 1]
            if core >= 0:
                start = first_on_core(c, members, first, start, end, core)
            for q in range(start, end):
                j = first + c.post[q]
                if core >= 0 and members.core_of[j] != core:
                    break
                acc[slot, j] += c.weight[base + q] * payload
                events[slot, j] = 1
        else:
            _deliver_taps(c, members, core, e, local, payload, first, acc[slot], events[slot])


@kernel
def first_on_core(c, members, first, start, end, core):
    """First of the synapses start..end-1 of a sparse row, sorted by core, whose target is on `core` or a later one."""
    while start < end:
        middle = (start + end) // 2
        if members.core_of[first + c.post[middle]] < core:
            start = middle + 1
        else:
            end = middle
    return start


@kernel
def _deliver_taps(c, members, core, e, local, payload, first, acc, events):
    g = c.geometry[e]
    height, width, out_h, out_w = g[1], g[2], g[4], g[5]
    per_in, per_out, kh, kw = g[6], g[7], g[8], g[9]
    channel, row, column = local // (height * width), (local // width) % height, local % width
    low = channel // per_in * per_out
    turn = np.int64(0)  # of the core among those at a place; mostly the same at all
    for a in range(kh):
        top = row + g[12] - a * g[14]
        if g[10] > 1:
            if top % g[10] != 0:
                continue
            top //= g[10]
        if top < 0 or top >= out_h:
            continue
        for b in range(kw):
            left = column + g[13] - b * g[15]
            if g[11] > 1:
                if left % g[11] != 0:
                    continue
                left //= g[11]
            if left < 0 or left >= out_w:
                continue
            place = top * out_w + left
            base = c.weight_first[e] + (((channel % per_in) * kh + a) * kw + b) * g[3]
            if core < 0:
                for o in range(low, low + per_out):
                    acc[first + o * out_h * out_w + place] += c.weight[base + o] * payload
                    events[first + o * out_h * out_w + place] = 1
                continue
            at = members.place_first[e] + place
            start, end = members.place[at], members.place[at + 1]
            cell = start + turn
            if cell >= end or members.cell_core[cell] != core:
                cell = start
                while cell < end and members.cell_core[cell] != core:
                    cell += 1
                if cell == end:
                    continue
                turn = cell - start
            for q in range(members.cell_first[cell], members.cell_first[cell + 1]):
                o = members.channel[q]
                if low <= o < low + per_out:
                    j = first + o * out_h * out_w + place
                    acc[j] += c.weight[base + o] * payload
                    events[j] = 1


@kernel
def sparse_drive(row, post, weight, spikes, drive, touched):
    """Whole-sequence input of one sparse connection.

    row: int64[source + 1], post: int32[synapse], weight: int64[synapse], spikes: int[sample, step, source]
    -> drive: int64[sample, step, target] added to, touched: uint8 likewise.
    """
    n_samples, n_steps, n = spikes.shape
    for b in range(n_samples):
        for t in range(n_steps):
            for i in range(n):
                payload = np.int64(spikes[b, t, i])
                if payload != 0:
                    for q in range(row[i], row[i + 1]):
                        drive[b, t, post[q]] += weight[q] * payload
                        touched[b, t, post[q]] = 1


@kernel
def scan_loop(p, c, members, group, drive, touched, spikes, u, v, updates, s, acc, events):
    """Run layers that feed each other (a recurrent group) step by step; as `neuron.scan` otherwise.

    group: int64[neuron] source number of each neuron of the group; p, drive, spikes, ... are in that order;
    acc, events: int64 / uint8 [slot, source] scratch.
    """
    n_samples, n_steps, n = drive.shape
    keep = u.shape[0] > 0
    for b in range(n_samples):
        s.u[:] = 0
        s.v[:] = 0
        s.since[:] = 1 << 30
        acc[:] = 0
        events[:] = 0
        for t in range(n_steps):
            slot = t % acc.shape[0]
            for i in range(n):
                j = group[i]
                x = drive[b, t, i] + acc[slot, j]
                if touched[b, t, i] or events[slot, j] or not is_at_rest(p, i, s, i):
                    updates[t, i] += 1
                acc[slot, j] = 0
                events[slot, j] = 0
                count = step(p, i, s, i, x)
                spikes[b, t, i] = count
                if keep:
                    u[b, t, i] = s.u[i]
                    v[b, t, i] = s.v[i]
                if count != 0:
                    deliver(c, members, -1, j, count, t, acc, events)
