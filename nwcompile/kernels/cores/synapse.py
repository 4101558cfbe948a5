"""Accumulation of the synapses of a spike, in Numba: dense rows, sparse rows and convolution taps, never unrolled."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.neuron import LONG_AGO, is_at_rest, step
from nwcompile.kernels.cores.programs.call import (
    clear_programs,
    is_program_at_rest,
    keep_states,
    step_program,
    take_inputs,
)
from nwcompile.kernels.jit import inlined, kernel, part

DENSE, SPARSE, CONV = range(3)  # CONNECTION.kind

CONNECTION = np.dtype(
    [
        ("delay", np.int64),  # delay in steps
        ("weight_first", np.int64),  # into `Synapses.weight`
        ("row_first", np.int64),  # sparse: into `Synapses.row`
        ("place_first", np.int64),  # convolution: into `Members.place`
        ("target", np.int32),  # target node
        ("kind", np.int32),  # DENSE, SPARSE, CONV
        # of a convolution: height x width maps to out_height x out_width for each of channels_out
        ("height", np.int64),
        ("width", np.int64),
        ("channels_out", np.int64),
        ("out_height", np.int64),
        ("out_width", np.int64),
        ("group_in", np.int64),  # input channels of a group; group_out: its output channels
        ("group_out", np.int64),
        ("kernel_height", np.int64),
        ("kernel_width", np.int64),
        ("stride_y", np.int64),
        ("stride_x", np.int64),
        ("padding_y", np.int64),
        ("padding_x", np.int64),
        ("dilation_y", np.int64),
        ("dilation_x", np.int64),
    ],
    align=True,
)


class Synapses(NamedTuple):
    """All connections of a network in flat arrays. Neurons and input lines are numbered as in `Network.offsets`.

    Synaptic sums are numbered likewise, node by node. A neuron program with K inputs has K of them: in a layer of n
    neurons, that of neuron i's input k is number k * n + i.
    """

    node_of: np.ndarray  # int32[source]: input or layer of each source
    node_first: np.ndarray  # int64[node + 1]: first source of each node
    sum_first: np.ndarray  # int64[node + 1]: first sum of each node
    sum_of: np.ndarray  # int64[source]: sum of the first input of each source
    fan_out: np.ndarray  # int64[node + 1]: CSR into `leaving`
    leaving: np.ndarray  # int64[...]: connections that leave each node
    connection: np.ndarray  # CONNECTION[connection]
    row: np.ndarray  # int64[...]: row starts of sparse connections, into `post`
    post: np.ndarray  # int32[...]: target sum of each sparse synapse, within its node; sorted by core within a row
    weight: np.ndarray  # int32[...]: dense [source, target], sparse by row, convolution [Ci/g, kh, kw, Co]


class Members(NamedTuple):
    """The sums of each node on each core: CSR over node * n_cores + core.

    A cell is the set of output channels of a convolution that share a map position and a core.
    """

    offset: np.ndarray  # int64[node * n_cores + 1]
    sum: np.ndarray  # int32[...]: within the node
    core_of: np.ndarray  # int32[sum]
    place: np.ndarray  # int64[...]: first cell of each map position, row by row, and the end
    cell_core: np.ndarray  # int32[cell]
    cell_first: np.ndarray  # int64[cell + 1]: into `channel`
    channel: np.ndarray  # int32[...]: ascending in a cell
    n_cores: int


class Drive(NamedTuple):
    """Synaptic sums that have not acted yet; the slot of step m is m modulo the number of slots."""

    sum: np.ndarray  # int64[slot, sum]
    touched: np.ndarray  # uint8[slot, sum]: whether a synaptic event acts


@part
def deliver(synapses, members, core, source, payload, now, drive):
    """Accumulate a spike's synapses into the slots of `drive` in which they act.

    Only synapses with targets on `core` count, by `members`; if that is None, all synapses.
    """
    node = synapses.node_of[source]
    local = source - synapses.node_first[node]
    for k in range(synapses.fan_out[node], synapses.fan_out[node + 1]):
        edge = synapses.connection[synapses.leaving[k]]
        slot = (now + edge.delay) % drive.sum.shape[0]
        first, end = synapses.sum_first[edge.target], synapses.sum_first[edge.target + 1]
        acc, touched = drive.sum[slot, first:end], drive.touched[slot, first:end]
        if edge.kind == DENSE:
            base = edge.weight_first + local * (end - first)
            if members is None:
                for j in range(end - first):
                    acc[j] += synapses.weight[base + j] * payload
                    touched[j] = 1
            else:
                at = edge.target * members.n_cores + core
                for q in range(members.offset[at], members.offset[at + 1]):
                    j = members.sum[q]
                    acc[j] += synapses.weight[base + j] * payload
                    touched[j] = 1
        elif edge.kind == SPARSE:
            base = edge.weight_first - synapses.row[edge.row_first]
            start, last = synapses.row[edge.row_first + local], synapses.row[edge.row_first + local + 1]
            if members is not None:
                start, last = find_core_range(synapses.post, members.core_of[first:end], start, last, core)
            for q in range(start, last):
                j = synapses.post[q]
                acc[j] += synapses.weight[base + q] * payload
                touched[j] = 1
        else:
            deliver_taps(synapses.weight, edge, members, core, local, payload, acc, touched)


@part
def find_core_range(post, core_of, start, end, core):
    """Start and end of the synapses on `core` within start..end-1 of a sparse row, which is sorted by core."""
    low, high = start, end
    while low < high:
        middle = (low + high) // 2
        if core_of[post[middle]] < core:
            low = middle + 1
        else:
            high = middle
    last = low
    while last < end and core_of[post[last]] == core:
        last += 1
    return low, last


@inlined
def tap(at, padding, dilation, stride, k, size):
    """Output position of kernel tap k for input position `at` on one axis with `size` outputs; -1 if outside."""
    to = at + padding - k * dilation
    if stride > 1:
        if to % stride != 0:
            return np.int64(-1)
        to //= stride
    return to if 0 <= to < size else np.int64(-1)


@part
def deliver_taps(weight, edge, members, core, local, payload, acc, touched):
    """`deliver` for a convolution. local: source within its node; acc, touched: by target."""
    area = edge.out_height * edge.out_width
    channel, place_in = local // (edge.height * edge.width), local % (edge.height * edge.width)
    row, column = place_in // edge.width, place_in % edge.width
    low = channel // edge.group_in * edge.group_out
    rank = np.int64(0)  # index of the core's cell at a position, mostly the same for all taps
    for a in range(edge.kernel_height):
        top = tap(row, edge.padding_y, edge.dilation_y, edge.stride_y, a, edge.out_height)
        if top < 0:
            continue
        for b in range(edge.kernel_width):
            left = tap(column, edge.padding_x, edge.dilation_x, edge.stride_x, b, edge.out_width)
            if left < 0:
                continue
            place = top * edge.out_width + left
            of_tap = ((channel % edge.group_in) * edge.kernel_height + a) * edge.kernel_width + b
            base = edge.weight_first + of_tap * edge.channels_out
            if members is None:
                for o in range(low, low + edge.group_out):
                    acc[o * area + place] += weight[base + o] * payload
                    touched[o * area + place] = 1
            else:
                start, end = members.place[edge.place_first + place], members.place[edge.place_first + place + 1]
                cell = start + rank
                if cell >= end or members.cell_core[cell] != core:
                    cell = start
                    while cell < end and members.cell_core[cell] != core:
                        cell += 1
                    if cell == end:
                        continue
                    rank = cell - start
                for q in range(members.cell_first[cell], members.cell_first[cell + 1]):
                    o = members.channel[q]
                    if low <= o < low + edge.group_out:
                        acc[o * area + place] += weight[base + o] * payload
                        touched[o * area + place] = 1


@kernel
def sparse_drive(row, post, weight, spikes, drive, touched):
    """Input of one sparse connection over whole sequences.

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
def convolution_drive(weight, source, output, stride, padding, dilation, spikes, drive, touched):
    """Input of one convolution over whole sequences, spike by spike.

    weight: int[target channel, source channel of its group, k_row, k_column]; source, output: (channels, rows,
    columns); stride, padding, dilation: (rows, columns); spikes: int[sample, step, source]
    -> drive: int64[sample, step, target] added to, touched: uint8 likewise.
    """
    channels, rows, columns = source
    n_read, n_fed = weight.shape[1], output[0] * weight.shape[1] // channels
    for b in range(len(spikes)):
        for t in range(spikes.shape[1]):
            for i in range(channels * rows * columns):
                payload = np.int64(spikes[b, t, i])
                if payload == 0:
                    continue
                channel, y, x = i // (rows * columns), i // columns % rows, i % columns
                first = channel // n_read * n_fed
                for ky in range(weight.shape[2]):
                    to_y = y + padding[0] - ky * dilation[0]
                    if to_y < 0 or to_y % stride[0] or to_y >= output[1] * stride[0]:
                        continue
                    for kx in range(weight.shape[3]):
                        to_x = x + padding[1] - kx * dilation[1]
                        if to_x < 0 or to_x % stride[1] or to_x >= output[2] * stride[1]:
                            continue
                        at = to_y // stride[0] * output[2] + to_x // stride[1]
                        for out in range(first, first + n_fed):
                            to = out * output[1] * output[2] + at
                            drive[b, t, to] += weight[out, channel % n_read, ky, kx] * payload
                            touched[b, t, to] = 1


