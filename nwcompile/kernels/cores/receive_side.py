"""The receive side of a core, in Numba: the queue of input-line messages, and the counters of received messages."""

from nwcompile.kernels.cores.tables import IO_IN, MESSAGES_IN, SYNOPS, SYNOPS_CONV, SYNOPS_DENSE, SYNOPS_SPARSE, WORDS
from nwcompile.kernels.jit import inlined


@inlined
def take_input_message(inputs, c):
    """Remove the next input message at core `c` from its queue; returns its axon."""
    axon = inputs.first[c]
    inputs.left[axon] -= 1
    if inputs.left[axon] == 0:
        inputs.first[c] = inputs.after[axon]
    return axon


@inlined
def count_received(axons, c, axon, times, counts):
    """Count `times` messages of one axon that core `c` received; messages to an io site leave the chip uncounted."""
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
    """Let core `c` receive its input messages that begin before `until`; returns their number.

    A separate receive side is never idle while input messages wait, and every network message triggers an event. So its
    work in between can be caught up at the next event.
    """
    served = 0
    while inputs.first[c] >= 0 and core.receive_at < until:
        axon = take_input_message(inputs, c)
        core.receive_at += axons.row[axon].ticks
        core.end = max(core.end, core.receive_at)
        count_received(axons, c, axon, 1, counts)
        served += 1
    return served
