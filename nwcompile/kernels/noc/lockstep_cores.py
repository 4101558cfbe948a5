"""The cores of a chip in one micro-step, cycle by cycle, in Numba: `run_events` of event_cores.py for common chips.

A message is one flit in one channel, without loss or multicast. The receive side runs in parallel to the send side and
takes at least one cycle per message (`cores_fit_lockstep` of sim/cycle/lockstep.py). Every count, time and flit is that
of `run_events` (tests/sim/cycle/test_lockstep_cores.py).
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.receive_side import count_received, serve_inputs
from nwcompile.kernels.cores.send_side import begin_cores, count_sent, has_message, work_before_next
from nwcompile.kernels.cores.tables import STUCK, TOO_LONG
from nwcompile.kernels.jit import inlined, part
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.lockstep_router import BUSY_UNTIL, CLOCK, N_WAITING, Cores, list_due, serve_outputs
from nwcompile.kernels.noc.lockstep_state import (
    HEAD,
    TAIL,
    Agenda,
    Routers,
    ask_later,
    fire_timers,
    next_cycle,
    push,
    room_at,
)


class Lockstep(NamedTuple):
    """Routers of the lockstep engine with cores as sources."""

    routers: Routers
    agenda: Agenda
    link: np.ndarray  # int64[output or source]: link number
    now: np.ndarray  # int64[N_NOW]: see `Cores`
    ticks: np.ndarray  # uint32[message]: receive time of each message


class LockstepNetwork(NamedTuple):
    """The lockstep engine of a chip, with its links and flit counts."""

    net: Lockstep
    links: np.ndarray | None  # LINK[output or source], None if every link takes a flit in each cycle
    flits: np.ndarray  # int64[link]: flits of the last micro-step


@inlined
def reset_arbiters(routers):
    """Reset all round-robin arbiters."""
    for o in range(routers.output.shape[0]):
        output = routers.output[o]
        output.grant = 0
        output.accept_port = 0
        output.first_channel = 0
    for b in range(routers.buffer.shape[0]):
        buffer = routers.buffer[b]
        buffer.accept = 0
        buffer.offer = 0


@inlined
def begin_work(outbox, core, c, time):
    """Start the work of core `c` on its next message, or after its last one; returns whether it has a message."""
    core.send_at = time + work_before_next(outbox, core, c)
    core.end = max(core.end, core.send_at)
    return has_message(outbox, core, c)


@inlined
def inject(net, cores, c, site, time):
    """Let core `c` inject its message if it can, and schedule its next injection."""
    routers, agenda, outbox, core = net.routers, net.agenda, cores.work.outbox, cores.work.core[c]
    source = routers.n_outputs + site
    output = routers.output[source]
    b = np.int64(output.down)
    there = routers.buffer[b]
    free = room_at(routers, there)
    if free > time:
        if free == NEVER:
            there.is_waited_for = True
        else:
            ask_later(agenda, time, free, source, 0)
        return
    k = core.message
    word = np.int64(outbox.message[k].to) | HEAD | TAIL
    push(routers, agenda, output, 0, b, there, net.ticks[k], word, time + np.int64(output.latency))
    output.sent += 1
    core.inject_at = time + routers.link_cycles
    cores.now[BUSY_UNTIL] = max(cores.now[BUSY_UNTIL], core.inject_at)
    count_sent(outbox, core)
    if begin_work(outbox, core, c, time):
        ask_later(agenda, time, max(core.send_at, core.inject_at), source, 0)


@inlined
def begin(net, cores, start):
    """Begin a micro-step of all cores at `start`: set N_WAITING, count the messages of each receiver, fill `net.ticks`.

    Messages are looked up here in memory order, by source, instead of at arrival in random order.
    """
    axons, outbox = cores.tables.axons, cores.work.outbox
    cores.now[N_WAITING] = begin_cores(cores.work, axons.n_sites, start)
    for k in range(outbox.first[axons.n_sites]):
        axon = np.int64(outbox.message[k].axon)
        net.ticks[k] = axons.row[axon].ticks
        count_received(axons, np.int64(axons.row[axon].core), axon, outbox.message[k].times, cores.counts)
    for c in range(axons.n_sites):
        core = cores.work.core[c]
        if begin_work(outbox, core, c, start):
            site = np.int64(cores.tables.sites.site[c])
            ask_later(net.agenda, start, core.send_at, net.routers.n_outputs + site, 0)
    cores.now[BUSY_UNTIL] = start


@part
def move(net, links, cores, time, end):
    """Run cycle by cycle until nothing moves; returns False if that is not before the end of cycle `end`."""
    routers, agenda, timers = net.routers, net.agenda, net.agenda.timers
    rows, n_outputs = agenda.count.shape[0], 0
    while True:
        if n_outputs == 0:
            soon = next_cycle(agenda, time - 1)
            time = timers.next[0] if soon < 0 else min(soon, timers.next[0])
            if time == NEVER:
                return True
        if time > end:
            return False
        if time == timers.next[0]:
            fire_timers(agenda)
        n_outputs, n_sources = list_due(routers, agenda, time & (rows - 1), n_outputs, 0)
        n_outputs = serve_outputs(routers, links, None, agenda, None, cores, n_outputs, time, end)
        for n in range(n_sources):
            site = np.int64(agenda.sources[n])
            inject(net, cores, np.int64(cores.tables.sites.core_at[site]), site, time)
        time += 1


@part
def run_lockstep(net, links, tables, work, counts, flits):
    """Run send, network and receive until nothing moves; arguments and result are those of `run_events`.

    links: LINK[output or source], None if every link takes one flit per cycle. flits: int64[link], written. The step
    begins at `net.now[CLOCK]`, when the network was idle after the previous step.
    """
    axons, costs, start = tables.axons, tables.costs, net.now[CLOCK]
    routers = net.routers
    cores = Cores(tables, work, counts, net.now)
    reset_arbiters(routers)
    begin(net, cores, start)
    end = start + (costs.longest_step or 2 * (costs.longest_idle + net.now[N_WAITING] * costs.longest_message))
    is_quiet = move(net, links, cores, start, end)
    flits[:] = 0
    for o in range(routers.output.shape[0]):
        flits[net.link[o]] += routers.output[o].sent
        routers.output[o].sent = 0
    if not is_quiet:
        return np.int64(TOO_LONG)
    n_waiting, last = net.now[N_WAITING], net.now[BUSY_UNTIL]
    for c in range(axons.n_sites):
        n_waiting -= serve_inputs(axons, work.inputs, work.core[c], c, NEVER, counts)
        last = max(last, work.core[c].end)
    if n_waiting != 0:
        return np.int64(STUCK)
    if last > end:
        return np.int64(TOO_LONG)
    net.now[CLOCK] = last + routers.credit_cycles + routers.link_cycles
    return last - start
