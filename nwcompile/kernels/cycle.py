"""Whole samples on the cycle-level chip, in Numba; each micro-step runs until all messages have arrived."""

from typing import NamedTuple

import numpy as np

from nwcompile.families.merges.kernel import MergeNetwork, run_merges
from nwcompile.families.segmented_bus.kernel import clear_bus, count_slots
from nwcompile.families.segmented_bus.kernel_cores import BusNetwork, run_bus
from nwcompile.kernels.cores.neuron import LONG_AGO, Neurons, States, is_asleep, is_at_rest, step
from nwcompile.kernels.cores.probes import BASE, ROW, SAMPLE_NOW, STEP_NOW
from nwcompile.kernels.cores.programs.call import (
    clear_programs,
    is_program_at_rest,
    keep_states,
    step_program,
    take_inputs,
)
from nwcompile.kernels.cores.synapse import Drive, Members, Synapses, deliver
from nwcompile.kernels.cores.tables import CoreTables, CoreWork, FanOut, IoAxons, PoolTimes, StepTimes
from nwcompile.kernels.jit import inlined, kernel, part, typed
from nwcompile.kernels.noc.event_cores import run_events
from nwcompile.kernels.noc.lockstep_cores import LockstepNetwork, run_lockstep
from nwcompile.kernels.noc.mesh import Mesh, Queues, clear_network

TOO_OFTEN = -3  # Result of `run_samples` if a neuron spikes more often per step than a message can be repeated.
INTERRUPTED = -4  # Result of `run_samples` if Plan.interrupted was set.


class Plan(NamedTuple):
    """Schedule of the layers, neurons of the cores, and repetition of messages."""

    n_steps: int  # aligned steps T
    period: int
    is_aligned: bool
    n_inputs: int  # input lines: source j is neuron j - n_inputs
    ticks_per_cycle: int
    repeats: bool  # n spikes in a step are n messages
    max_repeats: int  # limit of n
    offset: np.ndarray  # int64[neuron]: micro-step of its aligned step 0
    instructions: np.ndarray  # int64[neuron]: instructions of its program per update, beyond the built-in neuron's
    first: np.ndarray  # int64[core + 1]: into `neuron`
    neuron: np.ndarray  # int64[...]: sources of each core, in visit order
    interrupted: np.ndarray  # bool[1]: set from outside to stop before the next micro-step


class Job(NamedTuple):
    """The part of a run that one call computes."""

    first_sample: int  # number of the first sample
    first_step: int  # first hardware step; if not 0, the run continues from the current state
    by_hardware: bool  # spikes and states are recorded by hardware step - first_step instead of aligned step
    computes: bool  # update neurons and accumulate synapses; otherwise spikes and updates are taken from the record
    moves: bool  # move and count messages; if only one of the two is set, no message may be lost


class SpikingNet(NamedTuple):
    """The neurons of a program, and the synaptic sums that have not acted yet."""

    neurons: Neurons
    synapses: Synapses
    states: States
    drive: Drive  # the sum of a late neuron is in the slot of the neurons that are not late
    late: np.ndarray  # int64[source]: `Schedule.steps_late`; empty if no neuron is late


class LossyDelivery(NamedTuple):
    """Data to accumulate messages one by one, which is necessary if messages can be lost."""

    members: Members
    sent: np.ndarray  # int64[source, 3]: as FanOut.sent
    payload: np.ndarray  # int64[source]: payload of one message of this micro-step


class ChipCores(NamedTuple):
    """The cores of the chip: their tables and their current work."""

    tables: CoreTables
    pool: PoolTimes
    times: StepTimes
    fan_out: FanOut
    io: IoAxons
    work: CoreWork


class EventNetwork(NamedTuple):
    """Routers of the event engine."""

    mesh: Mesh
    queues: Queues

    @property
    def flits(self) -> np.ndarray:
        """int64[link]: flits carried in the last micro-step."""
        return self.queues.flits


