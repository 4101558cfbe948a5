"""The cores of a chip in one micro-step, cycle by cycle, in Numba: `move_messages` of event_cores.py for common chips.

It serves where a message is a single flit in a single channel, none is lost or copied on its way, and a receive side
works beside the send side and needs some time for every message (`suits_cores` of sim/cycle/lockstep.py). Every count,
time and flit is that of `move_messages` (tests/sim/cycle/test_lockstep_cores.py).
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.tables import STUCK, TOO_LONG
from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.noc.event_cores import begin_cores, count_received, serve_inputs
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.lockstep_receive import BUSY_UNTIL, CLOCK, N_WAITING, Cores
from nwcompile.kernels.noc.lockstep_replay import list_those_to_look_at, look_at_outputs, next_cycle
from nwcompile.kernels.noc.lockstep_state import HEAD, INPUT_BITS, TAIL, Calendar, Routers, push, room_at, wake
from nwcompile.kernels.noc.lockstep_timers import Alarms, call, ring


class Lockstep(NamedTuple):
    """A network that cores send to."""

    m: Routers
    c: Calendar
    alarms: Alarms  # by core of the chip
    link: np.ndarray  # int64[output or source]: number of its link
    now: np.ndarray  # int64[N_NOW]: see `Cores`
    ticks: np.ndarray  # uint32[message]: what the receive side needs for it


@inlined
def equal_turns(m):
    """All round-robin turns as at first."""
    for o in range(m.output.shape[0]):
        output = m.output[o]
        output.turn = 0
        output.accept_port = 0
        output.first_channel = 0
    for b in range(m.buffer.shape[0]):
        buffer = m.buffer[b]
        buffer.accept = 0
        buffer.turn = 0


@inlined
def begin_work(box, p, core, time):
    """A core works for its next message, or does what is left after the last; returns whether it has a message."""
    k = p.message[core]
    has_message = k < box.first[core + 1]
    work = box.tail[core]
    if has_message:
        work = box.work[k] if p.sent[core] == 0 else box.again[k]
    p.send_at[core] = time + work
    p.end[core] = max(p.end[core], time + work)
    return has_message


@inlined
def feed(m, c, alarms, cores, ticks, core, site, time):
    """Let a core send its message if it can; it is woken when it can send the next."""
    box, p, source = cores.box, cores.p, m.n_outputs + site << INPUT_BITS
    ready = max(p.send_at[core], p.inject_at[core])
    if ready > time:
        call(alarms, c, time, ready, site, source)
        return
    output = m.output[m.n_outputs + site]
    b = np.int64(output.down)
    there = m.buffer[b]
    free = room_at(m, there)
    if free > time:
        if free == NEVER:
            there.is_waited_for = True
        else:
            wake(c, free, source)
        return
    k = p.message[core]
    push(m, c, output, 0, b, there, ticks[k], np.int64(box.to[k]) | HEAD | TAIL, time + np.int64(output.latency))
    output.sent += 1
    p.inject_at[core] = time + m.link_cycles
    cores.now[BUSY_UNTIL] = max(cores.now[BUSY_UNTIL], p.inject_at[core])
    p.sent[core] += 1
    if p.sent[core] == box.times[k]:
        p.message[core] += 1
        p.sent[core] = 0
    if begin_work(box, p, core, time):
        call(alarms, c, time, max(p.send_at[core], p.inject_at[core]), site, source)


@inlined
def begin(m, c, alarms, cores, ticks, start):
    """All cores begin a micro-step at `start`; sets N_WAITING, counts what will be received, and fills `ticks`.

    Messages are looked up here, by source as they lie in memory, and not when they arrive from everywhere.
    """
    axons, box, p = cores.axons, cores.box, cores.p
    cores.now[N_WAITING] = begin_cores(axons, box, p, start)
    n_cores = axons.site.shape[0]
    for k in range(box.first[n_cores]):
        axon = np.int64(box.axon[k])
        ticks[k] = axons.row[axon].ticks
        count_received(axons, np.int64(axons.row[axon].core), axon, box.times[k], cores.counts)
    for core in range(n_cores):
        if begin_work(box, p, core, start):
            site = np.int64(axons.site[core])
            call(alarms, c, start, p.send_at[core], site, m.n_outputs + site << INPUT_BITS)
    cores.now[BUSY_UNTIL] = start


@inlined
def move(m, c, alarms, cores, ticks, time, end):
    """Go from cycle to cycle until all is quiet; returns whether it is when cycle `end` is over."""
    rows, n_outputs = c.used.shape[0], 0
    while True:
        if n_outputs == 0:
            soon = next_cycle(c, time - 1)
            time = alarms.next[0] if soon < 0 else min(soon, alarms.next[0])
            if time == NEVER:
                return True
        if time > end:
            return False
        if time == alarms.next[0]:
            ring(alarms, c, m.n_outputs)
        n_outputs, n_sources = list_those_to_look_at(m, c, time & (rows - 1), n_outputs, 0)
        n_outputs = look_at_outputs(m, c, None, cores, n_outputs, time, end)
        for n in range(n_sources):
            site = np.int64(c.sources[n])
            feed(m, c, alarms, cores, ticks, np.int64(cores.axons.core_at[site]), site, time)
        time += 1


@kernel
def move_in_lockstep(net, costs, axons, box, p, counts, flits):
    """Run send, network and receive until all is quiet, with all turns as at first; takes and gives what
    `move_messages` does.

    flits: int64[link], added to. The step begins when the one before left the network idle, at `net.now[CLOCK]`.
    """
    m, n_cores, start = net.m, axons.site.shape[0], net.now[CLOCK]
    cores = Cores(axons, box, p, counts, net.now)
    equal_turns(m)
    begin(m, net.c, net.alarms, cores, net.ticks, start)
    end = start + (costs.longest_step or 2 * (costs.longest_idle + net.now[N_WAITING] * costs.longest_message))
    is_quiet = move(m, net.c, net.alarms, cores, net.ticks, start, end)
    for o in range(m.output.shape[0]):
        flits[net.link[o]] += m.output[o].sent
        m.output[o].sent = 0
    if not is_quiet:
        return np.int64(TOO_LONG)
    n_waiting, last = net.now[N_WAITING], net.now[BUSY_UNTIL]
    for core in range(n_cores):
        n_waiting -= serve_inputs(axons, box, p, core, NEVER, counts)
        last = max(last, p.end[core])
    if n_waiting != 0:
        return np.int64(STUCK)
    if last > end:
        return np.int64(TOO_LONG)
    net.now[CLOCK] = last + m.credit_cycles + m.link_cycles
    return last - start
