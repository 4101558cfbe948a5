"""Whole samples on the cycle-level chip, in Numba: micro-step after micro-step, each run until all messages arrived."""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.neuron import is_asleep, is_at_rest, step
from nwcompile.kernels.cores.probes import BASE, ROW, SAMPLE_NOW, STEP_NOW
from nwcompile.kernels.cores.synapse import deliver
from nwcompile.kernels.jit import kernel
from nwcompile.kernels.noc.bus import PEAK_LANES, clear
from nwcompile.kernels.noc.bus_cores import move_on_bus
from nwcompile.kernels.noc.event_cores import move_messages
from nwcompile.kernels.noc.lockstep_cores import move_in_lockstep
from nwcompile.kernels.noc.mesh import equal_turns, start_over

TOO_OFTEN, INTERRUPTED = -3, -4


class Plan(NamedTuple):
    """When each layer works, and which neurons a core holds."""

    n_steps: int  # aligned steps T
    n_hardware: int  # hardware steps H
    period: int
    is_aligned: bool
    offset: np.ndarray  # int64[neuron]: micro-step of its aligned step 0
    neuron_first: np.ndarray  # int64[core + 1]
    neuron: np.ndarray  # int64[...]: sources of each core, by layer
    n_inputs: int  # input lines: source j is neuron j - n_inputs
    ticks_per_cycle: int
    repeats: bool  # n spikes of a step are n messages
    most: int  # and no more than this
    first_sample: int  # number of the first sample
    first: int  # hardware step to begin with; if it is not 0, one goes on from the state that the last one left
    by_hardware: bool  # spikes and states are recorded by hardware step - first, not by aligned step
    computes: bool  # neurons are updated and synapses accumulated; otherwise spikes and updates are what Record holds
    moves: bool  # messages are moved and counted; without one of the two, no message may be lost
    interrupted: np.ndarray  # bool[1]: set from outside, to end before the next micro-step


class Record(NamedTuple):
    """What is written, from step Plan.first on; arrays of 0 samples are not wanted. Rows of `cycles`: steps to do."""

    spikes: np.ndarray  # int32[sample, step, neuron]
    u: np.ndarray  # int64[sample, step, neuron]
    v: np.ndarray  # int64[sample, step, neuron]
    received: np.ndarray  # int64[step h, core and gate, ...]: as the counts of `move_messages`
    sent: np.ndarray  # int64[step h, core, 7]: visits, updates, spikes, messages, hops E-W, hops N-S, messages to gates
    cycles: np.ndarray  # int64[step h]: core cycles without barriers
    flits: np.ndarray  # int64[step h, link]
    stopped: np.ndarray  # int64[2]: sample and hardware step in which messages were stuck, or took too long
    bus: np.ndarray  # int64[step h, bus.N_COUNTS]: of a bus; sums, and the most of what is named PEAK
    updated: np.ndarray  # bool[sample, step h, neuron]: of 0 samples if all is done at once