class NeuronRecord(NamedTuple):
    """Output and states of neurons; arrays of 0 samples are not recorded."""

    spikes: np.ndarray  # int32[sample, step, neuron]
    u: np.ndarray  # int64[sample, step, neuron]
    v: np.ndarray  # int64[sample, step, neuron]
    words: np.ndarray  # int64[sample, step, word]: states of neuron programs (`Programs.state`)
    updated: np.ndarray  # bool[sample, step h, neuron]: of 0 samples if one call computes and moves


class StepRecord(NamedTuple):
    """Work of cores and network, summed over samples. Rows of `cycles`: steps to run."""

    received: np.ndarray  # int64[step h, core and io site, ...]: counts of `run_events`
    sent: np.ndarray  # int64[step h, core, N_SENT]
    cycles: np.ndarray  # int64[step h]: core cycles without barriers
    flits: np.ndarray  # int64[step h, link]
    sums: np.ndarray  # int64[step h, ...]: further counts that the network's engine keeps
    peaks: np.ndarray  # int64[step h, ...]: maxima that it keeps
    stopped: np.ndarray  # int64[2]: sample and hardware step that was STUCK or TOO_LONG


# Columns of StepRecord.sent.
VISITS = 0
UPDATES = 1
INSTRUCTIONS = 2
SPIKES = 3
SENT = 4  # three columns of FanOut.sent: messages, east-west hops, north-south hops
SENT_OUT = 7  # messages to io sites
HALF_CYCLES = 8  # sum of PoolTimes.of_source
N_SENT = 9


@part
def visit_core(plan, job, chip, net, programs, lossy, shared, neuron_record, sent, c, micro, b, at):
    """Visit and update the neurons of core `c`, and fill its part of the outbox from message `at` on.

    If no message can be lost (`lossy` is None), a spike's synapses on all cores are accumulated here.
    Returns the next message, or -1 if a neuron spikes more often than messages can be repeated; all neurons are updated
    in that case too.
    """
    costs, outbox = chip.tables.costs, chip.work.outbox
    states, drive = net.states, net.drive
    row = micro // plan.period - job.first_step
    n_slots, is_shared = drive.sum.shape[0], neuron_record.updated.shape[0] > 0
    slot_now = micro % n_slots
    has_gates = drive.sum.shape[1] > net.synapses.sum_of.shape[0]  # some neurons have several sums
    ticks, n_visits, n_updates, n_instructions, is_too_often = np.int64(0), 0, 0, np.int64(0), False
    for n in range(plan.first[c], plan.first[c + 1]):
        j = plan.neuron[n]
        i = j - plan.n_inputs
        if plan.period > 1 and micro % plan.period != plan.offset[i]:
            continue
        n_visits += 1
        ticks += costs.visit
        t = (micro - plan.offset[i]) // plan.period if plan.is_aligned or plan.period > 1 else micro
        touched, x, late = False, np.int64(0), np.int64(0)
        slot = slot_now
        if net.late.shape[0] > 0:
            late = net.late[j]
            slot = slot_now - late if slot_now >= late else slot_now - late + n_slots
        first = net.synapses.sum_of[j] if has_gates else j
        if job.computes and drive.touched[slot, first]:
            touched, x = True, drive.sum[slot, first]
            drive.sum[slot, first] = 0
            drive.touched[slot, first] = 0
        if has_gates and job.computes and programs.layer_of[i] >= 0:
            touched |= take_inputs(programs, i, first, drive.sum[slot], drive.touched[slot])
        if t < 0 or t >= plan.n_steps or (plan.is_aligned and micro < plan.offset[i]):
            continue
        at_row = row if job.by_hardware else t
        count, is_updated = np.int64(0), False
        if not job.computes:
            count = np.int64(neuron_record.spikes[b, at_row, i])
            is_updated = neuron_record.updated[b, row, i]
        elif programs.layer_of[i] >= 0:
            is_updated = touched or not is_program_at_rest(programs, i)
            count = step_program(programs, i, x)
            if neuron_record.words.shape[0] > 0:
                keep_states(programs, i, neuron_record.words[b, at_row])
        elif not touched and is_asleep(net.neurons, i, states, i):
            states.since[i] += 1
        else:
            is_updated = touched or not is_at_rest(net.neurons, i, states, i)
            count = step(net.neurons, i, states, i, x)
        if job.computes:
            neuron_record.spikes[b, at_row, i] = count
            if is_shared:
                neuron_record.updated[b, row, i] = is_updated
            if neuron_record.u.shape[0] > 0:
                neuron_record.u[b, at_row, i] = states.u[i]
                neuron_record.v[b, at_row, i] = states.v[i]
        if is_updated:
            n_updates += 1
            n_instructions += plan.instructions[i]
            ticks += costs.update + plan.instructions[i] * costs.instruction
        if count == 0:
            continue
        times = abs(count) if plan.repeats else np.int64(1)
        if times > plan.max_repeats:
            is_too_often = True
            continue
        read, sender = j, j  # source of the synapses that the spike reads, and source of its messages
        if shared is not None:
            axon = shared.axon_of[i]
            if axon >= 0 and shared.last_set[axon] == micro:
                read = np.int64(-1)
            elif axon >= 0:
                read = axon
                shared.last_set[axon] = micro
                sender = shared.reading[i]
        if lossy is None:
            if job.computes and read >= 0:
                deliver(net.synapses, None, -1, read, count, micro - late, drive)
        else:
            lossy.payload[j] = count // times
        if not job.moves:
            continue
        sent[HALF_CYCLES] += chip.pool.of_source[j]
        ticks += costs.spike if chip.fan_out.offset[j] < chip.fan_out.offset[j + 1] else costs.spike * times
        end = send_spike(chip.tables, chip.fan_out, outbox, sender, times, ticks, sent, at)
        if end > at:
            ticks = 0
            at = end
    outbox.tail[c] = ticks + max(costs.scan - n_visits * costs.visit, 0)
    if job.moves:
        sent[VISITS] += n_visits
        sent[UPDATES] += n_updates
        sent[INSTRUCTIONS] += n_instructions
    return np.int64(-1) if is_too_often else at


