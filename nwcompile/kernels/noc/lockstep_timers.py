"""When sources go on that have nothing to send for longer than a calendar reaches ahead, in Numba.

Time is cut in blocks of as many cycles as the calendar has rows; a source waits in the list of its block, and is put
into the calendar when that begins. A source waits in one list at most.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.bits import bit, first_from, lowest
from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_queue import NEVER
from nwcompile.kernels.noc.lockstep_state import INPUT_BITS, NONE, wake

N_BLOCKS = 64  # that a source can be ahead; one that is to wait for longer is looked at in between


class Alarms(NamedTuple):
    """Sources that wait for a later block."""

    due: np.ndarray  # int64[source]: when it goes on
    after: np.ndarray  # int32[source]: the next one of the same block, -1: none
    first: np.ndarray  # int32[block % N_BLOCKS]: -1: none
    used: np.ndarray  # uint64[1]: the set of blocks % N_BLOCKS in which a source waits
    next: np.ndarray  # int64[1]: the cycle in which the first of these begins, or NEVER


def alarms(n_sources: int) -> Alarms:
    """None of so many sources waits."""
    lists = np.zeros(n_sources, np.int32), np.full(N_BLOCKS, -1, np.int32)
    return Alarms(np.zeros(n_sources, np.int64), *lists, np.zeros(1, np.uint64), np.full(1, NEVER))


@inlined
def call(a, c, time, due, source, sender):
    """At `time`: wake a source, `sender` in the calendar, in cycle `due`."""
    rows = c.used.shape[0]
    if due - time < rows:
        wake(c, due, sender)
        return
    bits = np.int64(lowest(np.uint64(rows)))
    block = min(due >> bits, (time >> bits) + N_BLOCKS - 1)
    k = block & (N_BLOCKS - 1)
    a.due[source] = due
    a.after[source] = a.first[k]
    a.first[k] = source
    a.used[0] |= bit(k)
    a.next[0] = min(a.next[0], block << bits)


@inlined
def ring(a, c, first_source):
    """Put the sources of the block that begins now into the calendar; source 0 is output `first_source` there."""
    rows, start = c.used.shape[0], a.next[0]
    bits = np.int64(lowest(np.uint64(rows)))
    block = start >> bits
    k = block & (N_BLOCKS - 1)
    source = np.int64(a.first[k])
    a.first[k] = -1
    a.used[0] &= ~bit(k)
    a.next[0] = NEVER
    while source >= 0:
        after = np.int64(a.after[source])
        call(a, c, start, a.due[source], source, first_source + source << INPUT_BITS)
        source = after
    if a.used[0] != NONE:
        ahead = (first_from(a.used[0], (k + 1) & (N_BLOCKS - 1)) - k) & (N_BLOCKS - 1)
        a.next[0] = (block + ahead) << bits
