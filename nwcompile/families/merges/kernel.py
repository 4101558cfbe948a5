"""Routers of FIFOs joined by fixed-priority merges, and their cores, in Numba; only active edges are simulated.

chip.py describes these routers. FIFO k of router p is p * N_FIFOS + k, merge m is p * N_MERGES + m. Merges
decide at falling edges, from the state of the FIFOs. Packets move at the next rising edge: out of a FIFO into the
merge, and one edge later into the FIFO behind it. Edges are counted from the start of the step.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.families.merges.chip import BEFORE_SCAN_CYCLES, CLEAR_CYCLES
from nwcompile.kernels.cores.receive_side import count_received
from nwcompile.kernels.cores.send_side import begin_cores, count_sent, has_message, work_before_next
from nwcompile.kernels.cores.tables import LOST_AT, LOST_TO, TOO_LONG
from nwcompile.kernels.jit import inlined, part
from nwcompile.kernels.noc.event_queue import NEVER

# FIFOs of a router: filled by the core, then by the eastward, westward, northward and southward merges.
CORE_EAST = 0
CORE_WEST = 1
EAST_ON = 2  # to the next router; the other FIFOs of a merge turn or end here
EAST_NORTH = 3
EAST_SOUTH = 4
WEST_ON = 5
WEST_NORTH = 6
WEST_SOUTH = 7
NORTH_ON = 8
NORTH_HERE = 9
SOUTH_ON = 10
SOUTH_HERE = 11
N_FIFOS = 12
# Merges of a router.
EAST, WEST, NORTH, SOUTH, HERE = range(5)
N_MERGES = 5
NONE = -1  # no further FIFO of a merge
HOST = -2  # input from outside, as a FIFO of a merge
# MERGE.does: the action at the next rising edge.
NOTHING, TAKES, GIVES = range(3)
# Indices of Merges.now.
N_HELD = 0  # packets in FIFOs and merges
N_ACTIVE = 1  # entries of Merges.active
STEP = 2  # number of steps begun, less one
N_LOGGED = 3  # used entries of Merges.log
N_COME = 4  # messages taken from input lines
HOST_AT = 5  # edge at which the first of them is ready

MERGE = np.dtype(
    [
        ("fifo", np.int32),  # FIFO that it takes from or gives to
        ("packet", np.int32),  # message that it holds
        ("does", np.int8),
        ("asked", np.bool_),  # whether it has taken a packet, or takes one at the next edge
    ],
    align=True,
)
PACKET = np.dtype(
    [
        ("step", np.int64),
        ("axon", np.int64),
        ("sent", np.int64),  # edge at which the spike, or the packet from outside, was written
        ("written", np.int64),  # edge at which it reached its core or io site
        ("lost", np.bool_),  # whether the core cleared its axons at that edge
    ],
    align=True,
)


class Merges(NamedTuple):
    """A grid of such routers; the first fields are constant."""

    columns: int
    source: np.ndarray  # int32[merge, 3]: FIFOs that it takes from, by priority; NONE, HOST
    sink: np.ndarray  # int32[merge, 3]: FIFOs that it gives to; NONE
    reader: np.ndarray  # int32[FIFO]: router whose merge takes from it
    link: np.ndarray  # int32[FIFO]: link on the way into it, -1: none
    slot: np.ndarray  # int32[FIFO, place]: messages
    head: np.ndarray  # int32[FIFO]
    count: np.ndarray  # int32[FIFO]
    merge: np.ndarray  # MERGE[merge]
    held: np.ndarray  # int32[router]: packets in its merges, and in the FIFOs before them
    active: np.ndarray  # int32[router]: the first N_ACTIVE have packets, or had some just now
    is_active: np.ndarray  # bool[router]


class MergeNetwork(NamedTuple):
    """The grid, and the counters and log of a step."""

    grid: Merges
    now: np.ndarray  # int64[6]
    flits: np.ndarray  # int64[link]: packets carried in this step
    sent_at: np.ndarray  # int64[message]: edge at which it was written
    sender: np.ndarray  # int32[message]: core or io site
    log: np.ndarray  # PACKET[...]: empty if packets are not logged


@inlined
def put(net, fifo, packet):
    """Append a packet to a FIFO at a rising edge."""
    grid = net.grid
    depth = grid.slot.shape[1]
    grid.slot[fifo, (grid.head[fifo] + grid.count[fifo]) % depth] = packet
    grid.count[fifo] += 1
    hold(net, grid.reader[fifo])


@inlined
def hold(net, router):
    """Count one more packet at the merges of a router, and activate the router."""
    grid = net.grid
    grid.held[router] += 1
    net.now[N_HELD] += 1
    if not grid.is_active[router]:
        grid.is_active[router] = True
        grid.active[net.now[N_ACTIVE]] = router
        net.now[N_ACTIVE] += 1


@inlined
def is_full(grid, fifo):
    return fifo >= 0 and grid.count[fifo] >= grid.slot.shape[1]


@inlined
def fifo_after_merge(grid, m, to):
    """The FIFO after merge m for a packet to router `to`; NONE if the packet has arrived."""
    router, kind = m // N_MERGES, m % N_MERGES
    dx, dy = to % grid.columns - router % grid.columns, to // grid.columns - router // grid.columns
    if kind == HERE:
        return np.int32(NONE)
    if kind in (NORTH, SOUTH):
        return grid.sink[m, 0 if dy != 0 else 1]
    if dx != 0:
        return grid.sink[m, 0]
    return grid.sink[m, 1 if dy >= 0 else 2]


@inlined
def n_waiting_inputs(net, outbox, n_cores, time):
    """Number of messages of input lines that wait at router 0,0 at `time`."""
    n = outbox.first[outbox.first.shape[0] - 1] - outbox.first[n_cores]
    return min(n, max(time - net.now[HOST_AT] + 1, 0)) - net.now[N_COME]


@part
def decide(net, outbox, n_cores, m, time):
    """Decide the action of merge m at the rising edge after `time`."""
    grid = net.grid
    merge = grid.merge[m]
    merge.does = NOTHING
    for i in range(3):
        if is_full(grid, grid.sink[m, i]):
            return
    if merge.asked:
        merge.does = GIVES
        merge.fifo = fifo_after_merge(grid, m, np.int64(outbox.message[merge.packet].to))
        merge.asked = False
        return
    for i in range(3):
        fifo = grid.source[m, i]
        waits = n_waiting_inputs(net, outbox, n_cores, time) > 0 if fifo == HOST else fifo >= 0 and grid.count[fifo] > 0
        if waits:
            merge.does = TAKES
            merge.fifo = fifo
            merge.asked = True
            return


@part
def act(net, tables, work, counts, m, time):
    """Perform the action of merge m at rising edge `time`."""
    grid, outbox = net.grid, work.outbox
    merge = grid.merge[m]
    if merge.does == TAKES:
        if merge.fifo == HOST:
            merge.packet = outbox.first[tables.axons.n_cores] + net.now[N_COME]
            net.now[N_COME] += 1
            hold(net, m // N_MERGES)
        else:
            merge.packet = grid.slot[merge.fifo, grid.head[merge.fifo]]
            grid.head[merge.fifo] = (grid.head[merge.fifo] + 1) % grid.slot.shape[1]
            grid.count[merge.fifo] -= 1
    elif merge.does == GIVES:
        grid.held[m // N_MERGES] -= 1
        net.now[N_HELD] -= 1
        if merge.fifo == NONE:
            arrive(net, tables, work, counts, np.int64(merge.packet), time)
        else:
            if grid.link[merge.fifo] >= 0:
                net.flits[grid.link[merge.fifo]] += 1
            put(net, merge.fifo, merge.packet)
    merge.does = NOTHING


@inlined
def clear_at(tables, work, c):
    """When core `c` clears its axon inputs, after all its messages have been sent."""
    return BEFORE_SCAN_CYCLES + tables.costs.scan + work.core[c].inject_at + CLEAR_CYCLES


@part
def arrive(net, tables, work, counts, k, time):
    """Write message k into its core, or out of the chip. It is lost if the core clears its axons in this cycle."""
    axons, message = tables.axons, work.outbox.message[k]
    row = axons.row[message.axon]
    c = np.int64(row.core)
    is_lost = False
    net.flits[net.flits.shape[0] - net.grid.held.shape[0] + message.to] += 1
    if c < axons.n_cores:
        is_lost = not has_message(work.outbox, work.core[c], c) and time == clear_at(tables, work, c)
    if is_lost:
        message.lost += 1
        counts[net.sender[k], LOST_AT] += 1
        counts[c, LOST_TO] += 1
    else:
        count_received(axons, c, np.int64(message.axon), 1, counts)
    if net.now[N_LOGGED] < net.log.shape[0]:
        entry = net.log[net.now[N_LOGGED]]
        entry.step = net.now[STEP]
        entry.axon = message.axon
        entry.sent = net.sent_at[k]
        entry.written = time
        entry.lost = is_lost
        net.now[N_LOGGED] += 1


@inlined
def count_injected(net, k, sender, site, time):
    """Note that message k of a core or io site is written into the FIFOs of a physical core's router."""
    net.sent_at[k] = time
    net.sender[k] = sender
    net.flits[net.flits.shape[0] - 2 * net.grid.held.shape[0] + site] += 1


