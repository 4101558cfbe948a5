"""Whole samples on cores that wait for their neighbors only, in Numba, on the network of the event engine.

Each core has steps of its own. In one it visits its neurons, sends their messages, and then a token to each neighbor;
it goes on when it has done that, and has all messages and tokens of the step. A core sends nothing of step h + 1 before
all neighbors have visited their neurons in step h, so two of them are never more than one step apart, and whatever a
core receives is of its present step or of the next: the parity of the step tells which. What a message carries is
added up where and when it is taken, in the slot of the step in which it acts.

No core waits for a core that is ahead of it, and receiving waits for no step, so the cores in the earliest step always
come to its end: docs/decisions/noc.md.
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

OVERTAKEN = -5  # `run_neighbors` returns this where a message came before its receiver had visited all its neurons.
ENDED = 4  # CORE.phase after those of event_cores.py: the core has done all its steps.


class Simulation(NamedTuple):
    """What one call simulates, and on what."""

    plan: Plan
    job: Job
    chip: ChipCores
    net: SpikingNet
    programs: Programs
    by_message: LossyDelivery  # messages are added up one by one; of `payload` that of even steps comes first
    event: EventNetwork
    neurons: NeuronRecord
    steps: StepRecord


class TokenTables(NamedTuple):
    """The tokens of a step and what of the outbox a core may fill; ends are cores, and after them io sites."""

    n_axons: int  # axons before those of tokens
    first: np.ndarray  # int64[end + 1]: tokens that it sends; their axons come after all others, by sender
    n_taken: np.ndarray  # int64[end]: tokens that it takes
    place: np.ndarray  # int64[end]: of its first message in the outbox of a step
    n_places: int  # of a step; the outbox has as many again, for odd steps


class InputAxons(NamedTuple):
    """The axons of input lines by the core that they lead to, and lines without axons, which write into registers."""

    first: np.ndarray  # int64[core + 1]: into `axon`
    axon: np.ndarray  # int64[...]: by source
    register: np.ndarray  # int64[...]: input lines


class Pace(NamedTuple):
    """Where each core and io site is."""

    step: np.ndarray  # int64[end]: hardware step
    left: np.ndarray  # int64[end, 2]: tokens and messages of the network that it has still to take, by parity of step
    done_at: np.ndarray  # int64[end, 2]: when it will have accumulated what it has taken
    n_ended: np.ndarray  # int64[step h]: cores and io sites that have done step h
    ended_at: np.ndarray  # int64[step h]: when the last of them had
    work: np.ndarray  # int64[1]: ticks that all work until now may take, one after another


class Neighbors(NamedTuple):
    """What it takes for cores to wait for each other."""

    tokens: TokenTables
    inputs: InputAxons
    pace: Pace


@inlined
def of_parity(delivery, parity):
    """How messages of even or odd steps are added up."""
    return LossyDelivery(delivery.members, delivery.sent, delivery.payload[parity])


@part
def take_step_input(simulation, neighbors, c, x, micro):
    """Line up what core `c` gets from input lines without a network, x: int32[line], and add it up."""
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
    """Let core or io site `c` begin its next step at `time` of sample `b`; False as where `visit_core` gives -1.

    x: int32[sample, step, input line].
    """
    plan, chip, pace, tokens = simulation.plan, simulation.chip, neighbors.pace, neighbors.tokens
    axons, costs, outbox, core = chip.tables.axons, chip.tables.costs, chip.work.outbox, chip.work.core[c]
    pace.step[c] += 1
    h = pace.step[c]
    parity = h & 1
    pace.left[c, 1 - parity] = tokens.n_taken[c]  # of the next step
    pace.done_at[c, 1 - parity] = time
    first = parity * tokens.n_places + tokens.place[c]
    delivery = of_parity(simulation.by_message, parity)
    has_input, line = h < plan.n_steps, x[b, h if h < x.shape[1] else 0]
    end = first
    if c < axons.n_cores:
        if has_input:
            core.receive_at = max(core.receive_at, time)  # nothing of this step's input was there before
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
    """An idle chip at time 0, all cores before their first step."""
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
def take(simulation, neighbors, x, b, c, axon):
    """Count, and add up, a message of `axon` that core `c` has just taken; False if it must not have come yet.

    x: int32[sample, step, input line]. Several io sites may send messages of a line, each at its own pace.
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
        if core.message <= chip.work.outbox.first[c + 1] - n_tokens:  # it has not come to its tokens
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
def go_on(simulation, neighbors, x, b, c, time):
    """End the step of core `c` at `time`, if that is when it is done, and begin the next; False as `begin_step`."""
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
    """Simulate sample `b` of x; returns 0, or what `run_neighbors` does, and then the step in `pace.step[0]`."""
    mesh, queues, chip = simulation.event.mesh, simulation.event.queues, simulation.chip
    tables, work, pace = chip.tables, chip.work, neighbors.pace
    axons, costs, received = tables.axons, tables.costs, simulation.steps.received
    n_steps = pace.n_ended.shape[0]
    begin_sample(simulation, neighbors)
    for c in range(axons.n_sites):
        if not begin_step(simulation, neighbors, x, b, c, 0):
            return TOO_OFTEN
        wake_at(queues.events, mesh.n_routers + tables.sites.site[c], 0)
    front, since = 0, np.int64(0)  # the earliest step that a core is in, and since when there is no earlier one
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
        if axon >= 0 and not take(simulation, neighbors, x, b, c, axon):
            return OVERTAKEN
        if simulation.plan.interrupted[0]:
            return INTERRUPTED
        if not go_on(simulation, neighbors, x, b, c, time):
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
    """Simulate samples one after the other, each from cleared state on an idle chip: x int32[sample, step, line].

    `steps.cycles` of a step: from when the last core was done with the step before, to when the last one is with it; of
    the last step, to when the last link is idle too. Flits are those of all steps, in the first row. Returns 0, STUCK,
    TOO_LONG, TOO_OFTEN or INTERRUPTED as `run_samples`, or OVERTAKEN.
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