@inlined
def send_spike(tables, fan_out, outbox, j, times, ticks, sent, at):
    """Write the messages of a spike of source `j` from `at` on; each is sent `times` times, after `ticks` of work.

    Returns the end of the messages.
    """
    costs, axons = tables.costs, tables.axons
    sent[SPIKES] += times
    for column in range(3):
        sent[SENT + column] += fan_out.sent[j, column] * times
    k, end = fan_out.offset[j], fan_out.offset[j + 1]
    goes_out = k < end and axons.row[end - 1].core >= axons.n_cores
    if goes_out:
        sent[SENT_OUT] += times
    again = costs.spike  # each repetition of the first message is a new spike of the neuron
    while k < end:
        axon, message = axons.row[k], outbox.message[at]
        message.axon = k
        message.to = axon.to
        message.copies = 1
        if axon.core < axons.n_cores and fan_out.root[j] >= 0:
            message.to = fan_out.root[j]
            message.copies = end - k - goes_out
        k += message.copies
        message.work = ticks + costs.message
        message.again = again + costs.message
        message.times = times
        ticks = 0
        again = 0
        at += 1
    return at


@part
def take_input(fan_out, axons, inputs, x, repeats):
    """Queue the messages of one step's input at their cores; x: int32[source]: the input lines in order."""
    for j in range(x.shape[0] - 1, -1, -1):
        if x[j] != 0:
            times = abs(np.int64(x[j])) if repeats else np.int64(1)
            for k in range(fan_out.offset[j], fan_out.offset[j + 1]):
                c = axons.row[k].core
                inputs.left[k] = times
                inputs.after[k] = inputs.first[c]
                inputs.first[c] = k


@part
def send_input(axons, io, outbox, lossy, x, repeats, site, at):
    """Fill an io site's part of the outbox with one step's input; arguments and result are as in `visit_core`."""
    for n in range(io.first[site], io.first[site + 1]):
        k = io.axon[n]
        j = axons.row[k].source
        if x[j] != 0:
            times = abs(np.int64(x[j])) if repeats else np.int64(1)
            if lossy is not None:
                lossy.payload[j] = x[j] // times
            message = outbox.message[at]
            message.axon = k
            message.to = axons.row[k].to
            message.copies = 1
            message.work = 0
            message.again = 0
            message.times = times
            at += 1
    return at