@part
def run_merges(net, tables, work, counts):
    """Run the scans of all cores and their packets, then the packets from outside; as `run_events`.

    core.send_at: edge of a core's next spike, NEVER: none is left. core.inject_at: edges that its scan was stalled for.
    Returns the edges until every core has cleared its axons and the last packet has arrived, without those before and
    after the scan, which belong to the barrier.
    """
    axons, outbox, grid, n_cores = tables.axons, work.outbox, net.grid, tables.axons.n_cores
    begin_cores(work, axons.n_sites, np.int64(0))
    net.flits[:] = 0
    net.now[STEP] += 1
    net.now[N_COME] = 0
    net.now[HOST_AT] = NEVER
    soonest, longest = NEVER, tables.costs.longest_step or NEVER
    for c in range(n_cores):
        schedule_next(work, c, np.int64(BEFORE_SCAN_CYCLES))
        soonest = min(soonest, work.core[c].send_at)
    time, end = np.int64(0), np.int64(0)
    while True:
        if net.now[N_HELD] == 0 and n_waiting_inputs(net, outbox, n_cores, time) == 0:
            if soonest == NEVER:
                if net.now[HOST_AT] < NEVER or outbox.first[axons.n_sites] == outbox.first[n_cores]:
                    break
                for c in range(n_cores):
                    end = max(end, clear_at(tables, work, c))
                net.now[HOST_AT] = max(end, time) + 1
                time = net.now[HOST_AT]
                for k in range(outbox.first[n_cores], outbox.first[axons.n_sites]):
                    count_injected(net, k, n_cores, np.int64(0), time + k - outbox.first[n_cores])
            else:
                time = max(time, soonest - 1)
        if time > longest:
            return np.int64(TOO_LONG)
        if time + 1 >= soonest:
            soonest = scan(net, tables, work, time)
        n_active = net.now[N_ACTIVE]
        for i in range(n_active):
            for m in range(grid.active[i] * N_MERGES, (grid.active[i] + 1) * N_MERGES):
                if grid.merge[m].does != NOTHING:
                    act(net, tables, work, counts, m, time)
                    end = max(end, time)
        if net.now[HOST_AT] <= time and not grid.is_active[0]:
            grid.is_active[0] = True
            grid.active[net.now[N_ACTIVE]] = 0
            net.now[N_ACTIVE] += 1
        i = 0
        while i < net.now[N_ACTIVE]:
            router = grid.active[i]
            for m in range(router * N_MERGES, (router + 1) * N_MERGES):
                decide(net, outbox, n_cores, m, time)
            if grid.held[router] == 0 and not (router == 0 and n_waiting_inputs(net, outbox, n_cores, time) > 0):
                grid.is_active[router] = False
                net.now[N_ACTIVE] -= 1
                grid.active[i] = grid.active[net.now[N_ACTIVE]]
            else:
                i += 1
        time += 1
    for c in range(n_cores):
        end = max(end, clear_at(tables, work, c))
    return end - (BEFORE_SCAN_CYCLES + CLEAR_CYCLES)


