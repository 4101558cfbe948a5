"""Tables of the core kernels: axons and their costs, messages to send and receive, and the state of each core.

Cores are numbered as in the program. The io sites of a chip, where messages enter and leave it, follow them.
"""

from typing import NamedTuple

import numpy as np

STUCK = -1  # Result of an engine instead of ticks if messages wait for each other forever (deadlock).
TOO_LONG = -2  # Result of an engine if a micro-step exceeds its limit.

# Columns of `counts`, received by a core; the first five are synaptic events and the weight words read for them.
SYNOPS_DENSE = 0
SYNOPS_SPARSE = 1
SYNOPS_CONV = 2
SYNOPS = 3
WORDS = 4
MESSAGES_IN = 5  # Messages that the core received.
IO_IN = 6  # Those of them that came from an io site.
N_COUNTS = 7  # Number of columns if no message can be lost.
LOST_AT = 7  # Messages dropped, counted at the sending core.
LOST_TO = 8  # The same messages, counted at the target core.
LOST_EW = 9  # East-west hops of dropped messages to other cores, counted at the sender.
LOST_NS = 10  # North-south hops of these, counted at the sender.
LOST_OUT = 11  # Dropped messages to an io site, counted at the sender.
N_COUNTS_LOST = 12  # Number of columns if messages can be lost.

AXON = np.dtype(
    [
        ("ticks", np.int64),  # receive time of one message
        ("source", np.int32),
        ("core", np.int32),  # target core or io site
        ("to", np.int32),  # physical core of that target
        ("flits", np.int32),  # flits of one message
        ("dense", np.int32),  # synaptic events per message, by kind
        ("sparse", np.int32),
        ("conv", np.int32),
        ("words", np.int32),
        ("hops_ew", np.int32),  # hops of one unicast message
        ("hops_ns", np.int32),
    ],
    align=True,
)
MESSAGE = np.dtype(
    [
        ("axon", np.int32),  # its axon; of a multicast message, its first axon
        ("to", np.int32),  # routing target, see `noc.mesh.SLOT`
        ("copies", np.int32),  # axons that the message reaches
        ("work", np.int64),  # ticks of work from the previous message to this one, its own send work included
        ("again", np.int64),  # ticks of work for each further copy
        ("times", np.int64),  # number of times that it is sent, in sequence
        ("lost", np.int64),  # number of times that it was dropped
    ],
    align=True,
)
CORE = np.dtype(
    [
        ("message", np.int64),  # message that is sent now, or the end after the last
        ("sent", np.int64),  # copies of it sent so far
        ("send_at", np.int64),  # when the current work of the send side ends
        ("inject_at", np.int64),  # when the injection link is free
        ("receive_at", np.int64),  # when the receive side is free
        ("end", np.int64),  # when the core finished its last work
        ("flit", np.int32),  # flits of the message still to inject
        ("inject_vc", np.int32),  # injection channel used last
        ("receive_vc", np.int32),  # channel of the receive queue served last
        ("taken", np.int32),  # last message that the receive side took from the network, -1: one of an input line
        ("phase", np.int8),  # SEND_NEXT, or a phase of the engine
    ],
    align=True,
)
SEND_NEXT = 0  # Phase before the next message; each engine numbers its other phases.


class Axons(NamedTuple):
    """Axons sorted by source, then core, so that a core with many targets reads memory in order.

    Axons of output neurons to io sites follow all others of their source; the program does not count them.
    """

    row: np.ndarray  # AXON[axon]
    n_cores: int
    n_sites: int  # cores and io sites
    n_lines: int  # input lines, the first sources


class Sites(NamedTuple):
    """Physical positions of cores and io sites."""

    site: np.ndarray  # int32[core and io site]: physical core
    core_at: np.ndarray  # int64[physical core]: core or io site, -1: none


class FanOut(NamedTuple):
    """Messages per spike of each source."""

    offset: np.ndarray  # int64[source + 1]: into the axons
    sent: np.ndarray  # int64[source, 3]: messages, east-west hops and north-south hops, without io sites
    root: np.ndarray  # int32[source]: root of its multicast tree (see `noc.mesh.SLOT`), -1: unicast to each axon


class SharedAxons(NamedTuple):
    """One-bit axons that several neurons set; the first spike of a micro-step sends the message."""

    axon_of: np.ndarray  # int64[neuron]: source whose axons its spikes set; -1: its own only
    reading: np.ndarray  # int64[neuron]: source, numbered after all others, whose messages read those axons
    last_set: np.ndarray  # int64[source]: last micro-step in which its axons were set
    last_heard: np.ndarray  # int64[source]: if messages can be lost: last micro-step with a message that was not


class IoAxons(NamedTuple):
    """Axons of input lines, by the io site that sends them."""

    first: np.ndarray  # int64[io site + 1]: into `axon`
    axon: np.ndarray  # int64[...]


class Costs(NamedTuple):
    """Ticks of the send side, and rules of both sides.

    `longest_step` limits a micro-step. If it is 0, the limit is twice the time of all work and flit-hops in sequence:
    `longest_idle` without messages, plus `longest_message` for each.
    """

    visit: int
    update: int
    instruction: int
    spike: int
    message: int
    shared: bool  # sending and receiving share one unit
    drops: bool  # messages are lost if their injection buffer is full or their target core clears its axons
    scan: int  # scan of all neurons, used or not, if the chip visits all; else 0
    longest_step: int
    longest_idle: int
    longest_message: int


class StepTimes(NamedTuple):
    """Core cycles beyond the work of cores and network; they do not apply to a pool."""

    min_work: int  # shortest micro-step, without its barrier
    sample: int  # once a sample, in its first step


class PoolTimes(NamedTuple):
    """Half core cycles if hidden neurons are one pool; all 0 if the network on chip determines the step time."""

    step: int  # per step
    of_source: np.ndarray  # int64[source]: per event of each input line and neuron


class CoreTables(NamedTuple):
    """Constant tables that every engine reads."""

    axons: Axons
    sites: Sites
    costs: Costs


class Outbox(NamedTuple):
    """Messages of this micro-step, sorted by core and io site."""

    message: np.ndarray  # MESSAGE[message]
    first: np.ndarray  # int64[core + 1]
    tail: np.ndarray  # int64[core]: ticks of work after the last message


class InputQueue(NamedTuple):
    """Messages of input lines that wait at their cores, on chips without io sites: a list of axons per core."""

    first: np.ndarray  # int64[core]: first axon, -1: none
    after: np.ndarray  # int64[axon]: next axon of the list
    left: np.ndarray  # int64[axon]: receives left


class CoreWork(NamedTuple):
    """Mutable state that every engine works on."""

    outbox: Outbox
    inputs: InputQueue
    core: np.ndarray  # CORE[core and io site]
