"""What the cycle backend notes when it is watched, in Numba: stalls, latencies, buffers, and what each step waited for.

All of it takes the same memory however many messages there are: a latency goes into a histogram, a message in flight
into one of as many entries as there are places for flits, a buffer into a sum over time.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined

EXACT_BITS = 10  # latencies below 2**10 cycles have a bin each, those above share 2**9 bins an octave
N_BINS = 16 << EXACT_BITS
OWN, INPUTS = -1, -2  # who began a core's last uninterrupted work, if no message did
# columns of Watch.path, times in ticks from the beginning of the micro-step
TICKS = 0  # length of the micro-step
SAMPLE = 1
CORE = 2  # that finished last
SOURCE = 3  # whose message began its last uninterrupted work; OWN, INPUTS
READY = 4  # when that message was ready to be injected
STALLED = 5  # how long its core had waited for injections before; of OWN work, how long in all
INJECTED = 6  # when its last flit was injected
SINCE = 7  # when it was taken, and the work began
END = 8  # when the work ended
OF_STEP = 9  # hardware step
BLOCKED = 10  # of OWN work: where the message goes that waited longest to be injected, as LONGEST_TO; -1 none
N_COLUMNS = 11
# columns of Watch.core
WAITS_SINCE = 0  # when the message that is to be injected was ready
RECEIVED = 1  # ticks of receiving that were begun
RECEIVED_THEN = 2  # of them, how many were over when the message was ready
STALL = 3
ENTRY = 4  # of the message that is to be injected, -1 none
CHAIN = 5  # and the next ones: SOURCE, READY, STALLED, INJECTED, SINCE of the present uninterrupted work
LONGEST_WAIT = 10
LONGEST_TO = 11  # where the message was to go that waited so long, as mesh.SLOT has it
N_CORE_COLUMNS = 12
LEFT = 3  # column of Watch.entry after ready, stalled, injected; of a free entry: the next free one
# of Watch.state; ROW: of the arrays by step; BASE: ticks of the hardware step before the micro-step
FREE, USED, START, FLIGHT, ROW, BASE, SAMPLE_NOW, STEP_NOW = range(8)
N_POINTS = 128  # of the flits in flight in a step


class Watch(NamedTuple):
    """What is written; arrays are empty if nothing is watched. A group is the buffers that one link leads to."""

    is_on: bool
    stall: np.ndarray  # int64[step h, core]: ticks that the send side waited for injection
    done: np.ndarray  # int64[step h, core]: ticks until the receive side (a shared unit: the core) had done its last
    path: np.ndarray  # int64[step h, N_COLUMNS]: of the longest micro-step
    latency: np.ndarray  # int64[N_BINS]: messages by core cycles from ready to be injected to taken by the receiver
    total: np.ndarray  # int64[2]: sum and largest of these latencies
    held: np.ndarray  # int64[group]: flits in the buffers now
    since: np.ndarray  # int64[group]: since when
    area: np.ndarray  # int64[group]: sum of flits times ticks
    peak: np.ndarray  # int64[group]: most flits
    flight: np.ndarray  # int32[step of the trace, N_POINTS, 2]: flits in flight: most in, and at the end of, a while
    shift: np.ndarray  # int64[step of the trace]: 2**shift ticks are a while
    core: np.ndarray  # int64[core, N_CORE_COLUMNS]
    entry: np.ndarray  # int64[place, 4]: messages in flight: ready, stalled, injected, copies still to be taken
    state: np.ndarray  # int64[8]


@inlined
def begin_watch(w, axons, box, start, shared):
    """A micro-step begins at time `start`; Watch.state says of which hardware step and sample."""
    w.state[FREE] = -1
    w.state[USED] = 0
    w.state[START] = start - w.state[BASE]
    w.state[FLIGHT] = 0
    for core in range(axons.site.shape[0]):
        w.core[core, :] = 0
        w.core[core, ENTRY] = -1
        w.core[core, LONGEST_TO] = -1
        w.core[core, CHAIN] = INPUTS if not shared and box.external[core] >= 0 else OWN
        w.core[core, CHAIN + 4] = start


@inlined
def note_ready(w, p, core, copies, time):
    """A message of a core waits to be injected; so many copies of it will be taken."""
    w.core[core, WAITS_SINCE] = time
    w.core[core, RECEIVED_THEN] = w.core[core, RECEIVED] - max(0, p.receive_at[core] - time)
    e = w.state[FREE]
    if e >= 0:
        w.state[FREE] = w.entry[e, LEFT]
    elif w.state[USED] < w.entry.shape[0]:
        e = w.state[USED]
        w.state[USED] += 1
    w.core[core, ENTRY] = e
    if e < 0:
        return
    w.entry[e, 0] = time
    w.entry[e, 1] = w.core[core, STALL]
    w.entry[e, LEFT] = copies


@inlined
def note_injected(w, p, core, to, time, shared):
    """The last flit of a message to core `to` has left; a shared unit that received meanwhile was not stalled then."""
    waited = time - w.core[core, WAITS_SINCE]
    if shared:
        over = w.core[core, RECEIVED] - max(0, p.receive_at[core] - time)
        waited -= over - w.core[core, RECEIVED_THEN]
    w.core[core, STALL] += waited
    if waited > w.core[core, LONGEST_WAIT]:
        w.core[core, LONGEST_WAIT] = waited
        w.core[core, LONGEST_TO] = to
    if w.core[core, ENTRY] >= 0:
        w.entry[w.core[core, ENTRY], 2] = time


@inlined
def note_lost(w, core):
    """The message that was ready is dropped, and its entry free again."""
    e = w.core[core, ENTRY]
    if e >= 0:
        w.entry[e, LEFT] = w.state[FREE]
        w.state[FREE] = e


@inlined
def note_taken(w, p, core, source, e, time, ticks, costs):
    """The receiver takes a message of `source`, entry e (-1: of an input line), and will work on it for `ticks`."""
    if e >= 0:
        cycles = (time - w.entry[e, 0] + costs.per_cycle - 1) // costs.per_cycle
        w.latency[bin_of(cycles)] += 1
        w.total[0] += cycles
        w.total[1] = max(w.total[1], cycles)
    if e >= 0 and p.receive_at[core] < time and not (costs.shared and p.send_at[core] >= time):
        w.core[core, CHAIN] = source
        for i in range(3):
            w.core[core, CHAIN + 1 + i] = w.entry[e, i]
        w.core[core, CHAIN + 4] = time
    if e >= 0:
        w.entry[e, LEFT] -= 1
        if w.entry[e, LEFT] == 0:
            w.entry[e, LEFT] = w.state[FREE]
            w.state[FREE] = e
    w.core[core, RECEIVED] += ticks


@inlined
def note_resumed(w, p, core, time):
    """A shared unit sends on; if it had nothing to do before, it waited for an injection."""
    if time > max(p.receive_at[core], p.send_at[core]):
        w.core[core, CHAIN] = OWN


@inlined
def bin_of(cycles):
    """The bin of a latency: itself below 2**EXACT_BITS, else by its first EXACT_BITS bits."""
    shift = np.int64(0)
    while cycles >> shift >= 1 << EXACT_BITS:
        shift += 1
    return min((shift << (EXACT_BITS - 1)) + (cycles >> shift), N_BINS - 1)


@inlined
def note_buffers(m, q, w, group, time):
    """What the buffers of a group hold has changed, or not, at `time`."""
    held = np.int64(0)
    for b in range(group * m.n_vcs, (group + 1) * m.n_vcs):
        held += q.buffer[b].count
    note_held(w, group, held, time)


@inlined
def note_held(w, group, held, time):
    """What the buffers of a group hold is so many flits from `time` on."""
    before = w.held[group]
    if held == before:
        return
    w.area[group] += before * (time - w.since[group])
    w.since[group] = time
    w.held[group] = held
    w.peak[group] = max(w.peak[group], held)
    w.state[FLIGHT] += held - before


@inlined
def note_router(m, q, w, router, time):
    """A router was looked at: its own buffers may hold less, those that its links lead to more."""
    for i in range(router * m.n_ports, (router + 1) * m.n_ports):
        note_buffers(m, q, w, i, time)
        if m.output[i].down >= 0:
            note_buffers(m, q, w, m.output[i].down // m.n_vcs, time)
    note_flight(w, time)


@inlined
def note_core(m, q, w, site, time):
    """A core was looked at: it may have injected and taken flits."""
    router = site // m.per_router
    note_buffers(m, q, w, router * m.n_ports + 4 + site - router * m.per_router, time)
    note_buffers(m, q, w, m.n_routers * m.n_ports + site, time)
    note_flight(w, time)


@inlined
def note_flight(w, time):
    """Keep the flits in flight of the first sample for the trace, in at most N_POINTS whiles of a step."""
    h = w.state[ROW]
    if h >= w.flight.shape[0] or w.state[SAMPLE_NOW] > 0:
        return
    place = (time - w.state[START]) >> w.shift[h]
    while place >= N_POINTS:
        for i in range(N_POINTS // 2):
            last = w.flight[h, 2 * i + 1, 1]
            w.flight[h, i, 0] = max(w.flight[h, 2 * i, 0], w.flight[h, 2 * i + 1, 0])
            w.flight[h, i, 1] = last if last >= 0 else w.flight[h, 2 * i, 1]
        w.flight[h, N_POINTS // 2 :] = -1
        w.shift[h] += 1
        place >>= 1
    w.flight[h, place, 0] = max(w.flight[h, place, 0], w.state[FLIGHT])
    w.flight[h, place, 1] = w.state[FLIGHT]


@inlined
def end_watch(w, p, start, last, shared):
    """A micro-step is over: from `start` to `last`."""
    h = w.state[ROW]
    critical = np.int64(0)
    for core in range(w.stall.shape[1]):  # gates are no cores, and leave it to the links to end a step
        w.stall[h, core] += w.core[core, STALL]
        w.done[h, core] += (p.end[core] if shared else p.receive_at[core]) - start
        if p.end[core] > p.end[critical]:
            critical = core
    if last - start <= w.path[h, TICKS]:
        return
    row, chain = w.path[h], w.core[critical]
    row[TICKS] = last - start
    row[SAMPLE] = w.state[SAMPLE_NOW]
    row[OF_STEP] = w.state[STEP_NOW]
    row[CORE] = critical
    row[SOURCE] = chain[CHAIN]
    if not shared and p.receive_at[critical] < p.end[critical]:
        row[SOURCE] = OWN
    row[END] = p.end[critical] - start
    row[BLOCKED] = chain[LONGEST_TO] if row[SOURCE] == OWN else -1
    if row[SOURCE] >= 0:
        row[READY] = chain[CHAIN + 1] - start
        row[STALLED] = chain[CHAIN + 2]
        row[INJECTED] = chain[CHAIN + 3] - start
        row[SINCE] = chain[CHAIN + 4] - start
    else:
        row[READY] = row[INJECTED] = row[SINCE] = 0
        row[STALLED] = chain[STALL] if row[SOURCE] == OWN else 0
