"""The receive side of a core, in Numba: messages of input lines that wait at it, and what is counted of any message."""

from nwcompile.kernels.cores.tables import (
    IO_IN,
    MESSAGES_IN,
    SYNOPS,
    SYNOPS_CONV,
    SYNOPS_DENSE,
    SYNOPS_SPARSE,
    WORDS,
)
from nwcompile.kernels.jit import inlined


@inlined
def take_input_message(inputs, c):
    """The axon of the next input message that waits at core `c`; the message is taken."""
    axon = inputs.first[c]
    inputs.left[axon] -= 1
    if inputs.left[axon] == 0:
        inputs.first[c] = inputs.after[axon]
    return axon


@inlined
def count_received(axons, c, axon, times, counts):
    """Count messages that core `c` received, all of one axon; those that an io site takes leave the chip."""
    if c >= axons.n_cores:
        return
    row, count = axons.row[axon], counts[c]
    count[SYNOPS_DENSE] += row.dense * times
    count[SYNOPS_SPARSE] += row.sparse * times
    count[SYNOPS_CONV] += row.conv * times
    count[SYNOPS] += (row.dense + row.sparse + row.conv) * times
    count[WORDS] += row.words * times
    count[MESSAGES_IN] += times
    if row.source < axons.n_lines and axons.n_sites > axons.n_cores:
        count[IO_IN] += times


@inlined
def serve_inputs(axons, inputs, core, c, until, counts):
    """Let core `c` receive the input messages that it reaches before `until`; returns how many.

    A receive side of its own is never idle while input messages wait, and is told of every message from the network,
    so what it did in between can be caught up with when something else happens.
    """
    served = 0
    while inputs.first[c] >= 0 and core.receive_at < until:
        axon = take_input_message(inputs, c)
        core.receive_at += axons.row[axon].ticks
        core.end = max(core.end, core.receive_at)
        count_received(axons, c, axon, 1, counts)
        served += 1
    return served