@kernel
def scan_loop(neurons, synapses, drive, touched, spikes, u, v, updates, states, first_step, inner, programs, words):
    """Run layers that feed each other (a recurrent group) step by step; else as `neuron.scan`.

    synapses: those within the group, whose sources and sums are numbered as neurons and drive: [sample, step, sum].
    inner: scratch Drive of spikes within the group, continued like the states. words: int64[sample, step, word]: states
    of neuron programs, of 0 samples if not wanted.
    """
    n_samples, n_steps, n = spikes.shape
    keep, has_gates = u.shape[0] > 0, drive.shape[2] > n  # some neurons have several sums
    for b in range(n_samples):
        if first_step == 0:
            states.u[:] = 0
            states.v[:] = 0
            states.since[:] = LONG_AGO
            clear_programs(programs)
            inner.sum[:] = 0
            inner.touched[:] = 0
        for t in range(n_steps):
            slot = (first_step + t) % inner.sum.shape[0]
            if has_gates:
                for j in range(drive.shape[2]):
                    inner.sum[slot, j] += drive[b, t, j]
                    inner.touched[slot, j] |= touched[b, t, j]
            for i in range(n):
                j = synapses.sum_of[i] if has_gates else i
                x, has_event = inner.sum[slot, j], inner.touched[slot, j] != 0
                if not has_gates:
                    x += drive[b, t, i]
                    has_event |= touched[b, t, i] != 0
                inner.sum[slot, j] = 0
                inner.touched[slot, j] = 0
                if programs.layer_of[i] >= 0:
                    if has_gates:
                        has_event |= take_inputs(programs, i, j, inner.sum[slot], inner.touched[slot])
                    updates[t, i] += has_event or not is_program_at_rest(programs, i)
                    count = step_program(programs, i, x)
                    if words.shape[0] > 0:
                        keep_states(programs, i, words[b, t])
                else:
                    updates[t, i] += has_event or not is_at_rest(neurons, i, states, i)
                    count = step(neurons, i, states, i, x)
                spikes[b, t, i] = count
                if keep:
                    u[b, t, i] = states.u[i]
                    v[b, t, i] = states.v[i]
                if count != 0:
                    deliver(synapses, None, -1, i, count, first_step + t, inner)