@part
def fill_outbox(plan, job, chip, net, programs, lossy, shared, neuron_record, sent, x, has_input, micro, b):
    """Run all cores and io sites for a micro-step, with input x: int32[source] if `has_input`; fill the outbox.

    Returns the number of messages, or -1 as `visit_core`.
    """
    axons, outbox, inputs = chip.tables.axons, chip.work.outbox, chip.work.inputs
    n_cores, n_io = axons.n_cores, axons.n_sites - axons.n_cores
    inputs.first[:] = -1
    at, is_too_often = np.int64(0), False
    for c in range(n_cores):
        outbox.first[c] = at
        end = visit_core(plan, job, chip, net, programs, lossy, shared, neuron_record, sent[c], c, micro, b, at)
        is_too_often |= end < 0
        at = max(at, end)
    if is_too_often:
        return np.int64(-1)
    for site in range(n_io):
        outbox.first[n_cores + site] = at
        outbox.tail[n_cores + site] = 0
        if has_input:
            at = send_input(axons, chip.io, outbox, lossy, x, plan.repeats, site, at)
    outbox.first[n_cores + n_io] = at
    if has_input and job.moves:
        for j in range(x.shape[0]):
            if x[j] != 0:
                sent[0, HALF_CYCLES] += chip.pool.of_source[j]
    if has_input and n_io == 0 and job.moves:
        take_input(chip.fan_out, axons, inputs, x, plan.repeats)
    if job.computes and has_input:
        for j in range(x.shape[0]):
            # Messages from io sites may be lost. Values that the host writes into registers have no axon and never are.
            is_sure = n_io == 0 or lossy is None or chip.fan_out.offset[j] == chip.fan_out.offset[j + 1]
            if x[j] != 0 and is_sure:
                deliver(net.synapses, None, -1, j, np.int64(x[j]), micro, net.drive)
    return at


@part
def deliver_messages(axons, outbox, net, lossy, shared, n_messages, now):
    """Accumulate the synapses of a micro-step's messages that were not lost; those of a shared axon count once."""
    for k in range(n_messages):
        message = outbox.message[k]
        n = message.times - message.lost
        for copy in range(message.copies if n > 0 else 0):
            row = axons.row[message.axon + copy]
            if row.core >= axons.n_cores:
                continue
            read, payload = np.int64(row.source), lossy.payload[row.source] * n
            if shared is not None and row.source >= axons.n_lines and shared.axon_of[row.source - axons.n_lines] >= 0:
                read = shared.axon_of[row.source - axons.n_lines]
                if shared.last_heard[read] == now:
                    continue
                shared.last_heard[read] = now
            late = net.late[row.source] if net.late.shape[0] > 0 else np.int64(0)
            deliver(net.synapses, lossy.members, np.int64(row.core), read, payload, now - late, net.drive)


@inlined
def note_step(probes, row, step, sample, base):
    """Give the probes the next hardware step and sample, and the `base` ticks of that step that are over."""
    probes.state[ROW] = row
    probes.state[STEP_NOW] = step
    probes.state[SAMPLE_NOW] = sample
    probes.state[BASE] = base


@inlined
def add_flits(flits, row):
    for link in range(flits.shape[0]):
        row[link] += flits[link]


@inlined
def clear_neurons(net, programs):
    """Reset all neurons to the start of a sample, and clear all synaptic sums."""
    net.states.u[:] = 0
    net.states.v[:] = 0
    net.states.since[:] = LONG_AGO
    clear_programs(programs)
    net.drive.sum[:] = 0
    net.drive.touched[:] = 0


def _move_by_events(network, lossy, probes, tables, work, steps, row):
    ticks = run_events(network.mesh, network.queues, lossy, probes, tables, work, steps.received[row])
    add_flits(network.queues.flits, steps.flits[row])
    return ticks


def _move_in_lockstep(network, lossy, probes, tables, work, steps, row):
    ticks = run_lockstep(network.net, network.links, tables, work, steps.received[row], network.flits)
    add_flits(network.flits, steps.flits[row])
    return ticks


