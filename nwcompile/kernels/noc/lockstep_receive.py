"""Receive sides of cores that take single flits in the order in which they come, in Numba.

Such a core takes each message as soon as it has done the one before, so when it will take one is known as soon as the
flit has left the last router, and nothing need be done when it is there.
"""

from typing import NamedTuple

import numpy as np

from nwcompile.kernels.cores.tables import AxonTable, Outbox, Pipeline
from nwcompile.kernels.jit import inlined
from nwcompile.kernels.noc.event_cores import serve_inputs

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
def receive_at(cores, to, ticks, time):
    """Let core `to` of the chip receive a message that is there at `time`, after all those before; `ticks` of work.

    Returns when it takes it.
    """
    p, core = cores.p, np.int64(cores.axons.core_at[to])
    served = serve_inputs(cores.axons, cores.box, p, core, time, cores.counts)
    cores.now[N_WAITING] -= served + 1
    taken = max(time, p.receive_at[core])
    p.receive_at[core] = taken + ticks
    p.end[core] = max(p.end[core], p.receive_at[core])
    return taken
