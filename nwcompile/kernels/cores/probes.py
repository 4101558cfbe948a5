"""What is noted while a run is profiled, in Numba: stalls, latencies, buffers, and what each step waited for.

All of it takes the same memory however many messages there are: a latency goes into a histogram, a message in flight
into one of as many entries as there are places for flits, a buffer into a sum over time. Kernels take None instead of
`Probes` where nothing is profiled, and Numba then leaves this code out.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined

EXACT_BITS = 10  # Latencies below 2**10 cycles have a bin each; those above share 2**9 bins an octave.
N_BINS = 16 << EXACT_BITS  # Bins for latencies up to 2**41 cycles; longer ones fall into the last bin.
OWN_WORK = -1  # Stands for a message in PATH.source: the core's own work was the last, no message began it.
INPUT_WORK = -2  # The same, for work on messages of input lines.
N_POINTS = 128  # Points of the curve of flits in flight in a step, enough for a trace on a screen.

# Columns of Probes.state.
FREE = 0  # first free entry of Probes.entry, -1 none
USED = 1  # entries that were ever in use in this micro-step
START = 2  # when the micro-step began, less the ticks of its hardware step before it
FLIGHT = 3  # flits in the buffers now
ROW = 4  # row of the arrays by step
BASE = 5  # ticks of the hardware step before the micro-step
SAMPLE_NOW = 6
STEP_NOW = 7  # hardware step
N_STATE = 8

PATH = np.dtype(  # of the longest micro-step of a step; times in ticks from its beginning
    [
        ("ticks", np.int64),  # length of the micro-step
        ("sample", np.int64),
        ("step", np.int64),  # hardware step
        ("core", np.int64),  # that finished last
        ("source", np.int64),  # whose message began its last uninterrupted work, or OWN_WORK or INPUT_WORK
        ("ready", np.int64),  # when that message was ready to be injected
        ("stalled", np.int64),  # how long its core had waited for injections before; of OWN_WORK, how long in all
        ("injected", np.int64),  # when its last flit was injected
        ("since", np.int64),  # when it was taken, and the work began
        ("end", np.int64),  # when the work ended
        ("blocked", np.int64),  # of OWN_WORK: where the message goes that waited longest to be injected; -1 none
    ],
    align=True,
)
CORE_PROBE = np.dtype(
    [
        ("waits_since", np.int64),  # when the message that is to be injected was ready
        ("received", np.int64),  # ticks of receiving that were begun
        ("received_then", np.int64),  # of them, how many were over when the message was ready
        ("stall", np.int64),  # ticks that the send side waited for injection
        ("entry", np.int64),  # of the message that is to be injected, -1 none
        ("source", np.int64),  # this and the next four: of the present uninterrupted work, as in PATH
        ("ready", np.int64),
        ("stalled", np.int64),
        ("injected", np.int64),
        ("since", np.int64),
        ("longest_wait", np.int64),  # for an injection
        ("longest_to", np.int64),  # where the message was to go that waited so long, see `noc.mesh.SLOT`
    ],
    align=True,
)
ENTRY = np.dtype(  # a message in flight
    [
        ("ready", np.int64),
        ("stalled", np.int64),
        ("injected", np.int64),
        ("left", np.int64),  # copies still to be taken; of a free entry: the next free one
    ],
    align=True,
)
BUFFER_PROBE = np.dtype(  # of a group: the buffers that one link leads to
    [
        ("held", np.int64),  # flits in the buffers now
        ("since", np.int64),  # since when
        ("area", np.int64),  # sum of flits times ticks
        ("peak", np.int64),  # most flits
    ],
    align=True,
)


class Probes(NamedTuple):
    """What is written."""

    stall: np.ndarray  # int64[step h, core]: ticks that the send side waited for injection
    done: np.ndarray  # int64[step h, core]: ticks until the receive side (a shared unit: the core) had done its last
    path: np.ndarray  # PATH[step h]
    latency: np.ndarray  # int64[N_BINS]: messages by core cycles from ready to be injected to taken by the receiver
    total: np.ndarray  # int64[2]: sum and largest of these latencies
    group: np.ndarray  # BUFFER_PROBE[group]
    flight: np.ndarray  # int32[step of the trace, N_POINTS, 2]: flits in flight: most in an interval, and at its end
    shift: np.ndarray  # int64[step of the trace]: an interval is 2**shift ticks
    core: np.ndarray  # CORE_PROBE[core and io site]
    entry: np.ndarray  # ENTRY[place]
    state: np.ndarray  # int64[N_STATE]
    ticks_per_cycle: int


@inlined
def begin_probes(probes, inputs, n_sites, start, shared):
    """A micro-step begins at time `start`; Probes.state says of which hardware step and sample."""
    state = probes.state
    state[FREE] = -1
    state[USED] = 0
    state[START] = start - state[BASE]
    state[FLIGHT] = 0
    for c in range(n_sites):
        core = probes.core[c]
        core.waits_since = 0
        core.received = 0
        core.received_then = 0
        core.stall = 0
        core.entry = -1
        core.source = INPUT_WORK if not shared and inputs.first[c] >= 0 else OWN_WORK
        core.ready = 0
        core.stalled = 0
        core.injected = 0
        core.since = start
        core.longest_wait = 0
        core.longest_to = -1


@inlined
def probe_ready(probes, core, c, copies, time):
    """A message of core `c`, whose state is `core`, waits to be injected; so many copies of it will be taken."""
    note, state = probes.core[c], probes.state
    note.waits_since = time
    note.received_then = note.received - max(0, core.receive_at - time)
    e = state[FREE]
    if e >= 0:
        state[FREE] = probes.entry[e].left
    elif state[USED] < probes.entry.shape[0]:
        e = state[USED]
        state[USED] += 1
    note.entry = e
    if e < 0:
        return
    entry = probes.entry[e]
    entry.ready = time
    entry.stalled = note.stall
    entry.left = copies


@inlined
def probe_injected(probes, core, c, to, time, shared):
    """The last flit of a message to core `to` has left; a shared unit that received meanwhile was not stalled then."""
    note = probes.core[c]
    waited = time - note.waits_since
    if shared:
        over = note.received - max(0, core.receive_at - time)
        waited -= over - note.received_then
    note.stall += waited
    if waited > note.longest_wait:
        note.longest_wait = waited
        note.longest_to = to
    if note.entry >= 0:
        probes.entry[note.entry].injected = time


@inlined
def probe_lost(probes, c):
    """The message that was ready is dropped, and its entry free again."""
    e = probes.core[c].entry
    if e >= 0:
        free_entry(probes, e)


@inlined
def free_entry(probes, e):
    probes.entry[e].left = probes.state[FREE]
    probes.state[FREE] = e


@inlined
def probe_taken(probes, core, c, source, e, time, ticks, shared):
    """The receiver takes a message of `source`, entry e (-1: of an input line), and will work on it for `ticks`."""
    note = probes.core[c]
    note.received += ticks
    if e < 0:
        return
    entry = probes.entry[e]
    cycles = (time - entry.ready + probes.ticks_per_cycle - 1) // probes.ticks_per_cycle
    probes.latency[bin_of(cycles)] += 1
    probes.total[0] += cycles
    probes.total[1] = max(probes.total[1], cycles)
    if core.receive_at < time and not (shared and core.send_at >= time):
        note.source = source
        note.ready = entry.ready
        note.stalled = entry.stalled
        note.injected = entry.injected
        note.since = time
    entry.left -= 1
    if entry.left == 0:
        free_entry(probes, e)


@inlined
def probe_resumed(probes, core, c, time):
    """A shared unit sends on; if it had nothing to do before, it waited for an injection."""
    if time > max(core.receive_at, core.send_at):
        probes.core[c].source = OWN_WORK


@inlined
def bin_of(cycles):
    """The bin of a latency: itself below 2**EXACT_BITS, else by its first EXACT_BITS bits."""
    shift = np.int64(0)
    while cycles >> shift >= 1 << EXACT_BITS:
        shift += 1
    return min((shift << (EXACT_BITS - 1)) + (cycles >> shift), N_BINS - 1)


@inlined
def probe_held(probes, g, held, time):
    """What the buffers of group `g` hold is so many flits from `time` on."""
    group = probes.group[g]
    before = group.held
    if held == before:
        return
    group.area += before * (time - group.since)
    group.since = time
    group.held = held
    group.peak = max(group.peak, held)
    probes.state[FLIGHT] += held - before


@inlined
def probe_flight(probes, time):
    """Keep the flits in flight of the first sample for the trace, in at most N_POINTS intervals of a step."""
    h = probes.state[ROW]
    if h >= probes.flight.shape[0] or probes.state[SAMPLE_NOW] > 0:
        return
    curve = probes.flight[h]
    place = (time - probes.state[START]) >> probes.shift[h]
    while place >= N_POINTS:
        for i in range(N_POINTS // 2):
            last = curve[2 * i + 1, 1]
            curve[i, 0] = max(curve[2 * i, 0], curve[2 * i + 1, 0])
            curve[i, 1] = last if last >= 0 else curve[2 * i, 1]
        curve[N_POINTS // 2 :] = -1
        probes.shift[h] += 1
        place >>= 1
    curve[place, 0] = max(curve[place, 0], probes.state[FLIGHT])
    curve[place, 1] = probes.state[FLIGHT]


@inlined
def end_probes(probes, cores, start, last, shared):
    """A micro-step is over: from `start` to `last`."""
    h = probes.state[ROW]
    critical = np.int64(0)
    for c in range(probes.stall.shape[1]):  # io sites are no cores, and leave it to the links to end a step
        probes.stall[h, c] += probes.core[c].stall
        probes.done[h, c] += (cores[c].end if shared else cores[c].receive_at) - start
        if cores[c].end > cores[critical].end:
            critical = np.int64(c)
    path = probes.path[h]
    if last - start <= path.ticks:
        return
    note, core = probes.core[critical], cores[critical]
    path.ticks = last - start
    path.sample = probes.state[SAMPLE_NOW]
    path.step = probes.state[STEP_NOW]
    path.core = critical
    path.source = note.source
    if not shared and core.receive_at < core.end:
        path.source = OWN_WORK
    path.end = core.end - start
    path.blocked = note.longest_to if path.source == OWN_WORK else -1
    if path.source >= 0:
        path.ready = note.ready - start
        path.stalled = note.stalled
        path.injected = note.injected - start
        path.since = note.since - start
    else:
        path.ready = 0
        path.injected = 0
        path.since = 0
        path.stalled = note.stall if path.source == OWN_WORK else 0
