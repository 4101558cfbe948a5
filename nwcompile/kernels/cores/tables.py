"""What the core kernels work on: axons and what they cost, the messages of a micro-step, where each core stands."""

from typing import NamedTuple

import numpy as np

STUCK, TOO_LONG = -1, -2  # what `move_messages` returns instead of ticks
# columns of its counts: synops dense, sparse, conv, all, words, then
MESSAGES_IN, IO_IN = 5, 6  # messages taken by a core; of them, those that came by a gate
N_COUNTS = 7
LOST_AT, LOST_TO = 7, 8  # messages dropped, where they were to be injected, and where they were to go
LOST_EW, LOST_NS = 9, 10  # hops that they would have taken to other cores, at their own
LOST_OUT = 11  # those that were to leave by a gate, at their own core
N_COUNTS_LOST = 12

AXON = np.dtype(
    [
        ("ticks", np.int64),  # receive side's time for one message
        ("source", np.int32),
        ("core", np.int32),  # logical core, or gate
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


class AxonTable(NamedTuple):
    """The program's axons, with what each costs in ticks and adds to the counters.

    Numbered by source, then destination core, so that a core that sends to many reads memory in order. The io.sites of
    the chip, if it has any, are cores after the program's own: gates, which send the messages of input lines, and to
    which axons of output neurons lead that the program does not count.
    """

    offset: np.ndarray  # int64[source + 1]: axons of each source, by core, one to a gate last
    row: np.ndarray  # AXON[axon]
    leaves: np.ndarray  # int64[source, 3]: messages and hops east-west and north-south of a spike, without gates
    root: np.ndarray  # int32[source]: where its tree begins (see mesh.SLOT), -1: each axon is sent a message
    site: np.ndarray  # int32[logical core and gate]: physical core
    core_at: np.ndarray  # int32[physical core]: logical core or gate, -1 none
    n_cores: int  # logical cores
    n_lines: int  # input lines, which come first among the sources
    gate_first: np.ndarray  # int64[gate + 1]: into `gate_axon`
    gate_axon: np.ndarray  # int64[...]: axons of input lines that each gate sends


class Costs(NamedTuple):
    """Ticks of the send side; `shared` says that both sides are one unit.

    A micro-step may take `longest_step` ticks, or if that is 0, twice what its work and flit-hops take one after
    another at most: `longest_idle` without messages, and `longest_message` for each.
    """

    visit: int
    update: int
    spike: int
    message: int
    shared: bool
    per_cycle: int  # ticks of a core cycle
    drops: bool  # messages that find their injection buffer full are lost
    longest_step: int
    longest_idle: int
    longest_message: int


class Outbox(NamedTuple):
    """Messages of this micro-step, by logical core and gate."""

    axon: np.ndarray  # int32[message]: its axon; of a tree, the first of them
    to: np.ndarray  # int32[message]: where the routers are to take it, see mesh.SLOT
    copies: np.ndarray  # int32[message]: axons that it reaches
    work: np.ndarray  # int64[message]: ticks of work from the message before to this one, its own included
    again: np.ndarray  # int64[message]: ticks of work to send it once more
    times: np.ndarray  # int64[message]: how often it is sent, one after another
    lost: np.ndarray  # int64[message]: of these, how often it was dropped
    first: np.ndarray  # int64[core + 1]
    tail: np.ndarray  # int64[core]: ticks of work after the last message
    external: np.ndarray  # int64[core]: first axon of the input messages waiting at a core, -1 none
    after: np.ndarray  # int64[axon]: the next of them
    left: np.ndarray  # int64[axon]: how often it is still to be received
    payload: np.ndarray  # int64[source]: what one message carries


class Pipeline(NamedTuple):
    """Where each core stands, by logical core and gate."""

    state: np.ndarray  # int8[core]: SEND_NEXT, SENDING, TO_INJECT, SENT of event_cores
    message: np.ndarray  # int64[core]: the message being sent
    sent: np.ndarray  # int64[core]: how often it was sent already
    send_at: np.ndarray  # int64[core]: when the present piece of work ends
    flit: np.ndarray  # int32[core]: flits of it still to inject
    channel: np.ndarray  # int32[core]: injection channel used last
    inject_at: np.ndarray  # int64[core]: injection link free
    receive_at: np.ndarray  # int64[core]: receive side free
    turn: np.ndarray  # int32[core]: channel served last
    end: np.ndarray  # int64[core]: when it finished its last work
    lost: np.ndarray  # int64[1]: messages dropped in this micro-step