@inlined
def schedule_next(work, c, time):
    """Schedule the next spike of core `c`, whose scan for it began at `time`."""
    core = work.core[c]
    core.send_at = time + work_before_next(work.outbox, core, c) if has_message(work.outbox, core, c) else NEVER


@part
def scan(net, tables, work, time):
    """Write the spikes due at edge `time`, and stall those due next if a FIFO is full. Returns the next due edge.

    FIFOs are judged by their state before the changes of this edge.
    """
    grid, soonest = net.grid, NEVER
    for c in range(tables.axons.n_cores):
        core = work.core[c]
        if core.send_at == time + 1:
            first = np.int64(tables.sites.site[c]) * N_FIFOS
            if is_full(grid, first + CORE_EAST) or is_full(grid, first + CORE_WEST):
                core.send_at += 1
                core.inject_at += 1
    for c in range(tables.axons.n_cores):
        core = work.core[c]
        if core.send_at == time:
            site, k = np.int64(tables.sites.site[c]), core.message
            goes_west = work.outbox.message[k].to % grid.columns < site % grid.columns
            put(net, np.int32(site * N_FIFOS + (CORE_WEST if goes_west else CORE_EAST)), np.int32(k))
            count_injected(net, k, c, site, time)
            count_sent(work.outbox, core)
            schedule_next(work, c, time)
        soonest = min(soonest, core.send_at)
    return soonest
