"""The cores of a chip in one micro-step, cycle by cycle, in Numba: `run_events` of event_cores.py for common chips.

It serves where a message is a single flit in a single channel, none is lost or copied on its way, and a receive side
works beside the send side and needs some time for every message (`suits_cores` of sim/cycle/lockstep.py). Every count,
time and flit is that of `run_events` (tests/sim/cycle/test_lockstep_cores.py).
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
    INPUT_BITS,
    TAIL,
    Agenda,
    Routers,
    Timers,
    fire_timers,
    next_cycle,
    push,
    room_at,
    set_timer,
    wake,
)


class Lockstep(NamedTuple):
    """Routers that cores send to."""

    routers: Routers
    agenda: Agenda
    timers: Timers  # by physical core
    link: np.ndarray  # int64[output or source]: number of its link
    now: np.ndarray  # int64[N_NOW]: see `Cores`
    ticks: np.ndarray  # uint32[message]: what the receive side needs for it


class LockstepNetwork(NamedTuple):
    """Routers of the lockstep engine, with what depends on the chip."""

    net: Lockstep
    links: np.ndarray | None  # LINK[output or source], None where every link takes a flit in each cycle
    flits: np.ndarray  # int64[link]: those of the last micro-step


@inlined
def reset_arbiters(routers):
    """All round-robin arbiters as at first."""
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
    """Core `c` works for its next message, or does what is left after the last; returns whether it has a message."""
    core.send_at = time + work_before_next(outbox, core, c)
    core.end = max(core.end, core.send_at)
    return has_message(outbox, core, c)


@inlined
def inject(net, cores, c, site, time):
    """Let core `c` send its message if it can; it is woken when it can send the next."""
    routers, agenda, outbox, core = net.routers, net.agenda, cores.work.outbox, cores.work.core[c]
    source = routers.n_outputs + site << INPUT_BITS
    ready = max(core.send_at, core.inject_at)
    if ready > time:
        set_timer(net.timers, agenda, time, ready, site, source)
        return
    output = routers.output[routers.n_outputs + site]
    b = np.int64(output.down)
    there = routers.buffer[b]
    free = room_at(routers, there)
    if free > time:
        if free == NEVER:
            there.is_waited_for = True
        else:
            wake(agenda, free, source)
        return
    k = core.message
    word = np.int64(outbox.message[k].to) | HEAD | TAIL
    push(routers, agenda, output, 0, b, there, net.ticks[k], word, time + np.int64(output.latency))
    output.sent += 1
    core.inject_at = time + routers.link_cycles
    cores.now[BUSY_UNTIL] = max(cores.now[BUSY_UNTIL], core.inject_at)
    count_sent(outbox, core)
    if begin_work(outbox, core, c, time):
        set_timer(net.timers, agenda, time, max(core.send_at, core.inject_at), site, source)


@inlined
def begin(net, cores, start):
    """All cores begin a micro-step at `start`; sets N_WAITING, counts what will be received, and fills `net.ticks`.

    Messages are looked up here, by source as they lie in memory, and not when they arrive from everywhere.
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
            source = net.routers.n_outputs + site << INPUT_BITS
            set_timer(net.timers, net.agenda, start, core.send_at, site, source)
    cores.now[BUSY_UNTIL] = start


@part
def move(net, links, cores, time, end):
    """Go from cycle to cycle until all is quiet; returns whether it is when cycle `end` is over."""
    routers, agenda, timers = net.routers, net.agenda, net.timers
    rows, n_outputs = agenda.used.shape[0], 0
    while True:
        if n_outputs == 0:
            soon = next_cycle(agenda, time - 1)
            time = timers.next[0] if soon < 0 else min(soon, timers.next[0])
            if time == NEVER:
                return True
        if time > end:
            return False
        if time == timers.next[0]:
            fire_timers(timers, agenda, routers.n_outputs)
        n_outputs, n_sources = list_due(routers, agenda, time & (rows - 1), n_outputs, 0)
        n_outputs = serve_outputs(routers, links, None, agenda, None, cores, n_outputs, time, end)
        for n in range(n_sources):
            site = np.int64(agenda.sources[n])
            inject(net, cores, np.int64(cores.tables.sites.core_at[site]), site, time)
        time += 1


@part
def run_lockstep(net, links, tables, work, counts, flits):
    """Run send, network and receive until all is quiet, arbiters as at first; takes and gives what `run_events` does.

    links: LINK[output or source], None where every link takes a flit in each cycle; flits: int64[link], written. The
    step begins when the one before left the network idle, at `net.now[CLOCK]`.
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
