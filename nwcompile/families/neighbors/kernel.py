"""Whole samples on cores that wait only for their neighbors, in Numba, on the network of the event engine.

Each core has its own steps. In a step it visits its neurons, sends their messages, and then sends a token to each
neighbor. It begins the next step when it has done that and has all messages and tokens of the step. A core sends
nothing of step h + 1 before all neighbors have visited their neurons in step h. Two neighbors are therefore at most one
step apart, and a core receives only messages of its current step or of the next; the parity of the step tells which.
A message is accumulated when and where it is received, in the slot of the step in which it acts.

No core waits for a core that is ahead of it, and receiving waits for no step, so the cores in the earliest step always
finish it: docs/decisions/noc.md.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.programs.call import Programs
from nwcompile.kernels.cores.receive_side import count_received, serve_inputs
from nwcompile.kernels.cores.synapse import deliver
from nwcompile.kernels.cores.tables import SEND_NEXT, STUCK, TOO_LONG
from nwcompile.kernels.cycle import (
    INTERRUPTED,
    TOO_OFTEN,
    ChipCores,
    EventNetwork,
    Job,
    LossyDelivery,
    NeuronRecord,
    Plan,
    SpikingNet,
    StepRecord,
    clear_neurons,
    send_input,
    visit_core,
)
from nwcompile.kernels.jit import inlined, kernel, part
from nwcompile.kernels.noc.event_cores import SENT, TO_INJECT, step_core
from nwcompile.kernels.noc.event_queue import next_node, wake_at
from nwcompile.kernels.noc.event_router import step_router
from nwcompile.kernels.noc.mesh import BUSY_UNTIL, N_LOST, clear_network, reset_arbiters

OVERTAKEN = -5  # Result of `run_neighbors` if a message arrived before its receiver had visited all its neurons.
ENDED = 4  # CORE.phase after those of event_cores.py: the core has finished all its steps.


class Simulation(NamedTuple):
    """Everything that one call simulates."""

    plan: Plan
    job: Job
    chip: ChipCores
    net: SpikingNet
    programs: Programs
    by_message: LossyDelivery  # messages are accumulated one by one; `payload` has that of even steps first
    event: EventNetwork
    neurons: NeuronRecord
    steps: StepRecord


class TokenTables(NamedTuple):
    """The tokens of a step, and the part of the outbox of each core; ends are cores, then io sites."""

    n_axons: int  # axons before those of tokens
    first: np.ndarray  # int64[end + 1]: tokens that it sends; their axons follow all others, by sender
    n_taken: np.ndarray  # int64[end]: tokens that it receives per step
    place: np.ndarray  # int64[end]: its first message in the outbox of a step
    n_places: int  # messages of a step; the outbox has as many again for odd steps


class InputAxons(NamedTuple):
    """The axons of input lines by target core, and lines without axons, which write into registers."""

    first: np.ndarray  # int64[core + 1]: into `axon`
    axon: np.ndarray  # int64[...]: by source
    register: np.ndarray  # int64[...]: input lines


class Pace(NamedTuple):
    """Progress of each core and io site."""

    step: np.ndarray  # int64[end]: hardware step
    left: np.ndarray  # int64[end, 2]: tokens and network messages still to receive, by parity of the step
    done_at: np.ndarray  # int64[end, 2]: when its accumulation of received messages ends
    n_ended: np.ndarray  # int64[step h]: cores and io sites that have finished step h
    ended_at: np.ndarray  # int64[step h]: when the last of them finished
    work: np.ndarray  # int64[1]: maximum ticks of all work so far, in sequence


class Neighbors(NamedTuple):
    """Tables and state of cores that wait for each other."""

    tokens: TokenTables
    inputs: InputAxons
    pace: Pace


@inlined
def delivery_of_parity(delivery, parity):
    """The delivery data for messages of even or odd steps."""
    return LossyDelivery(delivery.members, delivery.sent, delivery.payload[parity])


@part
def take_step_input(simulation, neighbors, c, x, micro):
    """Queue the input of core `c` that comes without a network, x: int32[line], and accumulate it."""
    inputs, costs = neighbors.inputs, simulation.chip.tables.costs
    axons, waiting = simulation.chip.tables.axons, simulation.chip.work.inputs
    net, members = simulation.net, simulation.by_message.members
    if axons.n_sites == axons.n_cores:
        for n in range(inputs.first[c + 1] - 1, inputs.first[c] - 1, -1):
            k = inputs.axon[n]
            j = np.int64(axons.row[k].source)
            if x[j] != 0:
                waiting.left[k] = abs(np.int64(x[j])) if simulation.plan.repeats else np.int64(1)
                waiting.after[k] = waiting.first[c]
                waiting.first[c] = k
                neighbors.pace.work[0] += 2 * costs.longest_message * waiting.left[k]
                deliver(net.synapses, members, c, j, np.int64(x[j]), micro, net.drive)
    for n in range(inputs.register.shape[0]):
        j = inputs.register[n]
        if x[j] != 0:
            deliver(net.synapses, members, c, j, np.int64(x[j]), micro, net.drive)


@part
def begin_step(simulation, neighbors, x, b, c, time):
    """Begin the next step of core or io site `c` at `time` of sample `b`; False if `visit_core` returns -1.

    x: int32[sample, step, input line].
    """
    plan, chip, pace, tokens = simulation.plan, simulation.chip, neighbors.pace, neighbors.tokens
    axons, costs, outbox, core = chip.tables.axons, chip.tables.costs, chip.work.outbox, chip.work.core[c]
    pace.step[c] += 1
    h = pace.step[c]
    parity = h & 1
    pace.left[c, 1 - parity] = tokens.n_taken[c]  # for the next step
    pace.done_at[c, 1 - parity] = time
    first = parity * tokens.n_places + tokens.place[c]
    delivery = delivery_of_parity(simulation.by_message, parity)
    has_input, line = h < plan.n_steps, x[b, h if h < x.shape[1] else 0]
    end = first
    if c < axons.n_cores:
        if has_input:
            core.receive_at = max(core.receive_at, time)  # this step's input was not there before
            take_step_input(simulation, neighbors, c, line, h)
        end = visit_core(
            plan,
            simulation.job,
            chip,
            simulation.net,
            simulation.programs,
            delivery,
            None,
            simulation.neurons,
            simulation.steps.sent[h, c],
            c,
            h,
            b,
            first,
        )
        if end < 0:
            return False
    else:
        outbox.tail[c] = 0
        if has_input:
            end = send_input(axons, chip.io, outbox, delivery, line, plan.repeats, c - axons.n_cores, first)
    for k in range(first, end):
        message = outbox.message[k]
        for copy in range(message.copies):
            pace.left[axons.row[message.axon + copy].core, parity] += message.times
        pace.work[0] += 2 * costs.longest_message * message.times * message.copies
    for n in range(tokens.first[c], tokens.first[c + 1]):
        message = outbox.message[end]
        message.axon = tokens.n_axons + n
        message.to = axons.row[message.axon].to
        message.copies = 1
        message.work = outbox.tail[c] + (costs.message if c < axons.n_cores else 0)
        message.again = 0
        message.times = 1
        outbox.tail[c] = 0
        pace.work[0] += 2 * costs.longest_message
        end += 1
    core.message = first
    core.sent = 0
    core.phase = SEND_NEXT
    outbox.first[c + 1] = end
    return True


@inlined
def begin_sample(simulation, neighbors):
    """Reset the chip to idle at time 0, with all cores before their first step."""
    queues, chip, pace = simulation.event.queues, simulation.chip, neighbors.pace
    axons, work = chip.tables.axons, chip.work
    clear_neurons(simulation.net, simulation.programs)
    clear_network(queues)
    reset_arbiters(queues)
    queues.now[N_LOST] = 0
    work.inputs.first[:] = -1
    for c in range(axons.n_sites):
        core = work.core[c]
        core.inject_at = 0
        core.receive_at = 0
        core.end = 0
        core.receive_vc = 0
        core.inject_vc = simulation.event.mesh.n_vcs - 1
        pace.step[c] = -1
        pace.left[c, 0] = neighbors.tokens.n_taken[c]
        pace.done_at[c, 0] = 0
    pace.n_ended[:] = 0
    pace.ended_at[:] = 0
    pace.work[0] = 2 * chip.tables.costs.longest_idle * pace.n_ended.shape[0]


@inlined
def receive_message(simulation, neighbors, x, b, c, axon):
    """Count and accumulate a message of `axon` that core `c` has just received; False if it came too early.

    x: int32[sample, step, input line]. Several io sites may send messages of one line, each at its own pace.
    """
    chip, pace, n_places = simulation.chip, neighbors.pace, neighbors.tokens.n_places
    axons, core = chip.tables.axons, chip.work.core[c]
    h = pace.step[c]
    if core.taken >= 0:
        h += (core.taken >= n_places) ^ (h & 1)
        pace.left[c, h & 1] -= 1
    pace.done_at[c, h & 1] = core.receive_at
    if h > pace.step[c] and c < axons.n_cores and core.phase < TO_INJECT:
        n_tokens = neighbors.tokens.first[c + 1] - neighbors.tokens.first[c]
        if core.message <= chip.work.outbox.first[c + 1] - n_tokens:  # it has not reached its tokens
            return False
    if axon < neighbors.tokens.n_axons:
        count_received(axons, c, axon, 1, simulation.steps.received[h])
        if core.taken >= 0 and c < axons.n_cores:
            source, delivery = np.int64(axons.row[axon].source), simulation.by_message
            net, payload = simulation.net, delivery.payload[h & 1, source]
            if source < axons.n_lines:
                payload = np.int64(x[b, h, source])
                if simulation.plan.repeats:
                    payload //= abs(payload)
            deliver(net.synapses, delivery.members, np.int64(c), source, payload, h, net.drive)
    return True


@part
def finish_step(simulation, neighbors, x, b, c, time):
    """If core `c` has finished its step at `time`, begin its next step; False as `begin_step`."""
    core, pace, events = simulation.chip.work.core[c], neighbors.pace, simulation.event.queues.events
    node = simulation.event.mesh.n_routers + np.int64(simulation.chip.tables.sites.site[c])
    h = pace.step[c]
    if core.phase != SENT or pace.left[c, h & 1] > 0:
        return True
    if simulation.chip.work.inputs.first[c] >= 0:
        wake_at(events, node, max(core.receive_at, time) + 1)
        return True
    if pace.done_at[c, h & 1] > time:
        wake_at(events, node, pace.done_at[c, h & 1])
        return True
    pace.n_ended[h] += 1
    pace.ended_at[h] = max(pace.ended_at[h], time)
    if h + 1 == pace.n_ended.shape[0]:
        core.phase = ENDED
        return True
    wake_at(events, node, time)
    return begin_step(simulation, neighbors, x, b, c, time)


@part
def run_sample(simulation, neighbors, x, b):
    """Simulate sample `b` of x; returns 0, or a code of `run_neighbors`, with the step of STUCK or TOO_LONG noted."""
    mesh, queues, chip = simulation.event.mesh, simulation.event.queues, simulation.chip
    tables, work, pace = chip.tables, chip.work, neighbors.pace
    axons, costs, received = tables.axons, tables.costs, simulation.steps.received
    n_steps = pace.n_ended.shape[0]
    begin_sample(simulation, neighbors)
    for c in range(axons.n_sites):
        if not begin_step(simulation, neighbors, x, b, c, 0):
            return TOO_OFTEN
        wake_at(queues.events, mesh.n_routers + tables.sites.site[c], 0)
    front, since = 0, np.int64(0)  # the earliest step of any core, and when the step before it ended
    while True:
        time, node = next_node(queues.events)
        if node < 0:
            break
        if front < n_steps:
            limit = since + costs.longest_step if costs.longest_step > 0 else pace.work[0]
            if time > limit:
                simulation.steps.stopped[1] = front
                return TOO_LONG
        if node < mesh.n_routers:
            step_router(mesh, queues, node, time)
            continue
        c = np.int64(tables.sites.core_at[node - mesh.n_routers])
        core = work.core[c]
        if not costs.shared and serve_inputs(axons, work.inputs, core, c, time, received[pace.step[c]]) > 0:
            pace.done_at[c, pace.step[c] & 1] = core.receive_at
        axon = step_core(mesh, queues, None, None, tables, work, received[0], c, time)
        if axon >= 0 and not receive_message(simulation, neighbors, x, b, c, axon):
            return OVERTAKEN
        if simulation.plan.interrupted[0]:
            return INTERRUPTED
        if not finish_step(simulation, neighbors, x, b, c, time):
            return TOO_OFTEN
        while front < n_steps and pace.n_ended[front] == axons.n_sites:
            since = pace.ended_at[front]
            front += 1
    if front < n_steps:
        simulation.steps.stopped[1] = front
        return STUCK
    pace.ended_at[n_steps - 1] = max(since, queues.now[BUSY_UNTIL])
    return 0


@kernel
def run_neighbors(simulation, neighbors, x):
    """Simulate samples one after the other, each from cleared state on an idle chip; x: int32[sample, step, line].

    `steps.cycles` of a step: from the time when all cores have finished the previous step to the time when all have
    finished this one; of the last step, until the last link is idle too. The first row has the flits of all steps.
    Returns 0, STUCK, TOO_LONG, TOO_OFTEN or INTERRUPTED as `run_samples`, or OVERTAKEN.
    """
    steps, pace, per_cycle = simulation.steps, neighbors.pace, simulation.plan.ticks_per_cycle
    for b in range(x.shape[0]):
        if steps.cycles.shape[0] == 0:
            break
        code = run_sample(simulation, neighbors, x, b)
        if code < 0:
            steps.stopped[0] = simulation.job.first_sample + b
            return code
        before = np.int64(0)
        for h in range(steps.cycles.shape[0]):
            cycles = (pace.ended_at[h] + per_cycle - 1) // per_cycle
            steps.cycles[h] += cycles - before
            before = cycles
    return 0