@kernel
def work_of_core(plan, costs, axons, box, neurons, synapses, members, s, core, micro, acc, events, record, b, at):
    """Visit and update a core's neurons; fills its part of the outbox from message `at` on and returns the next.

    Where no message can be lost, a spike's synapses are accumulated here, for all cores at once.

    Returns -1 where a neuron spikes more often than messages are repeated.
    """
    row = micro // plan.period - plan.first
    slot, sent, is_shared = micro % acc.shape[0], record.sent[row, core], record.updated.shape[0] > 0
    ticks, n_visits, n_updates = np.int64(0), 0, 0
    for k in range(plan.neuron_first[core], plan.neuron_first[core + 1]):
        j = plan.neuron[k]
        i = j - plan.n_inputs
        if plan.period > 1 and micro % plan.period != plan.offset[i]:
            continue
        n_visits += 1
        ticks += costs.visit
        t = (micro - plan.offset[i]) // plan.period if plan.is_aligned or plan.period > 1 else micro
        touched, x = False, np.int64(0)
        if plan.computes and events[slot, j]:
            touched, x = True, acc[slot, j]
            acc[slot, j] = 0
            events[slot, j] = 0
        if t < 0 or t >= plan.n_steps or (plan.is_aligned and micro < plan.offset[i]):
            continue
        at_row = row if plan.by_hardware else t
        count, is_updated = np.int64(0), False
        if not plan.computes:
            count, is_updated = np.int64(record.spikes[b, at_row, i]), record.updated[b, row, i]
        elif not touched and is_asleep(neurons, i, s, i):
            s.since[i] += 1
        else:
            is_updated = touched or not is_at_rest(neurons, i, s, i)
            count = step(neurons, i, s, i, x)
        if plan.computes:
            record.spikes[b, at_row, i] = count
            if is_shared:
                record.updated[b, row, i] = is_updated
            if record.u.shape[0] > 0:
                record.u[b, at_row, i] = s.u[i]
                record.v[b, at_row, i] = s.v[i]
        if is_updated:
            n_updates += 1
            ticks += costs.update
        if count == 0:
            continue
        times = abs(count) if plan.repeats else np.int64(1)
        if times > plan.most:
            return np.int64(-1)
        if plan.computes and not costs.drops:
            deliver(synapses, members, -1, j, count, micro, acc, events)
        if not plan.moves:
            continue
        sent[2] += times
        again = costs.spike  # with the first of its messages a neuron spikes anew
        ticks += costs.spike if axons.offset[j] < axons.offset[j + 1] else costs.spike * times
        box.payload[j] = count // times
        for c in range(3):
            sent[3 + c] += axons.leaves[j, c] * times
        k, end = axons.offset[j], axons.offset[j + 1]
        has_gate = k < end and axons.row[end - 1].core >= axons.n_cores
        if has_gate:
            sent[6] += times
        while k < end:
            axon = axons.row[k]
            box.axon[at], box.to[at], box.copies[at] = k, axon.to, 1
            if axon.core < axons.n_cores and axons.root[j] >= 0:
                box.to[at], box.copies[at] = axons.root[j], end - k - has_gate
            k += box.copies[at]
            ticks += costs.message
            box.work[at] = ticks
            box.again[at] = again + costs.message
            box.times[at] = times
            ticks = 0
            again = 0
            at += 1
    box.tail[core] = ticks
    if plan.moves:
        sent[0] += n_visits
        sent[1] += n_updates
    return at


@kernel
def take_input(axons, box, x, repeats):
    """Line up the messages of one step's input: x int32[source], the input lines in order."""
    for j in range(x.shape[0] - 1, -1, -1):
        if x[j] != 0:
            times = abs(np.int64(x[j])) if repeats else np.int64(1)
            box.payload[j] = x[j] // times
            for a in range(axons.offset[j], axons.offset[j + 1]):
                core = axons.row[a].core
                box.left[a] = times
                box.after[a] = box.external[core]
                box.external[core] = a


@kernel
def send_input(axons, box, x, repeats, gate, at):
    """Fill a gate's part of the outbox with one step's input; takes and returns what `work_of_core` does."""
    for k in range(axons.gate_first[gate], axons.gate_first[gate + 1]):
        a = axons.gate_axon[k]
        j = axons.row[a].source
        if x[j] != 0:
            times = abs(np.int64(x[j])) if repeats else np.int64(1)
            box.payload[j] = x[j] // times
            box.axon[at], box.to[at], box.copies[at] = a, axons.row[a].to, 1
            box.work[at] = 0
            box.again[at] = 0
            box.times[at] = times
            at += 1
    return at


@kernel
def count_slots(counts, row):
    """Add the counts of a micro-step on the bus to those of its step; of peaks the larger one stays."""
    for i in range(counts.shape[0]):
        row[i] = max(row[i], counts[i]) if i >= PEAK_LANES else row[i] + counts[i]


@kernel
def deliver_input(synapses, members, x, now, acc, events):
    """Accumulate the synapses of one step's input x: int32[source], the input lines in order."""
    for j in range(x.shape[0]):
        if x[j] != 0:
            deliver(synapses, members, -1, j, np.int64(x[j]), now, acc, events)


