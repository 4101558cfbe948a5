"""What the core kernels work on: axons and what they cost, messages to send and receive, where each core stands.

Cores are numbered as in the program; the io sites of a chip, where messages enter and leave it, come after them.
"""

from typing import NamedTuple

import numpy as np

STUCK = -1  # An engine returns this instead of ticks where messages wait for each other for good.
TOO_LONG = -2  # An engine returns this where a micro-step is not done within its limit.

# Columns of `counts`, what a core received; the first five are synaptic events and the weight words read for them.
SYNOPS_DENSE = 0
SYNOPS_SPARSE = 1
SYNOPS_CONV = 2
SYNOPS = 3
WORDS = 4
MESSAGES_IN = 5  # Messages that the core took.
IO_IN = 6  # Of these, the ones that came from an io site.
N_COUNTS = 7  # Columns where no message can be lost.
LOST_AT = 7  # Messages dropped, counted at the core that was to inject them.
LOST_TO = 8  # The same messages, counted at the core where they were to go.
LOST_EW = 9  # Links east-west that they would have taken to other cores, counted at the sender.
LOST_NS = 10  # Links north-south that they would have taken, counted at the sender.
LOST_OUT = 11  # Those that were to leave by an io site, counted at the sender.
N_COUNTS_LOST = 12  # Columns where messages can be lost.

AXON = np.dtype(
    [
        ("ticks", np.int64),  # receive side's time for one message
        ("source", np.int32),
        ("core", np.int32),  # core or io site that it leads to
        ("to", np.int32),  # its physical core
        ("flits", np.int32),  # of one message
        ("dense", np.int32),  # synops of each kind
        ("sparse", np.int32),
        ("conv", np.int32),
        ("words", np.int32),
        ("hops_ew", np.int32),  # of one message by itself
        ("hops_ns", np.int32),
    ],
    align=True,
)
MESSAGE = np.dtype(
    [
        ("axon", np.int32),  # its axon; of a multicast tree, the first of them
        ("to", np.int32),  # where the routers are to take it, see `noc.mesh.SLOT`
        ("copies", np.int32),  # axons that it reaches
        ("work", np.int64),  # ticks of work from the message before to this one, its own included
        ("again", np.int64),  # ticks of work to send it once more
        ("times", np.int64),  # how often it is sent, one after another
        ("lost", np.int64),  # of these, how often it was dropped
    ],
    align=True,
)
CORE = np.dtype(
    [
        ("message", np.int64),  # the message being sent, or the one after its last
        ("sent", np.int64),  # how often it was sent already
        ("send_at", np.int64),  # when the present piece of the send side's work ends
        ("inject_at", np.int64),  # when the injection link is free
        ("receive_at", np.int64),  # when the receive side is free
        ("end", np.int64),  # when the core finished its last work
        ("flit", np.int32),  # flits of the message still to inject
        ("inject_vc", np.int32),  # injection channel used last
        ("receive_vc", np.int32),  # channel of the receive queue served last
        ("taken", np.int32),  # message of the network that the receive side took last, -1: one of an input line
        ("phase", np.int8),  # SEND_NEXT and what follows it in the engine
    ],
    align=True,
)
SEND_NEXT = 0  # Phase of a core that begins with its next message; the engines number the other phases.


class Axons(NamedTuple):
    """Axons by source, then core, so that a core that sends to many reads memory in order.

    Axons of output neurons to io sites, which the program does not count, come after all others of their source.
    """

    row: np.ndarray  # AXON[axon]
    n_cores: int
    n_sites: int  # cores and io sites
    n_lines: int  # input lines, which come first among the sources


class Sites(NamedTuple):
    """Where cores and io sites lie on the chip."""

    site: np.ndarray  # int32[core and io site]: physical core
    core_at: np.ndarray  # int32[physical core]: core or io site, -1 none


class FanOut(NamedTuple):
    """What a spike of each source sends."""

    offset: np.ndarray  # int64[source + 1]: its axons
    sent: np.ndarray  # int64[source, 3]: messages and links east-west and north-south, io sites left out
    root: np.ndarray  # int32[source]: where its tree begins (see `noc.mesh.SLOT`), -1: each axon is sent a message


class SharedAxons(NamedTuple):
    """Axons of one bit that several neurons set: the first spike of a micro-step is the one that is read."""

    axon_of: np.ndarray  # int64[neuron]: source whose axons its spikes set; -1: its own alone
    reading: np.ndarray  # int64[neuron]: source, after all others, whose messages read those axons
    last_set: np.ndarray  # int64[source]: the last micro-step in which its axons were set
    last_heard: np.ndarray  # int64[source]: the same where messages can be lost, of those that were not


class IoAxons(NamedTuple):
    """The axons of input lines that each io site sends."""

    first: np.ndarray  # int64[io site + 1]: into `axon`
    axon: np.ndarray  # int64[...]


class Costs(NamedTuple):
    """Ticks of the send side, and rules for both.

    A micro-step may take `longest_step` ticks, or if that is 0, twice what its work and flit-hops take one after
    another at most: `longest_idle` without messages, and `longest_message` for each.
    """

    visit: int
    update: int
    instruction: int
    spike: int
    message: int
    shared: bool  # sending and receiving share one unit
    drops: bool  # messages that find their injection buffer full, or cores that clear their axons, are lost
    scan: int  # of all neurons, used or not, where all are visited; else 0
    longest_step: int
    longest_idle: int
    longest_message: int


class PoolTimes(NamedTuple):
    """Half core cycles where hidden neurons are a pool; 0 where the network on chip tells how long a step takes."""

    step: int  # of every step
    of_source: np.ndarray  # int64[source]: of a step's events of each input line and neuron


class CoreTables(NamedTuple):
    """What does not change and every engine reads."""

    axons: Axons
    sites: Sites
    costs: Costs


class Outbox(NamedTuple):
    """Messages of this micro-step, by core and io site."""

    message: np.ndarray  # MESSAGE[message]
    first: np.ndarray  # int64[core + 1]
    tail: np.ndarray  # int64[core]: ticks of work after the last message


class InputQueue(NamedTuple):
    """Messages of input lines that wait at their cores, where a chip has no io sites: a list of axons for each core."""

    first: np.ndarray  # int64[core]: first axon, -1 none
    after: np.ndarray  # int64[axon]: the next of them
    left: np.ndarray  # int64[axon]: how often it is still to be received


class CoreWork(NamedTuple):
    """What changes and every engine works on."""

    outbox: Outbox
    inputs: InputQueue
    core: np.ndarray  # CORE[core and io site]