def _move_on_bus(network, lossy, probes, tables, work, steps, row):
    ticks = run_bus(network, probes, tables, work, steps.received[row])
    count_slots(network.waiting.totals.counts, steps.sums[row], steps.peaks[row])
    add_flits(network.waiting.totals.flits, steps.flits[row])
    return ticks


def _move_by_merges(network, lossy, probes, tables, work, steps, row):
    ticks = run_merges(network, tables, work, steps.received[row])
    add_flits(network.flits, steps.flits[row])
    return ticks


# By the type of a network: its engine, and how it is emptied before a sample.
ENGINES = {
    EventNetwork: (_move_by_events, lambda network: clear_network(network.queues)),
    LockstepNetwork: (_move_in_lockstep, lambda network: None),
    BusNetwork: (_move_on_bus, lambda network: clear_bus(network.bus, network.waiting)),
    MergeNetwork: (_move_by_merges, lambda network: None),
}


@typed
def move_messages(network, lossy, probes, tables, work, steps, row):
    """Move the messages of a micro-step, and add its counts to a row of `steps`; returns ticks as `run_events`."""
    return ENGINES[network.instance_class][0]


@typed
def clear_messages(network):
    """Empty the network before a sample."""
    return ENGINES[network.instance_class][1]


@kernel
def run_samples(plan, job, chip, net, programs, lossy, shared, network, probes, neuron_record, steps, x):
    """Simulate samples one after the other from cleared state (or one sample from its current state: Job.first_step).

    Each micro-step begins with an empty network and reset arbiters, so message timing in one does not affect the next.
    Other calls can therefore move the messages, given the neurons' output in `neuron_record`.

    `network` has a type of ENGINES. `lossy` is None if no message can be lost, `shared` if no neurons share axons, and
    `probes` if nothing is profiled; Numba compiles only what is not None. With a LockstepNetwork, `lossy` and `probes`
    must be None.
    x: int32[sample, step from Job.first_step, input line]. Returns 0; STUCK or TOO_LONG as `run_events`, with the flits
    of that micro-step in the network; TOO_OFTEN if a neuron spikes more often than messages can be repeated, with its
    spikes of that step recorded last; or INTERRUPTED.
    """
    tables, work = chip.tables, chip.work
    for b in range(x.shape[0]):
        if shared is not None:
            shared.last_set[:] = -1
            shared.last_heard[:] = -1
        if job.computes and job.first_step == 0:
            clear_neurons(net, programs)
        if job.first_step == 0 or not job.computes:
            clear_messages(network)
        for micro in range(job.first_step * plan.period, (job.first_step + steps.cycles.shape[0]) * plan.period):
            if plan.interrupted[0]:
                return INTERRUPTED
            h = micro // plan.period
            row = h - job.first_step
            has_input = micro % plan.period == 0 and h < plan.n_steps
            given = x[b, row if has_input else 0]
            before = steps.sent[row, 0, HALF_CYCLES]
            n_messages = fill_outbox(
                plan,
                job,
                chip,
                net,
                programs,
                lossy,
                shared,
                neuron_record,
                steps.sent[row],
                given,
                has_input,
                micro,
                b,
            )
            if n_messages < 0:
                return TOO_OFTEN
            if not job.moves:
                continue
            if probes is not None:
                note_step(probes, row, h, job.first_sample + b, steps.cycles[row] * plan.ticks_per_cycle)
            ticks = move_messages(network, lossy, probes, tables, work, steps, row)
            if ticks < 0:
                steps.stopped[0] = job.first_sample + b
                steps.stopped[1] = h
                return ticks
            if lossy is not None:
                deliver_messages(tables.axons, work.outbox, net, lossy, shared, n_messages, micro)
            if chip.pool.step > 0:
                steps.cycles[row] += (chip.pool.step + steps.sent[row, 0, HALF_CYCLES] - before + 1) // 2
                continue
            cycles = (ticks + plan.ticks_per_cycle - 1) // plan.ticks_per_cycle
            steps.cycles[row] += max(cycles, chip.times.min_work) + (chip.times.sample if micro == 0 else 0)
    return 0