@kernel
def deliver_messages(axons, box, synapses, members, now, acc, events):
    """Accumulate the synapses of the messages of a micro-step that were not dropped."""
    for k in range(box.first[box.first.shape[0] - 1]):
        n = box.times[k] - box.lost[k]
        for copy in range(box.copies[k] if n > 0 else 0):
            row = axons.row[box.axon[k] + copy]
            if row.core < axons.n_cores:
                payload = box.payload[row.source] * n
                deliver(synapses, members, np.int64(row.core), np.int64(row.source), payload, now, acc, events)


@kernel
def run_samples(
    plan, mesh, lockstep, bus, q, w, costs, axons, box, p, neurons, synapses, members, x, record, s, acc, events
):
    """Simulate samples one after the other from cleared state (or one sample from where it was: Plan.first).

    The network is empty, and all turns in it as at first, when a micro-step begins, so how messages move in one says
    nothing about the next: that work can be left to others, who get what neurons did in Record.

    Of `mesh`, `lockstep` and `bus` two are None (Numba leaves out their branches), and q and p are those of the third.
    With `lockstep` w must be off, and of q only the flits are used.
    x: int32[sample, step from Plan.first, input line]; s, acc, events, q, p, box: scratch. Returns 0; STUCK or TOO_LONG
    as `move_messages`, the flits of that micro-step being those of q; TOO_OFTEN if a neuron spikes more often than
    messages are repeated, its spikes of that step being the last ones recorded; or INTERRUPTED.
    """
    n_cores, n_gates = axons.n_cores, axons.site.shape[0] - axons.n_cores
    for b in range(x.shape[0]):
        if plan.computes and plan.first == 0:
            s.u[:] = 0
            s.v[:] = 0
            s.since[:] = 1 << 30
            acc[:] = 0
            events[:] = 0
        if plan.first == 0 or not plan.computes:
            if mesh is not None:
                start_over(q)
            if bus is not None:
                clear(bus, q)
        for micro in range(plan.first * plan.period, (plan.first + record.cycles.shape[0]) * plan.period):
            if plan.interrupted[0]:
                return INTERRUPTED
            h = micro // plan.period
            row = h - plan.first
            box.external[:] = -1
            at = 0
            for core in range(n_cores):
                box.first[core] = at
                at = work_of_core(
                    plan, costs, axons, box, neurons, synapses, members, s, core, micro, acc, events, record, b, at
                )
                if at < 0:
                    return TOO_OFTEN
            has_input = micro % plan.period == 0 and h < plan.n_steps
            for gate in range(n_gates):
                box.first[n_cores + gate] = at
                box.tail[n_cores + gate] = 0
                if has_input:
                    at = send_input(axons, box, x[b, row], plan.repeats, gate, at)
            box.first[n_cores + n_gates] = at
            if plan.computes and has_input and (n_gates == 0 or not costs.drops):
                deliver_input(synapses, members, x[b, row], micro, acc, events)
            if not plan.moves:
                continue
            if has_input and n_gates == 0:
                take_input(axons, box, x[b, row], plan.repeats)
            q.flits[:] = 0
            if w.is_on:
                w.state[ROW], w.state[STEP_NOW], w.state[SAMPLE_NOW] = row, h, plan.first_sample + b
                w.state[BASE] = record.cycles[row] * plan.ticks_per_cycle
            ticks = np.int64(-1)
            if mesh is not None:
                equal_turns(q)
                p.turn[:] = 0
                p.channel[:] = mesh.n_vcs - 1
                ticks = move_messages(mesh, q, w, costs, axons, box, p, record.received[row])
            if lockstep is not None:
                ticks = move_in_lockstep(lockstep, costs, axons, box, p, record.received[row], q.flits)
            if bus is not None:
                ticks = move_on_bus(bus, q, w, costs, axons, box, p, record.received[row])
                count_slots(q.counts, record.bus[row])
            if ticks < 0:
                record.stopped[0], record.stopped[1] = plan.first_sample + b, h
                return ticks
            if mesh is not None and costs.drops:
                deliver_messages(axons, box, synapses, members, micro, acc, events)
            for link in range(q.flits.shape[0]):
                record.flits[row, link] += q.flits[link]
            record.cycles[row] += (ticks + plan.ticks_per_cycle - 1) // plan.ticks_per_cycle
    return 0
