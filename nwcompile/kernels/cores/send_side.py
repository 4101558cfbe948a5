"""The send side of a core, in Numba: pieces of work, each followed by a message that is sent once or several times.

The engines differ in when a message leaves the core; the order of messages is the same in all of them.
"""

import numpy as np

from nwcompile.kernels.cores.tables import SEND_NEXT
from nwcompile.kernels.jit import inlined


@inlined
def begin_cores(work, n_sites, start):
    """Begin a micro-step of all cores at `start`; returns the number of messages (multicast copies) to receive."""
    outbox, inputs = work.outbox, work.inputs
    n_waiting = np.int64(0)
    for k in range(outbox.first[n_sites]):
        message = outbox.message[k]
        n_waiting += message.times * np.int64(message.copies)
        message.lost = 0
    for c in range(n_sites):
        core = work.core[c]
        core.phase = SEND_NEXT
        core.message = outbox.first[c]
        core.sent = 0
        core.inject_at = start
        core.receive_at = start
        core.end = start
        axon = inputs.first[c]
        while axon >= 0:
            n_waiting += inputs.left[axon]
            axon = inputs.after[axon]
    return n_waiting


@inlined
def has_message(outbox, core, c):
    """Whether core `c`, whose state is `core`, has a message left to send."""
    return core.message < outbox.first[c + 1]


@inlined
def work_before_next(outbox, core, c):
    """Ticks of work before core `c` can send its next message, or after its last message."""
    if core.message >= outbox.first[c + 1]:
        return outbox.tail[c]
    message = outbox.message[core.message]
    return message.work if core.sent == 0 else message.again


@inlined
def count_sent(outbox, core):
    """Advance core state after its message has left or is dropped: to the next copy, or to the next message."""
    core.sent += 1
    if core.sent == outbox.message[core.message].times:
        core.message += 1
        core.sent = 0
