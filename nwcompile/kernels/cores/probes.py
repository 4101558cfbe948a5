"""Profiling of a run, in Numba: stalls, latencies, buffer occupancy, and the critical path of each step.

Memory does not grow with the number of messages. Latencies go into a histogram, buffers into a sum over time, and a
message in flight uses one of as many entries as there are flit slots. Without profiling, kernels take None instead of
`Probes`, and Numba leaves this code out.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.jit import inlined

EXACT_BITS = 10  # Latencies below 2**10 cycles have a bin each; longer ones share 2**9 bins per octave.
N_BINS = 16 << EXACT_BITS  # Bins for latencies up to 2**41 cycles; longer ones go into the last bin.
OWN_WORK = -1  # PATH.source if no message began the core's last work.
INPUT_WORK = -2  # PATH.source if the last work was on messages of input lines.
N_POINTS = 128  # Points of a step's curve of flits in flight, enough for a trace on a screen.

# Indices of Probes.state.
FREE = 0  # first free entry of Probes.entry, -1: none
USED = 1  # entries used so far in this micro-step
START = 2  # start of the micro-step, less BASE
FLIGHT = 3  # flits in the buffers now
ROW = 4  # row of the arrays with one row per step
BASE = 5  # ticks of the hardware step before the micro-step
SAMPLE_NOW = 6
STEP_NOW = 7  # hardware step
N_STATE = 8

PATH = np.dtype(  # critical path of the longest micro-step of a step; times in ticks from its start
    [
        ("ticks", np.int64),  # length of the micro-step
        ("sample", np.int64),
        ("step", np.int64),  # hardware step
        ("core", np.int64),  # core that finished last
        ("source", np.int64),  # source of the message that began its last uninterrupted work, or OWN_WORK or INPUT_WORK
        ("ready", np.int64),  # when that message was ready for injection
        ("stalled", np.int64),  # earlier injection stalls of the sender; for OWN_WORK: all stalls of the core
        ("injected", np.int64),  # when its last flit was injected
        ("since", np.int64),  # when it was received and the work began
        ("end", np.int64),  # when the work ended
        ("blocked", np.int64),  # for OWN_WORK: target of the message that waited longest for injection; -1: none
    ],
    align=True,
)
CORE_PROBE = np.dtype(
    [
        ("waits_since", np.int64),  # when the message to inject was ready
        ("received", np.int64),  # ticks of receive work begun so far
        ("received_then", np.int64),  # how many of these ticks were over when the message was ready
        ("stall", np.int64),  # ticks that the send side waited for injection
        ("entry", np.int64),  # entry of the message to inject, -1: none
        ("source", np.int64),  # this and the next four: the current uninterrupted work, as in PATH
        ("ready", np.int64),
        ("stalled", np.int64),
        ("injected", np.int64),
        ("since", np.int64),
        ("longest_wait", np.int64),  # longest wait for an injection
        ("longest_to", np.int64),  # target of the message that waited longest, see `noc.mesh.SLOT`
    ],
    align=True,
)
ENTRY = np.dtype(  # a message in flight
    [
        ("ready", np.int64),
        ("stalled", np.int64),
        ("injected", np.int64),
        ("left", np.int64),  # copies not yet received; of a free entry: the next free entry
    ],
    align=True,
)
BUFFER_PROBE = np.dtype(  # of a group: all buffers of one link
    [
        ("held", np.int64),  # flits in the buffers now
        ("since", np.int64),  # time of the last change
        ("area", np.int64),  # sum of flits times ticks
        ("peak", np.int64),  # maximum flits
    ],
    align=True,
)


class Probes(NamedTuple):
    """Results and state of a profile."""

    stall: np.ndarray  # int64[step h, core]: ticks that the send side waited for injection
    done: np.ndarray  # int64[step h, core]: ticks until the last work of the receive side, or of a shared unit, ended
    path: np.ndarray  # PATH[step h]
    latency: np.ndarray  # int64[N_BINS]: messages by latency in core cycles, from ready for injection to received
    total: np.ndarray  # int64[2]: sum and maximum of these latencies
    group: np.ndarray  # BUFFER_PROBE[group]
    flight: np.ndarray  # int32[step of the trace, N_POINTS, 2]: flits in flight: maximum and last of each interval
    shift: np.ndarray  # int64[step of the trace]: an interval has 2**shift ticks
    core: np.ndarray  # CORE_PROBE[core and io site]
    entry: np.ndarray  # ENTRY[place]
    state: np.ndarray  # int64[N_STATE]
    ticks_per_cycle: int


@inlined
def begin_probes(probes, inputs, n_sites, start, shared):
    """Begin a micro-step at time `start`; Probes.state has its hardware step and sample."""
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
    """Note that a message of core `c`, whose state is `core`, is ready for injection; `copies` will be received."""
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
    """Note that the last flit of a message to core `to` is injected; receive work of a shared unit is not a stall."""
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
    """Free the entry of the ready message, which is dropped."""
    e = probes.core[c].entry
    if e >= 0:
        free_entry(probes, e)


@inlined
def free_entry(probes, e):
    probes.entry[e].left = probes.state[FREE]
    probes.state[FREE] = e


@inlined
def probe_taken(probes, core, c, source, e, time, ticks, shared):
    """Note that the receiver takes a message of `source`, entry e (-1: of an input line), with `ticks` of work."""
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
    """Note that a shared unit resumes sending; if it was idle before, it waited for an injection."""
    if time > max(core.receive_at, core.send_at):
        probes.core[c].source = OWN_WORK


@inlined
def bin_of(cycles):
    """The histogram bin of a latency: exact below 2**EXACT_BITS, else by its first EXACT_BITS bits."""
    shift = np.int64(0)
    while cycles >> shift >= 1 << EXACT_BITS:
        shift += 1
    return min((shift << (EXACT_BITS - 1)) + (cycles >> shift), N_BINS - 1)


@inlined
def probe_held(probes, g, held, time):
    """Note that the buffers of group `g` hold `held` flits from `time` on."""
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
    """Record the flits in flight of the first sample for the trace, in at most N_POINTS intervals per step."""
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
    """End a micro-step that ran from `start` to `last`."""
    h = probes.state[ROW]
    critical = np.int64(0)
    for c in range(probes.stall.shape[1]):  # io sites are no cores; their links are part of the step time
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
