"""Receive sides of cores that take single flits in the order in which they come, in Numba.

Such a core takes each message as soon as it has done the one before, so when it will take one is known as soon as the
flit has left the last router, and nothing need be done when it is there.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cpu_axons import AxonTable, Outbox, Pipeline
from nwcompile.kernels.cpu_core import count_received, serve_inputs
from nwcompile.kernels.jit import inlined

CLOCK, BUSY_UNTIL, N_WAITING = 0, 1, 2  # of `Cores.now`
N_NOW = 3


class Cores(NamedTuple):
    """The cores of a chip, and what they have to send in this micro-step."""

    axons: AxonTable
    box: Outbox
    p: Pipeline
    counts: np.ndarray  # int64[core and gate, N_COUNTS]: as those of `move_messages`
    now: np.ndarray  # int64[N_NOW]: when a micro-step can begin; the last link falls idle; messages not taken


@inlined
def receive_at(cores, k, time):
    """Let a core receive message k, which is there at `time`, after all those before; returns when it takes it."""
    box, p, axon = cores.box, cores.p, np.int64(cores.box.axon[k])
    row = cores.axons.row[axon]
    core = np.int64(row.core)
    served = serve_inputs(cores.axons, box, p, core, time, cores.counts)
    cores.now[N_WAITING] -= served + 1
    taken = max(time, p.receive_at[core])
    p.receive_at[core] = taken + row.ticks
    p.end[core] = max(p.end[core], p.receive_at[core])
    count_received(cores.axons, core, axon, cores.counts)
    return taken
